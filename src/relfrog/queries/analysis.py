"""Check a question against a schema: names, types, ways along foreign keys, and leaks.

What is compiled afterwards is right by construction: every name is resolved, every row that is
aggregated belongs to the entity in one way, targets look ahead only and filters back only.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from relfrog.errors import QueryError
from relfrog.queries.paths import Path, find_paths, parent_paths
from relfrog.queries.question import Assumed, Question, RowSource
from relfrog.queries.schema import ForeignKey, QuerySchema, QueryTable
from relfrog.queries.syntax import (
    Aggregation,
    Column,
    Comparison,
    Expression,
    Literal,
    Logical,
    Query,
    Span,
    Window,
    aggregations,
    point_at,
    walk,
)
from relfrog.queries.types import Typing
from relfrog.queries.windows import reach

__all__ = ["MOST_STEPS", "analyse"]

#: The most windows of a forecast: each is a task and a model of its own.
MOST_STEPS = 24
#: The longest window.
_CENTURY = pd.Timedelta(days=36_525)


def analyse(query: Query, schema: QuerySchema) -> Question:
    """Resolve and check a question.

    Raises:
        QueryError: A name is unknown, types do not fit, a way is not unique, or it would leak.
    """
    return _Analysis(query, schema).question()


class _Analysis:
    def __init__(self, query: Query, schema: QuerySchema) -> None:
        self.query, self.schema = query, schema
        self.entity = self._entity()
        self.found = Question(query, schema, self.entity)
        self.typing = Typing(self.found, self.fail)

    def fail(self, span: Span, message: str) -> QueryError:
        return point_at(self.query.text, span, message)

    def question(self) -> Question:
        query = self.query
        condition, assumed = self._assuming()
        self._resolve(query.target, "target")
        if query.where is not None:
            self._resolve(query.where, "filter")
            self.typing.condition(query.where)
        if condition is not None:
            self._resolve(condition, "assumption")
            self.typing.condition(condition)
        found = replace(self.found, condition=condition, assumed=assumed)
        if not aggregations(query.target):
            return self._filled_in(found)
        kind, target_table = self.typing.task(query)
        ends = [a.window for a in aggregations(query.target) + aggregations(condition)]
        horizon = max(reach(window) for window in ends if window is not None)
        found = replace(found, kind=kind, horizon=horizon, target_table=target_table)
        self._check_forecast(found)
        return found

    # The entity.

    def _entity(self) -> QueryTable:
        name = self.query.entity
        whole = ".".join(name.parts)
        if whole.casefold() in {t.casefold() for t in self.schema.tables}:
            table, column = self.schema.table(whole, name.span, self.fail), None
        elif len(name.parts) == 1:
            table, column = self.schema.table(whole, name.span, self.fail), None
        else:
            table, column = self.schema.column(name, self.fail)
        if table.pkey is None:
            raise self.fail(
                name.span,
                f"{table.name} has no primary key, so nothing can be predicted for its rows. "
                f"Import it with --pk {table.name}.COLUMN",
            )
        if column is not None and column != table.pkey:
            told = f"FOR EACH needs the primary key: {table.name}.{table.pkey}, not {column}"
            if column in table.fkeys:
                parent = self.schema.tables[table.fkeys[column].parent]
                told += f". To ask about {parent.name}: {parent.name}.{parent.pkey}"
            raise self.fail(name.span, told)
        return table

    # Names.

    def _resolve(self, expression: Expression, part: str) -> None:
        for item in walk(expression):
            if isinstance(item, Column):
                self._static(item)
            elif isinstance(item, Aggregation):
                self._aggregation(item, part)

    def _static(self, column: Column) -> None:
        """A column of the entity's own row, or of a row that it names."""
        table, name = self.schema.column(column, self.fail)
        if name == "*":
            raise self.fail(column.span, f"{column} needs an aggregation: COUNT({column}, ...)")
        if table.name == self.entity.name:
            self.found.columns[column] = (table, name, ())
            return
        paths = parent_paths(self.schema, self.entity.name, table.name)
        if not paths:
            told = (
                f"{column}: a row of {self.entity.name} has no single row of {table.name}; "
                f"aggregate them, such as LAST({column}, -30, 0, days), or choose among the rows "
                f"of an aggregation: COUNT({table.name}.* WHERE ..., 0, 30, days)"
            )
            raise self.fail(column.span, told)
        self._unique(paths, column.span, f"{self.entity.name} leads to {table.name}", hint=False)
        self.found.columns[column] = (table, name, paths[0])

    def _aggregation(self, item: Aggregation, part: str) -> None:
        table, name = self.schema.column(item.column, self.fail)
        if name == "*" and item.function != "COUNT":
            told = f"{item.function} needs a column of {table.name}, not *"
            raise self.fail(item.column.span, told)
        path = self._path(item, table, name)
        window = self._window(item, table, part)
        if item.where is not None:
            for inner in walk(item.where):
                if isinstance(inner, Aggregation):
                    told = "an aggregation cannot stand inside the WHERE of another one"
                    raise self.fail(inner.span, told)
                if isinstance(inner, Column):
                    self._inner(inner, table)
            self.typing.condition(item.where)
        self.found.sources[item] = RowSource(table, path, window, item.where)
        self.found.columns[item.column] = (table, name, ())
        self.typing.check_aggregation(item)

    def _inner(self, column: Column, start: QueryTable) -> None:
        """A column in the WHERE of an aggregation: of its rows, or of rows that they name."""
        table, name = self.schema.column(column, self.fail)
        if name == "*":
            raise self.fail(column.span, f"{column} is no value")
        if table.name == start.name:
            self.found.columns[column] = (table, name, ())
            return
        paths = parent_paths(self.schema, start.name, table.name)
        if not paths:
            told = f"{column}: rows of {start.name} do not name a row of {table.name}"
            raise self.fail(column.span, told)
        self._unique(paths, column.span, f"{start.name} leads to {table.name}", hint=False)
        self.found.columns[column] = (table, name, paths[0])

    # Ways.

    def _path(self, item: Aggregation, table: QueryTable, column: str) -> Path:
        through = tuple(self._via(name) for name in item.via)
        # A list of what a key names, for the row that it names, would hold that row alone.
        listed = column if item.function == "LIST_DISTINCT" and not item.via else None
        paths = find_paths(self.schema, table.name, self.entity.name, through, listed)
        if not paths:
            how = f" by {' and '.join(map(str, through))}" if through else ""
            told = (
                f"rows of {table.name} do not lead to {self.entity.name}{how}: no foreign keys "
                f"join them. Import with --fk {table.name}.COLUMN={self.entity.name}."
                f"{self.entity.pkey} if there should be one"
            )
            raise self.fail(item.column.span, told)
        about = f"{table.name} leads to {self.entity.name}"
        self._unique(paths, item.column.span, about, hint=True)
        return paths[0]

    def _via(self, name: Column) -> ForeignKey:
        table, column = self.schema.column(name, self.fail)
        if column not in table.fkeys:
            keys = ", ".join(map(str, table.fkeys.values())) or "none"
            told = (
                f"VIA needs a foreign key; {name} is none. Those of {table.name}: {keys}. Import "
                f"with --fk {table.name}.{column}=TABLE.KEY to make it one"
            )
            raise self.fail(name.span, told)
        return table.fkeys[column]

    def _unique(self, paths: list[Path], span: Span, about: str, *, hint: bool) -> None:
        if len(paths) == 1:
            return
        common = {step.key for step in paths[0]}.intersection(
            *({step.key for step in path} for path in paths[1:])
        )
        ways = [
            " ".join(f"VIA {step.key}" for step in path if step.key not in common) for path in paths
        ]
        told = f"{about} in {len(paths)} ways: {' or '.join(ways[:4])}"
        if hint:
            told += (
                f". Say which, such as ({self.query.text[span.start : span.end]} {ways[0]}, ...)"
            )
        else:
            told += ", and the question cannot say which"
        raise self.fail(span, told)

    # Time.

    def _window(self, item: Aggregation, table: QueryTable, part: str) -> Window | None:
        window = item.window
        if window is None:
            if part == "filter":
                if table.time is None:
                    return None
                return Window(None, 0, "DAY", item.span)
            told = f"{item.function} needs a window, such as ({item.column}, 0, 30, days)"
            raise self.fail(item.span, told)
        if table.time is None:
            raise self.fail(
                item.span,
                f"{table.name} has no time column, so nothing says which of its rows lie in a "
                f"window. Import it with --time {table.name}.COLUMN",
            )
        try:
            if reach(replace(window, end=abs(window.end))) > _CENTURY:
                raise OverflowError
            if window.start is not None:
                reach(replace(window, end=abs(window.start)))
        except (OverflowError, ValueError):
            raise self.fail(window.span, "a window of more than a hundred years") from None
        if part == "filter" and window.end > 0:
            raise self.fail(
                window.span,
                "WHERE must look back: its windows end at 0 or before. What happens later is not "
                "known when the prediction is made; to ask only about cases in which it does "
                "happen, write it after ASSUMING",
            )
        if part != "filter" and (window.start is None or window.start < 0):
            what = "the target" if part == "target" else "what is assumed"
            raise self.fail(
                window.span,
                f"{what} must look ahead: its windows start at 0 or later. What has happened is "
                "known already; it belongs into WHERE",
            )
        return window

    # Assumptions, forecasts, columns to fill in.

    def _assuming(self) -> tuple[Expression | None, tuple[Assumed, ...]]:
        """What has to come true, and values of the entity's own row."""
        whole = self.query.assuming
        if whole is None:
            return None, ()
        joined = isinstance(whole, Logical) and whole.operator == "AND"
        parts = whole.items if isinstance(whole, Logical) and joined else (whole,)
        later, values = [], []
        for part in parts:
            if aggregations(part):
                later.append(part)
            else:
                values.append(self._assumed(part))
        if not later:
            return None, tuple(values)
        condition = later[0]
        if len(later) > 1:
            condition = Logical("AND", tuple(later), later[0].span.to(later[-1].span))
        return condition, tuple(values)

    def _assumed(self, part: Expression) -> Assumed:
        if (
            not isinstance(part, Comparison)
            or part.operator != "="
            or not isinstance(part.left, Column)
            or not isinstance(part.right, Literal)
        ):
            raise self.fail(
                part.span,
                f"assume a value, {self.entity.name}.COLUMN = VALUE, or something that happens, "
                "such as COUNT(table.*, 0, 7, days) > 0",
            )
        table, name = self.schema.column(part.left, self.fail)
        if table.name != self.entity.name:
            told = f"a value can be assumed of {self.entity.name} itself, not of {table.name}"
            raise self.fail(part.left.span, told)
        if name == "*":
            raise self.fail(part.left.span, f"{part.left} is no value; name a column")
        if name in (table.pkey, table.time):
            told = f"{part.left} says which row it is and since when; it cannot be assumed"
            raise self.fail(part.left.span, told)
        self.found.columns[part.left] = (table, name, ())
        self.typing.condition(part)
        return Assumed(table.name, name, self.found.times.get(part.right, part.right.value))

    def _check_forecast(self, found: Question) -> None:
        query = self.query
        if query.forecast is None:
            return
        assert query.mode is not None
        windows = [a.window for a in aggregations(query.target) if a.window is not None]
        if found.kind != "regression":
            told = f"FORECAST needs a number as its target; this one is a {found.kind} task"
            raise self.fail(query.mode, told)
        if len({(w.start, w.end, w.unit) for w in windows}) > 1:
            raise self.fail(query.mode, "FORECAST needs one window for all aggregations")
        if found.condition is not None:
            told = "FORECAST cannot be combined with ASSUMING something that happens"
            raise self.fail(query.mode, told)
        if query.forecast > MOST_STEPS:
            told = (
                f"a forecast has at most {MOST_STEPS} timeframes, as each is learned by a model "
                "of its own"
            )
            raise self.fail(query.mode, told)

    def _filled_in(self, found: Question) -> Question:
        """A target without aggregations: a column of the entity's own table."""
        query = self.query
        target = query.target
        if isinstance(target, Literal):
            raise self.fail(target.span, "a value is known already; predict a column or more")
        if not isinstance(target, Column) or found.columns[target][2]:
            raise self.fail(
                target.span,
                "the target looks at nothing later. Use an aggregation that looks ahead, such as "
                f"COUNT(table.*, 0, 30, days), or one column of {self.entity.name} to fill in",
            )
        if query.where is not None or found.condition is not None:
            raise self.fail(
                (query.where or found.condition or target).span,
                "a column is filled in for all rows that lack it: leave this out",
            )
        if query.mode is not None:
            raise self.fail(query.mode, "a column that is filled in takes none of these")
        table, column, _ = found.columns[target]
        if column in (table.pkey, table.time) or column in table.fkeys:
            raise self.fail(target.span, f"{target} is a key or a time and cannot be filled in")
        return replace(found, column=column)
