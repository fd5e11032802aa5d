"""The relational entity graph: rows, and the foreign keys that join them.

A row has at most one parent per foreign key. So the graph stores, per foreign key, one pointer per
child row and, in the other direction, the children of each parent sorted by time. What is visible
at some time is then a prefix of the children, found by binary search.

Memory: 4 bytes per row and foreign key for the pointers, 4 per foreign-key value for the children,
at most 8 per value to find them, and 8 per row of a table with times. All arrays are flat,
read-only and can be memory-mapped: a graph larger than memory opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import DatasetError, SchemaError
from relfrog.store.file_table import FileTable, column_names, read_column
from relfrog.support.forms import read_json
from relfrog.support.times import as_ticks, common_unit, convert_ticks

if TYPE_CHECKING:
    from relbench.base import Database

__all__ = [
    "ForeignKey", "RelationalGraph", "build_graph", "foreign_keys", "open_graph", "parent_pointers",
]  # fmt: skip

FORMAT = 1
MOST_ROWS = np.iinfo(np.int32).max
ARRAYS = {"parents": np.int32, "children": np.int32, "blocks": np.int32, "times": np.int64}
NO_INTS: NDArray[np.int32] = np.empty(0, np.int32)


class _File(msgspec.Struct):
    """`graph.json`."""

    format: int
    unit: str
    num_rows: dict[str, Annotated[int, msgspec.Meta(ge=0, le=int(MOST_ROWS))]]
    foreign_keys: list[tuple[str, str, str]]
    keys: list[list[int]]
    tables: list[list[int]]


@dataclass(frozen=True, order=True)
class ForeignKey:
    """A foreign key: a column of a child table that refers to rows of a parent table.

    Two columns that refer to the same parent are two foreign keys.
    """

    table: str
    column: str
    parent: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} -> {self.parent}"


def foreign_keys(schema: Mapping[str, Mapping[str, str]]) -> tuple[ForeignKey, ...]:
    """All foreign keys of `{table: {column: parent table}}`, sorted by table and column."""
    return tuple(
        sorted(
            ForeignKey(table, column, parent)
            for table, columns in schema.items()
            for column, parent in columns.items()
        )
    )


@dataclass(frozen=True, eq=False)
class RelationalGraph:
    """Parent pointers, children sorted by time, and times; see `build_graph`.

    Attributes:
        num_rows: rows per table, tables in alphabetical order.
        foreign_keys: sorted by table and column.
        unit: the unit of `times`, which count from 1970: "us" or "ns".
        parents: parent pointers, table by table. Those of a row lie side by side, so that one
            memory access reads them all. Shape [sum of rows times foreign keys].
        children: child rows sorted by (parent, time, row), key by key. Shape [pointers >= 0].
        blocks: where the children of each 2**shift consecutive parents begin, key by key.
        times: the times of rows, table by table. Shape [rows of tables with times].
        keys: numbers per foreign key; `relfrog.graph._kernels` names them. Shape [keys, 7].
        tables: numbers per table; `relfrog.graph._kernels` names them. Shape [tables, 6].
    """

    num_rows: dict[str, int]
    foreign_keys: tuple[ForeignKey, ...]
    unit: str
    parents: NDArray[np.int32] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)
    blocks: NDArray[np.int32] = field(repr=False)
    times: NDArray[np.int64] = field(repr=False)
    keys: NDArray[np.int64] = field(repr=False)
    tables: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        # One signature per kernel, and threads cannot modify the graph they share.
        for name in (*ARRAYS, "keys", "tables"):
            array = np.asarray(getattr(self, name)).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @cached_property
    def table_number(self) -> dict[str, int]:
        """Index of each table in `tables`."""
        return {table: number for number, table in enumerate(self.num_rows)}

    @cached_property
    def key_number(self) -> dict[ForeignKey, int]:
        """Index of each foreign key in `keys`."""
        return {key: number for number, key in enumerate(self.foreign_keys)}

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(int(getattr(self, name).nbytes) for name in ARRAYS)

    def parent(self, key: ForeignKey) -> NDArray[np.int32]:
        """Parent row of each child row, -1 for none. Shape [child rows]."""
        first, width = map(int, self.tables[self.table_number[key.table], 4:6])
        count = self.num_rows[key.table]
        column = int(self.keys[self.key_number[key], 2])
        return self.parents[first : first + count * width].reshape(count, width)[:, column]

    def children_by_parent(self, key: ForeignKey) -> NDArray[np.int32]:
        """Child rows that have a parent, sorted by (parent, time, row)."""
        first, count = self.keys[self.key_number[key], 3:5]
        return self.children[int(first) : int(first + count)]

    def time(self, table: str) -> NDArray[np.int64] | None:
        """Times in `unit`, `times.MISSING` where unknown; None without a time column."""
        first = int(self.tables[self.table_number[table], 2])
        if first < 0:
            return None
        return self.times[first : first + self.num_rows[table]]

    def ticks(self, values: Any) -> NDArray[np.int64]:
        """Cutoffs as ticks that compare with `time(table)` exactly as the times do."""
        return convert_ticks(*as_ticks(values), self.unit, clip=True)

    def visible(self, table: str, at: Any) -> NDArray[np.bool_]:
        """Which rows of a table exist at a time. Shape [rows]."""
        known = self.time(table)
        if known is None:
            return np.ones(self.num_rows[table], bool)
        return np.asarray(known <= self.ticks([at])[0])

    def save(self, folder: str | Path) -> None:
        """Write the arrays as NumPy files, and one JSON file, to a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
        about = {
            "format": FORMAT,
            "unit": self.unit,
            "num_rows": self.num_rows,
            "foreign_keys": [[k.table, k.column, k.parent] for k in self.foreign_keys],
            "keys": self.keys.tolist(),
            "tables": self.tables.tolist(),
        }
        (folder / "graph.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    def to_pyg(
        self,
        db: Database | None = None,
        col_to_stype: Mapping[str, Mapping[str, Any]] | None = None,
        text_embedder_cfg: Any = None,
    ) -> Any:
        """Convert to the `HeteroData` that RelBench's `make_pkey_fkey_graph` gives.

        Args:
            db: the database, for the features; needed only with `col_to_stype`.
            col_to_stype: PyTorch Frame's column types by table. Without them the result has
                edges, times and row counts, but no `tf`.
            text_embedder_cfg: how PyTorch Frame embeds text columns.

        Times are seconds since 1970, rounded down.
        """
        from relfrog.graph.pyg import to_pyg

        return to_pyg(self, db, col_to_stype, text_embedder_cfg)


