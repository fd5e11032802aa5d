"""Columns of numbers and times of a file, read in pieces into the one array that is fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.features.values import read_numbers
from relfrog.store.file_table import FileTable
from relfrog.store.streams import pieces, ticks_of
from relfrog.support.arrays import blocks
from relfrog.support.times import MISSING, convert_ticks

__all__ = ["Moments", "Numbers", "count_values", "read_moment_rows", "read_number_rows"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Numbers:
    """What `read_numbers` gives.

    Attributes:
        found: numbers, NaN where missing or infinite.
        nothing: whether no row has any value.
    """

    found: Floats
    nothing: bool

    def __len__(self) -> int:
        return len(self.found)


@dataclass(frozen=True, eq=False)
class Moments:
    """What `read_times` gives.

    Attributes:
        found: microseconds since 1970, `MISSING` where missing.
        nothing: whether no row has any value.
    """

    found: NDArray[np.int64]
    nothing: bool

    def __len__(self) -> int:
        return len(self.found)


def read_number_rows(table: FileTable, column: str, visible: NDArray[np.bool_]) -> Numbers:
    """The numbers of a column in some rows."""
    found = np.empty(np.count_nonzero(visible), np.float64)
    at, nothing = 0, True
    for first, chunk in pieces(table, column):
        seen = visible[first : first + len(chunk)]
        values = chunk.to_pandas()
        part = read_numbers(values)[seen]
        found[at : at + len(part)] = part
        at += len(part)
        nothing = nothing and not bool(values.notna().to_numpy()[seen].any())
    return Numbers(found, nothing)


def read_moment_rows(table: FileTable, column: str, visible: NDArray[np.bool_]) -> Moments:
    """The times of a column in some rows."""
    found = np.empty(np.count_nonzero(visible), np.int64)
    kind: Any = table.arrow_type(column)
    at, nothing = 0, True
    for first, chunk in pieces(table, column):
        ticks = ticks_of(chunk)[visible[first : first + len(chunk)]]
        found[at : at + len(ticks)] = convert_ticks(ticks, kind.unit, "us", clip=True)
        at += len(ticks)
        nothing = nothing and bool((ticks == MISSING).all())
    return Moments(found, nothing)


def count_values(found: Floats, most: float = np.inf) -> tuple[Floats, NDArray[np.int64]] | None:
    """The different numbers, in order, and how often each occurs; NaN does not count.

    Args:
        found: numbers.
        most: None is given if there are more different ones than this.
    """
    values, counts = np.empty(0, np.float64), np.empty(0, np.int64)
    for some in blocks(len(found)):
        part = found[some]
        new, often = np.unique(part[~np.isnan(part)], return_counts=True)
        if np.array_equal(new, values):
            counts = counts + often
            continue
        values, place = np.unique(np.concatenate([values, new]), return_inverse=True)
        both, counts = np.concatenate([counts, often]), np.zeros(len(values), np.int64)
        np.add.at(counts, place, both)
        if len(values) > most:
            return None
    return values, counts
