"""Questions that a schema suggests: who has events, what repeats, what has a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from relfrog.queries.paths import Path, parent_paths
from relfrog.queries.schema import QuerySchema, QueryTable
from relfrog.support.text import plural, words

__all__ = ["ColumnFacts", "Proposal", "choose_window", "propose"]

#: Windows to choose from, as a number and a unit.
_WINDOWS = (
    (1, "hours"), (6, "hours"), (12, "hours"), (1, "days"), (7, "days"), (14, "days"),
    (30, "days"), (90, "days"), (365, "days"),
)  # fmt: skip
#: Words for columns that add up.
_ADDS_UP = {
    "amount", "price", "cost", "total", "quantity", "qty", "revenue", "sales", "fee", "paid",
    "payment", "value", "points", "units", "count", "distance", "hours", "minutes", "seconds",
}  # fmt: skip
#: Words for numbers that are names or places, not values.
_NAMES = {
    "id", "number", "no", "code", "key", "zip", "postcode", "lat", "latitude", "lon", "lng",
    "longitude", "year", "version", "index",
}  # fmt: skip
#: Rows that a table needs to be asked about, as events and as entities.
_FEWEST_EVENTS, _FEWEST_ENTITIES = 50, 5
#: The most values of a category, and how many windows an entity may have been silent.
_MOST_VALUES, _LOOK_BACK = 12, 4


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of a column's values: how many there are, and how many differ."""

    present: int
    distinct: int


@dataclass(frozen=True)
class Proposal:
    """A question that may be worth asking.

    Attributes:
        query: The question.
        words: The same for people.
        entity: Whom it is about.
        events: The rows that decide it.
    """

    query: str
    words: str
    entity: str
    events: str


def choose_window(
    first: pd.Timestamp, val: pd.Timestamp, test: pd.Timestamp
) -> tuple[int, str] | None:
    """The longest window of which several fit between the splits, and many before them.

    Args:
        first: The first event.
        val: The validation time.
        test: The test time.

    Returns:
        A number and a unit; None if none fits.
    """
    for parts in (3, 1):
        for count, unit in reversed(_WINDOWS):
            length = pd.Timedelta(count, unit)
            if length * parts <= test - val and length * 8 <= val - first:
                return count, unit
    return None


def propose(
    schema: QuerySchema,
    facts: Mapping[tuple[str, str], ColumnFacts],
    windows: Mapping[str, tuple[int, str]],
) -> list[Proposal]:
    """All questions that a schema suggests, those about large tables first.

    Args:
        schema: The tables.
        facts: Of columns, by table and name.
        windows: For each table of events, the window to ask about.
    """
    found = []
    for events in sorted(schema.tables.values(), key=lambda t: -t.rows):
        if events.name not in windows or events.rows < _FEWEST_EVENTS:
            continue
        for entity, path in _entities(schema, events):
            found += list(_questions(schema, events, entity, path, facts, windows[events.name]))
    return found


def _entities(schema: QuerySchema, events: QueryTable) -> Iterator[tuple[QueryTable, Path]]:
    """The tables that events belong to: those they refer to, and those above them."""
    for entity in schema.tables.values():
        if entity.name == events.name or entity.pkey is None or entity.rows < _FEWEST_ENTITIES:
            continue
        for path in parent_paths(schema, events.name, entity.name):
            if len(path) <= 2 and events.rows > entity.rows:
                yield entity, path


