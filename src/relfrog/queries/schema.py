"""What a question may name: the tables of a dataset, as label SQL sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from relfrog.datasets.dataset import read_tables
from relfrog.datasets.key_views import SourceKeys, find_source_keys
from relfrog.datasets.known_from import read_known_from, recorded_keys
from relfrog.datasets.protocols import Dataset
from relfrog.queries.syntax import Column, Span
from relfrog.support.text import nearest

__all__ = ["ForeignKey", "QuerySchema", "QueryTable", "read_schema"]


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key, and the column of its parent that has its values."""

    table: str
    column: str
    parent: str
    refers_to: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


@dataclass(frozen=True)
class QueryTable:
    """A table.

    Attributes:
        name: Its name.
        columns: The kind of each column: integer, number, boolean, time, text, list or other.
        pkey: The primary key.
        time: The column that says from when on a row is known.
        fkeys: The foreign keys by column.
        rows: How many rows it has.
    """

    name: str
    columns: dict[str, str]
    pkey: str | None
    time: str | None
    fkeys: dict[str, ForeignKey]
    rows: int = 0


@dataclass(frozen=True)
class QuerySchema:
    """The tables of a dataset.

    Attributes:
        tables: By name.
        folder: Where the dataset is, for messages.
        added_times: Tables whose time column is not in their file: it is found when they are read.
    """

    tables: dict[str, QueryTable]
    folder: str = "DATASET"
    added_times: frozenset[str] = frozenset()
    key_kinds: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def _folded(self) -> dict[str, str | None]:
        return _folded(self.tables)

    def table(self, name: str, span: Span, fail: Fail) -> QueryTable:
        """A table by its name; case matters only where names differ in nothing else."""
        found = name if name in self.tables else self._folded.get(name.casefold())
        if found is not None:
            return self.tables[found]
        near = nearest(name, self.tables)
        known = f"did you mean {near}?" if near else f"there are {_some(self.tables)}"
        raise fail(span, f"{name}: no such table; {known}")

    def column(self, column: Column, fail: Fail) -> tuple[QueryTable, str]:
        """A table and a column of it, or ``*``."""
        if len(column.parts) < 2:
            raise fail(column.span, self._unqualified(column.parts[0]))
        table = self.table(".".join(column.parts[:-1]), column.span, fail)
        name = column.parts[-1]
        if name == "*" or name in table.columns:
            return table, name
        found = _folded(table.columns).get(name.casefold())
        if found is not None:
            return table, found
        near = nearest(name, table.columns)
        known = f"did you mean {near}?" if near else f"there are {_some(table.columns)}"
        raise fail(column.span, f"{column}: no such column; {known}")

    def kind(self, table: QueryTable, column: str) -> str:
        """The kind of a column's values; keys have those of the source."""
        if column == table.pkey and self.key_kinds is not None:
            return self.key_kinds(table.name)
        if column in table.fkeys:
            key = table.fkeys[column]
            return self.kind(self.tables[key.parent], key.refers_to)
        return table.columns[column]

    def _unqualified(self, name: str) -> str:
        holders = [t.name for t in self.tables.values() if name in t.columns]
        if name.casefold() in self._folded:
            return f"{name} is a table; write a column of it, or {name}.*"
        if holders:
            return f"write {name} with its table: {' or '.join(f'{t}.{name}' for t in holders[:3])}"
        return f"{name}: write a column as table.column, and text in quotes: '{name}'"


#: Makes an error that points at a place of the question.
Fail = Callable[[Span, str], Exception]


def read_schema(dataset: Dataset) -> QuerySchema:
    """The schema of an opened dataset; of the rows, only keys and times are read, if at all."""
    files = read_tables(dataset)
    source = find_source_keys(dataset)
    added: dict[str, str] = {}
    if recorded_keys(dataset.dataset_dir) is None:  # files of others do not say it
        added = read_known_from(files).columns
    by_name = {file.name: file for file in files}
    tables = {}
    for file in files:
        columns = dict(file.columns)
        if file.name in added:
            columns[added[file.name]] = "time"
        keys = {}
        for column, parent in file.fkeys.items():
            pkey = by_name[parent].pkey if parent in by_name else None
            if column in columns and pkey is not None:
                to = source.referred_column(file.name, column, parent) if source else None
                keys[column] = ForeignKey(file.name, column, parent, to or pkey)
        time = added.get(file.name, file.time_col)
        pkey = file.pkey if file.pkey in columns else None
        tables[file.name] = QueryTable(
            file.name, columns, pkey, time if time in columns else None, keys, file.rows
        )
    kinds = _KeyKinds(source, tables) if source is not None else None
    return QuerySchema(tables, str(dataset.dataset_dir), frozenset(added), kinds)


class _KeyKinds:
    """The kind of each table's key as the source has it, found when it is asked for."""

    def __init__(self, source: SourceKeys, tables: dict[str, QueryTable]) -> None:
        self.source, self.tables, self.found = source, tables, dict[str, str]()

    def __call__(self, table: str) -> str:
        if table not in self.found:
            pkey = self.tables[table].pkey
            value = self.source.example(table).get(pkey or "")
            kind = {bool: "boolean", int: "integer", float: "number", str: "text"}
            self.found[table] = kind.get(type(value), "other" if value is not None else "integer")
        return self.found[table]


def _folded(
    names: dict[str, object] | dict[str, QueryTable] | dict[str, str],
) -> dict[str, str | None]:
    """Names by their lower case; None where several differ in case alone."""
    found: dict[str, str | None] = {}
    for name in names:
        folded = name.casefold()
        found[folded] = None if folded in found else name
    return found


def _some(names: dict[str, QueryTable] | dict[str, str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")
