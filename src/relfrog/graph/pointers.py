"""Foreign keys as pointers from rows to rows, and the rows that point to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import SchemaError
from relfrog.store.file_table import FileTable, read_column
from relfrog.store.streams import holds_numbers, pieces

if TYPE_CHECKING:
    from relbench.base import Database

__all__ = ["ForeignKey", "foreign_keys", "group_children", "parent_pointers", "row_numbers"]

NO_INTS: NDArray[np.int32] = np.empty(0, np.int32)


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


def parent_pointers(db: Database, key: ForeignKey) -> NDArray[np.int32]:
    """Parent row of each child row, -1 for none.

    Raises:
        SchemaError: the parent's primary key is not unique.
    """
    parent, child = db.table_dict[key.parent], db.table_dict[key.table]
    are_rows = isinstance(parent, FileTable) and parent.keys_are_rows
    if are_rows and isinstance(child, FileTable) and holds_numbers(child, key.column):
        found = np.empty(child.file_rows, np.int32)
        for first, chunk in pieces(child, key.column):
            found[first : first + len(chunk)] = row_numbers(chunk.to_pandas(), len(parent))
        return found
    values = read_column(child, key.column)
    if are_rows:
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
    pointers: NDArray[np.int32],
    order: NDArray[np.int64] | None,
    num_parents: int,
    children: NDArray[np.int32],
) -> tuple[NDArray[np.int32], int]:
    """Sort children by parent.

    Args:
        pointers: the parent of each row, -1 for none.
        order: the rows in order of time, unless they are in that order.
        num_parents: rows of the parent table.
        children: the rows that have a parent, a result. Shape [pointers >= 0].

    Returns:
        Where each block of 2**shift parents begins, and shift.
    """
    from relfrog.graph._kernels import sort_children

    if not children.size:
        return NO_INTS, 0
    begin = sort_children(
        pointers, np.empty(0, np.int64) if order is None else order, num_parents, children
    )
    # At most 8 bytes per value for the blocks, even if most parents have no child.
    shift = 0
    while (((num_parents - 1) >> shift) + 2) * 4 > children.size * 8:
        shift += 1
    return np.append(begin[: -1 : 1 << shift], begin[-1:]), shift
