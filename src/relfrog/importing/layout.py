"""The columns a table has in the dataset: which are keys, where they stand, and their names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relfrog.importing.column_types import type_sql
from relfrog.importing.key_checks import TypedTable
from relfrog.importing.key_plan import Plan
from relfrog.importing.mapping import ForeignKeyMapping, TableMapping
from relfrog.importing.staging import Staging
from relfrog.support.text import free_name, is_identifier, to_identifier

__all__ = ["Column", "Ordered", "lay_out"]

_UUID = "[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"


@dataclass
class Ordered:
    """A staged table whose ``rowid`` is the new key."""

    typed: TypedTable
    mapping: TableMapping
    sql: str
    rows: int


@dataclass(frozen=True)
class Column:
    """One column to be written.

    Attributes:
        name: In the dataset.
        role: ``pkey``, ``fkey``, ``time``, ``key`` (the source's text key) or ``value``.
        sources: The source's columns behind it.
        sql: How to get it; empty for keys.
        kind: Its type, for values.
        key: The foreign key, for ``fkey``.
    """

    name: str
    role: str
    sources: tuple[str, ...]
    sql: str = ""
    kind: str = ""
    key: ForeignKeyMapping | None = None


def lay_out(
    staging: Staging, plan: Plan, ordered: Ordered, referred: bool, first: int | None
) -> list[Column]:
    """The columns of the table in the dataset, in order, with names that are free."""
    mapping, typed = ordered.mapping, ordered.typed
    single = mapping.primary_key[0] if len(mapping.primary_key) == 1 else None
    in_place: dict[str, ForeignKeyMapping] = {}
    beside: list[ForeignKeyMapping] = []
    for key in mapping.used_keys():
        column = key.columns[0]
        free = len(key.columns) == 1 and column not in (single, mapping.time, *in_place)
        if free:
            in_place[column] = key
        else:
            beside.append(key)
    wanted: list[Column] = []
    if single is None and (mapping.primary_key or referred):
        wanted.append(Column(f"{mapping.name}_id", "pkey", mapping.primary_key))
    for name in mapping.columns:
        kind = mapping.columns[name]
        if name == single:
            wanted.append(Column(name, "pkey", (name,)))
            is_name = kind.name == "text" and typed.column(name).kind != "hex"
            if is_name and not _is_uuid(staging, ordered, name):
                # A text key may say something ("JFK"); a number or a UUID does not.
                sql = type_sql(typed.column(name), kind)
                wanted.append(Column(f"{name}_key", "key", (name,), sql, "text"))
            if name == mapping.time:
                wanted.append(_time_column(ordered, name, f"{name}_time", first))
        elif name in in_place:
            wanted.append(Column(name, "fkey", (name,), key=in_place[name]))
        elif name == mapping.time:
            wanted.append(_time_column(ordered, name, name, first))
        elif kind.name != "drop" and name in typed.types:
            sql = type_sql(typed.column(name), kind)
            wanted.append(Column(name, "value", (name,), sql, kind.name))
    for key in beside:
        stem = plan.mapping.tables[key.parent].name
        name = f"{stem}_id" if len(key.columns) > 1 else f"{key.columns[0]}_{stem}"
        wanted.append(Column(name, "fkey", key.columns, key=key))
    if not wanted:
        # Parquet and pandas forget how many rows a table without columns has.
        wanted.append(Column(f"{mapping.name}_id", "pkey", ()))
    return _with_free_names(wanted)


def _time_column(ordered: Ordered, source: str, name: str, first: int | None) -> Column:
    sql = type_sql(ordered.typed.column(source), ordered.mapping.columns[source])
    if first is not None:
        sql = f"coalesce({sql}, make_timestamp({first}))"
    return Column(
        name if is_identifier(name) else to_identifier(name), "time", (source,), sql, "time"
    )


def _with_free_names(wanted: list[Column]) -> list[Column]:
    """Rename what differs from another in case alone; the source's own names come first."""
    own = [i for i, c in enumerate(wanted) if (c.name,) == c.sources]
    made = [i for i in range(len(wanted)) if i not in set(own)]
    taken: set[str] = set()
    names = {i: free_name(wanted[i].name or "column", taken) for i in [*own, *made]}
    return [replace(column, name=names[i]) for i, column in enumerate(wanted)]


def _is_uuid(staging: Staging, ordered: Ordered, column: str) -> bool:
    name = f"CAST({ordered.typed.column(column).sql} AS VARCHAR)"
    other = staging.row(
        f"SELECT count(*) FROM {ordered.sql} WHERE NOT regexp_full_match({name}, '{_UUID}')"
    )
    return ordered.rows > 0 and other[0] == 0
