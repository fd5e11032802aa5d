"""Answer a question by loops over rows: slow, and as the guide's sentences say it.

Windows are (time + start, time + end]; an empty one counts as 0 for SUM and COUNT and drops the row
for all others; entities must exist; NULL is neither true nor false.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pandas as pd

from relfrog.queries.question import Question
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
)

Row = dict[str, Any]
Tables = dict[str, list[Row]]


class Dropped(Exception):
    """The row has no label."""


def slow_labels(
    question: Question, tables: Tables, times: list[pd.Timestamp], classes: tuple[Any, ...] = ()
) -> dict[tuple[pd.Timestamp, Any], Any]:
    """The labels of a question, by time and key.

    Args:
        question: The checked question.
        tables: Rows per table; None where a value is missing.
        times: The seed times.
        classes: Of a multilabel task, its values.
    """
    found = {}
    entity = question.entity
    for time in times:
        for row in tables[entity.name]:
            if entity.time is not None and not (
                row[entity.time] is not None and row[entity.time] <= time
            ):
                continue
            state = _State(question, tables, time, row)
            if question.query.where is not None and state.value(question.query.where) is not True:
                continue
            if question.condition is not None and state.value(question.condition) is not True:
                continue
            try:
                label = state.label(classes)
            except Dropped:
                continue
            if label is not None:
                found[time, row[str(entity.pkey)]] = label
    return found


class _State:
    def __init__(self, question: Question, tables: Tables, time: pd.Timestamp, row: Row) -> None:
        self.question, self.tables, self.time, self.row = question, tables, time, row
        self.strict = False

    def label(self, classes: tuple[Any, ...]) -> Any:
        target, kind = self.question.query.target, self.question.kind
        if isinstance(target, Aggregation) and target.function == "LIST_DISTINCT":
            values = self.listed(target, only_existing=kind == "recommendation")
            if not values:
                raise Dropped
            return (
                tuple(int(c in values) for c in classes)
                if kind == "multilabel"
                else tuple(sorted(values))
            )
        self.strict = True
        value = self.value(target)
        return (
            None if value is None else float(value) if kind in ("binary", "regression") else value
        )

    # Expressions; None is NULL.

    def value(self, item: Expression) -> Any:
        if isinstance(item, Literal):
            return self.question.times.get(item, item.value)
        if isinstance(item, Column):
            return self.static(item)
        if isinstance(item, Aggregation):
            return self.aggregate(item)
        if isinstance(item, Arithmetic):
            return _compute(item.operator, self.value(item.left), self.value(item.right))
        return self.truth(item)

    def truth(self, item: Expression) -> bool | None:
        if isinstance(item, Comparison):
            return _compare(item.operator, self.value(item.left), self.value(item.right))
        if isinstance(item, Between):
            value = self.value(item.value)
            return _all(
                [
                    _compare(">=", value, self.value(item.low)),
                    _compare("<=", value, self.value(item.high)),
                ]
            )
        if isinstance(item, InList):
            value = self.value(item.value)
            return _any([_compare("=", value, self.value(part)) for part in item.items])
        if isinstance(item, IsNull):
            before, self.strict = self.strict, False
            value = self.value(item.value)
            self.strict = before
            if isinstance(item.value, Aggregation):
                return self.is_empty(item.value)
            return value is None
        if isinstance(item, Match):
            return _matches(item.operator, self.value(item.value), item.pattern.value)
        if isinstance(item, Not):
            inner = self.value(item.item)
            return None if inner is None else not inner
        assert isinstance(item, Logical)
        return (_all if item.operator == "AND" else _any)([self.value(part) for part in item.items])

    def static(self, item: Column) -> Any:
        _, name, path = self.question.columns[item]
        value = self.climb(path, name, self.time)
        later = isinstance(value, datetime) and value > self.time
        return None if later else value

    def climb(self, path: Any, name: str, until: pd.Timestamp) -> Any:
        """A column of the row that is named at the end of a path, if all on it are known."""
        row = self.row
        for step in path:
            time = self.question.schema.tables[step.key.parent].time
            found = [
                r
                for r in self.tables[step.key.parent]
                if row[step.key.column] is not None
                and r[step.key.refers_to] == row[step.key.column]
                and (time is None or (r[time] is not None and r[time] <= until))
            ]
            if not found:
                return None
            row = found[0]
        return row[name]

    # Aggregations.

    def is_empty(self, item: Aggregation) -> bool:
        name = self.question.columns[item.column][1]
        return not any(name == "*" or row[name] is not None for row in self.rows(item))

    def rows(self, item: Aggregation) -> list[Row]:
        source = self.question.sources[item]
        chosen = []
        for row in self.tables[source.table.name]:
            end = self.time
            if source.window is not None:
                end = _add(self.time, source.window.end, source.window.unit)
                at = row[str(source.table.time)]
                if at is None or at > end:
                    continue
                if source.window.start is not None and at <= _add(
                    self.time, source.window.start, source.window.unit
                ):
                    continue
            if not self.belongs(row, source.path, end):
                continue
            if (
                source.where is not None
                and _Inner(self.question, self.tables, end, row).value(source.where) is not True
            ):
                continue
            chosen.append(row)
        return chosen

    def belongs(self, row: Row, path: Any, end: pd.Timestamp) -> bool:
        """Whether some way along the path leads from a row to the entity."""
        if not path:
            return row is self.row
        step, rest = path[0], path[1:]
        key = step.key
        if step.up:
            found = [
                r
                for r in self.tables[key.parent]
                if row[key.column] is not None and r[key.refers_to] == row[key.column]
            ]
        else:
            time = self.question.schema.tables[key.table].time
            found = [
                r
                for r in self.tables[key.table]
                if r[key.column] is not None
                and r[key.column] == row[key.refers_to]
                and (time is None or (r[time] is not None and r[time] <= end))
            ]
        return any(self.belongs(other, rest, end) for other in found)

    def listed(self, item: Aggregation, only_existing: bool = False) -> set[Any]:
        name = self.question.columns[item.column][1]
        values = {row[name] for row in self.rows(item)} - {None}
        target = self.question.target_table
        if only_existing and target is not None and target.time is not None:
            there = {
                r[str(target.pkey)]
                for r in self.tables[target.name]
                if r[target.time] is not None and r[target.time] <= self.time
            }
            values &= there
        return values

    def aggregate(self, item: Aggregation) -> Any:
        found = self._aggregate(item)
        if found is None and self.strict:
            raise Dropped
        return found

    def _aggregate(self, item: Aggregation) -> Any:
        name = self.question.columns[item.column][1]
        rows = self.rows(item)
        if name == "*":
            return len(rows)
        table = self.question.sources[item].table
        rows = [row for row in rows if row[name] is not None]
        values = [row[name] for row in rows]
        function = item.function
        if function == "COUNT":
            return len(values)
        if function == "COUNT_DISTINCT":
            return len(set(values))
        if function == "SUM":
            return float(sum(values))
        if function == "LIST_DISTINCT":
            return set(values) or None
        if not values:
            return None
        if function == "AVG":
            return sum(values) / len(values)
        if function in ("MIN", "MAX"):
            return min(values) if function == "MIN" else max(values)
        tie = table.pkey or name
        ordered = sorted(rows, key=lambda row: (row[str(table.time)], row[tie]))
        return ordered[0 if function == "FIRST" else -1][name]


class _Inner(_State):
    """The WHERE of an aggregation: its columns are those of one row, and of rows it names."""

    def static(self, item: Column) -> Any:
        _, name, path = self.question.columns[item]
        return self.climb(path, name, self.time)  # the end of the window


def _add(time: pd.Timestamp, count: int, unit: str) -> pd.Timestamp:
    if unit in ("MONTH", "YEAR"):
        return time + pd.DateOffset(months=count * (12 if unit == "YEAR" else 1))
    seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}[unit]
    return time + pd.Timedelta(seconds=seconds * count)


def _compute(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if operator == "/":
        return float(left) / float(right) if right else None
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def _compare(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    return {
        "=": left == right, "!=": left != right, "<": left < right if operator == "<" else None,
        "<=": left <= right if operator == "<=" else None, ">": left > right if operator == ">" else None,
        ">=": left >= right if operator == ">=" else None,
    }[operator]  # fmt: skip


def _matches(operator: str, value: Any, pattern: Any) -> bool | None:
    if value is None:
        return None
    if operator == "CONTAINS":
        return pattern in value
    if operator == "STARTS":
        return value.startswith(pattern)
    if operator == "ENDS":
        return value.endswith(pattern)
    regex = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern)
    return re.fullmatch(regex, value, re.DOTALL) is not None


def _all(values: list[bool | None]) -> bool | None:
    return (
        False
        if any(v is False for v in values)
        else None
        if any(v is None for v in values)
        else True
    )


def _any(values: list[bool | None]) -> bool | None:
    return (
        True
        if any(v is True for v in values)
        else None
        if any(v is None for v in values)
        else False
    )
