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
_MISSING = np.iinfo(np.int64).min  # as in `relfrog.times`

# Columns of the table of foreign keys that the walk reads, see `RelationalGraph.layout`.
CHILD, PARENT, POINTERS, CHILDREN, NUM_CHILDREN, BLOCKS, SHIFT = range(7)
# Columns of the table of tables.
FIRST_ROW, NUM_ROWS, TIMES, SORTED = range(4)


def compiled(function: F) -> F:
    """Compile with Numba, cached on disk where any folder can be written."""
    try:
        return typing.cast(F, numba.njit(function, cache=True, nogil=True, error_model="numpy"))
    except RuntimeError:  # no writable folder at all: compile anew in each process
        return typing.cast(F, numba.njit(function, nogil=True, error_model="numpy"))


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
def visible(row: int, table: int, cutoffs: Ints, tables: Ints, times: Ints, at: int) -> bool:
    """Whether a row exists at a time; `cutoffs` as `visible_rows` writes them."""
    if cutoffs[table] >= 0:
        return bool(row < cutoffs[table])
    return bool(times[tables[table, TIMES] + row] <= at)


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
    parent: int, key: int, keys: Ints, pointers: Ints, children: Ints, blocks: Ints
) -> tuple[int, int]:
    """Where in `children` the children of row `parent` by one foreign key stand.

    `blocks` gives a range for 2**shift neighbouring parents; with shift 0 that is the answer,
    otherwise the pointers of the children narrow it down.
    """
    first, shift = keys[key, CHILDREN], keys[key, SHIFT]
    block = keys[key, BLOCKS] + (parent >> shift)
    low = first + np.int64(blocks[block])
    end = first + np.int64(blocks[block + 1])
    if shift == 0:
        return low, end
    high = end
    while low < high:
        middle = (low + high) >> 1
        if pointers[keys[key, POINTERS] + children[middle]] < parent:
            low = middle + 1
        else:
            high = middle
    begin, high = low, end
    while low < high:
        middle = (low + high) >> 1
        if pointers[keys[key, POINTERS] + children[middle]] <= parent:
            low = middle + 1
        else:
            high = middle
    return begin, low


@compiled
def find(records: Ints, slots: Ints, bits: int, number: int, row: int, table: int) -> int:
    """The slot of a row in a hash table of 2**bits slots, or the free slot where it belongs.

    `number` tells apart the rows of all tables.
    """
    slot = np.int64((np.uint64(number) * _GOLDEN) >> np.uint64(64 - bits))
    while True:
        held = slots[slot]
        if held < 0 or (records[held, 0] == row and records[held, 1] == table):
            return slot
        slot = (slot + 1) & ((1 << bits) - 1)


@compiled
def rehash(records: Ints, begin: int, end: int, slots: Ints, bits: int, tables: Ints) -> None:
    """Make the first 2**bits slots a hash table of records[begin:end]."""
    slots[: 1 << bits] = -1
    for i in range(begin, end):
        row, table = records[i, 0], records[i, 1]
        slots[find(records, slots, bits, tables[table, FIRST_ROW] + row, row, table)] = i


@compiled
def grown(records: Ints, count: int, needed: int) -> Ints:
    """The first `count` records in an array with room for at least `needed`."""
    if needed <= records.shape[0]:
        return records
    larger = np.empty((max(needed, 2 * records.shape[0]), records.shape[1]), records.dtype)
    larger[:count] = records[:count]
    return larger


@compiled
def visible_rows(tables: Ints, times: Ints, at: int, cutoffs: Ints) -> None:
    """Write how many rows of each table are visible; -1 where rows are not in time order."""
    for table in range(tables.shape[0]):
        low, high = np.int64(0), tables[table, NUM_ROWS]
        if tables[table, TIMES] < 0:
            low = high
        elif not tables[table, SORTED]:
            low = high = -1
        while low < high:
            middle = (low + high) >> 1
            if times[tables[table, TIMES] + middle] <= at:
                low = middle + 1
            else:
                high = middle
        cutoffs[table] = low


