"""What the user corrects in a mapping: by a mapping file, ``--pk``, ``--fk`` and ``--time``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relfrog.errors import SchemaError, UsageError, unknown
from relfrog.importing.column_types import ColumnType
from relfrog.importing.mapping import ForeignKeyMapping
from relfrog.importing.time_flags import apply_time_flag
from relfrog.io.sources import SourceTable
from relfrog.support.forms import read_yaml

__all__ = ["Corrections", "TableCorrections", "apply_flags", "read_corrections"]


@dataclass
class TableCorrections:
    """The user's corrections of one table; None where there is none."""

    name: str | None = None
    #: Tables and columns to make this table of.
    made_from: list[tuple[str, str]] = field(default_factory=list)
    primary_key: tuple[str, ...] | None = None
    time: str | None = None
    #: The user wants no time column.
    no_time: bool = False
    #: What to inherit times from: parents, or foreign keys; () for nothing.
    inherited_from: tuple[str, ...] | None = None
    foreign_keys: list[ForeignKeyMapping] | None = None
    added_keys: list[ForeignKeyMapping] = field(default_factory=list)
    refused_keys: set[tuple[str, ...]] = field(default_factory=set)
    columns: dict[str, ColumnType] = field(default_factory=dict)


@dataclass
class Corrections:
    """The user's corrections, from the mapping file and the flags."""

    tables: dict[str, TableCorrections] = field(default_factory=dict)
    #: Import only the tables named here: a mapping file lists them all.
    closed: bool = False
    val: str | None = None
    test: str | None = None

    def table(self, name: str) -> TableCorrections:
        """The corrections of a table, created if needed."""
        return self.tables.setdefault(name, TableCorrections())


_TOP = {"source", "val", "test", "split_reason", "tables"}
_TABLE = {"name", "rows", "made_from", "primary_key", "time", "foreign_keys", "columns"}
_PRIMARY = {"columns", "origin", "evidence"}
_TIME = {"column", "inherited_from", "origin", "reason"}
_FOREIGN = {"columns", "parent", "parent_columns", "use", "loose", "origin", "evidence"}
_COLUMN = {"type", "reason"}


def read_corrections(path: Path) -> Corrections:
    """Read a mapping file.

    Raises:
        SchemaError: The file cannot be read, or holds something that means nothing.
    """
    root = _mapping(read_yaml(path, f"mapping file {path}", SchemaError), _TOP, str(path))
    corrections = Corrections(closed=True, val=_time(root.get("val")), test=_time(root.get("test")))
    for name, given in _mapping(root.get("tables"), None, f"{path}: tables").items():
        where = f"{path}: table {name}"
        entry = _mapping(given, _TABLE, where)
        table = corrections.table(str(name))
        if entry.get("name") is not None:
            table.name = str(entry["name"])
        if entry.get("made_from"):
            table.made_from = _places(entry["made_from"], f"{where}: made_from")
        if "primary_key" in entry:
            key = entry["primary_key"]
            if isinstance(key, dict):
                key = _mapping(key, _PRIMARY, f"{where}: primary_key").get("columns")
            table.primary_key = _columns(key, f"{where}: primary_key")
        if "time" in entry:
            _read_time(table, entry["time"], f"{where}: time")
        if "foreign_keys" in entry:
            table.foreign_keys = [
                _foreign_key(key, f"{where}: foreign_keys") for key in _list(entry, where)
            ]
        for column, kind in _mapping(entry.get("columns"), None, f"{where}: columns").items():
            if isinstance(kind, dict):
                kind = _mapping(kind, _COLUMN, f"{where}: column {column}").get("type")
            table.columns[str(column)] = ColumnType.parse(str(kind), f"{where}: column {column}")
    return corrections


def _read_time(table: TableCorrections, given: object, where: str) -> None:
    """Read a column's name, null for no time, or an entry with what to inherit times from."""
    column, sources = given, None
    if isinstance(given, dict):
        entry = _mapping(given, _TIME, where)
        column, sources = entry.get("column"), entry.get("inherited_from")
    table.time = None if column is None else str(column)
    if sources is not None:
        table.inherited_from = _columns(sources, f"{where}: inherited_from")
    # An entry that does not say what is inherited was written before anything was.
    silent = isinstance(given, dict) and sources is None and given.get("origin") != "chosen"
    table.no_time = column is None and not table.inherited_from and not silent


