"""Entity tables made from columns, for databases without a table of those they are about.

``--entity-from transactions.household_id=households`` makes a table of the distinct values of a
column: they are its primary key, and the column refers to it. Several columns may feed one table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relfrog.errors import SchemaError, UsageError, unknown
from relfrog.importing.column_types import ColumnType, find_type, type_sql
from relfrog.importing.corrections import Corrections
from relfrog.importing.key_plan import ImportPlan
from relfrog.importing.mapping import ForeignKeyMapping, Notice
from relfrog.importing.staging import StagedTable, Staging
from relfrog.io.sources import SourceColumn, SourceTable
from relfrog.io.sources.base import Kind
from relfrog.support.text import folder_names

__all__ = ["EntityTable", "plan_entities", "stage_entity", "suggest_entities"]

#: The last word of a column that names someone or something.
_KEY_WORDS = {"id", "uuid", "guid", "key"}
#: Of the distinct values of the smaller column, this share must be in the larger one.
_SHARED = 0.5
#: A table with this share of all values is the table of these entities.
_MOST = 0.9
#: Fewer different values are kinds of something rather than entities.
_FEWEST = 5
#: Fewer letters before "id" are part of another word, such as paid, grid or valid.
_SHORTEST = 4


@dataclass(frozen=True)
class EntityTable:
    """A table to be made.

    Attributes:
        name: Its name.
        columns: Where its keys come from: tables and columns.
    """

    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """The name of its primary key: that of the first column."""
        return self.columns[0][1]

    def outline(self) -> SourceTable:
        """The table as a source would declare it, before its type is known."""
        return self.declared("untyped")

    def declared(self, kind: Kind, notes: Sequence[str] = ()) -> SourceTable:
        """The table as a source would declare it."""
        column = SourceColumn(self.key, kind, kind)
        return SourceTable(self.name, (column,), (self.key,), local_name=self.name, notes=[*notes])


def plan_entities(
    corrections: Corrections, tables: Sequence[SourceTable], flags: Iterable[str]
) -> list[EntityTable]:
    """The tables that flags and the mapping file ask for; their foreign keys are added to it.

    Raises:
        UsageError: A flag is written wrongly, or its table's name is taken.
        SchemaError: There is no such table or column.
    """
    known = {t.name: [c.name for c in t.columns] for t in tables}
    wanted: dict[str, list[tuple[str, str]]] = {
        name: list(table.made_from) for name, table in corrections.tables.items() if table.made_from
    }
    for flag in flags:
        place, equals, name = flag.rpartition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"--entity-from {flag}: write it as --entity-from orders.customer_id=customers"
            )
        table, column = _column(place, flag, known)
        if (table, column) not in wanted.setdefault(name, []):
            wanted[name].append((table, column))
    found = []
    taken = {name.casefold(): name for name in known}
    for name, columns in wanted.items():
        if name.casefold() in taken:
            raise UsageError(
                f"--entity-from: the source has a table {taken[name.casefold()]} already. Choose "
                f"another name, or refer to it: --fk {columns[0][0]}.{columns[0][1]}={name}"
            )
        if folder_names([name])[name] != name:
            raise UsageError(f"--entity-from: {name!r} cannot be a table's name. Choose another.")
        for table, column in columns:
            if table not in known:
                raise unknown("table", table, known)
            if column not in known[table]:
                raise unknown(f"column in table {table}", column, known[table])
        made = EntityTable(name, tuple(columns))
        corrections.table(name).made_from = list(columns)
        for table, column in columns:
            key = ForeignKeyMapping((column,), name, (made.key,), "chosen")
            entry = corrections.table(table)
            listed = [*(entry.foreign_keys or ()), *entry.added_keys]
            if not any(k.columns == key.columns and k.parent == name for k in listed):
                entry.added_keys.append(key)
        taken[name.casefold()] = name
        found.append(made)
    return found


def _column(place: str, flag: str, known: dict[str, list[str]]) -> tuple[str, str]:
    """The table and column of ``table.column``, where both may contain dots."""
    for table in sorted(known, key=len, reverse=True):
        if place.startswith(f"{table}."):
            column = place[len(table) + 1 :]
            if column not in known[table]:
                raise unknown(f"column in table {table}", column, known[table])
            return table, column
    table = place.split(".")[0]
    if table in known:
        raise UsageError(f"--entity-from {flag}: name the column, as in {table}.COLUMN")
    raise unknown("table", table, known)


#: The kind of a staged column that holds values of a type.
_KINDS: dict[str, Kind] = {
    "integer": "integer", "number": "number", "boolean": "boolean", "time": "time", "text": "text",
}  # fmt: skip


def stage_entity(
    staging: Staging, made: EntityTable, staged: dict[str, StagedTable]
) -> StagedTable:
    """Make the table of distinct values in the staging database, in their order.

    Raises:
        SchemaError: A column cannot be a key, or holds no value.
    """
    places = []
    for name, column in made.columns:
        table = staged[name]
        if column not in table.columns:
            declared = {c.name: c.declared for c in table.source.columns}
            raise SchemaError(
                f"--entity-from {name}.{column}: it is {declared[column]}, which cannot be a key"
            )
        places.append(
            (table, table.columns[column], find_type(staging, table, table.columns[column]))
        )
    types = {kind.name for _, _, kind in places}
    common = types.pop() if len(types) == 1 else "text"
    if common not in _KINDS:
        raise SchemaError(f"--entity-from {made.columns[0][0]}.{made.key} holds no keys ({common})")
    kind = places[0][2] if len({str(k) for _, _, k in places}) == 1 else ColumnType(common)
    parts = [
        f"SELECT {type_sql(column, own if own.name == common else kind)} AS c0 FROM {table.sql}"
        for table, column, own in places
    ]
    query = (
        f"SELECT DISTINCT c0 FROM ({' UNION ALL '.join(parts)}) WHERE c0 IS NOT NULL ORDER BY c0"
    )
    shown = ", ".join(f"{table}.{column}" for table, column in made.columns)
    found = staging.add(made.declared(_KINDS[common]), query)
    if not found.rows:
        raise SchemaError(f"--entity-from: {shown} holds no value, so {made.name} would be empty")
    found.source.notes.append(f"made of the {found.rows:,} distinct values of {shown}")
    return found


def suggest_entities(staging: Staging, plan: ImportPlan) -> None:
    """Suggest a table for keys that name something without a table of its own.

    Several tables share them and none has all of them; or one table repeats them.
    """
    shared: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    parts: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for name, table in plan.typed.items():
        for column in table.types:
            if _may_name_entities(plan, name, column):
                # Part of a longer key it may be counted anew in each parent: 1, 2, 3, ...
                of = parts if _is_part(plan, name, column) else shared
                of[_key_words(table.words[column])].append((name, column))
    for words, places in shared.items():
        keyed = [p for p in places if plan.mapping.tables[p[0]].primary_key == (p[1],)]
        if len(keyed) == len(places) or (len(places) == 1 and not _repeats(plan, *places[0])):
            continue
        if any(_has_most(plan, table, places) for table, _ in keyed):
            continue  # a table that lacks a few of its rows, and a foreign key to it
        if not all(_overlap(staging, plan, places[0], other) for other in places[1:]):
            continue
        places += [p for p in parts[words] if _overlap(staging, plan, places[0], p)]
        name = _plural("_".join(words[:-1]))
        if name.casefold() in {table.casefold() for table in plan.mapping.tables}:
            name = f"all_{name}"
        flags = " ".join(f"--entity-from {table}.{column}={name}" for table, column in places)
        known = f"shared by {', '.join(table for table, _ in places)}, but"
        if len(places) == 1:
            known = "named like a key, but"
        text = f"{known} no table has all of its values as primary key. To make one: {flags}"
        plan.notices.append(Notice("suggestion", *places[0], text))


def _may_name_entities(plan: ImportPlan, name: str, column: str) -> bool:
    """Whether a column is named like a key and refers to nothing yet."""
    table, mapped = plan.typed[name], plan.mapping.tables[name]
    words = _key_words(table.words.get(column, ()))
    if len(words) < 2 or words[-1] not in _KEY_WORDS or table.staged.rows < 2:
        return False
    if table.types[column].name not in ("integer", "text"):
        return False
    if table.column(column).facts.distinct < _FEWEST:
        return False
    return not any((column,) == key.columns for key in mapped.used_keys())


def _key_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a name, also of one written as a single word: ``visitorid``."""
    for key in _KEY_WORDS if len(words) == 1 else ():
        stem = words[0].removesuffix(key)
        if words[0] != stem and len(stem) >= _SHORTEST:
            return stem, key
    return words