def build_graph(db: Database) -> RelationalGraph:
    """Build the graph of a RelBench database.

    A foreign key points to the row with that primary key; NULL and values without a match become
    -1. Rows without a time, in a table with a time column, are always visible. Tables that
    `relfrog.open_dataset` reads have a time for every row that is not known from the beginning.

    Raises:
        SchemaError: a key or time column is missing, a primary key is not unique, a foreign key
            refers to an unknown table, or a table has more than 2**31 - 1 rows.
    """
    schema = {name: table.fkey_col_to_pkey_table for name, table in db.table_dict.items()}
    keys = foreign_keys(schema)
    num_rows = {name: len(db.table_dict[name]) for name in sorted(db.table_dict)}
    _check_schema(db, keys, num_rows)
    times, tables, unit, orders = _build_times(db, num_rows)
    numbers = {name: number for number, name in enumerate(num_rows)}

    parents = np.empty(sum(num_rows[key.table] for key in keys), np.int32)
    children, blocks, rows = [], [], []
    first = first_child = first_block = 0
    for name, count in num_rows.items():
        own = [key for key in keys if key.table == name]
        part = parents[first : first + count * len(own)].reshape(count, len(own))
        tables[numbers[name], 4:] = first, len(own)
        first += part.size
        for column, key in enumerate(own):
            pointers = parent_pointers(db, key)
            part[:, column] = pointers
            found, starts, shift = group_children(pointers, orders.get(name), num_rows[key.parent])
            ends = [numbers[name], numbers[key.parent]]
            rows.append([*ends, column, first_child, found.size, first_block, shift])
            first_child, first_block = first_child + found.size, first_block + starts.size
            children.append(found)
            blocks.append(starts)
    return RelationalGraph(
        num_rows,
        keys,
        unit,
        parents,
        np.concatenate([NO_INTS, *children]),
        np.concatenate([NO_INTS, *blocks]),
        times,
        np.array(rows, np.int64).reshape(-1, 7),
        tables,
    )


def open_graph(folder: str | Path) -> RelationalGraph:
    """Open a saved graph; its arrays are memory-mapped.

    Raises:
        DatasetError: the folder holds no graph, or its files do not fit together.
    """
    folder = Path(folder)
    try:
        about = read_json(folder / "graph.json", _File, DatasetError, "Build it again.")
        if about["format"] != FORMAT:
            raise DatasetError(
                f"{folder}: graph format {about['format']}, but this version reads {FORMAT}. "
                "Build it again."
            )
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ARRAYS
        }
        graph = RelationalGraph(
            num_rows=about["num_rows"],
            foreign_keys=tuple(ForeignKey(*parts) for parts in about["foreign_keys"]),
            unit=about["unit"],
            keys=np.array(about["keys"], np.int64).reshape(-1, 7),
            tables=np.array(about["tables"], np.int64).reshape(-1, 6),
            **arrays,
        )
        _check_sizes(graph)
    except (OSError, OverflowError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DatasetError(f"{folder}: no readable graph ({error}). Build it again.") from error
    return graph


def _check_schema(db: Database, keys: tuple[ForeignKey, ...], num_rows: dict[str, int]) -> None:
    for key in keys:
        if key.parent not in db.table_dict:
            raise SchemaError(f"{key}: there is no table {key.parent!r}.")
        if db.table_dict[key.parent].pkey_col is None:
            raise SchemaError(f"{key}: {key.parent!r} has no primary key. Choose one.")
        if key.column not in column_names(db.table_dict[key.table]):
            raise SchemaError(f"{key}: {key.table!r} has no column {key.column!r}.")
    for name, table in db.table_dict.items():
        if num_rows[name] > MOST_ROWS:
            raise SchemaError(
                f"{name}: {num_rows[name]:,} rows, but a table can have {MOST_ROWS:,} at most. "
                "Split it, or leave out old rows."
            )
        if table.time_col is not None and table.time_col not in column_names(table):
            raise SchemaError(f"{name}: there is no time column {table.time_col!r}.")


def _build_times(
    db: Database, num_rows: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], str, dict[str, NDArray[np.int64]]]:
    """Times, the numbers per table, the unit, and row orders where rows are not sorted."""
    known: dict[str, tuple[NDArray[np.int64], str]] = {}
    for name in num_rows:
        table = db.table_dict[name]
        if table.time_col is not None:
            try:
                known[name] = as_ticks(read_column(table, table.time_col))
            except (TypeError, ValueError) as error:
                raise SchemaError(f"{name}.{table.time_col}: not a time ({error}).") from error
    unit = common_unit(list(known.values()))
    times = np.empty(sum(num_rows[name] for name in known), np.int64)
    tables, orders = [], {}
    at = first_row = 0
    for name, count in num_rows.items():
        ordered = True
        if name in known:
            part = times[at : at + count]
            part[:] = convert_ticks(*known[name], unit)
            ordered = bool((part[1:] >= part[:-1]).all())
            if not ordered:
                orders[name] = np.argsort(part, kind="stable")
        tables.append([first_row, count, at if name in known else -1, ordered, 0, 0])
        at += count if name in known else 0
        first_row += count
    return times, np.array(tables, np.int64).reshape(-1, 6), unit, orders


