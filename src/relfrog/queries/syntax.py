"""The parts of a question, as the parser finds them: names are not looked up yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypeAlias

from relfrog.errors import QueryError

__all__ = [
    "AGGREGATIONS", "Aggregation", "Arithmetic", "Between", "Column", "Comparison", "Expression",
    "InList", "IsNull", "Literal", "Logical", "Match", "Not", "Query", "Span", "Value", "Window",
    "aggregations", "point_at", "walk",
]  # fmt: skip

#: The aggregations, and whether an empty window counts as 0.
AGGREGATIONS = {
    "COUNT": True, "COUNT_DISTINCT": True, "SUM": True, "AVG": False, "MIN": False, "MAX": False,
    "FIRST": False, "LAST": False, "LIST_DISTINCT": False,
}  # fmt: skip

Value: TypeAlias = str | int | float | bool | datetime | None


@dataclass(frozen=True)
class Span:
    """Where something stands in the text of a question."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the start of this to the end of another."""
        return Span(self.start, other.end)


def point_at(text: str, span: Span, message: str) -> QueryError:
    """An error with a caret under its place.

    Args:
        text: The question.
        span: The place.
        message: What is wrong there, and what to do.
    """
    start = min(span.start, len(text))
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : len(text) if last < 0 else last]
    width = max(1, min(span.end, first + len(line)) - start)
    # Long lines are cut, so that the caret stays in sight.
    begin = max(0, start - first - 60)
    shown = "".join(" " if ord(c) < 32 else c for c in line[begin : begin + 120])
    mark = " " * (start - first - begin) + "^" * min(width, 120 - (start - first - begin))
    return QueryError(f"{message}\n  {shown}\n  {mark}")


@dataclass(frozen=True)
class Column:
    """A name with dots: ``orders.total``, or ``orders.*``."""

    parts: tuple[str, ...]
    span: Span

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Literal:
    """A value."""

    value: Value
    span: Span


@dataclass(frozen=True)
class Window:
    """From when to when, in units, relative to the time of prediction; without a start: ever."""

    start: int | None
    end: int
    unit: str
    span: Span


@dataclass(frozen=True)
class Aggregation:
    """An aggregation over the rows that belong to an entity."""

    function: str
    column: Column
    via: tuple[Column, ...]
    where: Expression | None
    window: Window | None
    span: Span


@dataclass(frozen=True)
class Arithmetic:
    """``+``, ``-``, ``*`` or ``/``; a sign is a subtraction from 0."""

    operator: str
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True)
class Comparison:
    """``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``."""

    operator: str
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True)
class InList:
    """``value IN (...)``."""

    value: Expression
    items: tuple[Literal, ...]
    span: Span


@dataclass(frozen=True)
class Between:
    """``value BETWEEN low AND high``, both ends included."""

    value: Expression
    low: Expression
    high: Expression
    span: Span


@dataclass(frozen=True)
class IsNull:
    """``value IS NULL``."""

    value: Expression
    span: Span


@dataclass(frozen=True)
class Match:
    """``value LIKE pattern``, ``STARTS WITH``, ``ENDS WITH`` or ``CONTAINS``."""

    operator: str
    value: Expression
    pattern: Literal
    span: Span


@dataclass(frozen=True)
class Not:
    """``NOT condition``."""

    item: Expression
    span: Span


@dataclass(frozen=True)
class Logical:
    """Conditions that are joined by ``AND`` or by ``OR``."""

    operator: str
    items: tuple[Expression, ...]
    span: Span


Expression: TypeAlias = (
    Column | Literal | Aggregation | Arithmetic | Comparison | InList | Between | IsNull | Match
    | Not | Logical
)  # fmt: skip


@dataclass(frozen=True)
class Query:
    """A question.

    Attributes:
        text: As it was written.
        target: What to predict.
        entity: For each row of which table: its key, or only its name.
        only: The keys asked about; None for all.
        where: Whom the question is about.
        assuming: What is assumed.
        rank: The length of the list, from ``RANK TOP k``.
        classify: Whether it says ``CLASSIFY``.
        forecast: The number of windows, from ``FORECAST n TIMEFRAMES``, and where that stands.
        mode: The place of ``RANK``, ``CLASSIFY`` or ``FORECAST``.
    """

    text: str
    target: Expression
    entity: Column
    only: tuple[Literal, ...] | None = None
    where: Expression | None = None
    assuming: Expression | None = None
    rank: int | None = None
    classify: bool = False
    forecast: int | None = None
    mode: Span | None = None


def walk(expression: Expression, *, inside: bool = False) -> Iterator[Expression]:
    """An expression and all its parts.

    Args:
        expression: The expression.
        inside: Whether to enter aggregations.
    """
    yield expression
    if isinstance(expression, Aggregation) and not inside:
        return
    for field in fields(expression):
        value = getattr(expression, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expression):
                yield from walk(part, inside=inside)


def aggregations(expression: Expression | None) -> list[Aggregation]:
    """The aggregations in an expression, in order."""
    if expression is None:
        return []
    return [part for part in walk(expression) if isinstance(part, Aggregation)]
