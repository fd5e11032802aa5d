"""A table in which a few rows are others: replaced, removed or added, beside those that stay.

What would be if rows were different is asked of a database by certificates and by suppositions.
The rows that stay are not copied: an `Overlay` says which they are, and holds the others as row
numbers, a small frame of different rows, and for each row which of them it has. So an overlay takes
memory for what it changes alone, and whatever was made of the table is still good for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relfrog.store.column_table import ColumnTable
from relfrog.store.file_table import (
    FileTable,
    column_names,
    is_whole,
    read_column,
    retimed,
    without_columns,
)
from relfrog.support.parquet import reading
from relfrog.support.relbench import Database, Table

__all__ = ["Changes", "OverlayTable", "read_rows"]

Ints = NDArray[np.int64]
#: Rows of a frame that are put together at a time.
AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class Changes:
    """Which rows of a table are others, and what they are.

    Attributes:
        gone: rows of the table that are not there any more, sorted; those after them move up.
        at: the numbers of replaced and added rows, sorted, when all is done. Shape [n].
        patterns: different rows.
        pattern: which of them each row has. Shape [n].
        own: columns in which each row has a value of its own. Shapes [n].
    """

    gone: Ints
    at: Ints
    patterns: pd.DataFrame
    pattern: NDArray[np.integer[Any]]
    own: Mapping[str, pd.Series] = field(default_factory=dict)

    @classmethod
    def removal(cls, gone: Ints) -> Changes:
        """Rows that are gone, and nothing else."""
        return cls(gone, np.zeros(0, np.int64), pd.DataFrame(), np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.at)

    def frame(self, some: slice | Ints = slice(None)) -> pd.DataFrame:
        """Some of the rows that are others, by their place in `at`."""
        found = self.patterns.take(self.pattern[some])
        found = found.reset_index(drop=True)
        for name, values in self.own.items():
            if name in found:
                found[name] = values.iloc[some].reset_index(drop=True)
        return found

    def column(self, name: str) -> pd.Series:
        """One column of them."""
        if name in self.own:
            return self.own[name].reset_index(drop=True)
        if not len(self):
            return pd.Series([], dtype=object)
        return self.patterns[name].take(self.pattern).reset_index(drop=True)

    def pieces(self) -> Iterator[pd.DataFrame]:
        """All of them, some at a time."""
        for first in range(0, len(self), AT_ONCE):
            yield self.frame(slice(first, first + AT_ONCE))

    def with_own(self, own: Mapping[str, pd.Series]) -> Changes:
        """The same with other values of their own in some columns."""
        return Changes(self.gone, self.at, self.patterns, self.pattern, {**self.own, **own})

    def without(self, columns: Collection[str]) -> Changes:
        """The same without some columns."""
        left = self.patterns.drop(columns=[c for c in self.patterns if c in columns])
        own = {name: values for name, values in self.own.items() if name not in columns}
        return Changes(self.gone, self.at, left, self.pattern, own)


class OverlayTable(ColumnTable):
    """A table with changes.

    Args:
        base: the table, in a file or in memory.
        changes: what is different.
        cut: the last time of which there are rows; by default all are there.
    """

    def __init__(self, base: Table, changes: Changes, cut: pd.Timestamp | None = None) -> None:
        self.base, self.changes, self.cut = base, changes, cut
        self.fkey_col_to_pkey_table = base.fkey_col_to_pkey_table
        self.pkey_col, self.time_col = base.pkey_col, base.time_col

    @classmethod
    def replaced(cls, base: Table, rows: Ints, frame: pd.DataFrame) -> OverlayTable:
        """A table with other values in some rows, each once, given in order."""
        nothing = np.zeros(0, np.int64)
        return cls(base, Changes(nothing, np.asarray(rows), frame, np.arange(len(frame))))

    @classmethod
    def extended(cls, base: Table, frame: pd.DataFrame) -> OverlayTable:
        """A table with more rows at its end."""
        return cls.replaced(base, len(base) + np.arange(len(frame)), frame)

    def without(self, columns: set[str]) -> OverlayTable:
        """The same without some columns, and without the foreign keys among them."""
        pairs = [("", column) for column in columns]
        base = without_columns(Database({"": self.base}), pairs).table_dict[""]
        return OverlayTable(base, self.changes.without(columns), self.cut)

    def retimed(self, keys: dict[str, str], time: str | None) -> OverlayTable:
        """The same rows with other foreign keys and another time column."""
        return OverlayTable(retimed(self.base, keys, time), self.changes, self.cut)

    def showing(self, base: Table, own: Mapping[str, pd.Series]) -> OverlayTable:
        """The same changes of another view of the base, with other values in some columns."""
        return OverlayTable(base, self.changes.with_own(own), self.cut)

    # Rows.

    @cached_property
    def stays(self) -> int:
        """How many rows of the base are left, if only to be replaced."""
        return len(self.base) - len(self.changes.gone)

    @cached_property
    def rows(self) -> int:
        """Rows, whether they are cut or not."""
        return max(self.stays, int(self.changes.at.max(initial=-1)) + 1)

    def __len__(self) -> int:
        return self.rows if self._kept is None else int(self._kept.sum())

    def origin(self, rows: Ints) -> Ints:
        """The row of the base of each row that was not added."""
        gone = self.changes.gone
        if not len(gone) or gone[0] == self.stays:  # the last ones
            return rows
        return np.asarray(rows + np.searchsorted(gone - np.arange(len(gone)), rows, "right"))

    def find(self, rows: Ints) -> tuple[Ints, Ints]:
        """Which of some rows are others: indices into `rows`, and into the changes."""
        at = self.changes.at
        if not len(at):
            return at, at
        place = np.minimum(np.searchsorted(at, rows), len(at) - 1)
        mine = np.flatnonzero(at[place] == rows)
        return mine, place[mine]

    def patched(self, values: NDArray[Any], fresh: NDArray[Any]) -> NDArray[Any]:
        """Values of all rows, from those of the rows of the base and those of the changes."""
        found = np.empty((self.rows, *values.shape[1:]), np.result_type(values, fresh))
        found[: self.stays] = values[self._left]
        found[self.changes.at] = fresh
        return found

    @cached_property
    def _left(self) -> Any:
        """The rows of the base that are left."""
        gone = self.changes.gone
        if not len(gone) or gone[0] == self.stays:
            return slice(self.stays)
        left = np.ones(len(self.base), bool)
        left[gone] = False
        return left

    @cached_property
    def _kept(self) -> NDArray[np.bool_] | None:
        if self.cut is None or self.time_col is None:
            return None
        return np.asarray(self._whole(self.time_col) <= self.cut)

    # Values.

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return column_names(self.base)

    def column(self, name: str) -> pd.Series:
        """The values of a column, as `df` has them."""
        values = self._whole(name)
        return values if self._kept is None else values[self._kept]

    def _whole(self, name: str) -> pd.Series:
        old = read_column(self.base, name)[self._left].reset_index(drop=True)
        if not len(self.changes):
            return old
        old, new = _alike(old, self.changes.column(name))
        places = np.arange(self.rows)
        places[self.changes.at] = len(old) + np.arange(len(new))
        both = pd.concat([old, new], ignore_index=True)
        return both.take(places).reset_index(drop=True).rename(name)

    def upto(self, timestamp: pd.Timestamp) -> OverlayTable:
        """The rows up to a time; all of them if the table has no times."""
        if self.time_col is None:
            return self
        cut = timestamp if self.cut is None else min(self.cut, timestamp)
        return OverlayTable(self.base, self.changes, pd.Timestamp(cut))

    def others(self) -> Ints:
        """The rows of the base that are gone or replaced, sorted."""
        replaced = self.origin(self.changes.at[self.changes.at < self.stays])
        return np.union1d(self.changes.gone, replaced)


def _alike(old: pd.Series, new: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Two columns in one type that holds both."""
    if isinstance(old.dtype, pd.CategoricalDtype):
        return old.astype(object), new.astype(object)
    if new.hasnans and str(old.dtype) in _LOOSE:
        old = nullable(old)
    if new.dtype == old.dtype:
        return old, new
    if pd.api.types.is_integer_dtype(old.dtype) and pd.api.types.is_float_dtype(new.dtype):
        if (new.dropna() % 1 != 0).any():
            return old.astype(float), new.astype(float)
    return old, new.astype(old.dtype)


