"""Label SQL in the source's keys: tables that show them, and answers turned into row numbers.

In a dataset's files keys are row numbers, as RelBench demands. Whoever writes label SQL knows the
values of the source. So where `relfrog import` made the dataset, SQL runs on tables whose primary
and foreign keys have the source's values, and the keys that it gives become row numbers again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relfrog.datasets.dataset import source_keys
from relfrog.datasets.protocols import Dataset
from relfrog.errors import DatasetError, TaskError
from relfrog.importing.record import read_record
from relfrog.store.file_table import FileTable
from relfrog.store.overlay import OverlayTable
from relfrog.support.duckdb import quoted
from relfrog.support.lists import holds_lists, unflatten
from relfrog.support.parquet import UNREADABLE, read_parquet
from relfrog.support.relbench import Database, Table

__all__ = ["SourceKeys", "find_source_keys"]

#: Where values are: table, column, and whether that is one of the source's primary key.
_Place: TypeAlias = tuple[str, str, bool]


def find_source_keys(dataset: Dataset) -> SourceKeys | None:
    """The source's keys of a dataset; None if `relfrog import` did not make it."""
    if not dataset.is_local:
        return None
    folder = Path(dataset.dataset_dir)
    record = read_record(folder)
    if record is None:
        return None
    tables = {
        name: _TableRecord(
            tuple(table["key"]),
            {
                column: _ColumnRecord(
                    tuple(about["source"]), about["role"], tuple(about.get("parent_columns") or ())
                )
                for column, about in table["columns"].items()
            },
        )
        for name, table in record["tables"].items()
    }
    # Tables that were added by hand have row numbers of their own, and refer to the others' keys.
    tables = {name: tables.get(name, _TableRecord()) for name in dataset.manifest.tables}
    return SourceKeys(folder, dataset, tables)


@dataclass(frozen=True)
class _ColumnRecord:
    """What the import says of a column: its origin, its role, and which columns it refers to."""

    source: tuple[str, ...]
    role: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True)
class _TableRecord:
    """What the import says of a table: the source's primary key, and its columns."""

    key: tuple[str, ...] = ()
    columns: dict[str, _ColumnRecord] = field(default_factory=dict)

    def column_from(self, source: str, role: str | None = None) -> str | None:
        """The dataset's column that was made from one column of the source."""
        for name, column in self.columns.items():
            if column.source == (source,) and role in (None, column.role):
                return name
        return None


