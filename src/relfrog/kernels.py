"""Compiled loops: sorting children by parent, and putting a sampled batch in order.

Numba translates them when they are first called and keeps the machine code on disk: beside the
package, or in the user's cache folder when the package is read-only. Every array of a graph is
flat and read-only, so that each kernel is compiled once, for any schema.

No kernel holds Python's lock, so threads sample in parallel. A kernel calls none of another file:
the stored code of a caller would not notice that the other file has changed.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from relfrog.times import MISSING

F = TypeVar("F", bound=Callable[..., Any])
Ints = NDArray[Any]
Int = Any  # of Python or of NumPy: to Numba they are one

#: Multiplying by this odd number spreads neighbouring numbers over a hash table.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)

#: `array[nth(i)]` is `array[i]` for i >= 0. A signed index is tested for being negative, to count
#: from the end; in the hottest loops these tests take a fifth of the time.
nth = np.uint64

# Columns of `RelationalGraph.keys`: number of the child and of the parent table, which of the
# child's pointers it is, where its children begin, how many they are, where its blocks begin, and
# how many parents are in a block (as a power of two).
CHILD, PARENT, COLUMN, CHILDREN, NUM_CHILDREN, BLOCKS, SHIFT = range(7)
# Columns of `RelationalGraph.tables`: rows before this table, rows in it, where its times begin
# (-1 without), whether row order is time order, where its pointers begin, pointers per row.
FIRST_ROW, NUM_ROWS, TIMES, SORTED, POINTERS, WIDTH = range(6)


def compiled(function: F) -> F:
    """Compile with Numba, cached on disk where any folder can be written."""
    try:
        return typing.cast(F, numba.njit(function, cache=True, nogil=True, error_model="numpy"))
    except RuntimeError:  # no writable folder at all: compile anew in each process
        return typing.cast(F, numba.njit(function, nogil=True, error_model="numpy"))


def inlined(function: F) -> F:
    """Compile into every caller.

    A call would count its references to each array it is given, and count them back: slow in a
    loop, and slower when threads count references to the arrays of one graph.
    """
    return typing.cast(F, numba.njit(function, inline="always", nogil=True, error_model="numpy"))


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """The machine's own instruction, for Numba has no name for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        address = builder.bitcast(builder.gep(view.data, [arguments[1]]), byte)
        # To read, to be kept in every cache, and as data.
        builder.call(instruction, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(array, types.int64), generate


#: prefetch(array, index) asks for an element that is needed soon, and does not wait for it. It
#: never fails: an index outside of the array is allowed.
prefetch = typing.cast(Callable[[Ints, Int], None], intrinsic(_prefetch))


@compiled
def sort_children(parents: Ints, order: Ints, num_parents: Int, children: Ints) -> Ints:
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
def count_visible(tables: Ints, times: Ints, moments: Ints) -> Ints:
    """Rows per time and table that exist, -1 where rows are not in time order.

    One search per time, but all of a table in step: so they wait for memory together.

    Returns:
        Shape [moments, tables].
    """
    cutoffs = np.empty((moments.size, tables.shape[0]), np.int64)
    found = np.empty(moments.size, np.int64)
    for table in range(tables.shape[0]):
        first, remaining = tables[table, TIMES], tables[table, NUM_ROWS]
        in_order = tables[table, SORTED] != 0
        found[:] = (0 if first >= 0 else remaining) if in_order else -1
        while in_order and first >= 0 and remaining > 0:
            half = (remaining + 1) >> 1
            for i in range(moments.size):
                # Without a branch, for its outcome would have to be guessed.
                found[i] += half * np.int64(times[first + found[i] + half - 1] <= moments[i])
            remaining -= half
        cutoffs[:, table] = found
    return cutoffs


@compiled
def number_distinct(index: Ints, num_rows: Int, rows: Ints) -> Int:
    """Replace rows by the order in which they first appear, and write that order to `rows`.

    Returns:
        How many distinct rows there are.
    """
    distinct = 0
    if num_rows <= 4 * index.size:
        # So much of the table is here that an array over all its rows is the smallest map.
        place = np.full(num_rows, -1, np.int32)
        for i in range(index.size):
            row = index[nth(i)]
            if place[nth(row)] < 0:
                place[nth(row)] = distinct
                rows[nth(distinct)] = row
                distinct += 1
            index[nth(i)] = place[nth(row)]
        return distinct
    bits = 1
    while (1 << bits) < 2 * index.size:
        bits += 1
    mask = (1 << bits) - 1
    slots = np.full(1 << bits, -1, np.int64)  # row and place in one, for one look at memory
    for i in range(index.size):
        later = np.uint64(index[nth(min(i + 16, index.size - 1))])
        prefetch(slots, np.int64((later * GOLDEN) >> np.uint64(64 - bits)))
        row = index[nth(i)]
        slot = np.int64((np.uint64(row) * GOLDEN) >> np.uint64(64 - bits))
        while slots[nth(slot)] >= 0 and slots[nth(slot)] >> 32 != row:
            slot = (slot + 1) & mask
        if slots[nth(slot)] < 0:
            slots[nth(slot)] = row << 32 | distinct
            rows[nth(distinct)] = row
            distinct += 1
        index[nth(i)] = slots[nth(slot)] & 0xFFFFFFFF
    return distinct


@compiled
def arrange(
    records: Ints,
    found: Ints,
    moments: Ints,
    levels: Ints,
    seeds: Ints,
    ends: Ints,
    tables: Ints,
    per_second: float,
    outgoing: Ints,
    num_keys: Int,
) -> tuple[Ints, ...]:
    """Turn the finds of `walk` into arrays per table and per foreign key, ordered by hop.

    Ages count back from `ends`, where what a group sees stops. Shape [groups].

    Returns:
        counts: occurrences per table and hop. Shape [tables, hops + 2].
        distinct: distinct rows per table. Shape [tables].
        rows: the distinct rows of each table, from where its occurrences begin.
        index, group, age, hop: per occurrence, one table after the other.
        pointers: per foreign key the parents of all occurrences, one key after the other.
        seeds: positions among the occurrences of the seed table.
    """
    num_tables, num_hops = tables.shape[0], levels.shape[1] - 1
    total = levels[-1, -1] if levels.shape[0] else 0
    counts = np.zeros((num_tables, num_hops), np.int64)
    for group in range(levels.shape[0]):
        for hop in range(num_hops):
            for i in range(levels[group, hop], levels[group, hop + 1]):
                counts[nth(records[nth(i), 1]), hop] += 1
    begin = np.zeros(num_tables + 1, np.int64)
    cursor = np.empty((num_tables, num_hops), np.int64)
    for table in range(num_tables):
        begin[table + 1] = begin[table]
        for hop in range(num_hops):
            cursor[table, hop] = begin[table + 1]
            begin[table + 1] += counts[table, hop]

    index = np.empty(total, np.int64)
    groups = np.empty(total, np.int32)
    age = np.empty(total, np.float64)
    hops = np.empty(total, np.int8)
    place = np.empty(total, np.int32)
    for group in range(levels.shape[0]):
        for hop in range(num_hops):
            for i in range(levels[group, hop], levels[group, hop + 1]):
                row, table = np.int64(records[nth(i), 0]), records[nth(i), 1]
                to = cursor[nth(table), hop]
                cursor[nth(table), hop] += 1
                place[nth(i)] = to - begin[nth(table)]
                index[nth(to)], groups[nth(to)], hops[nth(to)] = row, group, hop
                age[nth(to)] = np.nan
                if moments[nth(i)] != MISSING:
                    age[nth(to)] = (ends[group] - moments[nth(i)]) / per_second

    rows = np.empty(total, np.int64)
    distinct = np.zeros(num_tables, np.int64)
    for table in range(num_tables):
        part = slice(begin[table], begin[table + 1])
        distinct[table] = number_distinct(index[part], tables[table, NUM_ROWS], rows[part])

    first = np.zeros(num_keys, np.int64)
    size = np.int64(0)
    for key in range(num_keys):
        for table in range(num_tables):
            for o in range(outgoing.shape[1]):
                if outgoing[table, o] == key:
                    first[key] = size
                    size += begin[table + 1] - begin[table]
    pointers = np.empty(size, np.int64)
    for i in range(total):
        table = records[nth(i), 1]
        for o in range(tables[nth(table), WIDTH]):
            parent = found[nth(i), nth(o)]
            to = first[nth(outgoing[nth(table), nth(o)])] + place[nth(i)]
            pointers[nth(to)] = place[nth(parent)] if parent >= 0 else -1
    where = np.empty(seeds.size, np.int64)
    for i in range(seeds.size):
        where[i] = place[seeds[i]]
    return counts, distinct, rows, index, groups, age, hops, pointers, where
