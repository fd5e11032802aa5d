"""The part of label SQL that aggregates the rows of one window, per seed time and entity."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relfrog.queries.paths import Path
from relfrog.queries.question import Question, RowSource
from relfrog.queries.sql import Node, alias, column, literal, named, render, shifted, table
from relfrog.queries.syntax import Aggregation, Column, Value, walk
from relfrog.support.text import free_name

__all__ = ["RowsPart"]


class RowsPart:
    """A part with the rows of one source, and a value for each aggregation over them.

    Args:
        question: The question.
        source: The rows.
        name: The name of the part.
    """

    def __init__(self, question: Question, source: RowSource, name: str) -> None:
        self.question, self.source, self.name = question, source, name
        self.values: dict[str, Node] = {}
        self.inputs: dict[str, Node] = {}
        self.known: dict[str, str] = {}
        self.target_joined = False
        self.number = free_name("row", {name.lower() for name in source.table.columns})

    @property
    def joins_many(self) -> bool:
        """Whether a row may belong to an entity by several ways, but counts once."""
        return any(not step.up for step in self.source.path)

    def key(self) -> str:
        """The same for sources that are the same."""
        return str((self.source.table.name, self.source.path, _window(self.source), self._where()))

    def add(self, item: Aggregation, *, listed: str, classes: Sequence[Value]) -> str:
        """Add the value of an aggregation; returns its name.

        Args:
            item: The aggregation.
            listed: Of a list that is the target, the type of task: lists become labels.
            classes: Of a multilabel task, the values that labels are about.
        """
        found = self._value(item, listed, classes)
        text = found.sql(dialect="duckdb")
        if text not in self.known:
            self.known[text] = f"v{len(self.known)}"
            self.values[self.known[text]] = found
        return self.known[text]

    # Values.

    def _input(self, name: str) -> Node:
        """A column of the rows."""
        if not self.joins_many:
            return column("a", name)
        for known, value in self.inputs.items():
            if value == column("a", name):
                return column("d", known)
        known = f"i{len(self.inputs)}"
        self.inputs[known] = column("a", name)
        return column("d", known)

    def _value(self, item: Aggregation, listed: str, classes: Sequence[Value]) -> Node:
        _, name, _ = self.question.columns[item.column]
        if name == "*":
            return exp.Count(this=exp.Star())
        value = self._input(name)
        kind = self.question.schema.kind(self.source.table, name)
        function = item.function
        if function == "COUNT":
            return exp.Count(this=value)
        if function == "COUNT_DISTINCT":
            return exp.Count(this=exp.Distinct(expressions=[value]))
        if function in ("SUM", "AVG"):
            return exp.func(function, exp.cast(value, "DOUBLE"))
        if function in ("MIN", "MAX"):
            number = exp.cast(value, "INTEGER") if kind == "boolean" else value
            return exp.func(function, number)
        if function in ("FIRST", "LAST"):
            return self._by_time(value, function)
        if listed == "multilabel":
            return _indicators(value, classes)
        if listed == "recommendation":
            return self._existing(value)
        return _distinct(value)

    def _by_time(self, value: Node, function: str) -> Node:
        """The first or last value; of rows with one time, by their key, or without one by value."""
        rows = self.source.table
        assert rows.time is not None
        tie = value.copy() if rows.pkey is None else self._input(rows.pkey)
        order = exp.Anonymous(this="row", expressions=[self._input(rows.time), tie])
        name = "arg_min" if function == "FIRST" else "arg_max"
        return exp.Anonymous(this=name, expressions=[value, order])

    def _existing(self, value: Node) -> Node:
        """The distinct rows that are named and exist at the seed time."""
        target = self.question.target_table
        if target is None or target.time is None:
            return _distinct(value)
        self.target_joined = True
        there = self._there()
        return _distinct(there)

    def _there(self) -> Node:
        target = self.question.target_table
        assert target is not None
        assert target.pkey is not None
        if not self.joins_many:
            return column("x", target.pkey)
        self.inputs.setdefault("x", column("x", target.pkey))
        return column("d", "x")

    # Rows.

    def select(self) -> exp.Select:
        """The whole part."""
        end = "e"
        entity = column(end, str(self.question.entity.pkey))
        time = column("t", "timestamp")
        if not self.joins_many:
            chosen = [alias(value, name) for name, value in self.values.items()]
            select = exp.select(alias(time, "t"), alias(entity, "k"), *chosen)
            return self._from(select).group_by(time.copy(), entity.copy())
        inputs = [alias(value, name) for name, value in self.inputs.items()]
        rows = self._from(
            exp.select(alias(time, "t"), alias(entity, "k"), alias(column("a", self.number), "row"),
                       *inputs).distinct()
        )  # fmt: skip
        chosen = [alias(value, name) for name, value in self.values.items()]
        return (
            exp.select(column("d", "t"), column("d", "k"), *chosen)
            .from_(rows.subquery(exp.to_identifier("d", quoted=True)))
            .group_by(column("d", "t"), column("d", "k"))
        )

    def _from(self, select: exp.Select) -> exp.Select:
        """Seed times, the rows of their windows, and the way to the entity."""
        source = self.source
        rows: Node = table(source.table.name, "a")
        if self.joins_many:
            # Rows of a table without a key are told apart by their number.
            number = exp.Window(this=exp.Anonymous(this="row_number"))
            inside = exp.select(exp.Star(), alias(number, self.number)).from_(
                table(source.table.name)
            )
            rows = inside.subquery(exp.to_identifier("a", quoted=True))
        time = column("t", "timestamp")
        select = select.from_(table("timestamps", "t"))
        select = select.join(rows, on=self._window(), join_type="inner")
        at = "a"
        for number_, step in enumerate(source.path):
            last = number_ == len(source.path) - 1
            to = "e" if last else f"w{number_}"
            key = step.key
            if step.up:
                on: Node = column(at, key.column).eq(column(to, key.refers_to))
            else:
                on = column(to, key.column).eq(column(at, key.refers_to))
                joined = self.question.schema.tables[key.table].time
                if joined is not None:
                    on = exp.and_(on, column(to, joined) <= self._end())
            select = select.join(table(step.goal, to), on=on, join_type="inner")
            at = to
        target = self.question.target_table
        if self.target_joined and target is not None and target.time is not None:
            item = self.question.query.target
            assert isinstance(item, Aggregation)
            listed = self.question.columns[item.column][1]
            on = exp.and_(
                column("a", listed).eq(column("x", str(target.pkey))),
                column("x", target.time) <= time.copy(),
            )
            select = select.join(table(target.name, "x"), on=on, join_type="left")
        if source.where is not None:
            select = self._joined_for_where(select).where(self._condition())
        return select

    def _window(self) -> Node:
        source = self.source
        if source.window is None or source.table.time is None:
            return exp.true()
        window, time = source.window, column("t", "timestamp")
        at = column("a", source.table.time)
        end = at <= shifted(time, window.end, window.unit)
        if window.start is None:
            return end
        return exp.and_(at.copy() > shifted(time.copy(), window.start, window.unit), end)

    def _end(self) -> Node:
        """When the window ends: what is known later does not count."""
        time, window = column("t", "timestamp"), self.source.window
        return time if window is None else shifted(time, window.end, window.unit)

    # The WHERE of an aggregation.

    def _aliases(self) -> dict[Path, str]:
        """A name for each table that the WHERE looks at, by the way to it."""
        found: dict[Path, str] = {(): "a"}
        if self.source.where is not None:
            for item in walk(self.source.where):
                if isinstance(item, Column):
                    path = self.question.columns[item][2]
                    for length in range(1, len(path) + 1):
                        found.setdefault(path[:length], f"p{len(found)}")
        return found

    def _joined_for_where(self, select: exp.Select) -> exp.Select:
        aliases = self._aliases()
        for path, name in aliases.items():
            if path:
                key, schema = path[-1].key, self.question.schema
                on = named(schema, key, aliases[path[:-1]], name, self._end())
                select = select.join(table(key.parent, name), on=on, join_type="left")
        return select

    def _condition(self) -> Node:
        assert self.source.where is not None
        aliases = self._aliases()

        def leaf(item: Column | Aggregation) -> Node:
            assert isinstance(item, Column)
            _, name, path = self.question.columns[item]
            return column(aliases[path], name)

        return render(self.source.where, leaf, self.question.times)

    def _where(self) -> str:
        return "" if self.source.where is None else self._condition().sql(dialect="duckdb")


def _distinct(value: Node) -> Node:
    """The distinct values in order; NULL if there are none."""
    listed = exp.Anonymous(this="list", expressions=[exp.Distinct(expressions=[value])])
    only = exp.Where(this=value.copy().is_(exp.null()).not_())
    return exp.Anonymous(this="list_sort", expressions=[exp.Filter(this=listed, expression=only)])


def _indicators(value: Node, classes: Sequence[Value]) -> Node:
    """For each class 1 if it occurs, else 0; NULL if there is no value at all."""
    found = [
        exp.cast(exp.func("MAX", exp.cast(value.copy().eq(literal(v)), "INTEGER")), "INTEGER")
        for v in classes
    ]
    some = exp.Count(this=value.copy()) > exp.Literal.number(0)
    return exp.Case().when(some, exp.Anonymous(this="list_value", expressions=found))


def _window(source: RowSource) -> tuple[int | None, int, str] | None:
    window = source.window
    return None if window is None else (window.start, window.end, window.unit)
