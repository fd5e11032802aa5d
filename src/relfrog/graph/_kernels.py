"""Compiled kernels of the graph: sort children by parent, sample subgraphs, build a batch.

Every array of a graph is flat and read-only, so that each kernel is compiled once, for any schema.
Kernels release the GIL, so threads sample in parallel.

Long, but one file on purpose: `relfrog.support.jit` says why a kernel uses nothing that another
file of the package defines, not even a constant.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from relfrog.support.jit import compiled, inlined

# isort: split
from numba.core import types
from numba.extending import intrinsic

Ints = NDArray[Any]
Int = Any  # of Python or of NumPy: to Numba they are one

#: The time of a row without one, as in `relfrog.support.times`.
MISSING = np.iinfo(np.int64).min

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
# Which children to take if there are more than the fan-out; see `relfrog.graph.sampler.Strategy`.
UNIFORM, LAST, EVENTS = range(3)


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """The processor's prefetch instruction, which Numba does not offer."""

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
def split_by_table(
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
    brought: Ints,
    unrolled: Int,
) -> tuple[Ints, ...]:
    """Turn what `walk` found into arrays per table and per foreign key, ordered by hop.

    Ages count back from `ends`, where what a group sees stops. Shape [groups].

    Returns:
        counts: occurrences per table and hop. Shape [tables, hops + 2].
        distinct: distinct rows per table. Shape [tables].
        rows: the distinct rows of each table, from where its occurrences begin.
        index, group, age, hop: per occurrence, one table after the other.
        pointers: per foreign key the parents of all occurrences, one key after the other.
        seeds: positions among the occurrences of the seed table.
        senders: as pointers, but to the parents that brought the occurrences; only if `unrolled`.
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
    senders = np.empty(size if unrolled else 0, np.int64)
    for i in range(total):
        table = records[nth(i), 1]
        for o in range(tables[nth(table), WIDTH]):
            parent = found[nth(i), nth(o)]
            to = first[nth(outgoing[nth(table), nth(o)])] + place[nth(i)]
            pointers[nth(to)] = place[nth(parent)] if parent >= 0 else -1
            if unrolled:
                parent = brought[nth(i), nth(o)]
                senders[nth(to)] = place[nth(parent)] if parent >= 0 else -1
    where = np.empty(seeds.size, np.int64)
    for i in range(seeds.size):
        where[i] = place[seeds[i]]
    return counts, distinct, rows, index, groups, age, hops, pointers, where, senders


_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_UNIT = 1.0 / (1 << 53)


@inlined
def splitmix64(x: np.uint64) -> np.uint64:
    """Hash a 64-bit number: the finaliser of SplitMix64."""
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


@inlined
def random_below(state: np.uint64, bound: Int) -> Int:
    """A pseudo-random number in [0, bound) that depends on `state` alone."""
    return int(np.float64(splitmix64(state) >> _S11) * _UNIT * bound)


@inlined
def sample_without_replacement(
    state: np.uint64, among: Int, count: Int, seen: Ints, chosen: Ints
) -> None:
    """Draw `count` different numbers in [0, among), every subset equally likely.

    Floyd's sampling algorithm. `seen` is an all-negative hash table of a power of two, at least
    twice `count`; it is left as it was found.
    """
    mask = seen.size - 1
    for i in range(count):
        top = among - count + i
        state += GOLDEN
        pick = random_below(state, top + 1)
        slot = pick & mask
        while seen[nth(slot)] >= 0 and seen[nth(slot)] != pick:
            slot = (slot + 1) & mask
        if seen[nth(slot)] == pick:
            # Taken before: Floyd takes the newest candidate instead, which cannot be in yet.
            pick = top
            slot = pick & mask
            while seen[nth(slot)] >= 0:
                slot = (slot + 1) & mask
        seen[nth(slot)] = pick
        chosen[nth(i)] = pick
    for i in range(count):
        # Every cell of a run goes; cells of the same run belong to other picks, cleared too.
        slot = chosen[nth(i)] & mask
        while seen[nth(slot)] >= 0:
            seen[nth(slot)] = -1
            slot = (slot + 1) & mask


@inlined
def spread_over_events(
    low: Int, high: Int, first: Int, count: Int, children: Ints, times: Ints, seen: Ints,
    chosen: Ints,
) -> None:  # fmt: skip
    """Choose `count` of children[low:high], evenly over their latest `count` events.

    Children with the same time are one event; one without a time is an event of its own. As if
    the latest child of each event were taken first, from the newest event on, then the second
    latest of each, until there are enough. The choice is in time order, as numbers from `low` on.

    `seen` is an all-negative array of at least twice `count`; it is left as it was found. The time
    of a child is times[first + child].
    """
    events, end = 0, high
    while events < count and end > low:
        begin = end - 1
        tick = times[nth(first + children[nth(begin)])]
        if tick != MISSING:
            step = 1  # a basket may be large: leap to where it begins
            while begin - step >= low and times[nth(first + children[nth(begin - step)])] == tick:
                begin -= step
                step *= 2
            while step > 1:
                step >>= 1
                if begin - step >= low and times[nth(first + children[nth(begin - step)])] == tick:
                    begin -= step
        seen[nth(2 * events)], seen[nth(2 * events + 1)] = end, end - begin
        events += 1
        end = begin
    level, left = 0, count  # each event gives `level` children, or all it has
    while True:
        deeper, least = 0, high - low
        for e in range(events):
            size = seen[nth(2 * e + 1)]
            if size > level:
                deeper += 1
                least = min(least, size)
        rounds = min(least - level, left // deeper) if deeper > 0 else 0
        if rounds == 0:
            break
        level += rounds
        left -= rounds * deeper
    at = count
    for e in range(events):
        size = seen[nth(2 * e + 1)]
        given = min(size, level)
        if size > level and left > 0:
            given += 1
            left -= 1
        for i in range(given):
            at -= 1
            chosen[nth(at)] = seen[nth(2 * e)] - 1 - i - low
        seen[nth(2 * e)] = seen[nth(2 * e + 1)] = -1


@inlined
def is_visible(row: Int, table: Int, cutoffs: Ints, tables: Ints, times: Ints, at: Int) -> bool:
    """Whether a row exists at a time; `cutoffs` see `walk`."""
    if cutoffs[nth(table)] >= 0:
        return bool(row < cutoffs[nth(table)])
    return bool(times[nth(tables[nth(table), TIMES] + row)] <= at)


@inlined
def children_of(
    parent: Int, low: Int, high: Int, first: Int, width: Int, parents: Ints, children: Ints
) -> tuple[Int, Int]:
    """Binary search for the part of children[low:high] with this parent.

    The parent of a child is parents[first + width * child].
    """
    end = high
    while low < high:
        middle = (low + high) >> 1
        if parents[first + width * children[middle]] < parent:
            low = middle + 1
        else:
            high = middle
    begin, high = low, end
    while low < high:
        middle = (low + high) >> 1
        if parents[first + width * children[middle]] <= parent:
            low = middle + 1
        else:
            high = middle
    return begin, low


@inlined
def visible_end(
    low: Int, high: Int, cutoff: Int, first: Int, at: Int, children: Ints, times: Ints
) -> Int:
    """The end of those of children[low:high] that are visible: they stand in time order.

    `cutoff` is the number of visible rows of their table, -1 where rows are not in time order;
    their times begin at `first`.
    """
    left, right = low, high
    if low < high and children[nth(high - 1)] < cutoff:  # often nothing is later
        left = high
    while left < right:
        middle = (left + right) >> 1
        child = children[nth(middle)]
        if (child < cutoff) if cutoff >= 0 else (times[nth(first + child)] <= at):
            left = middle + 1
        else:
            right = middle
    return left


@inlined
def find_slot(records: Ints, slots: Ints, bits: Int, number: Int, row: Int, table: Int) -> Int:
    """The slot of a row in a hash table of 2**bits slots, or the free slot where it belongs.

    `number` tells apart the rows of all tables.
    """
    slot = np.int64((np.uint64(number) * GOLDEN) >> np.uint64(64 - bits))
    while True:
        held = slots[nth(slot)]
        if held < 0 or (records[nth(held), 0] == row and records[nth(held), 1] == table):
            return slot
        slot = (slot + 1) & ((1 << bits) - 1)


@compiled
def rehash(records: Ints, begin: Int, end: Int, slots: Ints, bits: Int, tables: Ints) -> None:
    """Make the first 2**bits slots a hash table of records[begin:end]."""
    for slot in range(1 << bits):
        slots[slot] = -1  # with a plain index, for so Numba fills many slots at once
    for i in range(begin, end):
        row, table = records[nth(i), 0], records[nth(i), 1]
        number = tables[nth(table), FIRST_ROW] + row
        slots[nth(find_slot(records, slots, bits, number, row, table))] = i


@compiled
def grow_rows(records: Ints, count: Int, needed: Int) -> Ints:
    """The first `count` records in an array with room for at least `needed`."""
    larger = np.empty((max(needed, 2 * records.shape[0]), records.shape[1]), records.dtype)
    for i in range(count):
        for j in range(records.shape[1]):
            larger[i, j] = records[i, j]
    return larger


@compiled
def grow(values: Ints, count: Int, needed: Int) -> Ints:
    """`grow_rows` for an array of one dimension."""
    larger = np.empty(max(needed, 2 * values.size), values.dtype)
    for i in range(count):
        larger[i] = values[i]
    return larger


@compiled
def read_record_times(
    tables: Ints, times: Ints, records: Ints, begin: Int, end: Int, moments: Ints
) -> None:
    """Read the times of records[begin:end], which `expand` has prefetched."""
    for i in range(begin, end):
        row, table = np.int64(records[nth(i), 0]), records[nth(i), 1]
        moments[nth(i)] = MISSING
        if tables[nth(table), TIMES] >= 0:
            moments[nth(i)] = times[nth(tables[nth(table), TIMES] + row)]


# The next three read what `expand` needs from far away in memory, which in a large graph is most
# of the cost. A processor overlaps many cache misses in short loops without unpredictable
# branches, and waits for one after the other where a branch depends on the value; so each loop
# prefetches what the next one branches on.


@compiled
def read_parents(
    tables: Ints, parents: Ints, records: Ints, begin: Int, end: Int, pointers: Ints
) -> None:
    """Read the parents of records[begin:end]."""
    for i in range(begin, end):
        row, table = np.int64(records[nth(i), 0]), records[nth(i), 1]
        width = tables[nth(table), WIDTH]
        first = tables[nth(table), POINTERS] + row * width
        for o in range(width):
            pointers[nth(i), nth(o)] = parents[nth(first + o)]


@compiled
def find_blocks(
    keys: Ints,
    children: Ints,
    blocks: Ints,
    incoming: Ints,
    records: Ints,
    begin: Int,
    end: Int,
    ranges: Ints,
) -> Int:
    """Find the blocks that hold the children of records[begin:end], per foreign key.

    A block is all children of 2**shift neighbouring parents, mostly of one.

    Returns:
        How many blocks there are.
    """
    count = 0
    for i in range(begin, end):
        row, table = np.int64(records[nth(i), 0]), records[nth(i), 1]
        for o in range(incoming.shape[1]):
            key = incoming[nth(table), nth(o)]
            if key < 0:
                break
            low = high = np.int64(0)
            if keys[nth(key), NUM_CHILDREN] > 0:
                block = keys[nth(key), BLOCKS] + (row >> keys[nth(key), SHIFT])
                low = keys[nth(key), CHILDREN] + np.int64(blocks[nth(block)])
                high = keys[nth(key), CHILDREN] + np.int64(blocks[nth(block + 1)])
                prefetch(children, low)
                prefetch(children, high - 1)
                if high - low > 64:  # a search will begin with these
                    for part in range(1, 4):
                        prefetch(children, low + ((high - low) * part >> 2))
            ranges[nth(count), 0], ranges[nth(count), 1] = low, high
            ranges[nth(count), 2], ranges[nth(count), 3] = row, key
            count += 1
    return count


@compiled
def find_visible_children(
    tables: Ints,
    keys: Ints,
    parents: Ints,
    children: Ints,
    times: Ints,
    cutoffs: Ints,
    at: Int,
    count: Int,
    ranges: Ints,
) -> None:
    """Narrow the first `count` blocks to the visible children of one parent."""
    for i in range(count):
        low, high, key = ranges[nth(i), 0], ranges[nth(i), 1], ranges[nth(i), 3]
        if keys[nth(key), SHIFT] > 0:
            below = keys[nth(key), CHILD]
            first = tables[nth(below), POINTERS] + keys[nth(key), COLUMN]
            width = tables[nth(below), WIDTH]
            for j in range(low, min(high, low + 4)):
                prefetch(parents, first + width * children[nth(j)])
    for i in range(count):
        low, high = ranges[nth(i), 0], ranges[nth(i), 1]
        row, key = ranges[nth(i), 2], ranges[nth(i), 3]
        below = keys[nth(key), CHILD]
        if keys[nth(key), SHIFT] > 0:
            first = tables[nth(below), POINTERS] + keys[nth(key), COLUMN]
            width = tables[nth(below), WIDTH]
            low, high = children_of(row, low, high, first, width, parents, children)
        cutoff, first = cutoffs[nth(below)], tables[nth(below), TIMES]
        end = visible_end(low, high, cutoff, first, at, children, times)
        for j in range(low + 16, min(end, low + 128), 16):
            prefetch(children, j)
        ranges[nth(i), 0], ranges[nth(i), 1] = low, end


@compiled
def expand(
    tables: Ints,
    keys: Ints,
    parents: Ints,
    children: Ints,
    times: Ints,
    outgoing: Ints,
    incoming: Ints,
    cutoffs: Ints,
    at: Int,
    choices: np.uint64,
    fanout: Int,
    strategy: Int,
    hop: Int,
    inner: Int,
    records: Ints,
    pointers: Ints,
    ranges: Ints,
    slots: Ints,
    bits: Int,
    begin: Int,
    current: Int,
    end: Int,
    reached: Int,
    count: Int,
    seen: Ints,
    chosen: Ints,
    brought: Ints,
    unrolled: Int,
) -> tuple[Int, Int, Int, Int]:
    """Add the parents and sampled children of the rows from `current` to `end`.

    With `inner` >= 0 they bring parents only where one of them is before occurrence `inner`. If
    `unrolled`, a child's parent is another occurrence than the one that brought the child.

    Stops early where memory runs out: arrays that could be replaced inside the loop would cost
    as much as the loop itself, so it is left to the caller to make room and to call again.

    Returns:
        The next row, the first of its `ranges`, the occurrences so far, and how many the next
        row may add, when there was no room for them.
    """
    half = (1 << bits) >> 1
    while current < end:
        row, table = np.int64(records[nth(current), 0]), np.int64(records[nth(current), 1])
        prefetch(times, tables[nth(table), TIMES] + row)  # not needed here, but next
        room = tables[nth(table), WIDTH]
        for o in range(incoming.shape[1] if fanout != 0 else 0):
            if incoming[nth(table), nth(o)] < 0:
                break
            reach = ranges[nth(reached + o), 1] - ranges[nth(reached + o), 0]
            room += reach if fanout < 0 else min(reach, fanout)
        if count + room > records.shape[0] or count + room - begin > half:
            return current, reached, count, room

        # A row brought along brings only what completes it as the child of an inner row.
        bring = inner < 0
        for o in range(0 if bring else tables[nth(table), WIDTH]):
            parent = np.int64(pointers[nth(current), nth(o)])
            above = keys[nth(outgoing[nth(table), nth(o)]), PARENT]
            if parent >= 0:
                number = tables[nth(above), FIRST_ROW] + parent
                held = np.int64(slots[nth(find_slot(records, slots, bits, number, parent, above))])
                bring = bring or 0 <= held < inner

        for o in range(tables[nth(table), WIDTH]):
            key = outgoing[nth(table), nth(o)]
            held = np.int64(-1)
            if not unrolled and records[nth(current), 2] == key:
                held = np.int64(records[nth(current), 3])
            elif hop > 0 or is_visible(row, table, cutoffs, tables, times, at):
                parent = np.int64(pointers[nth(current), nth(o)])
                if parent >= 0:
                    above = keys[nth(key), PARENT]
                    number = tables[nth(above), FIRST_ROW] + parent
                    slot = find_slot(records, slots, bits, number, parent, above)
                    held = np.int64(slots[nth(slot)])
                    if held < 0 and bring and is_visible(parent, above, cutoffs, tables, times, at):
                        records[nth(count), 0], records[nth(count), 1] = parent, above
                        records[nth(count), 2] = records[nth(count), 3] = -1
                        width = tables[nth(above), WIDTH]
                        prefetch(parents, tables[nth(above), POINTERS] + parent * width)
                        if unrolled:
                            brought[nth(count)] = -1
                        slots[nth(slot)] = held = count
                        count += 1
            pointers[nth(current), nth(o)] = held

        for o in range(incoming.shape[1] if fanout != 0 else 0):
            key = incoming[nth(table), nth(o)]
            if key < 0:
                break
            low, high = ranges[nth(reached), 0], ranges[nth(reached), 1]
            reached += 1
            below = keys[nth(key), CHILD]
            first, width = tables[nth(below), POINTERS], tables[nth(below), WIDTH]
            taken = high - low
            by_choice = 0 <= fanout < taken
            if by_choice:
                taken = fanout
                if strategy == EVENTS and tables[nth(below), TIMES] >= 0:
                    begins = tables[nth(below), TIMES]
                    spread_over_events(low, high, begins, taken, children, times, seen, chosen)
                elif strategy != UNIFORM:
                    low, by_choice = high - taken, False
                else:
                    # A later row may shift the numbers of earlier ones in a table with times,
                    # so there the time stands for the row: the future must not choose.
                    who = row
                    if tables[nth(table), TIMES] >= 0:
                        # A seed of the future must not reveal its time.
                        who = min(times[nth(tables[nth(table), TIMES] + row)], at)
                    state = splitmix64(
                        choices ^ splitmix64(np.uint64(who) + np.uint64(key + 1) * GOLDEN)
                    )
                    sample_without_replacement(
                        state + np.uint64(high - low), high - low, taken, seen, chosen
                    )
                    for i in range(taken):
                        prefetch(children, low + chosen[nth(i)])
            for i in range(taken):
                child = np.int64(children[nth(low + (chosen[nth(i)] if by_choice else i))])
                number = tables[nth(below), FIRST_ROW] + child
                slot = find_slot(records, slots, bits, number, child, below)
                if slots[nth(slot)] < 0:
                    records[nth(count), 0], records[nth(count), 1] = child, below
                    records[nth(count), 2], records[nth(count), 3] = key, current
                    prefetch(parents, first + child * width)
                    if unrolled:
                        brought[nth(count)] = -1
                    slots[nth(slot)] = count
                    count += 1
                if unrolled:
                    brought[nth(slots[nth(slot)]), nth(keys[nth(key), COLUMN])] = current
        current += 1
    return current, reached, count, 0


@compiled
def walk(
    tables: Ints,
    keys: Ints,
    parents: Ints,
    children: Ints,
    blocks: Ints,
    times: Ints,
    outgoing: Ints,
    incoming: Ints,
    seed_table: Int,
    seed_rows: Ints,
    seed_groups: Ints,
    moments: Ints,
    cutoffs: Ints,
    group_moments: Ints,
    fanouts: Ints,
    whole: Int,
    strategy: Int,
    stream: np.uint64,
    unrolled: Int,
    records: Ints,
    pointers: Ints,
    moments_found: Ints,
    ranges: Ints,
    slots: Ints,
    brought: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
    """Sample the subgraphs around the seeds, hop by hop, one group after the other.

    A row joins a group once; if `unrolled`, once at each hop at which it is reached, and the rows
    of the last hop bring their parents, no more. Each row of hop h brings its visible parents and,
    up to the last hop, `fanouts[h]` of its visible children per foreign key (-1: all). The rows of
    the last hop still bring their parents, so that no match of a route around an inner row (within
    `whole` hops) is cut in half; the rows found by that point to what is there already, and bring
    parents only where an inner row needs them: as its grandparents, or because it is one of them. A
    seed that is later than its own time is kept, for it was asked about, but what it refers to is
    not looked at.

    Args:
        tables: of the graph, like the next five.
        keys: of the graph.
        parents: of the graph.
        children: of the graph.
        blocks: of the graph.
        times: of the graph.
        outgoing: foreign keys from each table, padded with -1. Shape [tables, most keys].
        incoming: foreign keys to each table, likewise.
        seed_table: where the seeds are.
        seed_rows: row of each seed. Shape [seeds].
        seed_groups: group of each seed, ascending. Shape [seeds].
        moments: the different times of the seeds.
        cutoffs: visible rows per time and table, -1 where rows are not in time order.
        group_moments: which of them each group has. Shape [groups].
        fanouts: children per row, foreign key and hop. Shape [hops].
        whole: hops within which rows have whole matches, at least hops - 1; hops + 1 for all rows.
        strategy: UNIFORM, LAST or EVENTS.
        stream: selects the random choices.
        unrolled: whether rows occur at every hop at which they are reached.
        records: memory to write to, of any length; likewise the next four.
        pointers: likewise, as wide as the most foreign keys of a table.
        moments_found: likewise.
        ranges: likewise: where visible children are, their parent and their foreign key.
        slots: likewise.
        brought: likewise, as wide as pointers.

    Returns:
        records: row, table, the key by which a parent brought it and that parent, or -1.
            Shape [at least occurrences, 4].
        pointers: per occurrence and outgoing key the occurrence of the parent, or -1.
            Shape [at least occurrences, most foreign keys].
        moments_found: the time of each occurrence. Shape [at least occurrences].
        ranges: scratch memory, grown to what was needed.
        slots: likewise.
        brought: if `unrolled`, per occurrence and outgoing key the occurrence of the parent that
            brought it, or -1. Shape [at least occurrences, most foreign keys].
        levels: where each hop of each group begins, and where its last one ends.
            Shape [groups, hops + 3].
        seeds: the occurrence of each seed. Shape [seeds].
    """
    hops = fanouts.size
    levels = np.empty((group_moments.size, hops + 3), np.int64)
    seeds = np.empty(seed_rows.size, np.int64)
    most, size = np.int64(1), np.int64(4)
    for fanout in fanouts:
        most = max(most, fanout)
    while size < 2 * most:
        size *= 2
    chosen = np.empty(most, np.int64)
    seen = np.full(size, -1, np.int64)
    count = seed = begin = 0

    for group in range(group_moments.size):
        at = moments[group_moments[group]]
        visible_now = cutoffs[group_moments[group]]
        choices = splitmix64(stream ^ splitmix64(np.uint64(at)))
        last_seed = seed
        while last_seed < seed_rows.size and seed_groups[last_seed] == group:
            last_seed += 1
        # Room for a group as large as the one before, which is a good guess.
        room = max(count - begin, last_seed - seed)
        begin = count
        bits = 10
        while (1 << bits) < 4 * room:
            bits += 1
        if count + room > records.shape[0]:
            records = grow_rows(records, count, count + room)
        if unrolled and brought.shape[0] < records.shape[0]:
            brought = grow_rows(brought, count, records.shape[0])
        if (1 << bits) > slots.size:
            slots = grow(slots, 0, 1 << bits)
        rehash(records, begin, begin, slots, bits, tables)
        for i in range(seed, last_seed):
            row = seed_rows[i]
            number = tables[seed_table, FIRST_ROW] + row
            slot = find_slot(records, slots, bits, number, row, seed_table)
            if slots[slot] < 0:
                records[count, 0], records[count, 1] = row, seed_table
                records[count, 2] = records[count, 3] = -1
                if unrolled:
                    brought[count] = -1
                slots[slot] = count
                count += 1
            seeds[i] = slots[slot]
        seed = last_seed

        current = begin
        for hop in range(hops + 2):
            levels[group, hop] = current
            end = count
            fanout = fanouts[hop] if hop < hops else 0
            limit = levels[group, whole + 1] if hop > hops and whole <= hops else -1
            # What the last hop has brought are parents of rows that may be inner ones themselves.
            inner = -1 if whole >= hops else limit
            since = begin
            if unrolled:
                inner, since = -1, end
                if hop <= hops:  # the next hop begins with no row
                    rehash(records, end, end, slots, bits, tables)
                else:
                    if pointers.shape[0] < end:
                        pointers = grow_rows(pointers, current, records.shape[0])
                        moments_found = grow(moments_found, current, records.shape[0])
                    pointers[current:end] = -1
                    read_record_times(tables, times, records, current, end, moments_found)
                    current = end
            while current < end:
                if pointers.shape[0] < end:
                    pointers = grow_rows(pointers, current, records.shape[0])
                    moments_found = grow(moments_found, current, records.shape[0])
                most = (end - current) * incoming.shape[1]
                if fanout != 0 and ranges.shape[0] < most:
                    ranges = grow_rows(ranges, 0, most)
                read_parents(tables, parents, records, current, end, pointers)
                if fanout != 0:
                    found = find_blocks(
                        keys, children, blocks, incoming, records, current, end, ranges
                    )
                    find_visible_children(
                        tables, keys, parents, children, times, visible_now, at, found, ranges
                    )
                level, reached = current, 0
                while current < end:
                    current, reached, count, room = expand(
                        tables, keys, parents, children, times, outgoing, incoming, visible_now, at,
                        choices, fanout, strategy, hop, inner, records, pointers, ranges,
                        slots, bits, since, current, end, reached, count, seen, chosen, brought,
                        unrolled,
                    )  # fmt: skip
                    if current < end:
                        if count + room > records.shape[0]:
                            records = grow_rows(records, count, count + room)
                            if unrolled:
                                brought = grow_rows(brought, count, records.shape[0])
                        if count + room - since > (1 << bits) >> 1:
                            while (1 << bits) < 4 * (count + room - since):
                                bits += 1
                            if (1 << bits) > slots.size:
                                slots = grow(slots, 0, 1 << bits)
                            rehash(records, since, count, slots, bits, tables)
                read_record_times(tables, times, records, level, end, moments_found)
                if hop > hops:  # what these brought along is brought along as well
                    end, inner = count, limit
        levels[group, hops + 2] = count
    return records, pointers, moments_found, ranges, slots, brought, levels, seeds


@compiled
def latest_children(
    tables: Ints,
    keys: Ints,
    parents: Ints,
    children: Ints,
    blocks: Ints,
    times: Ints,
    cutoffs: Ints,
    moments: Ints,
    key: Int,
    rows: Ints,
    groups: Ints,
    fanout: Int,
    strategy: Int,
) -> tuple[Ints, Ints]:
    """The children that each row takes by one foreign key; LAST or EVENTS, as `expand` does.

    Args:
        tables: of the graph, like the next five.
        keys: of the graph.
        parents: of the graph.
        children: of the graph.
        blocks: of the graph.
        times: of the graph.
        cutoffs: visible rows per time and table, -1 where rows are not in time order.
        moments: the times.
        key: number of the foreign key.
        rows: rows of its parent table. Shape [rows].
        groups: which of the times each row is seen at. Shape [rows].
        fanout: the most children of a row; -1 for all.
        strategy: LAST or EVENTS.

    Returns:
        begin: where the children of each row begin. Shape [rows + 1].
        found: the children, from the earliest to the latest. Shape [children].
    """
    below, shift = keys[key, CHILD], keys[key, SHIFT]
    pointers, width = tables[below, POINTERS] + keys[key, COLUMN], tables[below, WIDTH]
    dated = tables[below, TIMES]
    ranges = np.zeros((rows.size, 2), np.int64)
    begin = np.zeros(rows.size + 1, np.int64)
    for i in range(rows.size if keys[key, NUM_CHILDREN] > 0 else 0):
        block = keys[key, BLOCKS] + (rows[i] >> shift)
        low = keys[key, CHILDREN] + np.int64(blocks[block])
        high = keys[key, CHILDREN] + np.int64(blocks[block + 1])
        if shift > 0:
            low, high = children_of(rows[i], low, high, pointers, width, parents, children)
        cutoff, at = cutoffs[groups[i], below], moments[groups[i]]
        high = visible_end(low, high, cutoff, dated, at, children, times)
        ranges[i, 0], ranges[i, 1] = low, high
        begin[i + 1] = high - low if fanout < 0 else min(high - low, fanout)
    for i in range(rows.size):
        begin[i + 1] += begin[i]
    found = np.empty(begin[-1], np.int64)
    most = max(fanout, np.int64(1))
    chosen, seen = np.empty(most, np.int64), np.full(2 * most, -1, np.int64)
    for i in range(rows.size):
        low, high, taken = ranges[i, 0], ranges[i, 1], begin[i + 1] - begin[i]
        if taken < high - low and strategy == EVENTS and dated >= 0 and taken > 0:
            spread_over_events(low, high, dated, taken, children, times, seen, chosen)
            for j in range(taken):
                found[begin[i] + j] = children[low + chosen[j]]
        else:
            for j in range(taken):
                found[begin[i] + j] = children[high - taken + j]
    return begin, found


@compiled
def visible_parents(
    tables: Ints,
    keys: Ints,
    parents: Ints,
    times: Ints,
    cutoffs: Ints,
    moments: Ints,
    key: Int,
    rows: Ints,
    groups: Ints,
) -> Ints:
    """The parent of each row by one foreign key; -1 where there is none or it is not visible.

    Args are those of `latest_children`, with rows of the child table. Shape [rows].
    """
    below, above = keys[key, CHILD], keys[key, PARENT]
    first, width = tables[below, POINTERS] + keys[key, COLUMN], tables[below, WIDTH]
    found = np.empty(rows.size, np.int64)
    for i in range(rows.size):
        parent = np.int64(parents[first + rows[i] * width])
        group = groups[i]
        if parent >= 0 and not is_visible(
            parent, above, cutoffs[group], tables, times, moments[group]
        ):
            parent = np.int64(-1)
        found[i] = parent
    return found
