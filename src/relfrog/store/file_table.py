"""A table whose rows stay in their Parquet file until somebody asks for them.

`FileTable` is RelBench's `Table` for whoever wants a frame, but a column can be read alone, its
length and its span of time cost nothing to ask, and DuckDB reads it where it lies. So a command
touches the columns that it needs, one at a time, and no table is ever whole in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relfrog.store.column_table import ColumnTable
from relfrog.store.layout import Cut, Layout, Move
from relfrog.store.table_sql import select
from relfrog.support.parquet import index_columns, reading
from relfrog.support.relbench import Database, Table

__all__ = [
    "FileTable",
    "column_names",
    "column_parts",
    "concrete",
    "is_whole",
    "read_column",
    "retimed",
    "without_columns",
]

#: Rows of a file that are read at a time.
PIECE = 1 << 20


class FileTable(ColumnTable):
    """A table in a Parquet file.

    Args:
        path: the file.
        fkeys: the parent of each foreign key.
        pkey: the primary key, if there is one.
        time: the time column, if there is one.
        layout: what else is known of it; by default the file as it is.

    Attributes:
        span: its first and its last time, where they are known already.

    Raises:
        OSError, ArrowException: The file is missing or no Parquet file.
    """

    def __init__(
        self,
        path: Path,
        fkeys: dict[str, str],
        pkey: str | None,
        time: str | None,
        layout: Layout | None = None,
    ) -> None:
        self.layout = Layout(path) if layout is None else layout
        self.fkey_col_to_pkey_table, self.pkey_col, self.time_col = fkeys, pkey, time
        self.span: tuple[Any, Any] | None = None

    def _like(self, time: str | None = None, **changes: Any) -> FileTable:
        hidden = changes.get("hidden", self.layout.hidden)
        keys = {c: t for c, t in self.fkey_col_to_pkey_table.items() if c not in hidden}
        layout = self.layout.replaced(**changes)
        other = FileTable(layout.path, keys, self.pkey_col, time or self.time_col, layout)
        if other.time_col == self.time_col and layout.cuts == self.layout.cuts:
            other.span = self.span
        return self._with_header(other)

    def _with_header(self, other: FileTable) -> FileTable:
        """Another table of the same file, which need not open it again."""
        if "_header" in vars(self):
            vars(other)["_header"] = self._header
        return other

    def with_column(self, name: str, file: Path) -> FileTable:
        """The same with one more column, which is all that another file has."""
        return self._like(added={**self.layout.added, name: file})

    def with_values(self, shown: Mapping[str, tuple[str, Path, str]]) -> FileTable:
        """The same to SQL with other values in some columns, by row of other files.

        Args:
            shown: per column the one that has the number of a row, the file, and its column.
        """
        return self._like(shown=shown)

    def moved_back(self, move: Move) -> FileTable:
        """The same, with some times earlier than they are."""
        other = self._like(move=move)
        other.span = None
        return other

    def with_time(self, column: str) -> FileTable:
        """The same, with another time column."""
        return self._like(column)

    def without(self, columns: set[str]) -> FileTable:
        """The same without some columns, and without the foreign keys among them."""
        added = {name: file for name, file in self.layout.added.items() if name not in columns}
        return self._like(hidden=self.layout.hidden | columns, added=added)

    def retimed(self, keys: dict[str, str], time: str | None) -> FileTable:
        """The same rows with other foreign keys and another time column."""
        other = FileTable(self.layout.path, keys, self.pkey_col, time, self.layout)
        other.span = self.span if time == self.time_col else None
        return self._with_header(other)

    def with_limits(self, sizes: Mapping[str, int]) -> FileTable:
        """The same, with foreign keys beyond the rows of their parents as NULL."""
        keys = self.fkey_col_to_pkey_table.items()
        return self._like(limits={c: sizes[t] for c, t in keys if t in sizes})

    def upto(self, timestamp: pd.Timestamp) -> FileTable:
        """The rows up to a time; all of them if the table has no times."""
        if self.time_col is None:
            return self
        cut = Cut(self.time_col, pd.Timestamp(timestamp))
        return self._like(cuts=(*self.layout.cuts, cut))

    # What the header of the file says.

    @cached_property
    def _header(self) -> tuple[pq.FileMetaData, pa.Schema, dict[Any, Any]]:
        with pq.ParquetFile(self.layout.path) as file:
            return file.metadata, file.schema_arrow, {}

    @property
    def metadata(self) -> pq.FileMetaData:
        """What the header says of the groups of rows."""
        return self._header[0]

    @property
    def facts(self) -> dict[Any, Any]:
        """What was found out about the file: columns by `sql`, and first and last times."""
        return self._header[2]

    @cached_property
    def _schema(self) -> pa.Schema:
        schema = self._header[1]
        index = index_columns(schema)
        fields = [f for f in schema if f.name not in index and f.name not in self.layout.hidden]
        return pa.schema(fields)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [*self._schema.names, *self.layout.added]

    def arrow_type(self, column: str) -> pa.DataType | None:
        """The type of a column in the file; None for one from another file."""
        return None if column in self.layout.added else self._schema.field(column).type

    @property
    def keys_are_rows(self) -> bool:
        """Whether primary keys are row numbers, as they are in a whole file of RelBench's."""
        return self.pkey_col is not None and not self.layout.cuts

    @property
    def file_rows(self) -> int:
        """Rows of the file, whether they are cut or not."""
        return int(self._header[0].num_rows)

    def __len__(self) -> int:
        return self.file_rows if self._kept is None else int(self._kept.sum())

    @cached_property
    def _kept(self) -> NDArray[np.bool_] | None:
        """Which rows of the file are left; None for all."""
        if not self.layout.cuts:
            return None
        kept = np.ones(self.file_rows, bool)
        for cut in self.layout.cuts:
            for first, values in self._parts(cut.column):
                kept[first : first + len(values)] &= np.asarray(values <= cut.time)
        return kept

    # Values.

    def column(self, name: str) -> pd.Series:
        """The values of a column, as `df` has them."""
        values = self.uncut(name)
        return values if self._kept is None else values[self._kept]

    def uncut(self, name: str) -> pd.Series:
        """The values of a column in all rows of the file."""
        move = self.layout.move
        values = self._unmoved(name)
        return move.apply(values) if move is not None and move.column == name else values

    def _unmoved(self, name: str) -> pd.Series:
        if name in self.layout.added:
            return pd.Series(_array(self.layout.added[name]), name=name)
        if name not in self._schema.names:
            raise KeyError(name)
        with reading(self.layout.path):
            found = pd.read_parquet(self.layout.path, columns=[name])
            values = _plain(found[name].reset_index(drop=True))
        limit = self.layout.limits.get(name)
        if limit is not None and pd.api.types.is_numeric_dtype(values.dtype):
            beyond = values >= limit
            values = values.mask(beyond) if beyond.any() else values
        return values

    def parts(self, name: str) -> Iterator[pd.Series]:
        """The values of a column as `column` has them, times in pieces."""
        cuts = self.layout.cuts
        if not all(cut.column == name for cut in cuts):
            for first, values in self._parts(name):
                yield values[cast("NDArray[np.bool_]", self._kept)[first : first + len(values)]]
            return
        for _, values in self._parts(name):  # in one pass
            for cut in cuts:
                values = values[np.asarray(values <= cut.time)]
            yield values

    def _parts(self, name: str) -> Iterator[tuple[int, pd.Series]]:
        """All values of a column, in pieces if they are times as the file has them."""
        kind, move = self.arrow_type(name), self.layout.move
        if kind is None or not pa.types.is_timestamp(kind) or (move and move.column == name):
            yield 0, self.uncut(name)
            return
        first = 0
        for chunk in self.chunks(name):
            yield first, chunk.to_pandas()
            first += len(chunk)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        """A column of the file in pieces; cuts and limits do not apply."""
        with reading(self.layout.path), pq.ParquetFile(self.layout.path) as file:
            for batch in file.iter_batches(PIECE, columns=[name]):
                batch.validate(full=True)
                yield batch.column(0)

    def cells(self, row: int) -> dict[str, Any]:
        """The values of one row of the file; of the file only its surroundings are read."""
        assert not self.layout.cuts
        metadata, first, group = self._header[0], 0, 0
        while row >= first + metadata.row_group(group).num_rows:
            first += metadata.row_group(group).num_rows
            group += 1
        with reading(self.layout.path), pq.ParquetFile(self.layout.path) as file:
            near = file.read_row_group(group, columns=self._schema.names)
            one = near.slice(row - first, 1)
            found = {name: one.column(name).to_pandas().iloc[0] for name in self._schema.names}
        return found | {name: self.column(name).iloc[row] for name in self.layout.added}

    @property
    def _ends(self) -> tuple[Any, Any]:
        if self.span is None:
            if self.time_col is None:
                raise ValueError("Table has no time column.")
            # The splits of all tasks are cut at the same few times.
            layout = self.layout
            key = (self.time_col, layout.added.get(self.time_col), layout.cuts, layout.move)
            if key not in self.facts:
                self.facts[key] = self._find_ends(self.time_col)
            self.span = self.facts[key]
        return self.span

    def _find_ends(self, name: str) -> tuple[Any, Any]:
        ends = [(part.min(), part.max()) for part in self.parts(name)]
        ends = [end for end in ends if not pd.isna(end[0])] or ends[:1] or [(pd.NaT, pd.NaT)]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def content(self, hashed: Callable[[Path], str]) -> dict[str, Any]:
        """What the table is, for the names of parts, with hashes of its files."""
        layout = self.layout
        return {
            "file": hashed(layout.path),
            "added": {name: hashed(file) for name, file in layout.added.items()},
            "hidden": sorted(layout.hidden & set(self._header[1].names)),
            "limits": dict(layout.limits),
            "cuts": [[cut.column, str(cut.time)] for cut in layout.cuts],
            "keys": [self.pkey_col, self.time_col, sorted(self.fkey_col_to_pkey_table.items())],
        }

    # For DuckDB.

    @property
    def files(self) -> list[Path]:
        """The files that `sql` reads."""
        others = [file for _, file, _ in self.layout.shown.values()]
        return list(dict.fromkeys([self.layout.path, *self.layout.added.values(), *others]))

    @property
    def is_one_file(self) -> bool:
        """Whether `sql` reads one file, row by row."""
        return not self.layout.added and not self.layout.shown

    def located(self, path: Path) -> FileTable:
        """The same at another place, where the file is, too."""
        return self._like(path=path)

    def sql(self, rows: str = "") -> str:
        """A SELECT over the files with the values that `df` has, of the same types.

        Args:
            rows: a condition on the number of a row in its file, `t.file_row_number`.
        """
        return select(self, rows)


