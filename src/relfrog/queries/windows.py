"""Windows as durations: how far they reach, and in whose calendar."""

from __future__ import annotations

import pandas as pd

from relfrog.queries.syntax import Window

__all__ = ["CALENDAR", "longest", "moved", "offset", "reach"]

#: Units whose length depends on the calendar, in months.
CALENDAR = {"MONTH": 1, "YEAR": 12}


def offset(count: int, unit: str) -> pd.DateOffset:
    """So many units, to be added to a time; months and years follow the calendar."""
    if unit in CALENDAR:
        return pd.DateOffset(months=count * CALENDAR[unit])
    return pd.DateOffset(**{f"{unit.lower()}s": count})


def longest(count: int, unit: str) -> pd.Timedelta:
    """So many units at their longest: a month has up to 31 days, two have up to 62.

    Raises:
        OverflowError: It is longer than times can be.
    """
    if unit not in CALENDAR:
        return pd.Timedelta(count, unit.lower()) if unit != "WEEK" else pd.Timedelta(7 * count, "D")
    months = count * CALENDAR[unit]
    if months > 12 * 200:
        raise OverflowError
    starts = pd.date_range("2000-01-01", periods=48, freq="MS")  # a leap year and three others
    return max(start + pd.DateOffset(months=months) - start for start in starts)


def reach(window: Window) -> pd.Timedelta:
    """How far ahead a window reaches, at most."""
    return longest(window.end, window.unit)


def moved(window: Window, steps: int) -> Window:
    """The window so many of its own widths later."""
    assert window.start is not None
    width = window.end - window.start
    return Window(
        window.start + steps * width, window.end + steps * width, window.unit, window.span
    )