class SourceKeys:
    """The source's key values of a dataset's tables; read when they are first needed.

    Args:
        folder: the dataset folder.
        dataset: the opened dataset.
        records: what the import says of each table.
    """

    def __init__(self, folder: Path, dataset: Dataset, records: dict[str, _TableRecord]) -> None:
        self._folder, self._manifest, self._records = folder, dataset.manifest, records
        self._values: dict[_Place, pd.Series] = {}
        self._frames: dict[str, pd.DataFrame | None] = {}

    def example(self, table: str) -> dict[str, Any]:
        """A key of a table as label SQL writes it: the value of each of its columns.

        Empty if the table has no key in the source.
        """
        record = self._records[table]
        values = {source: self._key(table, source) for source in record.key}
        whole = np.flatnonzero(pd.DataFrame(values).notna().all(axis=1))
        return {
            record.column_from(source) or source: _python(column.iloc[int(whole[0])])
            for source, column in (values.items() if len(whole) else ())
        }

    def referred_column(self, table: str, column: str, parent: str) -> str | None:
        """The column of a parent that has the values of a foreign key, as SQL sees both.

        None if that is the primary key.
        """
        about = self._records[table].columns.get(column, _ColumnRecord((column,)))
        found = self._referred(parent, about)
        return None if found is None or found[2] else found[1]

    def view(self, db: Database, sql: str) -> Database:
        """The tables that some SQL mentions, keys with the source's values.

        A primary key has the value that the source has, a foreign key that of the row it refers
        to, NULL if there is none. A key that the import made up, for a composite key or for a
        table without one, stays the number of the row: the source has no such column.
        """
        text = sql.casefold()
        names = [n for n in db.table_dict if any(s in text for s in _spelled(n))]
        return Database({name: self._shown(name, db.table_dict[name]) for name in names})

    def _shown(self, name: str, table: Table) -> Table:
        if isinstance(table, FileTable):
            found = {c: self._column_values(name, c, table) for c in table.columns}
            return table.with_values(
                {
                    column: (str(table.pkey_col) if by is None else by, *self._file(place))
                    for column, values in found.items()
                    if values is not None
                    for by, place in [values]
                }
            )
        if isinstance(table, OverlayTable):
            taken = {}
            for column in table.columns:
                if (values := self._column_values(name, column, table)) is not None:
                    by = values[0] or str(table.pkey_col)
                    taken[column] = pd.Series(self._taken(values[1], table.changes.column(by)))
            return table.showing(self._shown(name, table.base), taken)
        frame = table.df.copy(deep=False)
        for column in table.df:
            values = self._column_values(name, str(column), table)
            if values is not None:
                rows = table.df[table.pkey_col if values[0] is None else values[0]]
                frame[column] = self._taken(values[1], rows)
        return Table(frame, table.fkey_col_to_pkey_table, table.pkey_col, table.time_col)

    def _column_values(
        self, name: str, column: str, table: Table
    ) -> tuple[str | None, _Place] | None:
        """The column whose row numbers pick from values, and which; None to leave it as is.

        The first is None where the table's own primary key picks.
        """
        record = self._records[name]
        about = record.columns.get(column, _ColumnRecord((column,)))
        if column in table.fkey_col_to_pkey_table:
            found = self._referred(table.fkey_col_to_pkey_table[column], about)
            return None if found is None else (column, found)
        if table.pkey_col is None or not record.key:
            return None
        if column == table.pkey_col:
            return None if len(record.key) > 1 else (None, (name, record.key[0], True))
        if about.role == "value" and len(about.source) == 1 and about.source[0] in record.key:
            # A part of a composite key; pandas may have rounded it in a column with NULLs.
            return None, (name, about.source[0], True)
        return None

    def _referred(self, parent: str, about: _ColumnRecord) -> _Place | None:
        """The values that a foreign key has, by row of its parent; None if it is made up."""
        if len(about.source) != 1:
            return None
        record = self._records[parent]
        to = about.to or record.key
        if len(to) != 1:
            return None
        if to == record.key:
            return parent, to[0], True
        # A unique column that is not the primary key.
        column = record.column_from(to[0], "value")
        if column is not None:
            return parent, column, False
        return (parent, record.key[0], True) if len(record.key) == 1 else None

    def _taken(self, place: _Place, rows: pd.Series) -> Any:
        """Values by row number; missing where there is none."""
        numbers = rows.to_numpy(np.int64, na_value=-1)
        table, column, is_key = place
        values = self._key(table, column) if is_key else self._stored(table, column)
        count = int(numbers.max(initial=-1)) + 1
        if count > len(values):
            # Rows that someone added to see what difference they make: see altered_future.
            values = self._values[place] = _extended(values, count)
        return _picked(values, numbers)

    def _file(self, place: _Place) -> tuple[Path, str]:
        """The file and the column that have the values of a place, row by row."""
        table, column, is_key = place
        path = self._folder / ("keys" if is_key else "db") / f"{table}.parquet"
        try:
            known = pq.read_schema(path).names
            count = pq.read_metadata(path).num_rows if is_key else None
        except (OSError, pa.ArrowException):
            known, count = [], None
        self._check_keys(table, column, known, count)
        return path, column

    def _check_keys(
        self, table: str, column: str, known: Collection[str], count: int | None
    ) -> None:
        """Refuse a file that does not hold the keys of a table."""
        if column not in known:
            raise DatasetError(
                f"{self._folder / 'keys' / table}.parquet does not hold {column}, the "
                f"source's key of {table}. Import the database again."
            )
        rows = pq.read_metadata(self._folder / "db" / f"{table}.parquet").num_rows
        if count is not None and count < rows:
            raise DatasetError(
                f"{self._folder / 'keys' / table}.parquet holds {count:,} keys, but "
                f"{table} has {rows:,} rows. Import the database again."
            )

    def _key(self, table: str, column: str) -> pd.Series:
        """A column of the source's primary key, one value per row of the table."""
        if (table, column, True) not in self._values:
            if table not in self._frames:
                self._frames[table] = source_keys(self._folder, table)
            frame = self._frames[table]
            known = [] if frame is None else list(frame)
            self._check_keys(table, column, known, None if frame is None else len(frame))
            assert frame is not None
            self._values[table, column, True] = _plain(frame[column])
        return self._values[table, column, True]

    def _stored(self, table: str, column: str) -> pd.Series:
        """A column of the whole table, as its file has it."""
        if (table, column, False) not in self._values:
            path = self._folder / "db" / f"{table}.parquet"
            try:
                frame = read_parquet(path, [column], nullable=True)
            except UNREADABLE as error:
                text = " ".join(str(error).split())[:300]
                raise DatasetError(f"{path} cannot be read: {text}.") from None
            self._values[table, column, False] = _plain(frame[column])
        return self._values[table, column, False]

    # Back to row numbers.

    def to_rows(self, frame: pd.DataFrame, ends: Sequence[tuple[str, str]]) -> pd.DataFrame:
        """What label SQL gave, with row numbers in place of keys.

        Args:
            frame: The SQL's answer.
            ends: Columns with keys, and the table of each. A column of lists is one, too. Instead
                of a key that the import made up for a composite key, the SQL may give the columns
                that the source's key has.

        Raises:
            TaskError: A key is not in its table.
        """
        frame = frame.copy(deep=False)
        for column, table in ends:
            record = self._records[table]
            if column in frame:
                if len(record.key) == 1:
                    frame[column] = self._numbered(frame[column], column, table)
            elif len(record.key) > 1:
                parts = [record.column_from(source) for source in record.key]
                named = [part for part in parts if part is not None and part in frame]
                if len(named) == len(parts):
                    rows = self._composite_rows(frame, named, table)
                    frame.insert(frame.columns.get_loc(named[0]), column, rows)
                    frame = frame.drop(columns=named)
        return frame

    def _numbered(self, values: pd.Series, column: str, table: str) -> pd.Series:
        """Keys, or lists of keys, as row numbers."""
        keys = pd.DataFrame({"k0": self._key(table, self._records[table].key[0])})
        lists = _as_lists(values)
        if lists is None:
            rows = _find(keys, pd.DataFrame({"k0": values}), column, table)
            return pd.Series(rows, values.index, name=column)
        flat = lists.flatten()
        if flat.null_count or lists.null_count:
            return values  # said by the check of labels
        rows = _find(keys, pd.DataFrame({"k0": flat.to_pandas()}), column, table)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        return unflatten(lengths, np.asarray(rows, np.int64)).set_axis(values.index)

    def _composite_rows(self, frame: pd.DataFrame, parts: list[str], table: str) -> pd.Series:
        """The row of each combination of values, as the SQL sees them."""
        record = self._records[table]
        known = {}
        for i, (part, source) in enumerate(zip(parts, record.key, strict=True)):
            role = record.columns[part].role
            is_time = role == "time"
            known[f"k{i}"] = self._stored(table, part) if is_time else self._key(table, source)
        asked = frame[parts].set_axis([f"k{i}" for i in range(len(parts))], axis=1)
        rows = _find(pd.DataFrame(known), asked, ", ".join(parts), table)
        return pd.Series(rows, frame.index)


