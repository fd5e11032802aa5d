"""Read columns of any dtype as numbers, times, texts or lists, value by value.

The kind of a column is inferred from its values, never from its dtype: one NULL in a later row
turns integers into floats and booleans into objects, and rows after the cutoff must not matter. So
a value is read the same regardless of the other rows.
"""

from __future__ import annotations

import datetime as dt
import decimal
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.support.times import MISSING, as_ticks, convert_ticks

__all__ = [
    "missing_mask",
    "read_lists",
    "read_numbers",
    "read_texts",
    "read_times",
    "read_vectors",
    "value_kind",
    "vector_width",
]

#: The kind for each result of pandas' infer_dtype.
KINDS = {
    "boolean": "boolean",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "timedelta": "number",
    "timedelta64": "number",
    "datetime": "moment",
    "datetime64": "moment",
    "date": "moment",
    "string": "text",
    "mixed-integer": "text",
    "time": "text",
    "empty": "nothing",
}
LISTS = (list, tuple, set, frozenset, np.ndarray)
NUMBERS = (int, float, np.integer, np.floating, np.bool_, decimal.Decimal)
WORDS = (str, dt.date, dt.time)
#: Times in seconds are clipped here, so that microseconds fit into 64 bits.
FAR = 9.2e12


def value_kind(values: pd.Series) -> str:
    """The kind of a column: boolean, number, moment, text, list, nothing, or pandas' name."""
    dtype = values.dtype
    if values.isna().all():
        return "nothing"
    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    if pd.api.types.is_numeric_dtype(dtype) and dtype.kind != "c":
        return "number"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "moment"
    if pd.api.types.is_timedelta64_dtype(dtype):
        return "number"
    known = _objects(values.dropna())
    if any(isinstance(value, LISTS) for value in known[:1]):
        return "list" if all(isinstance(value, LISTS) for value in known) else "mixed"
    found = pd.api.types.infer_dtype(known, skipna=True)
    if found == "mixed":
        # Numbers of several types are numbers; numbers among text are text.
        if all(isinstance(value, NUMBERS) for value in known):
            return "number"
        return "text" if all(isinstance(value, NUMBERS + WORDS) for value in known) else "mixed"
    return KINDS.get(found, str(found))


def missing_mask(values: pd.Series) -> NDArray[np.bool_]:
    """Where values are missing. Shape [rows]."""
    return np.asarray(values.isna(), bool)


def read_numbers(values: pd.Series) -> NDArray[np.float64]:
    """Values as numbers, NaN where missing or infinite. Shape [rows].

    True is 1, a time span its seconds; text is parsed.
    """
    dtype = values.dtype
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return np.full(len(values), np.nan)
    if pd.api.types.is_timedelta64_dtype(dtype):
        found = values.dt.total_seconds().to_numpy(np.float64)
    elif pd.api.types.is_numeric_dtype(dtype) and dtype.kind != "c":
        found = values.to_numpy(np.float64, na_value=np.nan)
    else:
        found = _spelled(_objects(values))
    return np.where(np.isfinite(found), found, np.nan)


def _spelled(values: NDArray[np.object_]) -> NDArray[np.float64]:
    """Parse objects of any type as numbers."""

    def one(value: Any) -> float:
        try:
            if isinstance(value, str) and "_" in value:
                return np.nan  # Python would parse 1_000
            if isinstance(value, dt.timedelta | np.timedelta64):
                return float(pd.Timedelta(value).total_seconds())
            return float(value)
        except (TypeError, ValueError, OverflowError):
            return np.nan

    return np.fromiter(map(one, values), np.float64, len(values))


def read_times(values: pd.Series) -> NDArray[np.int64]:
    """Values as microseconds since 1970 in UTC, `times.MISSING` where missing. Shape [rows].

    Numbers are seconds since 1970, as in RelBench.
    """
    dtype = values.dtype
    if not pd.api.types.is_datetime64_any_dtype(dtype):
        if pd.api.types.is_numeric_dtype(dtype):
            seconds = read_numbers(values)
            micros = np.rint(np.clip(np.nan_to_num(seconds), -FAR, FAR) * 1e6).astype(np.int64)
            return np.where(np.isnan(seconds), MISSING, micros)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about ambiguous days and months
            # Without "mixed", pandas would take the format of the first row for all.
            values = pd.to_datetime(
                pd.Series(_objects(values), dtype=object),
                errors="coerce",
                utc=True,
                format="mixed",
            )
    return convert_ticks(*as_ticks(values), "us", clip=True)


def read_texts(values: pd.Series) -> NDArray[np.object_]:
    """Values as strings, None where missing. Shape [rows].

    Integers are written without a decimal point, so that 1 and 1.0 give the same string.
    """
    found = _objects(values)
    known = ~missing_mask(values)
    out = np.full(len(found), None, object)
    if pd.api.types.infer_dtype(found, skipna=True) == "string":
        out[known] = found[known]
    else:
        out[known] = [_text(value) for value in found[known]]
    return out


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, float | np.floating) and np.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def read_lists(values: pd.Series) -> tuple[NDArray[np.int64], list[str]]:
    """The length of each list, -1 where there is none, and all entries as strings.

    Missing entries are left out.
    """
    flat: list[Any] = []
    lengths = np.full(len(values), -1, np.int64)
    for row, value in enumerate(_objects(values)):
        if isinstance(value, LISTS):
            flat.extend(value)
            lengths[row] = len(value)
    if pd.api.types.infer_dtype(flat, skipna=False) in ("string", "empty"):
        return lengths, flat
    kept = np.array([not _nothing(entry) for entry in flat], bool)
    rows = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    counts = np.bincount(rows[kept], minlength=len(lengths))
    flat = [_text(entry) for entry, keep in zip(flat, kept, strict=True) if keep]
    return np.where(lengths < 0, -1, counts), flat


def _nothing(entry: Any) -> bool:
    if isinstance(entry, float | np.floating):
        return bool(np.isnan(entry))
    return entry is None or entry is pd.NA or entry is pd.NaT


def vector_width(values: pd.Series) -> int | None:
    """The length of the lists, if all hold the same number of numbers; otherwise None."""
    found = [value for value in _objects(values) if isinstance(value, LISTS)]
    widths = {len(value) for value in found}
    if len(widths) != 1 or min(widths) < 2 or any(isinstance(v, set | frozenset) for v in found):
        return None
    try:
        matrix = np.array([list(value) for value in found])
    except (TypeError, ValueError):
        return None
    return widths.pop() if matrix.ndim == 2 and matrix.dtype.kind in "fiu" else None


def read_vectors(values: pd.Series, width: int) -> NDArray[np.float64]:
    """Lists of `width` numbers, NaN in rows without one. Shape [rows, width]."""
    out = np.full((len(values), width), np.nan)
    for row, value in enumerate(_objects(values)):
        if isinstance(value, LISTS) and len(value) == width:
            try:
                one = np.asarray(list(value), np.float64)
            except (TypeError, ValueError):
                continue
            if np.isfinite(one).all():
                out[row] = one
    return out


def _objects(values: pd.Series) -> NDArray[np.object_]:
    return np.asarray(values.astype(object).to_numpy(), dtype=object)
