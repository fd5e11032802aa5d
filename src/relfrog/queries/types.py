"""The types of a question's parts, and the type of task that follows from its target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

from relfrog.queries.schema import QueryTable
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
    Query,
    Span,
)

if TYPE_CHECKING:
    from relfrog.queries.question import Question

__all__ = ["Typing"]

_WORDS = {"number": "a number", "text": "text", "boolean": "true or false", "time": "a time",
          "list": "a list", "other": "of another type"}  # fmt: skip
_MOST_CLASSES = 100


class Typing:
    """Finds types, and refuses what does not fit.

    Args:
        found: The question so far, whose columns are resolved.
        fail: Makes an error that points at a place.
    """

    def __init__(self, found: Question, fail: Callable[[Span, str], Exception]) -> None:
        self.found, self.fail = found, fail

    def of(self, item: Expression) -> str:
        """The type of an expression: number, text, boolean, time, list or other."""
        if isinstance(item, Literal):
            return self._literal(item)
        if isinstance(item, Column):
            return self._column(item)
        if isinstance(item, Aggregation):
            return self._aggregation(item)
        if isinstance(item, Arithmetic):
            for side in (item.left, item.right):
                self._need(side, ("number", "boolean"), f"{item.operator} takes numbers")
            return "number"
        self._check(item)
        return "boolean"

    def condition(self, item: Expression) -> None:
        """Check something that must be true or false."""
        if self.of(item) != "boolean":
            raise self.fail(item.span, "expected a condition here, such as ... > 0")

    def _literal(self, item: Literal) -> str:
        value = item.value
        if isinstance(value, bool):
            return "boolean"
        if isinstance(value, int | float):
            return "number"
        if isinstance(value, str):
            return "time" if item in self.found.times else "text"
        self.found.times[item] = pd.Timestamp(value)
        return "time"

    def _column(self, item: Column) -> str:
        table, name, _ = self.found.columns[item]
        kind = self.found.schema.kind(table, name)
        return "number" if kind == "integer" else kind

    def _aggregation(self, item: Aggregation) -> str:
        if item.function in ("COUNT", "COUNT_DISTINCT", "SUM", "AVG"):
            return "number"
        return "list" if item.function == "LIST_DISTINCT" else self._column(item.column)

    def check_aggregation(self, item: Aggregation) -> None:
        """Refuse to add up what is no number, and to order what has no order."""
        if item.column.parts[-1] == "*":
            return
        kind = self._column(item.column)
        table, name, _ = self.found.columns[item.column]
        is_key = name == table.pkey or name in table.fkeys
        if item.function in ("SUM", "AVG") and (kind not in ("number", "boolean") or is_key):
            told = "a key" if is_key else _WORDS[kind]
            raise self.fail(
                item.column.span, f"{item.function} needs a number, and {item.column} is {told}"
            )
        if item.function in ("MIN", "MAX") and (kind in ("list", "other") or is_key):
            told = f"{item.function} needs something with an order; {item.column} has none"
            raise self.fail(item.column.span, told)
        if item.function != "COUNT" and kind in ("list", "other"):
            told = f"{item.function} cannot use {item.column}: it holds {_WORDS[kind]}"
            raise self.fail(item.column.span, told)

    def _check(self, item: Expression) -> None:
        if isinstance(item, Comparison):
            self._alike(item.left, item.right, item.operator)
        elif isinstance(item, Between):
            for side in (item.low, item.high):
                self._alike(item.value, side, "BETWEEN")
        elif isinstance(item, InList):
            for literal in item.items:
                self._alike(item.value, literal, "IN")
        elif isinstance(item, IsNull):
            self.of(item.value)
        elif isinstance(item, Match):
            self._match(item)
        elif isinstance(item, Not):
            self.condition(item.item)
        elif isinstance(item, Logical):
            for part in item.items:
                self.condition(part)

    def _alike(self, left: Expression, right: Expression, operator: str) -> None:
        """Refuse to compare what cannot be compared."""
        for side, other in ((left, right), (right, left)):
            if isinstance(side, Literal) and isinstance(side.value, str):
                if self.of(other) == "time":
                    self._as_time(side)
        kinds = self.of(left), self.of(right)
        if "list" in kinds:
            raise self.fail(left.span, "a list can be asked with CONTAINS 'value' alone")
        if "other" in kinds or kinds[0] == kinds[1]:
            if kinds == ("boolean", "boolean") and operator not in ("=", "!=", "IN"):
                raise self.fail(left.span, f"true and false have no order for {operator}")
            return
        if set(kinds) == {"boolean", "number"}:
            number = left if kinds[0] == "number" else right
            if isinstance(number, Literal) and number.value in (0, 1):
                return
        raise self.fail(
            right.span,
            f"expected {_WORDS[kinds[0]]} to compare with, not {_WORDS[kinds[1]]}",
        )

    def _as_time(self, item: Literal) -> None:
        try:
            time = pd.Timestamp(str(item.value))
        except (ValueError, OverflowError):
            time = pd.NaT
        if time is pd.NaT:
            raise self.fail(item.span, "expected a time such as '2024-01-31' or 2024-01-31")
        if time.tz is not None:
            time = time.tz_convert("UTC").tz_localize(None)
        self.found.times[item] = time

    def _match(self, item: Match) -> None:
        kind = self.of(item.value)
        if kind == "list" and item.operator == "CONTAINS":
            assert isinstance(item.value, Aggregation)
            inner = self._column(item.value.column)
            if inner not in ("other", self._literal(item.pattern)):
                told = f"the list holds {_WORDS[inner]}, not {_WORDS[self._literal(item.pattern)]}"
                raise self.fail(item.pattern.span, told)
            return
        if kind not in ("text", "other"):
            told = f"{item.operator} is about text, and this is {_WORDS[kind]}"
            raise self.fail(item.value.span, told)
        if not isinstance(item.pattern.value, str):
            raise self.fail(item.pattern.span, f"expected text in quotes after {item.operator}")

    def _need(self, item: Expression, kinds: tuple[str, ...], why: str) -> None:
        kind = self.of(item)
        if kind not in kinds:
            raise self.fail(item.span, f"{why}, and this is {_WORDS[kind]}")

    # The type of task.

    def task(self, query: Query) -> tuple[str, QueryTable | None]:
        """The type of task that a target makes, and of a recommendation the table of its lists."""
        target, mode = query.target, query.mode
        kind = self.of(target)
        if isinstance(target, Aggregation) and kind == "list":
            return self._listed(query, target)
        if query.rank is not None and mode is not None:
            told = "RANK TOP needs LIST_DISTINCT of a foreign key as its target"
            raise self.fail(mode, told)
        if kind == "boolean":
            return "binary", None
        key = self._key_of(target) if isinstance(target, Aggregation) else None
        if key is not None and isinstance(target, Aggregation):
            raise self.fail(
                target.span,
                f"{target.column} names rows of {key.name}; to predict which, ask for a list: "
                f"LIST_DISTINCT({target.column}, ...) RANK TOP 1",
            )
        if kind == "number":
            chosen = isinstance(target, Aggregation) and target.function in ("FIRST", "LAST")
            if query.classify and not chosen and mode is not None:
                told = "CLASSIFY needs LIST_DISTINCT, FIRST or LAST of a column with few values"
                raise self.fail(mode, told)
            return ("multiclass" if query.classify else "regression"), None
        if kind == "text":
            return "multiclass", None
        raise self.fail(
            target.span,
            f"a target must be a condition, a number, a category or a list; this is {_WORDS[kind]}",
        )

    def _key_of(self, item: Aggregation) -> QueryTable | None:
        """The table whose rows a column names: its parent, or its own table."""
        table, name, _ = self.found.columns[item.column]
        if item.function not in ("FIRST", "LAST", "LIST_DISTINCT", "MIN", "MAX") or name == "*":
            return None
        if name in table.fkeys:
            return self.found.schema.tables[table.fkeys[name].parent]
        return table if name == table.pkey else None

    def _listed(self, query: Query, target: Aggregation) -> tuple[str, QueryTable | None]:
        table, name, _ = self.found.columns[target.column]
        listed = self._key_of(target)
        if name in table.fkeys and listed is not None and not query.classify:
            key = table.fkeys[name]
            if key.refers_to != listed.pkey:
                told = (
                    f"{target.column} refers to {listed.name}.{key.refers_to}, not to its primary "
                    "key; lists are made of primary keys"
                )
                raise self.fail(target.column.span, told)
            return "recommendation", listed
        if name == table.pkey:
            told = (
                f"{target.column} is the key of rows that are new in the window: nobody can name "
                f"them in advance. List a foreign key of {table.name} instead"
            )
            raise self.fail(target.column.span, told)
        if query.rank is not None and query.mode is not None:
            raise self.fail(
                query.mode,
                f"RANK TOP ranks rows of a table, and {target.column} is no foreign key. Write "
                f"CLASSIFY, or import with --entity-from {target.column}=NAME to make it one",
            )
        if listed is not None and listed.rows > _MOST_CLASSES:
            told = (
                f"CLASSIFY would decide about each of {listed.rows:,} rows of {listed.name}; more "
                f"than {_MOST_CLASSES} are ranked: RANK TOP 10"
            )
            raise self.fail(query.mode or target.span, told)
        return "multilabel", None
