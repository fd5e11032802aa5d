"""The rows that refer to a row: which are visible at a time, how many, and since when.

The children of a parent are sorted by time, so these are binary searches: what they cost depends on
the rows that are asked for, not on how many there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.graph.relational import ForeignKey, RelationalGraph
from relfrog.support.jit import compiled

__all__ = ["children_at", "count_references"]

Ints = NDArray[np.int64]
#: The time of a row without one, as in `relfrog.support.times`.
MISSING = np.iinfo(np.int64).min


def children_at(
    graph: RelationalGraph, key: ForeignKey, rows: Ints, ticks: Ints
) -> tuple[Ints, Ints]:
    """The children of each row that are visible at its time: indices into `rows`, and children."""
    begin, end, _, _ = _search(graph, key, rows, ticks, 0.0)
    count = end - begin
    seed = np.repeat(np.arange(len(rows)), count)
    within = np.arange(len(seed)) - np.repeat(np.cumsum(count) - count, count)
    children = graph.children_by_parent(key)
    return seed, children[np.repeat(begin, count) + within].astype(np.int64)


def count_references(
    graph: RelationalGraph, key: ForeignKey, rows: Ints, ticks: Ints, window: float
) -> tuple[Ints, Ints, Ints]:
    """Count the children of rows that are visible at a time.

    Args:
        graph: the graph.
        key: the foreign key by which they refer to the rows.
        rows: rows of the parent table. Shape [n].
        ticks: the time of each. Shape [n].
        window: the length of a window, in the unit of the graph.

    Returns:
        How many there are, how many are of the window before the time, and the time of the latest
        one: `times.MISSING` where there is none with a time. Shapes [n] each.
    """
    begin, end, late, last = _search(graph, key, rows, ticks, window)
    return end - begin, end - late, last


def _search(
    graph: RelationalGraph, key: ForeignKey, rows: Ints, ticks: Ints, window: float
) -> tuple[Ints, Ints, Ints, Ints]:
    rows = np.ascontiguousarray(rows, np.int64)
    ticks = np.ascontiguousarray(np.broadcast_to(ticks, rows.shape), np.int64)
    begin, end, late = (np.zeros(len(rows), np.int64) for _ in range(3))
    last = np.full(len(rows), MISSING, np.int64)
    numbers = graph.keys[graph.key_number[key]]
    _, _, column, first_child, count, first_block, shift = map(int, numbers)
    first, width = map(int, graph.tables[graph.table_number[key.table], 4:6])
    times = graph.time(key.table)
    if count:
        find_references(
            graph.children[first_child : first_child + count],
            graph.blocks[first_block:],
            shift,
            graph.parents,
            first + column,
            width,
            graph.times[:0] if times is None else times,
            times is not None,
            rows,
            ticks,
            float(window),
            begin,
            end,
            late,
            last,
        )
    return begin, end, late, last


@compiled
def find_references(
    children: Any,
    blocks: Any,
    shift: Any,
    parents: Any,
    first: Any,
    width: Any,
    times: Any,
    timed: Any,
    rows: Any,
    ticks: Any,
    window: Any,
    begin: Any,
    end: Any,
    late: Any,
    last: Any,
) -> None:
    """Find the children of each row up to its time.

    Args:
        children: child rows sorted by (parent, time, row).
        blocks: where the children of each 2**shift parents begin.
        shift: see there.
        parents: the parent of a child is parents[first + width * child].
        first: see there.
        width: see there.
        times: times of the child table.
        timed: whether it has any; otherwise all children are visible, and none is late.
        rows: parents to look for.
        ticks: their times.
        window: children later than the time minus this are late.
        begin: where the children of each row begin, a result.
        end: where those that are visible end, a result.
        late: where those that are late begin, a result.
        last: the time of the last visible one, a result; left as it is where there is none.
    """
    for i in range(rows.size):
        row, tick = rows[i], ticks[i]
        low, high = np.int64(blocks[row >> shift]), np.int64(blocks[(row >> shift) + 1])
        if shift:
            bound = high
            while low < high:
                middle = (low + high) >> 1
                if parents[first + width * np.int64(children[middle])] < row:
                    low = middle + 1
                else:
                    high = middle
            start, high = low, bound
            while low < high:
                middle = (low + high) >> 1
                if parents[first + width * np.int64(children[middle])] <= row:
                    low = middle + 1
                else:
                    high = middle
            low, high = start, low
        begin[i] = low
        if not timed:
            end[i] = high
            late[i] = high
            continue
        start, bound = low, high
        while low < high:
            middle = (low + high) >> 1
            if times[children[middle]] <= tick:
                low = middle + 1
            else:
                high = middle
        end[i] = low
        if low > start:
            last[i] = times[children[low - 1]]
        high, low = low, start
        limit = np.float64(tick) - window
        while low < high:
            middle = (low + high) >> 1
            if np.float64(times[children[middle]]) > limit:
                high = middle
            else:
                low = middle + 1
        late[i] = low
