"""From when on rows are known, in datasets whose files do not say it for every row.

A row without a time of its own is known from the latest of the rows that it names; see
`relfrog.support.inherited_times`. What `relfrog import` writes says so for every row, in a column
`known_from`. In datasets made by others the column is added when their tables are read: files,
labels and the tables that label SQL sees stay as they are, with one more column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relfrog.datasets.dataset import TableFile, read_tables
from relfrog.datasets.protocols import Dataset
from relfrog.errors import DatasetError
from relfrog.graph.pointers import ForeignKey, foreign_keys, parent_pointers
from relfrog.importing.record import read_record
from relfrog.store.file_table import FileTable, column_names
from relfrog.store.streams import read_ticks
from relfrog.support.arrays import blocks
from relfrog.support.inherited_times import Contradiction, Link, inherit_times
from relfrog.support.relbench import Database, Table
from relfrog.support.text import free_name
from relfrog.support.times import MISSING, common_unit, convert_ticks

__all__ = ["KnownFrom", "find_known_from", "inherited_keys", "read_known_from", "recorded_keys"]


@dataclass(frozen=True)
class KnownFrom:
    """Columns to add, and where their times come from.

    Attributes:
        columns: Per table that inherits times, the name of its new time column.
        times: Its values.
        keys: The foreign-key columns along which each table inherits.
        contradictions: Foreign keys that nothing is inherited along.
    """

    columns: dict[str, str] = field(default_factory=dict)
    times: dict[str, NDArray[np.datetime64]] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    contradictions: list[Contradiction] = field(default_factory=list)

    def add_columns(self, db: Database) -> Database:
        """The database with the columns; its time columns stay what they are."""
        tables = dict(db.table_dict)
        for name, column in self.columns.items():
            old = tables[name]
            frame = old.df.assign(**{column: self.times[name]})
            tables[name] = Table(frame, old.fkey_col_to_pkey_table, old.pkey_col, old.time_col)
        return Database(tables)

    def name_columns(self, db: Database) -> Database:
        """A database that has the columns, with them as its time columns."""
        tables = dict(db.table_dict)
        for name, column in self.columns.items():
            old = tables[name]
            tables[name] = Table(old.df, old.fkey_col_to_pkey_table, old.pkey_col, column)
        return Database(tables)


def recorded_keys(folder: str | Path) -> dict[str, list[str]] | None:
    """The foreign-key columns along which each table inherits times, as the import recorded them.

    Returns:
        None for a dataset that was not imported by RelFrog, or by a version that recorded nothing.
    """
    record = read_record(Path(folder))
    if record is None or any(t.get("inherited_from") is None for t in record["tables"].values()):
        return None
    return {name: list(table["inherited_from"]) for name, table in record["tables"].items()}


def inherited_keys(dataset: Dataset) -> dict[str, list[str]]:
    """The foreign-key columns along which each table of an opened dataset inherits times."""
    recorded = recorded_keys(dataset.dataset_dir)
    return read_known_from(read_tables(dataset)).keys if recorded is None else recorded


def read_known_from(tables: list[TableFile]) -> KnownFrom:
    """What `find_known_from` finds in files, of which it reads keys and times only."""
    read: dict[str, Table] = {}
    for table in tables:
        keys = {column: parent for column, parent in table.fkeys.items() if column in table.columns}
        time = table.time_col if table.time_col in table.columns else None
        read[table.name] = FileTable(table.path, keys, table.pkey, time)
    try:
        return find_known_from(Database(read))
    except (OSError, ValueError, TypeError, NotImplementedError) as error:  # and Arrow's
        text = " ".join(str(error).split())[:300]
        raise DatasetError(f"{tables[0].path.parent}: a table cannot be read ({text}).") from None


def find_known_from(db: Database) -> KnownFrom:
    """Find out which tables inherit times, and from when on their rows are known.

    Rows that neither have nor inherit a time get the earliest time of the database: RelBench would
    drop them at any cut.

    Args:
        db: The whole database, or the key and time columns of all its tables.
    """
    tables = db.table_dict
    ticks = {
        name: read_ticks(table, table.time_col)
        for name, table in tables.items()
        if table.time_col is not None
    }
    unit = common_unit(list(ticks.values()))
    own = {
        name: convert_ticks(*ticks.pop(name), unit) if name in ticks
        else np.full(len(table), MISSING)
        for name, table in tables.items()
    }  # fmt: skip
    keys = foreign_keys({name: table.fkey_col_to_pkey_table for name, table in tables.items()})
    links = [
        Link(key.table, (key.column,), key.parent)
        for key in keys
        if key.parent in tables and tables[key.parent].pkey_col is not None
    ]

    @cache
    def pointers(link: Link) -> NDArray[np.int32]:
        return parent_pointers(db, ForeignKey(link.child, link.columns[0], link.parent))

    found = inherit_times(own, links, pointers, unit=unit)
    earliest = min((first for times in own.values() for first in _firsts(times)), default=0)
    columns, times = {}, {}
    for name, known in found.known.items():
        columns[name] = free_name(
            "known_from", {str(c).lower() for c in column_names(tables[name])}
        )
        filled = np.where(known == MISSING, earliest, known)
        times[name] = filled.view(f"datetime64[{unit}]")
    along = {name: [link.columns[0] for link in some] for name, some in found.links.items()}
    return KnownFrom(columns, times, along, found.contradictions)


def _firsts(times: NDArray[np.int64]) -> Iterator[np.int64]:
    """The first time of each block of a column that has one."""
    for some in blocks(len(times)):
        known = times[some][times[some] != MISSING]
        if len(known):
            yield known.min()
