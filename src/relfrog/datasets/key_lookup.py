"""Look up keys by value, in any spelling: text from CSV, numbers, UUIDs."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["find_keys", "is_missing", "is_text", "parse_time"]

#: Values of a column, converted so that equal keys compare as equal, and which of them are valid.
_Comparable = tuple[NDArray[Any], NDArray[np.bool_]]


def find_keys(keys: pd.DataFrame, asked: list[list[Any]]) -> NDArray[np.int64]:
    """Find the rows that have the given keys.

    Args:
        keys: The columns of the key. A row with a NULL has no key.
        asked: For each column the values to find, in any type that converts to the column's.

    Returns:
        The first row with each key; -1 if there is none. Shape [asked].
    """
    # Among what is asked, not among all keys: few are asked of millions.
    rows, codes = np.arange(len(keys)), np.zeros(len(keys), np.int64)
    wanted, usable = np.zeros(len(asked[0]), np.int64), np.ones(len(asked[0]), np.bool_)
    for name, values in zip(keys.columns, asked, strict=True):
        (left, known), (right, read) = _comparable(keys[name], values)
        distinct = _index(right)
        place = distinct.get_indexer(left[rows])
        kept = (place >= 0) & known[rows]
        rows, codes = rows[kept], codes[kept] * len(distinct) + place[kept]
        wanted = wanted * len(distinct) + distinct.get_indexer(right)
        tuples = _index(wanted)
        wanted, codes = tuples.get_indexer(wanted), tuples.get_indexer(codes)
        rows, codes = rows[codes >= 0], codes[codes >= 0]
        usable &= read
    first = np.full(wanted.max(initial=-1) + 1, -1, np.int64)
    first[codes[::-1]] = rows[::-1]
    return np.where(usable, first[wanted], -1)


def _index(values: NDArray[Any]) -> pd.Index:
    """The distinct ones of some values, to find others among them."""
    return pd.Index(pd.unique(values), dtype=values.dtype)


def _comparable(known: pd.Series, asked: list[Any]) -> tuple[_Comparable, _Comparable]:
    """Convert a key column, and the values asked for, to a common type."""
    present = known.notna().to_numpy(np.bool_)
    kind = known.dtype
    if pd.api.types.is_bool_dtype(kind):
        return (known.to_numpy(np.bool_, na_value=False), present), _each(asked, _boolean, "bool")
    if pd.api.types.is_integer_dtype(kind):
        return (known.to_numpy(np.int64, na_value=0), present), _each(asked, _integer, "int64")
    if pd.api.types.is_float_dtype(kind):
        values = np.where(present, known.to_numpy(np.float64, na_value=0.0), 0.0)
        return (values, present), _each(asked, _number, "float64")
    if pd.api.types.is_datetime64_any_dtype(kind):
        ticks = known.to_numpy("datetime64[us]").view(np.int64)
        return (ticks, present), _each(asked, _microseconds, "int64")
    texts = known.to_numpy(object, copy=True)
    texts[~present] = ""
    spell = _spelling(texts[present])
    if spell is not None:
        texts = np.array([spell(text) for text in texts], object)
    return (texts, present), _each(asked, lambda v: (spell or str)(_text(v)), "object")


def is_text(known: pd.Series) -> bool:
    """Whether keys of this column are compared as text."""
    kinds = pd.api.types
    return not (kinds.is_numeric_dtype(known.dtype) or kinds.is_datetime64_any_dtype(known.dtype))


def _each(values: list[Any], convert: Callable[[Any], Any], dtype: str) -> _Comparable:
    """Convert values to a type, and say for which of them that is possible."""
    out = np.full(len(values), "" if dtype == "object" else 0, dtype)
    read = np.zeros(len(values), np.bool_)
    for i, value in enumerate(values):
        try:
            scalar = isinstance(value, np.generic) and not isinstance(value, np.datetime64)
            out[i] = convert(value.item() if scalar else value)
            read[i] = True
        except (ValueError, TypeError, ArithmeticError):
            pass
    return out, read


_UUID = re.compile(r"\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", re.I)
_NUMERAL = re.compile(r"-?[1-9]\d*(?:\.\d*[1-9])?|0")


def _spelling(known: NDArray[Any]) -> Callable[[str], str] | None:
    """A function that normalises keys with several spellings; None if there is only one."""

    def hexadecimal(text: str) -> str:
        return re.sub(r"[{}-]", "", text.strip().lower().removeprefix("urn:uuid:"))

    def decimals(text: str) -> str:
        text = text.strip()
        return text.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d*", text) else text

    if not len(known):
        return None
    if all(map(_UUID.fullmatch, known)):
        distinct = len(set(map(hexadecimal, known))) == len(set(known))
        return hexadecimal if distinct else None
    # Numbers too large for 64 bits were kept as text; shorter ones may be codes: 1.10, 007.
    if max(map(len, known)) > 18 and all(map(_NUMERAL.fullmatch, known)):
        return decimals
    return str.strip if all(text == text.strip() for text in known) else None


def is_missing(value: Any, blank: bool = False) -> bool:
    """Whether a value is missing; with ``blank``, empty text counts as missing, too."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, str):
        return blank and not value.strip()
    return isinstance(value, float | np.floating) and math.isnan(value)


def _text(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, str | int | float | uuid.UUID):
        return str(value)
    raise TypeError


def _integer(value: Any) -> int:
    if isinstance(value, str):
        whole = re.fullmatch(r"\s*([+-]?\d+)(?:\.0*)?\s*", value, re.ASCII)
        if whole is None:
            raise ValueError
        return int(whole[1])
    number = int(value)
    if number != value:
        raise ValueError
    return number


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _boolean(value: Any) -> bool:
    known = {"true": True, "t": True, "yes": True, "y": True, "1": True}
    known |= {"false": False, "f": False, "no": False, "n": False, "0": False}
    text = str(value).strip().lower()
    if text not in known:
        raise ValueError
    return known[text]


_ISO = re.compile(
    r"\d{4}-?\d\d-?\d\d(?:[T ]\d\d:?\d\d(?::?\d\d(?:[.,]\d{1,9})?)?\s?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.I | re.ASCII,
)


def parse_time(value: Any) -> pd.Timestamp:
    """Convert a time to pandas', without a zone; times with a zone become UTC.

    Raises:
        ValueError: The text is not a time in ISO 8601.
        TypeError: The value is neither text nor a time.
    """
    if isinstance(value, str):
        value = value.strip()
        if not _ISO.fullmatch(value):
            raise ValueError
    elif not isinstance(value, dt.date | np.datetime64):
        raise TypeError
    stamp = pd.Timestamp(value)
    if stamp is pd.NaT:
        raise ValueError
    return stamp if stamp.tz is None else stamp.tz_convert("UTC").tz_localize(None)


def _microseconds(value: Any) -> int:
    stamp = parse_time(value)
    if stamp.nanosecond:
        raise ValueError
    return int(stamp.to_datetime64().astype("datetime64[us]").astype(np.int64))
