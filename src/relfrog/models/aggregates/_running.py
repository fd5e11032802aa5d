"""What has come together up to each row, owner by owner, in the order of rows.

DuckDB's windows add up block by block, and where blocks end depends on how many rows come after: a
later row would change the last digits of an earlier sum. Here each sum is that of its owner's rows
up to it, one after the other, and hangs on nothing else. Counts, extremes and the like would be the
same there; a loop finds them in a fraction of the time, and has no query of many columns to plan.

Rows come in parts: each function takes the owner of the row before, and a state which it updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.support.jit import compiled

__all__ = [
    "running_begins", "running_distinct", "running_fading", "running_numbers", "running_sums",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def running_sums(owners: Ints, values: Floats, last: Any, sums: Floats) -> None:
    """Replace values by their sums up to each row; NaN counts as nothing.

    Args:
        owners: whose rows they are, one owner after the other. Shape [rows].
        values: changed in place. Shape [columns, rows].
        last: the owner of the row before these.
        sums: those up to the row before these; afterwards up to the last of these. Shape [columns].
    """
    for column in range(len(values)):
        before, total = last, sums[column]
        for row in range(len(owners)):
            if owners[row] != before:
                before, total = owners[row], 0.0
            value = values[column, row]
            if value == value:
                total += value
            values[column, row] = total
        sums[column] = total


@compiled
def running_fading(
    owners: Ints, values: Floats, last: Any, keeps: Any, state: Floats, found: Floats
) -> None:
    """Find the mean of values up to each row in which each counts less than the one after it.

    Args:
        owners: see `running_sums`. Shape [rows].
        values: NaN where there is none: such a row changes nothing. Shape [rows].
        last: the owner of the row before these.
        keeps: how much of its weight a value keeps when another comes.
        state: the weighted sum of values, and the sum of weights.
        found: the result; NaN without any value. Shape [rows].
    """
    before, total, weight = last, state[0], state[1]
    for row in range(len(owners)):
        if owners[row] != before:
            before, total, weight = owners[row], 0.0, 0.0
        value = values[row]
        if value == value:
            total, weight = total * keeps + value, weight * keeps + 1.0
        found[row] = total / weight if weight > 0.0 else np.nan
    state[0], state[1] = total, weight


@compiled
def running_numbers(
    owners: Ints, values: Floats, last: Any, whole: Ints, bounds: Floats, counts: Ints,
    lows: Floats, highs: Floats, streaks: Ints,
) -> None:  # fmt: skip
    """Find the count, the extremes and the streak of values up to each row.

    Args:
        owners: see `running_sums`. Shape [rows].
        values: NaN where there is none. Shape [rows].
        last: the owner of the row before these.
        whole: state: the count, the length of the streak and its sign, 0 for rows without a value.
        bounds: state: the least and the greatest value; NaN if there is none.
        counts: of values. Shape [rows].
        lows: the least value. Shape [rows].
        highs: the greatest value. Shape [rows].
        streaks: how many rows in a row are positive, or, as a negative number, are not; 0 without
            a value. Shape [rows].
    """
    before = last
    count, run, sign = whole[0], whole[1], whole[2]
    low, high = bounds[0], bounds[1]
    for row in range(len(owners)):
        if owners[row] != before:
            before, count, run, sign, low, high = owners[row], 0, 0, 0, np.nan, np.nan
        value, now = values[row], 0
        if value == value:
            count += 1
            now = 1 if value > 0 else -1
            # Anything is beyond a bound that is not there yet.
            low = low if low <= value else value
            high = high if high >= value else value
        run = run + 1 if now == sign else 1
        sign = now
        counts[row], lows[row], highs[row], streaks[row] = count, low, high, now * run
    whole[0], whole[1], whole[2] = count, run, sign
    bounds[0], bounds[1] = low, high


@compiled
def running_distinct(
    owners: Ints, parents: Ints, last: Any, state: Ints, seen: Ints, counts: Ints
) -> None:
    """Count the different parents up to each row.

    Args:
        owners: see `running_sums`. Shape [rows].
        parents: -1 for none. Shape [rows].
        last: the owner of the row before these.
        state: the count.
        seen: state: the latest owner of each parent; -1 for none. Shape [parents].
        counts: the result. Shape [rows].
    """
    before, count = last, state[0]
    for row in range(len(owners)):
        owner, parent = owners[row], parents[row]
        if owner != before:
            before, count = owner, 0
        if parent >= 0 and seen[parent] != owner:
            seen[parent] = owner
            count += 1
        counts[row] = count
    state[0] = count


@compiled
def running_begins(
    owners: Ints, ticks: Ints, last: Any, missing: Any, state: Ints, found: Ints
) -> None:
    """Find the first known time up to each row.

    Args:
        owners: see `running_sums`. Shape [rows].
        ticks: their times. Shape [rows].
        last: the owner of the row before these.
        missing: stands for no time.
        state: the time.
        found: the result. Shape [rows].
    """
    before, begin = last, state[0]
    for row in range(len(owners)):
        if owners[row] != before:
            before, begin = owners[row], missing
        if begin == missing:
            begin = ticks[row]
        found[row] = begin
    state[0] = begin