def _foreign_key(given: object, where: str) -> ForeignKeyMapping:
    entry = _mapping(given, _FOREIGN, where)
    if not entry.get("columns") or not entry.get("parent"):
        raise SchemaError(f"{where}: each needs 'columns' and 'parent'")
    if not isinstance(entry.get("use", True), bool):
        raise SchemaError(f"{where}: 'use' is true or false (got {entry['use']!r})")
    return ForeignKeyMapping(
        _columns(entry["columns"], where),
        str(entry["parent"]),
        _columns(entry.get("parent_columns"), where),
        "chosen",
        used=entry.get("use", True),
        loose=entry.get("loose", False) is True,
    )


def _places(given: object, where: str) -> list[tuple[str, str]]:
    pairs = given if isinstance(given, list) else [given]
    found = [(str(p[0]), str(p[1])) for p in pairs if isinstance(p, list) and len(p) == 2]
    if len(found) < len(pairs):
        raise SchemaError(f"{where}: expected a list of [table, column] (got {given!r})")
    return found


def _mapping(given: object, allowed: set[str] | None, where: str) -> dict[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SchemaError(f"{where}: expected names with values (got {given!r})")
    for key in given:
        if allowed is not None and key not in allowed:
            raise SchemaError(
                f"{where}: unknown entry {key!r}. Known: {', '.join(sorted(allowed))}"
            )
    return given


def _list(entry: Mapping[str, Any], where: str) -> Sequence[Any]:
    given = entry["foreign_keys"] or []
    if not isinstance(given, list):
        raise SchemaError(f"{where}: foreign_keys is a list (got {given!r})")
    return given


def _columns(given: object, where: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list):
        raise SchemaError(f"{where}: expected a column or a list of columns (got {given!r})")
    return tuple(str(name) for name in given)


def _time(given: object) -> str | None:
    return None if given is None else str(given)


def apply_flags(
    corrections: Corrections,
    tables: Sequence[SourceTable],
    pk: Iterable[str],
    fk: Iterable[str],
    time: Iterable[str],
) -> None:
    """Add what ``--pk``, ``--fk`` and ``--time`` say to the corrections.

    ``--pk TABLE.COL[,COL]``, ``--time TABLE.COL``, ``--time TABLE=PARENT[,PARENT]`` (or a foreign
    key's column) to inherit times, ``--fk TABLE.COL[,COL]=PARENT[.COL[,COL]]``; ``none`` in place
    of the columns (or of the parent) takes a key or a time away.
    """
    known = {t.name: [c.name for c in t.columns] for t in tables}
    for flag in pk:
        table, columns = _place(flag, known, "--pk orders.id")
        corrections.table(table).primary_key = columns
    for flag in time:
        if not apply_time_flag(corrections, flag, known):
            _place(flag, known, "--time orders.created_at")  # says what is wrong with it
    for flag in fk:
        child, equals, parent = flag.rpartition("=")
        if not equals:
            raise UsageError(f"--fk {flag}: write it as --fk orders.customer_id=customers.id")
        table, columns = _place(child, known, "--fk orders.customer_id=customers.id")
        if not columns:
            raise UsageError(f"--fk {flag}: name the columns of {table}")
        if parent == "none":
            corrections.table(table).refused_keys.add(columns)
            continue
        if parent in known:
            parent_table: str = parent
            parent_columns: tuple[str, ...] = ()
        else:
            parent_table, parent_columns = _place(parent, known, f"--fk {child}=customers.id")
        corrections.table(table).added_keys.append(
            ForeignKeyMapping(columns, parent_table, parent_columns, "chosen")
        )


def _place(text: str, known: dict[str, list[str]], example: str) -> tuple[str, tuple[str, ...]]:
    """Split ``table.column,column``, where both may contain dots and commas."""
    for table in sorted(known, key=len, reverse=True):
        for mark in (".", "="):
            if text.startswith(table + mark):
                rest = text[len(table) + 1 :]
                if rest == "none" and "none" not in known[table]:
                    return table, ()
                if rest in known[table]:
                    return table, (rest,)
                columns = tuple(part.strip() for part in rest.split(","))
                for column in columns:
                    if column not in known[table]:
                        raise unknown(f"column in table {table}", column, known[table])
                return table, columns
    table = text.split(".")[0]
    if table in known:
        raise UsageError(f"{text!r} names no column. Write it as {example}")
    raise unknown("table", table, known)