#: Types without a missing value.
_LOOSE = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def nullable(values: pd.Series) -> pd.Series:
    """Convert to a type that has a missing value, without rounding."""
    name = str(values.dtype)
    if name not in _LOOSE:
        return values
    if name == "bool":
        return values.astype("boolean")
    return values.astype({"u": "UInt", "i": "Int"}[name[0]] + name.split("int")[1])


def read_rows(table: Table, rows: Ints) -> pd.DataFrame:
    """Some rows of a table, in order and each once; of a file only the pieces that have them."""
    rows = np.asarray(rows)
    if not is_whole(table):
        names = column_names(table)
        parts = {n: read_column(table, n).iloc[rows].reset_index(drop=True) for n in names}
        return pd.DataFrame(parts, index=range(len(rows)))
    found = _from_file(table, rows)
    for name in table.layout.added:
        found[name] = table.column(name).iloc[rows].to_numpy()
    for name, limit in table.layout.limits.items():
        if name in found and pd.api.types.is_numeric_dtype(found[name].dtype):
            beyond = found[name] >= limit
            found[name] = found[name].mask(beyond) if beyond.any() else found[name]
    return found[table.columns]


def _from_file(table: FileTable, rows: Ints) -> pd.DataFrame:
    names = [name for name in table.columns if name not in table.layout.added]
    parts, first = [], 0
    path = table.layout.path
    with reading(path), pq.ParquetFile(path) as file:
        for group in range(file.metadata.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if not ((rows >= first) & (rows < last)).any():
                first = last
                continue
            for batch in file.iter_batches(1 << 16, row_groups=[group], columns=names):
                batch.validate(full=True)
                mine = rows[(rows >= first) & (rows < first + len(batch))] - first
                if len(mine):
                    parts.append(batch.take(mine))
                first += len(batch)
        schema = pa.schema([file.schema_arrow.field(name) for name in names])
    joined = pa.Table.from_batches([part.cast(schema) for part in parts], schema)
    frame = joined.replace_schema_metadata(None).to_pandas()
    for name in frame:
        if isinstance(frame[name].dtype, pd.StringDtype):
            frame[name] = frame[name].astype(object)
    return cast("pd.DataFrame", frame)
