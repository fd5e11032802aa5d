"""Expressions of a question as nodes of sqlglot's tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import pandas as pd
from sqlglot import exp

from relfrog.queries.schema import ForeignKey, QuerySchema
from relfrog.queries.syntax import (
    Aggregation,
    Arithmetic,
    Between,
    Column,
    Comparison,
    Expression,
    InList,
    IsNull,
    Literal,
    Logical,
    Match,
    Not,
    Value,
)
from relfrog.queries.windows import CALENDAR

__all__ = ["Node", "alias", "column", "literal", "named", "render", "shifted", "table"]

#: A node of the tree; its class has another name in each version of sqlglot.
Node: TypeAlias = Any

_COMPARISONS = {"=": exp.EQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}
_ARITHMETIC = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul}
_FUNCTIONS = {"STARTS": "starts_with", "ENDS": "ends_with", "CONTAINS": "contains"}


def column(table: str, name: str) -> exp.Column:
    """A column of a table, by the table's alias."""
    return exp.column(name, table=table, quoted=True)


def table(name: str, alias: str | None = None) -> exp.Table:
    """A table, under another name."""
    found = exp.Table(this=exp.to_identifier(name, quoted=True))
    if alias is not None:
        named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
        found.set("alias", named)
    return found


def alias(value: Node, name: str) -> Node:
    """A value under a name."""
    return exp.alias_(value, name, quoted=True)


def shifted(time: Node, count: int, unit: str) -> Node:
    """A time so many units later; months and years follow the calendar."""
    if not count:
        return time
    count, unit = count * CALENDAR.get(unit, 1), "MONTH" if unit in CALENDAR else unit
    length = exp.Interval(this=exp.Literal.string(str(abs(count))), unit=exp.Var(this=unit))
    return (
        exp.Add(this=time, expression=length)
        if count > 0
        else exp.Sub(this=time, expression=length)
    )


def named(schema: QuerySchema, key: ForeignKey, child: str, parent: str, time: Node) -> Node:
    """The condition that joins a row to the one that it names, if that is known by a time.

    Args:
        schema: The tables.
        key: The foreign key.
        child: The alias of the rows that name others.
        parent: The alias of those that are named.
        time: What is known later is not joined.
    """
    on = column(child, key.column).eq(column(parent, key.refers_to))
    known = schema.tables[key.parent].time
    return on if known is None else exp.and_(on, column(parent, known) <= time)


def literal(value: Value) -> Node:
    """A value."""
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int | float):
        number = exp.Literal.number(repr(abs(value)))
        return exp.Neg(this=number) if value < 0 else number
    if isinstance(value, datetime):
        text = pd.Timestamp(value).isoformat(sep=" ")
        return exp.cast(exp.Literal.string(text), "TIMESTAMP")
    return exp.Literal.string(str(value))


def render(
    item: Expression,
    leaf: Callable[[Column | Aggregation], Node],
    times: Mapping[Literal, pd.Timestamp],
) -> Node:
    """An expression as SQL.

    Args:
        item: The expression.
        leaf: Gives the value of a column or of an aggregation.
        times: Literals that are times.
    """

    def inner(part: Expression) -> Node:
        return render(part, leaf, times)

    def wrapped(part: Expression) -> Node:
        found = inner(part)
        # What is no operation needs no parentheses.
        plain = isinstance(found, exp.Column | exp.Func | exp.Literal | exp.Paren | exp.Cast)
        return found if plain else exp.paren(found, copy=False)

    if isinstance(item, Literal):
        return literal(times.get(item, item.value))
    if isinstance(item, Column | Aggregation):
        return leaf(item)
    if isinstance(item, Arithmetic):
        left: Node = exp.cast(inner(item.left), "DOUBLE")
        right: Node = exp.cast(inner(item.right), "DOUBLE")
        if item.operator == "/":
            # Nothing divided by nothing is no label, not infinity.
            right = exp.func("NULLIF", right, exp.Literal.number(0))
            return exp.paren(exp.Div(this=left, expression=right, typed=False, safe=False))
        return exp.paren(_ARITHMETIC[item.operator](this=left, expression=right))
    if isinstance(item, Comparison):
        return _COMPARISONS[item.operator](this=wrapped(item.left), expression=wrapped(item.right))
    if isinstance(item, Between):
        return exp.Between(this=wrapped(item.value), low=inner(item.low), high=inner(item.high))
    if isinstance(item, InList):
        return exp.In(this=wrapped(item.value), expressions=[inner(part) for part in item.items])
    if isinstance(item, IsNull):
        return exp.Is(this=wrapped(item.value), expression=exp.null())
    if isinstance(item, Match):
        return _match(item, inner)
    if isinstance(item, Not):
        return exp.Not(this=wrapped(item.item))
    assert isinstance(item, Logical)
    join = exp.and_ if item.operator == "AND" else exp.or_
    return exp.paren(join(*(wrapped(part) for part in item.items), copy=False))


def _match(item: Match, inner: Callable[[Expression], Node]) -> Node:
    value, pattern = inner(item.value), inner(item.pattern)
    if item.operator == "LIKE":
        return exp.Like(this=value, expression=pattern)
    function = _FUNCTIONS[item.operator]
    if isinstance(item.value, Aggregation) and item.value.function == "LIST_DISTINCT":
        function = "list_contains"
    return exp.Anonymous(this=function, expressions=[value, pattern])