def _repeats(plan: ImportPlan, name: str, column: str) -> bool:
    """Whether a column of a table with times names the same thing again and again."""
    table = plan.typed[name]
    timed = any(kind.name == "time" for kind in table.types.values())
    return timed and 2 * table.column(column).facts.distinct <= table.staged.rows


def _is_part(plan: ImportPlan, name: str, column: str) -> bool:
    mapped = plan.mapping.tables[name]
    keys = [mapped.primary_key, *(key.columns for key in mapped.used_keys())]
    return any(column in key and len(key) > 1 for key in keys)


def _has_most(plan: ImportPlan, table: str, places: list[tuple[str, str]]) -> bool:
    """Whether a table's primary key has most of the different values of all other columns."""
    found = [plan.evidence.get((name, (column,))) for name, column in places if name != table]
    return all(e is not None and e.distinct_matched >= _MOST * e.distinct for e in found)


def _plural(noun: str) -> str:
    """The plural of an English noun, as tables are named."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def _overlap(
    staging: Staging, plan: ImportPlan, one: tuple[str, str], other: tuple[str, str]
) -> bool:
    """Whether most values of the column with fewer of them are in the other, too."""
    text = ColumnType("text")
    values = []
    for name, column in (one, other):
        staged = plan.typed[name].column(column)
        kind = plan.typed[name].types[column]
        value = type_sql(staged, kind)
        value = value if kind.name == "integer" else type_sql(staged, text)
        values.append(
            f"(SELECT DISTINCT CAST({value} AS VARCHAR) AS v FROM {plan.typed[name].staged.sql} "
            f"WHERE {value} IS NOT NULL)"
        )
    counts = [staging.row(f"SELECT count(*) FROM {part}")[0] for part in values]
    (both,) = staging.row(f"SELECT count(*) FROM {values[0]} a JOIN {values[1]} b ON a.v = b.v")
    return bool(min(counts) > 0 and both >= _SHARED * min(counts))
