"""Columns of files read in pieces: what comes out is as long as the table, what is read is not.

Each function gives what the same work on `read_column` gives, value for value. Tables in memory,
and columns of types for which that cannot be promised piece by piece, are read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relfrog.store.file_table import FileTable, is_whole, read_column
from relfrog.support.relbench import Table
from relfrog.support.times import MISSING, as_ticks

__all__ = [
    "holds_integers", "holds_moments", "holds_numbers", "pieces", "read_ticks", "ticks_of",
]  # fmt: skip


def _arrow_type(table: Table, name: str) -> pa.DataType | None:
    """The type of a column that can be read in pieces; None for any other."""
    if not is_whole(table) or name not in table.columns:
        return None
    move = table.layout.move
    return None if move is not None and move.column == name else table.arrow_type(name)


def holds_numbers(table: Table, name: str) -> bool:
    """Whether a column can be read in pieces of integers or floats."""
    kind = _arrow_type(table, name)
    return kind is not None and bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def holds_integers(table: Table, name: str) -> bool:
    """Whether a column can be read in pieces of integers."""
    kind = _arrow_type(table, name)
    return kind is not None and bool(pa.types.is_integer(kind))


def holds_moments(table: Table, name: str) -> bool:
    """Whether a column can be read in pieces of times."""
    kind = _arrow_type(table, name)
    return kind is not None and bool(pa.types.is_timestamp(kind))


def pieces(table: FileTable, name: str) -> Iterator[tuple[int, pa.Array]]:
    """A column of a file in pieces, each with the number of its first row."""
    first = 0
    for chunk in table.chunks(name):
        yield first, chunk
        first += len(chunk)


def read_ticks(table: Table, name: str) -> tuple[NDArray[np.int64], str]:
    """A column as ticks, and their unit; see `as_ticks`.

    Raises:
        TypeError, ValueError: It holds no times.
    """
    if not holds_moments(table, name):
        return as_ticks(read_column(table, name))
    assert isinstance(table, FileTable)
    found = np.empty(table.file_rows, np.int64)
    for first, chunk in pieces(table, name):
        found[first : first + len(chunk)] = ticks_of(chunk)
    kind: Any = table.arrow_type(name)
    return found, str(kind.unit)


def ticks_of(chunk: pa.Array) -> NDArray[np.int64]:
    """Times of Arrow's as ticks of their own unit."""
    ticks = pc.fill_null(chunk.view(pa.int64()), MISSING)
    return np.asarray(ticks.to_numpy(zero_copy_only=False))