def _as_lists(values: pd.Series) -> pa.ListArray | None:
    """A column of lists; None if it holds anything else."""
    if holds_lists(values):
        return pa.chunked_array(pa.array(values)).combine_chunks()
    if values.dtype != object or not len(values) or not np.ndim(values.iloc[0]):
        return None
    # NULL in a list makes it a masked array, which Arrow would take for a plain one.
    masked = any(map(np.ma.isMaskedArray, values))
    try:
        return pa.array([v.tolist() for v in values] if masked else values, from_pandas=False)
    except pa.ArrowException:
        return None


def _spelled(name: str) -> set[str]:
    """The ways to write a name in SQL, without regard to case."""
    return {name.casefold(), quoted(name)[1:-1].casefold()}


def _plain(values: pd.Series) -> pd.Series:
    """Values of types that DuckDB reads from pandas: text as Python's."""
    if isinstance(values.dtype, pd.StringDtype):
        values = values.astype(object)
        return values.where(values.notna(), None)
    if isinstance(values.dtype, pd.Int64Dtype | pd.BooleanDtype) and not values.isna().any():
        return values.astype(values.dtype.numpy_dtype)
    return values


def _picked(values: pd.Series, numbers: NDArray[np.int64]) -> Any:
    """Values by number; missing where it is negative."""
    if not len(values):
        return pd.array([None] * len(numbers), dtype=object)
    if (numbers >= 0).all():
        return values.array.take(numbers)
    if values.dtype == np.int64 or values.dtype == np.bool_:
        values = values.astype("Int64" if values.dtype == np.int64 else "boolean")
    return values.array.take(numbers, allow_fill=True)