def _plain(values: pd.Series) -> pd.Series:
    """Texts as Python's, as RelBench reads them."""
    return values.astype(object) if isinstance(values.dtype, pd.StringDtype) else values


def _array(file: Path) -> NDArray[Any]:
    """The one column of a file, as an array."""
    with reading(file):
        return np.asarray(pq.read_table(file).column(0).to_pandas())


# The same questions to tables of both kinds.


def column_names(table: Table) -> list[str]:
    """The names of a table's columns, without reading it."""
    return table.columns if isinstance(table, ColumnTable) else list(table.df)


def read_column(table: Table, name: str) -> pd.Series:
    """One column of a table."""
    return table.column(name) if isinstance(table, ColumnTable) else table.df[name]


def column_parts(table: Table, name: str) -> Iterator[pd.Series]:
    """One column of a table; times of a file come in pieces."""
    if isinstance(table, FileTable):
        yield from table.parts(name)
    else:
        yield read_column(table, name)


def holds_times(table: Table, name: str) -> bool:
    """Whether a column holds times; of a file its header says so."""
    kind = table.arrow_type(name) if isinstance(table, FileTable) else None
    if kind is not None:
        return bool(pa.types.is_timestamp(kind))
    return bool(pd.api.types.is_datetime64_any_dtype(read_column(table, name).dtype))


