"""Compile a checked question to the label SQL of a task, in DuckDB's dialect.

The SQL has one part for whom is asked at each seed time, one part for the rows of each window, and
joins them. Names and values reach it only as nodes of sqlglot's tree, which quotes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from relfrog.queries.question import Question, asked_if_empty, guarded
from relfrog.queries.rows import RowsPart
from relfrog.queries.sql import Node, alias, column, named, render, table
from relfrog.queries.syntax import (
    AGGREGATIONS,
    Aggregation,
    Arithmetic,
    Column,
    Expression,
    Query,
    Value,
    aggregations,
    walk,
)
from relfrog.queries.windows import moved, reach
from relfrog.support.text import free_name

__all__ = ["Compiled", "compile_question", "forecast_step"]


@dataclass(frozen=True)
class Compiled:
    """Label SQL, and the names of its columns.

    Attributes:
        sql: The SQL.
        entity: The column with the entity's key.
        label: The column with the label; for a recommendation, with the list.
    """

    sql: str
    entity: str
    label: str


def forecast_step(question: Question, step: int) -> Question:
    """The question about one window of a forecast; the first is number 0."""
    query = question.query
    mapping = {
        item: replace(question.sources[item], window=moved(source.window, step))
        for item in aggregations(query.target)
        if (source := question.sources[item]).window is not None
    }
    horizon = max(reach(source.window) for source in mapping.values() if source.window is not None)
    return replace(question, sources={**question.sources, **mapping}, horizon=horizon)


def compile_question(question: Question, classes: Sequence[Value] = ()) -> Compiled:
    """Compile a question.

    Args:
        question: The checked question; its target looks ahead.
        classes: Of a multilabel task: the values that labels are about, in this order.
    """
    return _Compiler(question, classes).compiled()


class _Compiler:
    def __init__(self, question: Question, classes: Sequence[Value]) -> None:
        self.question, self.classes = question, classes
        self.names = {name.lower() for name in question.schema.tables} | {"timestamps"}
        self.asked = self._name("asked")
        self.static: dict[Column, str] = {}
        self.parts: dict[str, RowsPart] = {}
        self.values: dict[Aggregation, tuple[RowsPart, str]] = {}
        self.if_empty: set[Aggregation] = set()

    def _name(self, wanted: str) -> str:
        return free_name(wanted, self.names)

    def compiled(self) -> Compiled:
        query, question = self.query, self.question
        conditions = [c for c in (query.where, question.condition) if c is not None]
        for expression in (query.target, *conditions):
            self.if_empty |= asked_if_empty(expression)
        for number, item in enumerate(
            c
            for expression in (query.target, *conditions)
            for c in walk(expression)
            if isinstance(c, Column)
        ):
            self.static.setdefault(item, f"c{number}")
        for expression in (query.target, *conditions):
            for aggregation in aggregations(expression):
                self._add(aggregation)
        label = self._label()
        filters = [self._render(c) for c in conditions]
        open_ended = guarded(query.target)
        for aggregation in dict.fromkeys(aggregations(query.target)):
            if not AGGREGATIONS[aggregation.function] and aggregation not in open_ended:
                part, name = self.values[aggregation]
                filters.append(column(part.name, name).is_(exp.null()).not_())
        if self._may_be_null(query.target):
            filters.append(label.copy().is_(exp.null()).not_())
        entity, named = self._output_names()
        select = exp.select(
            alias(column(self.asked, "t"), "timestamp"), alias(column(self.asked, "k"), entity),
            alias(label, named),
        ).from_(table(self.asked))  # fmt: skip
        for part in self.parts.values():
            on = exp.and_(
                column(part.name, "t").eq(column(self.asked, "t")),
                column(part.name, "k").eq(column(self.asked, "k")),
            )
            select = select.join(table(part.name), on=on, join_type="left")
        select = select.where(*filters)
        select = select.with_(exp.to_identifier(self.asked, quoted=True), as_=self._asked())
        for part in self.parts.values():
            select = select.with_(exp.to_identifier(part.name, quoted=True), as_=part.select())
        text = select.sql(dialect="duckdb", pretty=True)
        # `{timedelta}` in a value of the question is no place for the horizon.
        return Compiled(text.replace("{timedelta}", "{' || 'timedelta}"), entity, named)

    @property
    def query(self) -> Query:
        return self.question.query

    # Whom is asked.

    def _asked(self) -> exp.Select:
        """Every entity that exists at each seed time, with the values that are asked about."""
        question, entity = self.question, self.question.entity
        assert entity.pkey is not None
        chosen = [
            alias(column("t", "timestamp"), "t"),
            alias(column("e", entity.pkey), "k"),
        ]
        select = exp.Select().from_(table("timestamps", "t"))
        select = select.join(table(entity.name, "e"), join_type="cross")
        aliases: dict[tuple[object, ...], str] = {(): "e"}
        for item, name in self.static.items():
            owner, column_name, path = question.columns[item]
            for length in range(1, len(path) + 1):
                prefix = path[:length]
                if prefix not in aliases:
                    key, name_ = prefix[-1].key, f"p{len(aliases)}"
                    on = named(question.schema, key, aliases[prefix[:-1]], name_, _now())
                    select = select.join(table(key.parent, name_), on=on, join_type="left")
                    aliases[prefix] = name_
            value: Node = column(aliases[path], column_name)
            if question.schema.kind(owner, column_name) == "time":
                # A time that has not come yet is not known yet.
                value = exp.Case().when(value <= column("t", "timestamp"), value.copy())
            chosen.append(alias(value, name))
        select = select.select(*chosen)
        if entity.time is not None:
            select = select.where(column("e", entity.time) <= column("t", "timestamp"))
        return select

    # The rows of windows.

    def _add(self, item: Aggregation) -> None:
        if item in self.values:
            return
        source = self.question.sources[item]
        part = RowsPart(self.question, source, "")
        key = part.key()
        if key not in self.parts:
            part.name = self._name(f"rows_{len(self.parts) + 1}")
            self.parts[key] = part
        part = self.parts[key]
        name = part.add(item, listed=self._is_list(item), classes=self.classes)
        self.values[item] = (part, name)

    def _is_list(self, item: Aggregation) -> str:
        """What a list in the target becomes; empty elsewhere."""
        if item is self.query.target and item.function == "LIST_DISTINCT":
            return self.question.kind
        return ""

    # The label.

    def _label(self) -> Node:
        label = self._render(self.query.target)
        if self.question.kind == "binary":
            return exp.cast(label, "INTEGER")
        return exp.cast(label, "DOUBLE") if self.question.kind == "regression" else label

    def _render(self, item: Expression) -> Node:
        return render(item, self._leaf, self.question.times)

    def _leaf(self, item: Column | Aggregation) -> Node:
        if isinstance(item, Column):
            return column(self.asked, self.static[item])
        part, name = self.values[item]
        value: Node = column(part.name, name)
        if item in self.if_empty:
            count = item.function.startswith("COUNT")
            return exp.func("NULLIF", value, exp.Literal.number(0)) if count else value
        if AGGREGATIONS[item.function]:
            return exp.func("COALESCE", value, exp.Literal.number(0))
        return value

    def _may_be_null(self, target: Expression) -> bool:
        """Whether there may be no label although no window is empty."""
        return any(
            isinstance(item, Column) or (isinstance(item, Arithmetic) and item.operator == "/")
            for item in walk(target)
        ) or bool(guarded(target))

    def _output_names(self) -> tuple[str, str]:
        """Names for the columns of entity and label: those of the tables, where they are free."""
        taken = {"timestamp"}
        entity = free_name(str(self.question.entity.pkey), taken)
        wanted = "label"
        target = self.query.target
        if self.question.kind == "recommendation" and isinstance(target, Aggregation):
            wanted = self.question.columns[target.column][1]
        return entity, free_name(wanted, taken)


def _now() -> Node:
    """The seed time."""
    return column("t", "timestamp")