def _extended(values: pd.Series, count: int) -> pd.Series:
    """Keys with more of them, different from all others, up to so many."""
    step = np.arange(1, count - len(values) + 1)
    kinds = pd.api.types
    more: Any
    if kinds.is_bool_dtype(values.dtype):
        more = pd.array([None] * len(step), "boolean")
    elif kinds.is_numeric_dtype(values.dtype):
        low, high = (values.min(), values.max()) if values.notna().any() else (0, 0)
        more = high + step if high < 2**62 else low - step
    elif kinds.is_datetime64_any_dtype(values.dtype):
        first = values.max() if values.notna().any() else pd.Timestamp(0)
        more = first + pd.to_timedelta(step, "us")
    else:
        longest = max(map(len, values.dropna()), default=0)
        more = np.array([str(n).rjust(longest + 1, "+") for n in step], object)
    return pd.concat([values, pd.Series(more)], ignore_index=True)


@cache
def _matcher() -> duckdb.DuckDBPyConnection:
    """A database for joins; a cursor takes no time, another database 10 ms."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def _find(
    keys: pd.DataFrame, asked: pd.DataFrame, column: str, table: str
) -> NDArray[np.int64] | pd.api.extensions.ExtensionArray:
    """The row that has each key; missing where the key is.

    Raises:
        TaskError: A key is not in the table.
    """
    joined = " AND ".join(f"a.k{i} = k.k{i}" for i in range(keys.shape[1]))
    codes = asked.groupby(list(asked.columns), dropna=False, sort=False).ngroup().to_numpy(np.int64)
    different = asked[~pd.Series(codes).duplicated().to_numpy()].reset_index(drop=True)
    connection = _matcher().cursor()
    try:
        connection.register("known", keys.assign(r=np.arange(len(keys))))
        connection.register("asked", different.assign(n=np.arange(len(different))))
        pairs = connection.execute(
            f"SELECT a.n, min(k.r) AS r FROM asked a JOIN known k ON {joined} GROUP BY a.n"
        ).df()
    except duckdb.Error:
        # Values that cannot even be compared with the keys.
        pairs = pd.DataFrame({"n": np.zeros(0, np.int64), "r": np.zeros(0, np.int64)})
    finally:
        connection.close()
    found = np.full(len(different), -1, np.int64)
    found[pairs["n"].to_numpy(np.int64)] = pairs["r"].to_numpy(np.int64)
    rows = found[codes]
    missing = asked.isna().any(axis=1).to_numpy()
    lost = np.flatnonzero((rows < 0) & ~missing)
    if lost.size:
        shown = ", ".join(repr(_python(v)) for v in asked.iloc[lost[0]])
        there = ", ".join(repr(_python(v)) for v in keys.dropna().iloc[0]) if len(keys) else ""
        raise TaskError(
            f"{lost.size:,} of {len(asked):,} values of {column} are no keys of {table}, such as "
            f"{shown}{f' (one that is: {there})' if there else ''}. Give the primary key that the "
            f"source has, for instance by joining {table}"
        )
    return pd.arrays.IntegerArray(np.maximum(rows, 0), missing) if missing.any() else rows


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
