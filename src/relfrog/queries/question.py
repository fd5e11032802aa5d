"""A question whose names are resolved: what `analyse` finds, and what is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from relfrog.queries.paths import Path
from relfrog.queries.schema import QuerySchema, QueryTable
from relfrog.queries.syntax import (
    Aggregation,
    Column,
    Expression,
    IsNull,
    Literal,
    Query,
    Window,
    aggregations,
    walk,
)

__all__ = ["Assumed", "Question", "RowSource", "asked_if_empty", "guarded"]


@dataclass(frozen=True)
class RowSource:
    """The rows that an aggregation is over.

    Attributes:
        table: Their table.
        path: The way from them to the entity.
        window: When they happen; None for rows that were always there.
        where: Which of them.
    """

    table: QueryTable
    path: Path
    window: Window | None
    where: Expression | None


@dataclass(frozen=True)
class Assumed:
    """A value that is assumed of the entity's own row."""

    table: str
    column: str
    value: object


@dataclass(frozen=True)
class Question:
    """A question whose names are resolved.

    Attributes:
        query: As it was parsed.
        schema: The tables.
        entity: The table that is predicted for.
        kind: The type of task: binary, regression, multiclass, multilabel or recommendation.
        horizon: How far ahead a label looks; None where a column is filled in.
        column: The column that is filled in, if the target is one.
        condition: What of ASSUMING has to come true.
        assumed: What of ASSUMING is a value of the entity's own row.
        sources: The rows of each aggregation.
        columns: The table, the name, and the way to each column from the rows it is asked of.
        times: Literals that are times.
        target_table: For a recommendation: the table that lists are made of.
    """

    query: Query
    schema: QuerySchema
    entity: QueryTable
    kind: str = ""
    horizon: pd.Timedelta | None = None
    column: str | None = None
    condition: Expression | None = None
    assumed: tuple[Assumed, ...] = ()
    sources: dict[Aggregation, RowSource] = field(default_factory=dict)
    columns: dict[Column, tuple[QueryTable, str, Path]] = field(default_factory=dict)
    times: dict[Literal, pd.Timestamp] = field(default_factory=dict)
    target_table: QueryTable | None = None

    @property
    def steps(self) -> int:
        """The number of windows of a forecast; 1 without one."""
        return self.query.forecast or 1


def guarded(expression: Expression) -> set[Aggregation]:
    """Aggregations that IS NULL asks about, so that an empty window is an answer."""
    return {
        inner
        for item in walk(expression)
        if isinstance(item, IsNull)
        for inner in aggregations(item.value)
    }


def asked_if_empty(expression: Expression) -> set[Aggregation]:
    """Aggregations of which IS NULL asks whether there is anything at all, instead of 0."""
    return {
        item.value
        for item in walk(expression)
        if isinstance(item, IsNull) and isinstance(item.value, Aggregation)
    }
