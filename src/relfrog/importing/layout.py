"""Lay out a table in the dataset: its columns, their order, roles and names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relfrog.importing.column_types import type_sql
from relfrog.importing.key_checks import TypedTable
from relfrog.importing.key_plan import ImportPlan
from relfrog.importing.mapping import ForeignKeyMapping, TableMapping
from relfrog.importing.staging import Staging
from relfrog.support.text import free_name, is_identifier, to_identifier

__all__ = ["OutputColumn", "SortedTable", "output_columns"]

_UUID = "[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"


@dataclass
class SortedTable:
    """A staged table in its final order: ``rowid`` is the primary key in the dataset."""

    typed: TypedTable
    mapping: TableMapping
    sql: str
    rows: int


@dataclass(frozen=True)
class OutputColumn:
    """A column of the dataset.

    Attributes:
        name: Its name in the dataset.
        role: ``pkey``, ``fkey``, ``time``, ``key`` (the source's text key) or ``value``.
        sources: The columns of the source it is made from.
        sql: The SQL for its values; empty for keys, which are row numbers.
        kind: The type of its values.
        key: The foreign key, for ``fkey``.
    """

    name: str
    role: str
    sources: tuple[str, ...]
    sql: str = ""
    kind: str = ""
    key: ForeignKeyMapping | None = None


def output_columns(
    staging: Staging, plan: ImportPlan, ordered: SortedTable, referred: bool, first: int | None
) -> list[OutputColumn]:
    """The columns of a table in the dataset, in order, with unique names."""
    mapping, typed = ordered.mapping, ordered.typed
    single = mapping.primary_key[0] if len(mapping.primary_key) == 1 else None
    # Where rows inherit times, known_from is the time column, and that of the source is a value.
    inherits = bool(mapping.time_keys)
    time = None if inherits else mapping.time
    in_place: dict[str, ForeignKeyMapping] = {}
    extra: list[ForeignKeyMapping] = []
    for key in mapping.used_keys():
        column = key.columns[0]
        free = len(key.columns) == 1 and column not in (single, time, *in_place)
        if free:
            in_place[column] = key
        else:
            extra.append(key)
    wanted: list[OutputColumn] = []
    if single is None and (mapping.primary_key or referred):
        wanted.append(OutputColumn(f"{mapping.name}_id", "pkey", mapping.primary_key))
    for name in mapping.columns:
        kind = mapping.columns[name]
        if name == single:
            wanted.append(OutputColumn(name, "pkey", (name,)))
            is_name = kind.name == "text" and typed.column(name).kind != "hex"
            if is_name and not _is_uuid(staging, ordered, name):
                # A text key may mean something ("JFK"); a number or a UUID does not.
                sql = type_sql(typed.column(name), kind)
                wanted.append(OutputColumn(f"{name}_key", "key", (name,), sql, "text"))
            if name == time:
                wanted.append(_time_column(ordered, name, f"{name}_time", first))
        elif name in in_place:
            wanted.append(OutputColumn(name, "fkey", (name,), key=in_place[name]))
        elif name == time:
            wanted.append(_time_column(ordered, name, name, first))
        elif kind.name != "drop" and name in typed.types:
            sql = type_sql(typed.column(name), kind)
            wanted.append(OutputColumn(name, "value", (name,), sql, kind.name))
    if inherits:
        wanted.append(_known_from(plan, ordered, first))
    for key in extra:
        stem = plan.mapping.tables[key.parent].name
        name = f"{stem}_id" if len(key.columns) > 1 else f"{key.columns[0]}_{stem}"
        wanted.append(OutputColumn(name, "fkey", key.columns, key=key))
    if not wanted:
        # Parquet and pandas lose the number of rows of a table without columns.
        wanted.append(OutputColumn(f"{mapping.name}_id", "pkey", ()))
    return _with_unique_names(wanted)


def _time_column(ordered: SortedTable, source: str, name: str, first: int | None) -> OutputColumn:
    sql = type_sql(ordered.typed.column(source), ordered.mapping.columns[source])
    if first is not None:
        sql = f"coalesce({sql}, make_timestamp({first}))"
    return OutputColumn(
        name if is_identifier(name) else to_identifier(name), "time", (source,), sql, "time"
    )


def _known_from(plan: ImportPlan, ordered: SortedTable, first: int | None) -> OutputColumn:
    """From when on rows are known that have no time of their own; see `inherited`."""
    if ordered.typed.name not in plan.known or first is None:
        # An empty table has no time; but who has learned from the column must find it.
        return OutputColumn("known_from", "value", (), "NULL::TIMESTAMP", "time")
    sql = f"coalesce(known, make_timestamp({first}))"
    return OutputColumn("known_from", "time", (), sql, "time")


def _with_unique_names(wanted: list[OutputColumn]) -> list[OutputColumn]:
    """Rename columns that differ only in case; those with the source's names keep theirs."""
    own = [i for i, c in enumerate(wanted) if (c.name,) == c.sources]
    made = [i for i in range(len(wanted)) if i not in set(own)]
    taken: set[str] = set()
    names = {i: free_name(wanted[i].name or "column", taken) for i in [*own, *made]}
    return [replace(column, name=names[i]) for i, column in enumerate(wanted)]


def _is_uuid(staging: Staging, ordered: SortedTable, column: str) -> bool:
    name = f"CAST({ordered.typed.column(column).sql} AS VARCHAR)"
    other = staging.row(
        f"SELECT count(*) FROM {ordered.sql} WHERE NOT regexp_full_match({name}, '{_UUID}')"
    )
    return ordered.rows > 0 and other[0] == 0
