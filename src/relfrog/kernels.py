"""The compiled inner loops: sorting children by parent, and walking the graph.

Numba translates them when they are first called and keeps the machine code on disk: beside the
package, or in the user's cache folder when the package is read-only. Every array of a graph is
flat and read-only, so that each kernel is compiled once, for any schema.

No kernel holds Python's lock, so threads sample in parallel.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Ints = NDArray[Any]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / (1 << 53)

# Columns of the table of foreign keys that the walk reads, see `RelationalGraph.layout`.
CHILD, PARENT, POINTERS, CHILDREN, NUM_CHILDREN, BLOCKS, SHIFT = range(7)
# Columns of the table of tables.
FIRST_ROW, NUM_ROWS, TIMES, SORTED = range(4)


def compiled(function: F) -> F:
    """Compile with Numba, cached on disk where any folder can be written."""
    try:
        return typing.cast(F, numba.njit(function, cache=True, nogil=True))
    except RuntimeError:  # no writable folder at all: compile anew in each process
        return typing.cast(F, numba.njit(function, nogil=True))


@compiled
def sort_children(parents: Ints, order: Ints, num_parents: int, children: Ints) -> Ints:
    """Write the rows of `order` into `children`, grouped by parent; a counting sort.

    Args:
        parents: parent of each row, -1 for none. Shape [rows].
        order: rows from the earliest to the latest, or empty where row order is time order.
        num_parents: rows of the parent table.
        children: the result. Shape [rows that have a parent].

    Returns:
        Where the children of each parent begin. Shape [num_parents + 1].
    """
    begin = np.zeros(num_parents + 1, np.int32)
    for parent in parents:
        if parent >= 0:
            begin[parent + 1] += 1
    for parent in range(num_parents):
        begin[parent + 1] += begin[parent]
    cursor = begin[:-1].copy()
    in_row_order = order.size == 0
    for i in range(parents.size):
        row = i if in_row_order else order[i]
        parent = parents[row]
        if parent >= 0:
            children[cursor[parent]] = row
            cursor[parent] += 1
    return begin


@compiled
def mix(x: np.uint64) -> np.uint64:
    """Scatter the bits of x: the finaliser of SplitMix64."""
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


@compiled
def draw(state: np.uint64, bound: int) -> int:
    """A number in [0, bound) that depends on `state` alone."""
    return int(np.float64(mix(state) >> _S11) * _UNIT * bound)


@compiled
def choose(state: np.uint64, among: int, count: int, seen: Ints, chosen: Ints) -> None:
    """Draw `count` different numbers in [0, among), every subset equally likely.

    Floyd's algorithm. `seen` is an all-negative hash table of a power of two, at least twice
    `count`; it is left as it was found.
    """
    mask = seen.size - 1
    for i in range(count):
        top = among - count + i
        state += _GOLDEN
        pick = draw(state, top + 1)
        slot = pick & mask
        while seen[slot] >= 0 and seen[slot] != pick:
            slot = (slot + 1) & mask
        if seen[slot] == pick:
            # Taken before: Floyd takes the newest candidate instead, which cannot be in yet.
            pick = top
            slot = pick & mask
            while seen[slot] >= 0:
                slot = (slot + 1) & mask
        seen[slot] = pick
        chosen[i] = pick
    for i in range(count):
        # Every cell of a run goes; cells of the same run belong to other picks, cleared too.
        slot = chosen[i] & mask
        while seen[slot] >= 0:
            seen[slot] = -1
            slot = (slot + 1) & mask


@compiled
def visible_end(
    rows: Ints, low: int, high: int, cutoff: int, times: Ints, first: int, at: int
) -> int:
    """End of the visible part of rows[low:high], which stand in time order.

    With `cutoff` >= 0 a row is visible if it is below it; otherwise if times[first + row] <= at.
    """
    while low < high:
        middle = (low + high) >> 1
        row = rows[middle]
        if (row < cutoff) if cutoff >= 0 else (times[first + row] <= at):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def children_of(
    parent: int, key: Ints, pointers: Ints, children: Ints, blocks: Ints
) -> tuple[int, int]:
    """Where in `children` the children of row `parent` by one foreign key stand.

    `blocks` gives a range for 2**shift neighbouring parents; with shift 0 that is the answer,
    otherwise the pointers of the children narrow it down.
    """
    block = key[BLOCKS] + (parent >> key[SHIFT])
    low = key[CHILDREN] + np.int64(blocks[block])
    end = key[CHILDREN] + np.int64(blocks[block + 1])
    if key[SHIFT] == 0:
        return low, end
    high = end
    while low < high:
        middle = (low + high) >> 1
        if pointers[key[POINTERS] + children[middle]] < parent:
            low = middle + 1
        else:
            high = middle
    begin, high = low, end
    while low < high:
        middle = (low + high) >> 1
        if pointers[key[POINTERS] + children[middle]] <= parent:
            low = middle + 1
        else:
            high = middle
    return begin, low