def moved_back(table: Table, time: pd.Timestamp, by: pd.Timedelta) -> Table:
    """The table with times up to some time earlier than they are, by a span."""
    column = str(table.time_col)
    if isinstance(table, FileTable):
        return table.moved_back(Move(column, time, by))
    frame = table.df.assign(**{column: Move(column, time, by).apply(table.df[column])})
    return Table(frame, table.fkey_col_to_pkey_table, table.pkey_col, table.time_col)


def read_row(table: Table, row: int) -> dict[str, Any]:
    """The values of one row, by column."""
    if is_whole(table):
        return table.cells(row)
    return {str(name): table.df[name].iloc[row] for name in table.df}


def is_whole(table: Table) -> TypeGuard[FileTable]:
    """Whether a table is a file with all of its rows."""
    return isinstance(table, FileTable) and not table.layout.cuts


def concrete(table: Table) -> Table:
    """The table in memory, for whoever reads it more than once."""
    if not isinstance(table, ColumnTable):
        return table
    return Table(table.df, table.fkey_col_to_pkey_table, table.pkey_col, table.time_col)


def without_columns(db: Database, columns: Iterable[tuple[str, str]] | None) -> Database:
    """The database without some columns, and without the foreign keys among them.

    Args:
        db: the database.
        columns: pairs of table and column; those that are not there do not matter.
    """
    tables, hidden = dict(db.table_dict), list(columns or ())
    for name in dict.fromkeys(name for name, _ in hidden):
        some = {column for table, column in hidden if table == name}
        if name not in tables or not some & set(column_names(tables[name])):
            continue
        table = tables[name]
        if isinstance(table, ColumnTable):
            tables[name] = table.without(some)
            continue
        keys = {c: t for c, t in table.fkey_col_to_pkey_table.items() if c not in some}
        frame = table.df.drop(columns=[c for c in table.df if c in some])
        tables[name] = Table(frame, keys, table.pkey_col, table.time_col)
    return Database(tables)


def retimed(table: Table, keys: dict[str, str], time: str | None) -> Table:
    """The same rows with other foreign keys and another time column."""
    if isinstance(table, ColumnTable):
        return table.retimed(keys, time)
    return Table(table.df, keys, table.pkey_col, time)