def _questions(
    schema: QuerySchema,
    events: QueryTable,
    entity: QueryTable,
    path: Path,
    facts: Mapping[tuple[str, str], ColumnFacts],
    window: tuple[int, str],
) -> Iterator[Proposal]:
    count, unit = window
    several = len(parent_paths(schema, events.name, entity.name)) > 1
    via = "".join(f" VIA {name(s.key.table)}.{name(s.key.column)}" for s in path) if several else ""
    ahead, back = f"0, {count}, {unit}", f"-{_LOOK_BACK * count}, 0, {unit}"
    whom = f"FOR EACH {name(entity.name)}.{name(str(entity.pkey))}"
    rows = f"{name(events.name)}.*{via}"
    active = f"{whom} WHERE COUNT({rows}, {back}) > 0"
    span = f"the next {count} {unit}" if count > 1 else f"the next {unit.rstrip('s')}"
    by = f" (by {path[0].key.column})" if several else ""
    who, what = _said(entity.name), _said(events.name) + by

    def proposal(target: str, said: str, rest: str = active) -> Proposal:
        return Proposal(f"PREDICT {target} {rest}", said, entity.name, events.name)

    yield proposal(f"COUNT({rows}, {ahead}) = 0", f"Which {who} will have no {what} in {span}?")
    yield proposal(f"COUNT({rows}, {ahead})", f"How many {what} will {who} have in {span}?")
    for column in _numbers(schema, events, facts):
        add = bool(_ADDS_UP & set(words(column)))
        function = "SUM" if add else "AVG"
        of = f"{name(events.name)}.{name(column)}{via}"
        said = f"What will the {'total' if add else 'average'} {column} of {what} be"
        yield proposal(
            f"{function}({of}, {ahead})", f"{said} in {span}, for {who}?", active if add else whom
        )
    for column in _flags(schema, events):
        where = f"{rows} WHERE {name(events.name)}.{name(column)}"
        said = f"For which {who} will any of the {what} be {column} in {span}?"
        yield proposal(f"COUNT({where}, {ahead}) > 0", said)
    for column in _categories(schema, events, facts):
        of = f"{name(events.name)}.{name(column)}{via}"
        said = f"What will be the {column} of the last of the {what} in {span}, for {who}?"
        yield proposal(f"LAST({of}, {ahead})", said, whom)
    for key in events.fkeys.values():
        other = schema.tables[key.parent]
        if (
            key not in {s.key for s in path}
            and other.rows >= _FEWEST_ENTITIES
            and key.refers_to == other.pkey
        ):
            of = f"{name(events.name)}.{name(key.column)}{via}"
            which = f"{_said(other.name)} ({key.column})"
            said = f"Which {which} will {who} be joined to by {what} in {span}?"
            yield proposal(f"LIST_DISTINCT({of}, {ahead}) RANK TOP 10", said, whom)


def _numbers(
    schema: QuerySchema, table: QueryTable, facts: Mapping[tuple[str, str], ColumnFacts]
) -> list[str]:
    """The two numbers of a table with the most different values."""
    found = []
    for column in _values(table):
        kind, known = schema.kind(table, column), facts.get((table.name, column), ColumnFacts(0, 0))
        # Whole numbers that are all different count or name the rows.
        names = kind == "integer" and known.distinct == known.present
        if kind in ("number", "integer") and not names and not _NAMES & set(words(column)):
            found.append((known.distinct, column))
    return [column for distinct, column in sorted(found, reverse=True)[:2] if distinct > 5]


def _flags(schema: QuerySchema, table: QueryTable) -> list[str]:
    return [c for c in _values(table) if schema.kind(table, c) == "boolean"][:1]


def _categories(
    schema: QuerySchema, table: QueryTable, facts: Mapping[tuple[str, str], ColumnFacts]
) -> list[str]:
    none = ColumnFacts(0, 0)
    return [
        column
        for column in _values(table)
        if schema.kind(table, column) == "text"
        and 2 <= facts.get((table.name, column), none).distinct <= _MOST_VALUES
    ][:1]


def _values(table: QueryTable) -> list[str]:
    """Columns that are neither keys nor the time."""
    apart = {table.pkey, table.time, *table.fkeys}
    return [column for column in table.columns if column not in apart]


def _said(table: str) -> str:
    """A table's name in a sentence."""
    parts = list(words(table)) or [table]
    return " ".join([*parts[:-1], plural(parts[-1])])


def name(text: str) -> str:
    """A name as a question writes it: in quotes if need be."""
    if re.fullmatch(r"[^\W\d]\w*", text):
        return text
    return '"' + text.replace('"', '""') + '"'