def parent_pointers(db: Database, key: ForeignKey) -> NDArray[np.int32]:
    """Parent row of each child row, -1 for none.

    Raises:
        SchemaError: the parent's primary key is not unique.
    """
    parent = db.table_dict[key.parent]
    values = read_column(db.table_dict[key.table], key.column)
    if isinstance(parent, FileTable) and parent.keys_are_rows:
        if pd.api.types.is_numeric_dtype(values.dtype):
            return row_numbers(values, len(parent))
    primary = read_column(parent, str(parent.pkey_col))
    is_integer = pd.api.types.is_integer_dtype
    if is_integer(primary.dtype) and is_integer(values.dtype) and not primary.hasnans:
        names = primary.to_numpy(np.int64)
        if np.array_equal(names, np.arange(len(names))):
            return row_numbers(values, len(names))
    index = pd.Index(primary)
    if not index.is_unique or index.hasnans:
        wrong = int((primary.duplicated() | primary.isna()).sum())
        raise SchemaError(
            f"{key.parent}.{parent.pkey_col}: {wrong:,} of {len(index):,} values are NULL or not "
            f"unique, but {key.table}.{key.column} refers to them. Remove those rows."
        )
    return np.asarray(index.get_indexer(pd.Index(values))).astype(np.int32)


def row_numbers(values: pd.Series, count: int) -> NDArray[np.int32]:
    """Keys that are row numbers, as in RelBench: -1 for any other."""
    if pd.api.types.is_integer_dtype(values.dtype):
        rows = values.to_numpy(np.int64, na_value=-1)
        return np.where((rows >= 0) & (rows < count), rows, -1).astype(np.int32)
    found = values.to_numpy(np.float64, na_value=np.nan)
    inside = (found >= 0) & (found < count) & (found == np.floor(found))
    return np.where(inside, found, -1).astype(np.int32)


def group_children(
    pointers: NDArray[np.int32], order: NDArray[np.int64] | None, num_parents: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Children sorted by parent, where each block of 2**shift parents begins, and shift."""
    from relfrog.graph._kernels import sort_children

    children = np.empty(np.count_nonzero(pointers >= 0), np.int32)
    if not children.size:
        return children, NO_INTS, 0
    begin = sort_children(
        pointers, np.empty(0, np.int64) if order is None else order, num_parents, children
    )
    # At most 8 bytes per value for the blocks, even if most parents have no child.
    shift = 0
    while (((num_parents - 1) >> shift) + 2) * 4 > children.size * 8:
        shift += 1
    return children, np.append(begin[: -1 : 1 << shift], begin[-1:]), shift


def _check_sizes(graph: RelationalGraph) -> None:
    """Raise ValueError unless the arrays have the expected lengths and types."""
    timed = [name for name in graph.num_rows if graph.time(name) is not None]
    ends = graph.keys[:, 5] + np.where(
        graph.keys[:, 4] > 0, ((graph.tables[graph.keys[:, 1], 1] - 1) >> graph.keys[:, 6]) + 2, 0
    )
    expected = {
        "parents": sum(graph.num_rows[key.table] for key in graph.foreign_keys),
        "children": int(graph.keys[:, 4].sum()),
        "blocks": int(ends.max(initial=0)),
        "times": sum(graph.num_rows[name] for name in timed),
    }
    for name, dtype in ARRAYS.items():
        array = getattr(graph, name)
        if array.shape != (expected[name],) or array.dtype != dtype:
            raise ValueError(
                f"{name}.npy: expected {expected[name]:,} of {np.dtype(dtype)} "
                f"(got {array.shape} of {array.dtype})"
            )
