"""Propose the validation and the test time: where the events are.

Events are rows with a time that name other rows: orders, payments, visits. Where they lie is read
as counts per hour (per second for short spans), and everything else is arithmetic on these counts:

- A few events that a long gap separates from all others (wrong dates, test entries of long ago) do
  not count.
- A moment with a multitude of rows counts as an ordinary one: half of the rows of a database may
  carry the time at which they were migrated.
- Long gaps do not count as time, so no split falls into one.
- Of the time that is left, the last tenth is for test and the tenth before it for validation. Where
  that would leave one part with hardly any events, the split moves to where it has some.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relfrog.importing.staging import Staging
from relfrog.support.text import counted

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Shares = np.ndarray[Any, np.dtype[np.float64]]

__all__ = ["Placement", "Split", "event_tables", "place_splits", "propose_split"]

_DAY = 86_400_000_000
#: From this span on, splits are at midnight.
_DAYS = 20 * _DAY
#: A gap is long beyond this share of the span, and this many times the usual distance of events.
_GAP_SHARE, _GAP_TIMES = 1 / 20, 10
#: The share of events that a long gap may separate from the rest without their counting.
_STRAY = 0.05
#: No moment counts for more than so many times the usual one among so many on either side.
_CROWD, _AROUND = 20, 5
#: The least share of events in training, and in validation and test each.
_LEAST_TRAIN, _LEAST_EVAL = 0.5, 0.04


@dataclass(frozen=True)
class Split:
    """The validation and the test time, and why; ``outliers`` warns of rows far outside."""

    val: dt.datetime
    test: dt.datetime
    reason: str
    outliers: str = ""


@dataclass(frozen=True)
class Placement:
    """Where splits lie among events, in microseconds since 1970.

    Attributes:
        low: Where events begin, without strays.
        high: Where they end, without strays.
        val: The validation time.
        test: The test time.
        gaps: Long stretches without events, as (begin, end).
        moved: Whether the tenths were left for want of events.
    """

    low: int
    high: int
    val: int
    test: int
    gaps: tuple[tuple[int, int], ...] = ()
    moved: bool = False


def event_tables(tables: Mapping[str, tuple[int, bool, Iterable[str]]]) -> list[str]:
    """The tables whose rows are events: those with a time that name rows of other tables.

    A table that other event tables name is left out, unless they are much smaller: customers who
    place orders are no events, orders that are sometimes refunded are. A table that names none,
    such as a log whose keys are not known, counts if it has more rows than all of these, and no
    row with a time names it.

    Args:
        tables: Of each table the rows, whether it has a time, and the tables it names.

    Returns:
        Names of tables; all that have a time if none names another.
    """
    named = {
        name: {p for p in parents if p != name}
        for name, (rows, timed, parents) in tables.items()
        if timed and rows
    }
    events = [name for name, parents in named.items() if parents]
    most, parents_of_timed = sum(tables[name][0] for name in events), set().union(*named.values())
    if events:
        events += [
            name
            for name, parents in named.items()
            if not parents and tables[name][0] > most and name not in parents_of_timed
        ]
    ends = [
        name
        for name in events
        if not any(name in named[c] and 10 * tables[c][0] >= tables[name][0] for c in events)
    ]
    return ends or events or list(named)


def main_part(times: Numbers, counts: Numbers) -> slice:
    """The events without strays: those that a long gap separates from nearly all others.

    Args:
        times: Different times in order.
        counts: Events at each.
    """
    weights = _weights(counts)
    first, last = 0, len(times)
    while last - first > 2:
        gaps = _long_gaps(times[first:last])
        if not len(gaps):
            break
        few, half = _STRAY * weights[first:last].sum(), (last - first) / 2
        begin, end = first + int(gaps[0]) + 1, first + int(gaps[-1]) + 1
        # One crowded moment is not the rest of which others are strays.
        if weights[first:begin].sum() < few and begin - first < half:
            first = begin
        elif weights[end:last].sum() < few and last - end < half:
            last = end
        else:
            break
    return slice(first, last)


def _weights(counts: Numbers) -> Shares:
    """Events at each time, of which a crowd counts as an ordinary number.

    A crowd is judged by the times around it: where a shop grows, its last days are none.
    """
    import numpy as np

    if len(counts) <= _AROUND:
        usual = np.full(len(counts), np.median(counts))
    else:
        padded = np.pad(counts, _AROUND, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1)
        usual = np.median(windows, axis=1)
    return np.minimum(counts, _CROWD * usual).astype(np.float64)


def _long_gaps(times: Numbers) -> Numbers:
    """Where a long gap follows."""
    import numpy as np

    steps = np.diff(times)
    long = max(_GAP_TIMES * float(np.median(steps)), _GAP_SHARE * float(times[-1] - times[0]))
    return np.flatnonzero(steps > long)


def place_splits(times: Numbers, counts: Numbers) -> Placement | None:
    """Place the splits among events; None if all are at one time.

    Args:
        times: Different times in order, in microseconds.
        counts: Events at each.
    """
    import numpy as np

    part = main_part(times, counts)
    times, weights = times[part], _weights(counts[part])
    # Nor do the very first and last count, gap or not.
    passed, most = np.cumsum(weights) / weights.sum(), len(times) // 20
    first, last = (int(i) for i in np.searchsorted(passed, (0.01, 0.999)))
    kept = slice(min(first, most), max(last + 1, len(times) - most))
    times, weights = times[kept], weights[kept]
    if len(times) < 2:
        return None
    low, high = int(times[0]), int(times[-1])
    # The clock stands still in long gaps.
    steps = np.diff(times)
    gaps = _long_gaps(times) if len(times) > 2 else np.zeros(0, np.int64)
    steps[gaps] = 0
    clock = np.concatenate(([0], np.cumsum(steps)))
    val, test = (_at(times, clock, share) for share in (0.8, 0.9))
    before = np.concatenate(([0.0], np.cumsum(weights) / weights.sum()))
    moved = False
    if len(times) > 3:
        shares = [float(before[np.searchsorted(times, t)]) for t in (val, test)]
        held = min(max(shares[0], _LEAST_TRAIN), 1 - 3 * _LEAST_EVAL)
        later = min(max(shares[1], held + _LEAST_EVAL), 1 - _LEAST_EVAL)
        if held != shares[0]:
            val, moved = _quantile(times, before, held), True
        if later != shares[1] or test <= val:
            test, moved = _quantile(times, before, later), True
        # Each part has an event at least.
        end = int(np.clip(np.searchsorted(times, test), 2, len(times) - 1))
        begin = int(np.clip(np.searchsorted(times, val), 1, end - 1))
        if not times[end - 1] < test <= times[end]:
            test, moved = int(times[end]), True
        if not times[begin - 1] < val <= times[begin]:
            val, moved = int(times[begin]), True
    found = tuple((int(times[i]), int(times[i + 1])) for i in gaps)
    return Placement(low, high, val, test, found, moved)


def _at(times: Numbers, clock: Numbers, share: float) -> int:
    """The time at a share of the clock; at the end of a gap if it falls into one."""
    import numpy as np

    wanted = share * clock[-1]
    after = int(np.searchsorted(clock, wanted, side="right"))
    if after >= len(times):
        return int(times[-1])
    return int(times[after] - (clock[after] - wanted))


def _quantile(times: Numbers, before: Shares, share: float) -> int:
    """The first time before which at least a share of the events lies."""
    import numpy as np

    place = int(np.searchsorted(before, share - 1e-9))
    return int(times[min(max(place, 1), len(times) - 1)])


def _counts(staging: Staging, union: str, unit: str) -> tuple[Numbers, Numbers]:
    """Different times, to a unit, and the number of rows at each."""
    import numpy as np

    rows = staging.rows(
        f"SELECT epoch_us(date_trunc('{unit}', t)) AS u, count(*) FROM ({union}) "
        "WHERE t IS NOT NULL GROUP BY u ORDER BY u"
    )
    found = np.array(rows, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def propose_split(
    staging: Staging, timed: Mapping[str, tuple[str, str]], yearly: bool = False
) -> Split | None:
    """Propose validation and test times; None if there is no time.

    Args:
        staging: The staging database.
        timed: SQL of each event table and of its times, by name.
        yearly: Whether most rows are dated by a year, and so lie on its last day. Then the split
            times are at midyear: the following 365 days contain one year's rows, leap year or not.
    """
    union = " UNION ALL ".join(f"SELECT {time} AS t FROM {table}" for table, time in timed.values())
    if not union:
        return None
    times, counts = _counts(staging, union, "hour")
    if not len(times):
        return None
    part = main_part(times, counts)
    if times[part][-1] - times[part][0] < _DAYS:
        low, high = (_moment(int(times[part][i])) for i in (0, -1))
        union = (
            f"SELECT t FROM ({union}) WHERE t >= TIMESTAMP '{low}' "
            f"AND t < TIMESTAMP '{high}' + INTERVAL 1 HOUR"
        )
        first, last = times[0], times[-1]
        times, counts = _counts(staging, union, "second")
    else:
        first, last = times[0], times[-1]
    placed = place_splits(times, counts)
    names = _listed(list(timed))
    if placed is None or placed.test - placed.val < 1_000_000:
        moment = _moment(int(times[0]))
        reason = f"all rows lie within seconds of {moment}: there is no before and after to split"
        return Split(moment, moment + dt.timedelta(seconds=1), reason)
    step = _DAY if placed.high - placed.low >= _DAYS else 1_000_000
    val, test = (_moment(t // step * step) for t in (placed.val, placed.test))
    shown = "%Y-%m-%d" if step == _DAY else "%Y-%m-%d %H:%M:%S"
    low, high = _moment(placed.low), _moment(placed.high)
    reason = (
        f"rows of {names} lie between {low:{shown}} and {high:{shown}} (without outliers): the "
        "last tenth of that time is for test, the tenth before it for validation"
    )
    if placed.gaps:
        begin, end = max(placed.gaps, key=lambda gap: gap[1] - gap[0])
        pauses = counted(len(placed.gaps), "long gap")
        reason += f", not counting {pauses} ({_moment(begin):{shown}} to {_moment(end):{shown}})"
    if placed.moved:
        reason += ", moved so that each part has enough rows"
    if yearly and val.year < test.year:
        val, test = (t.replace(month=7, day=1) for t in (val, test))
        reason += "; at midyear, so that the next 365 days contain one year's rows"
    cut = [int((t - _moment(0)) / dt.timedelta(microseconds=1)) for t in (val, test)]
    shares = [int(counts[times >= cut[0]].sum()), int(counts[times >= cut[1]].sum())]
    total = int(counts.sum())
    reason += (
        f"; {total - shares[0]:,} rows before validation, {shares[0] - shares[1]:,} in it, "
        f"{shares[1]:,} after"
    )
    outliers = ""
    span = placed.high - placed.low
    if placed.low - first > span or last - placed.high > span:
        odd = _moment(int(first if placed.low - first > span else last))
        outliers = (
            f"some rows of {names} lie far from the rest, such as at {odd}: they do not count for "
            "the splits. Correct them in the source if they are wrong"
        )
    return Split(val, test, reason, outliers)


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and others"


def _moment(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)