@compiled
def advance(
    tables: Ints,
    keys: Ints,
    parents: Ints,
    children: Ints,
    blocks: Ints,
    times: Ints,
    outgoing: Ints,
    incoming: Ints,
    cutoffs: Ints,
    at: int,
    choices: np.uint64,
    fanout: int,
    latest: bool,
    hop: int,
    follow: bool,
    records: Ints,
    pointers: Ints,
    slots: Ints,
    bits: int,
    begin: int,
    current: int,
    end: int,
    count: int,
    num_pointers: int,
    seen: Ints,
    chosen: Ints,
) -> tuple[int, int, int, int]:
    """Let the rows from `current` to `end` bring their parents and children.

    Stops early where memory runs out: arrays that could be replaced inside the loop would cost
    as much as the loop itself, so it is left to the caller to make room and to call again.

    Returns:
        The next row, occurrences and pointers so far, and the occurrences that the next row may
        add when there was no room for them.
    """
    width = outgoing.shape[1]
    half = (1 << bits) >> 1
    while current < end:
        row, table = np.int64(records[current, 0]), np.int64(records[current, 1])
        room = width
        if fanout > 0:
            room += fanout * incoming.shape[1]
        elif fanout < 0:
            for o in range(incoming.shape[1]):
                key = incoming[table, o]
                if key >= 0 and keys[key, NUM_CHILDREN] > 0:
                    low, high = children_of(row, key, keys, parents, children, blocks)
                    room += high - low
        if (
            count + room > records.shape[0]
            or num_pointers + width > pointers.shape[0]
            or count + room - begin > half
        ):
            return current, count, num_pointers, room

        for o in range(width):
            key = outgoing[table, o]
            if key < 0:
                break
            held = np.int64(-1)
            if records[current, 2] == key:
                held = np.int64(records[current, 3])
            elif hop > 0 or visible(row, table, cutoffs, tables, times, at):
                parent = np.int64(parents[keys[key, POINTERS] + row])
                if parent >= 0:
                    above = keys[key, PARENT]
                    number = tables[above, FIRST_ROW] + parent
                    slot = find(records, slots, bits, number, parent, above)
                    held = np.int64(slots[slot])
                    if held < 0 and follow and visible(parent, above, cutoffs, tables, times, at):
                        records[count, 0], records[count, 1] = parent, above
                        records[count, 2] = records[count, 3] = -1
                        slots[slot] = held = count
                        count += 1
            pointers[num_pointers, 0] = held
            num_pointers += 1

        for o in range(incoming.shape[1] if fanout != 0 else 0):
            key = incoming[table, o]
            if key < 0:
                break
            if keys[key, NUM_CHILDREN] == 0:
                continue
            low, high = children_of(row, key, keys, parents, children, blocks)
            below = keys[key, CHILD]
            cutoff, first = cutoffs[below], tables[below, TIMES]
            high = visible_end(children, low, high, cutoff, times, first, at)
            taken = high - low
            by_choice = 0 <= fanout < taken
            if by_choice:
                taken = fanout
                if latest:
                    low, by_choice = high - taken, False
                else:
                    # Where rows are not in time order, a later row may shift the numbers of
                    # earlier ones: there the time of the row stands for the row.
                    who = row
                    if cutoffs[table] < 0:
                        who = times[tables[table, TIMES] + row]
                    mixed = mix(np.uint64(who) + np.uint64(key + 1) * _GOLDEN)
                    choose(mix(choices ^ mixed), high - low, taken, seen, chosen)
            for i in range(taken):
                child = np.int64(children[low + (chosen[i] if by_choice else i)])
                number = tables[below, FIRST_ROW] + child
                slot = find(records, slots, bits, number, child, below)
                if slots[slot] < 0:
                    records[count, 0], records[count, 1] = child, below
                    records[count, 2], records[count, 3] = key, current
                    slots[slot] = count
                    count += 1
        current += 1
    return current, count, num_pointers, 0


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
    seed_table: int,
    seed_rows: Ints,
    seed_groups: Ints,
    group_times: Ints,
    fanouts: Ints,
    latest: bool,
    stream: np.uint64,
    records: Ints,
    pointers: Ints,
    slots: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Collect the rows around the seeds, hop by hop, one group after the other.

    A row joins a group once. Each row of hop h brings its visible parents and, up to the last
    hop, `fanouts[h]` of its visible children per foreign key (-1: all). The rows of the last hop
    still bring their parents, so that no match of a route around an inner row is cut in half;
    the rows found by that only point to what is there already. A seed that is later than its
    own time is kept, for it was asked about, but what it refers to is not looked at.

    Args:
        tables: see `RelationalGraph`.
        keys: see `RelationalGraph`.
        parents: see `RelationalGraph`.
        children: see `RelationalGraph`.
        blocks: see `RelationalGraph`.
        times: see `RelationalGraph`.
        outgoing: foreign keys from each table, padded with -1. Shape [tables, most keys].
        incoming: foreign keys to each table, likewise.
        seed_table: where the seeds are.
        seed_rows: row of each seed. Shape [seeds].
        seed_groups: group of each seed, ascending. Shape [seeds].
        group_times: the cut-off of each group. Shape [groups].
        fanouts: children per row, foreign key and hop. Shape [hops].
        latest: take the latest children rather than a random choice.
        stream: selects the random choices.
        records: memory to write to, of any length; likewise the next two.
        pointers: likewise.
        slots: likewise.

    Returns:
        records: row, table, the key by which a parent brought it and that parent, or -1.
            Shape [at least occurrences, 4].
        pointers: per occurrence and outgoing key the occurrence of the parent, or -1, in the
            order of the occurrences. Shape [at least pointers, 1].
        slots: scratch memory, grown to what was needed.
        levels: where each hop of each group begins, and where its last one ends.
            Shape [groups, hops + 3].
        seeds: the occurrence of each seed. Shape [seeds].
    """
    hops, width = fanouts.size, outgoing.shape[1]
    levels = np.empty((group_times.size, hops + 3), np.int64)
    seeds = np.empty(seed_rows.size, np.int64)
    cutoffs = np.empty(tables.shape[0], np.int64)
    most = max(1, fanouts.max()) if hops else 1
    chosen = np.empty(most, np.int64)
    seen = np.full(1 << (np.int64(np.log2(most)) + 2), -1, np.int64)
    count = num_pointers = seed = begin = 0

    for group in range(group_times.size):
        at = group_times[group]
        if group == 0 or at != group_times[group - 1]:
            visible_rows(tables, times, at, cutoffs)
        choices = mix(stream ^ mix(np.uint64(at)))
        last_seed = seed
        while last_seed < seed_rows.size and seed_groups[last_seed] == group:
            last_seed += 1
        # Room for a group as large as the one before, which is a good guess.
        room = max(count - begin, last_seed - seed)
        begin = count
        bits = 10
        while (1 << bits) < 4 * room:
            bits += 1
        records = grown(records, count, count + room)
        slots = grown(slots, 0, 1 << bits)
        rehash(records, begin, begin, slots[:, 0], bits, tables)
        for i in range(seed, last_seed):
            row = seed_rows[i]
            number = tables[seed_table, FIRST_ROW] + row
            slot = find(records, slots[:, 0], bits, number, row, seed_table)
            if slots[slot, 0] < 0:
                records[count, 0], records[count, 1] = row, seed_table
                records[count, 2] = records[count, 3] = -1
                slots[slot, 0] = count
                count += 1
            seeds[i] = slots[slot, 0]
        seed = last_seed

        current = begin
        for hop in range(hops + 2):
            levels[group, hop] = current
            end = count
            fanout = fanouts[hop] if hop < hops else 0
            while current < end:
                current, count, num_pointers, room = advance(
                    tables, keys, parents, children, blocks, times, outgoing, incoming, cutoffs,
                    at, choices, fanout, latest, hop, hop <= hops, records, pointers, slots[:, 0],
                    bits, begin, current, end, count, num_pointers, seen, chosen,
                )  # fmt: skip
                if current < end:
                    records = grown(records, count, count + room)
                    pointers = grown(pointers, num_pointers, num_pointers + width)
                    if count + room - begin > (1 << bits) >> 1:
                        while (1 << bits) < 4 * (count + room - begin):
                            bits += 1
                        slots = grown(slots, 0, 1 << bits)
                        rehash(records, begin, count, slots[:, 0], bits, tables)
        levels[group, hops + 2] = count
    return records, pointers, slots, levels, seeds


@compiled
def number_distinct(index: Ints, num_rows: int, rows: Ints) -> int:
    """Replace rows by the order in which they first appear, and write that order to `rows`.

    Returns:
        How many distinct rows there are.
    """
    distinct = 0
    if num_rows <= 4 * index.size:
        # So much of the table is here that an array over all its rows is the smallest map.
        place = np.full(num_rows, -1, np.int32)
        for i in range(index.size):
            row = index[i]
            if place[row] < 0:
                place[row] = distinct
                rows[distinct] = row
                distinct += 1
            index[i] = place[row]
        return distinct
    bits = 1
    while (1 << bits) < 2 * index.size:
        bits += 1
    mask = (1 << bits) - 1
    slots = np.full(1 << bits, -1, np.int64)  # row and place in one, for one look at memory
    for i in range(index.size):
        row = index[i]
        slot = np.int64((np.uint64(row) * _GOLDEN) >> np.uint64(64 - bits))
        while slots[slot] >= 0 and slots[slot] >> 32 != row:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = row << 32 | distinct
            rows[distinct] = row
            distinct += 1
        index[i] = slots[slot] & 0xFFFFFFFF
    return distinct


@compiled
def arrange(
    records: Ints,
    found: Ints,
    levels: Ints,
    seeds: Ints,
    group_times: Ints,
    tables: Ints,
    times: Ints,
    per_second: float,
    outgoing: Ints,
    num_keys: int,
) -> tuple[Ints, ...]:
    """Turn the finds of `walk` into arrays per table and per foreign key, ordered by hop.

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
                counts[records[i, 1], hop] += 1
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
                row, table = np.int64(records[i, 0]), records[i, 1]
                to = cursor[table, hop]
                cursor[table, hop] += 1
                place[i] = to - begin[table]
                index[to], groups[to], hops[to] = row, group, hop
                age[to] = np.nan
                if tables[table, TIMES] >= 0:
                    time = times[tables[table, TIMES] + row]
                    if time != _MISSING:
                        age[to] = (group_times[group] - time) / per_second

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
    at = 0
    for i in range(total):
        table = records[i, 1]
        for o in range(outgoing.shape[1]):
            key = outgoing[table, o]
            if key < 0:
                break
            parent = found[at, 0]
            at += 1
            pointers[first[key] + place[i]] = place[parent] if parent >= 0 else -1
    where = np.empty(seeds.size, np.int64)
    for i in range(seeds.size):
        where[i] = place[seeds[i]]
    return counts, distinct, rows, index, groups, age, hops, pointers, where
