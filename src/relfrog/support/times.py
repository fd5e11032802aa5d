"""Times as integers (ticks), compared exactly.

A graph counts in microseconds, or in nanoseconds where a table needs them. The time of a row is
never rounded. A cutoff is rounded down, which changes no comparison `row <= cutoff`, because rows
lie on whole ticks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import SchemaError
from relfrog.support.arrays import blocks

if TYPE_CHECKING:
    import pandas as pd

Ticks = NDArray[np.int64]
Moments = NDArray[np.datetime64]

#: The time of a row without one: before every cutoff, so the row is always visible.
MISSING = np.iinfo(np.int64).min

#: The first second of the year 1, and the first after the year 9999: what calendars can say.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_800

#: The most seconds that are counted in microseconds: some 290,000 years.
_MOST = 9.2e12

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def as_ticks(values: Any) -> tuple[Ticks, str]:
    """Times as ticks, and the unit of the ticks; `MISSING` where there is no value.

    Numbers are seconds since 1970, as in RelBench; times with a zone become UTC.
    """
    if not is_moments(values):
        found = _read(values)
        if isinstance(found, tuple):
            return found
        values = found
    return values.view(np.int64), np.datetime_data(values.dtype)[0]


def as_moments(values: Any) -> Moments:
    """Times in any form that pandas converts to times as NumPy's, those with a zone in UTC."""
    if is_moments(values):
        return np.asarray(values)
    found = _read(values)
    if isinstance(found, tuple):
        ticks, unit = found
        return ticks.view(f"datetime64[{unit}]")
    return found


def is_moments(values: Any) -> bool:
    """Whether these are times of NumPy's already, in a unit of ticks."""
    return (
        isinstance(values, np.ndarray)
        and values.dtype.kind == "M"
        and values.dtype.isnative
        and np.datetime_data(values.dtype) in [(unit, 1) for unit in PER_SECOND]
    )


def _read(values: Any) -> Moments | tuple[Ticks, str]:
    """Times in any form, by pandas, which knows them all; numbers as ticks and their unit.

    A number that is too large for a tick stays the largest there is: it must not become `MISSING`,
    which is visible at any time.
    """
    import pandas as pd

    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    series = pd.Series(values)
    if not pd.api.types.is_datetime64_any_dtype(series.dtype):
        if pd.api.types.is_bool_dtype(series.dtype):
            raise TypeError("true and false are not times")
        if pd.api.types.is_integer_dtype(series.dtype):
            if pd.api.types.is_unsigned_integer_dtype(series.dtype):
                series = series.clip(upper=np.iinfo(np.int64).max)
            return series.to_numpy(np.int64, na_value=MISSING), "s"
        if pd.api.types.is_float_dtype(series.dtype):
            seconds = series.to_numpy(np.float64, na_value=np.nan)
            known = ~np.isnan(seconds)
            micros = np.rint(np.where(known, np.clip(seconds, -_MOST, _MOST), 0) * 1e6)
            return np.where(known, micros.astype(np.int64), MISSING), "us"
        series = pd.to_datetime(series, utc=True)
    if getattr(series.dt, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(series.to_numpy())


def moment_text(moment: np.datetime64) -> str:
    """A time as text, with as many digits as it needs: 2024-01-31 12:00:00."""
    text = str(moment).replace("T", " ")
    whole, _, fraction = text.partition(".")
    if not fraction.strip("0"):
        return whole
    return text[:-3] if len(fraction) > 6 and fraction.endswith("000") else text


def common_unit(columns: list[tuple[Ticks, str]]) -> str:
    """The unit, "us" or else "ns", in which all these times are whole ticks."""
    for ticks, unit in columns:
        if unit == "ns" and any(_has_parts(ticks[some]) for some in blocks(len(ticks))):
            return "ns"
    return "us"


def _has_parts(ticks: Ticks) -> bool:
    """Whether a time in nanoseconds is no whole number of microseconds."""
    return bool((ticks[ticks != MISSING] % 1_000).any())


def odd_time(ticks: Ticks, unit: str) -> Any:
    """A time outside the years 1 to 9999; None if there is none, and `MISSING` is none."""
    known = ticks[ticks != MISSING]
    for tick in (known.min(), known.max()) if len(known) else ():
        if not FIRST_SECOND <= int(tick) // PER_SECOND[unit] < LAST_SECOND:
            return tick.astype(f"datetime64[{unit}]")
    return None


def between(first: pd.Timestamp, last: pd.Timestamp) -> pd.Timedelta:
    """The time between two; in nanoseconds, 292 years would be the longest."""
    import pandas as pd

    try:
        return last.as_unit("us") - first.as_unit("us")
    except (OverflowError, ValueError):  # one of them lies outside all calendars
        return pd.Timedelta.max


def convert_ticks(ticks: Ticks, unit: str, to: str, *, clip: bool = False) -> Ticks:
    """Convert ticks from `unit` to `to`, rounding down where `to` is coarser.

    Raises:
        SchemaError: A time does not fit into 64 bits of `to`, and `clip` is false.
    """
    if unit == to:
        return ticks
    out = np.empty_like(ticks)
    for some in blocks(len(ticks)):
        out[some] = _converted(ticks[some], unit, to, clip)
    return out


def _converted(ticks: Ticks, unit: str, to: str, clip: bool) -> Ticks:
    if PER_SECOND[unit] > PER_SECOND[to]:
        factor = PER_SECOND[unit] // PER_SECOND[to]
        return np.where(ticks == MISSING, MISSING, ticks // factor)
    factor = PER_SECOND[to] // PER_SECOND[unit]
    known = ticks[ticks != MISSING]
    limit = np.iinfo(np.int64).max // factor
    if not clip and known.size and (known.max() > limit or known.min() < -limit):
        worst = known[np.argmax(np.abs(known))]
        raise SchemaError(
            f"the time {worst.astype(f'datetime64[{unit}]')} does not fit into 64 bits of {to}. "
            "Round the times to microseconds, or write NULL for open ends."
        )
    return np.where(ticks == MISSING, MISSING, np.clip(ticks, -limit, limit) * factor)
