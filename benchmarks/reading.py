"""What the sampler reads of a graph, read again and nothing else done.

`watched` keeps what the sampler's walk was asked and what it found; `reads_of` works out which
elements of the graph's arrays it had to read for that; `read_alone` reads them again, in that
order. So the cost of memory can be told from the cost of sampling. Left out is what only a
sampler reads: the probes of its searches, and children that it drew but had already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numba
import numpy as np

from relfrog.graph import _kernels
from relfrog.graph import sampler as sampling
from relfrog.graph._kernels import BLOCKS, NUM_CHILDREN, POINTERS, SHIFT, TIMES, WIDTH

#: Arrays of a graph, in the order in which a hop reads them.
ARRAYS = ("parents", "blocks", "children", "times")


class Walk(NamedTuple):
    """A walk of the sampler: see `relfrog.graph._kernels.walk`."""

    arguments: tuple[Any, ...]
    records: np.ndarray
    levels: np.ndarray


class Reads(NamedTuple):
    """Elements of a graph's arrays in the order in which they were read.

    Attributes:
        runs: what one hop of one subgraph reads of one array: the number of the array in
            `ARRAYS`, and where in `elements` the reads begin and end. Shape [runs, 3].
        elements: which element. Shape [reads].
    """

    runs: np.ndarray
    elements: np.ndarray


@contextmanager
def watched() -> Iterator[list[Walk]]:
    """Keep every walk of any sampler."""
    kept: list[Walk] = []
    walk = sampling.walk

    def watch(*arguments: Any) -> Any:
        found = walk(*arguments)
        records, levels = found[0], found[6]
        count = int(levels[-1, -1]) if len(levels) else 0
        kept.append(Walk(arguments[:19], records[:count].copy(), levels))
        return found

    with patch.object(sampling, "walk", watch):
        yield kept


def reads_of(walk: Walk) -> Reads:
    """What a walk had to read."""
    tables, records, levels = walk.arguments[0], walk.records, walk.levels
    group_moments, fanouts = walk.arguments[13:15]
    rows, table = records[:, 0].astype(np.int64), records[:, 1]
    width, first_time = tables[table, WIDTH], tables[table, TIMES]
    first = tables[table, POINTERS] + rows * width
    runs, parts, size = [], [np.empty(0, np.int64)], 0
    for group, moment in enumerate(group_moments):
        for hop in range(len(fanouts) + 2):
            here = slice(*levels[group, hop : hop + 2])
            starts = children = parts[0]
            if hop < len(fanouts) and fanouts[hop] != 0:
                starts, children = children_of(walk, here, levels[group, -1], moment, fanouts[hop])
            when = (first_time + rows)[here][first_time[here] >= 0]
            read = (spread(first[here], width[here]), starts, children, when)
            for array, elements in enumerate(read):
                runs.append((array, size, size + len(elements)))
                parts.append(elements)
                size += len(elements)
    return Reads(np.array(runs, np.int64).reshape(-1, 3), np.concatenate(parts))


def children_of(
    walk: Walk, here: slice, end: int, moment: int, fanout: int
) -> tuple[np.ndarray, np.ndarray]:
    """What is read of `blocks` and of `children` for some records of one subgraph.

    Args:
        walk: the walk.
        here: the records.
        end: where the records of their subgraph end.
        moment: the number of their time.
        fanout: how many children each takes per foreign key.
    """
    tables, keys, parents, children, blocks, times, _, incoming = walk.arguments[:8]
    moments, cutoffs = walk.arguments[11:13]
    records = walk.records
    begin, stop = here.start, here.stop
    ranges = np.empty(((stop - begin) * incoming.shape[1], 4), np.int64)
    count = _kernels.find_blocks(keys, children, blocks, incoming, records, begin, stop, ranges)
    _kernels.find_visible_children(
        tables, keys, parents, children, times, cutoffs[moment], moments[moment], count, ranges
    )
    low, high, row, key = ranges[:count].T
    block = keys[key, BLOCKS] + (row >> keys[key, SHIFT])
    block = block[keys[key, NUM_CHILDREN] > 0]
    starts = spread(block, np.full(len(block), 2))

    # All of them where they are few enough. Else those that it brought.
    by_choice = (high - low > fanout) & (fanout >= 0)
    taken = np.where(by_choice, 0, high - low)
    order, found = [np.repeat(np.arange(count), taken)], [spread(low, taken)]
    who = np.repeat(np.arange(begin, stop), (incoming >= 0).sum(1)[records[here, 1]])
    later = records[stop:end]
    for i in np.flatnonzero(by_choice):
        brought = later[(later[:, 3] == who[i]) & (later[:, 2] == key[i]), 0]
        among = children[low[i] : high[i]]
        sorter = np.argsort(among)
        found.append(low[i] + sorter[np.searchsorted(among, brought, sorter=sorter)])
        order.append(np.full(len(brought), i))
    return starts, np.concatenate(found)[np.argsort(np.concatenate(order), kind="stable")]


def spread(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """first, first + 1, ... for each of them, `count` numbers."""
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first, count) + within


@numba.njit(nogil=True)
def read_alone(
    parents: np.ndarray,
    blocks: np.ndarray,
    children: np.ndarray,
    times: np.ndarray,
    runs: np.ndarray,
    elements: np.ndarray,
) -> int:
    """Read some elements of a graph's arrays. The sum shows that they have been read."""
    total = np.int64(0)
    for run in range(runs.shape[0]):
        array, begin, end = runs[run]
        for i in range(begin, end):
            element = np.uint64(elements[i])
            if array == 0:
                total += parents[element]
            elif array == 1:
                total += blocks[element]
            elif array == 2:
                total += children[element]
            else:
                total += times[element]
    return total
