"""Choose the encoding of a column from its values before the cutoff."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import UsageError
from relfrog.features.coded import Coded, code_texts
from relfrog.features.column_kinds import (
    FEW,
    BagColumn,
    CategoryColumn,
    Column,
    NumberColumn,
    TextColumn,
    TimeColumn,
    VectorColumn,
)
from relfrog.features.streamed import Moments, Numbers, count_values
from relfrog.features.values import (
    missing_mask,
    read_lists,
    read_numbers,
    read_texts,
    read_times,
    read_vectors,
    value_kind,
    vector_width,
)
from relfrog.support.arrays import blocks
from relfrog.support.times import MISSING

__all__ = ["TYPES", "fit_column"]

#: Types that a user can choose: those of PyTorch Frame, or to leave a column out.
TYPES = ("numerical", "categorical", "multicategorical", "timestamp", "embedding", "skip")

#: Integers are also categories with at most this many distinct values, in all and per row.
MOST_CODES, CODES_PER_ROW = 256, 0.2
#: Strings are categories with at most this many distinct values, or this many and per row.
FEW_NAMES, MOST_NAMES, NAMES_PER_ROW = 32, 1_000, 0.2
#: Distinct texts per channel of a text's vector.
TEXTS_PER_CHANNEL = 500
#: From this rank correlation with the row's time on, a number adds nothing to it.
SAME_AS_TIME = 0.99
#: Larger integers are not exact as floats.
EXACT = 2.0**53

Fitted = tuple[Column, ...] | str


def fit_column(
    name: str,
    values: pd.Series | Coded | Numbers | Moments,
    wanted: str | None,
    text: str,
    channels: int,
    own_time: bool,
    row_times: NDArray[np.int64] | None = None,
) -> Fitted:
    """Fit a column, with one or two encodings, or say why it is useless.

    Args:
        name: Its name.
        values: Its values before the cutoff; texts may be coded, numbers and times be read.
        wanted: The type that the user chose, one of `TYPES`.
        text: The text model.
        channels: Numbers per text.
        own_time: Whether it is the time column of its table.
        row_times: The times of the rows, if the table has any. A number that only increases with
            time, and categories that are always new, say nothing about future rows.

    Raises:
        UsageError: No value can be read as the type that the user chose.
    """
    if wanted == "skip":
        return "left out on request"
    if isinstance(values, Coded):
        if not (values.codes >= 0).any():
            return f"no value in the {len(values):,} rows before the cutoff"
        return _texts(name, values, text, channels, row_times)
    if isinstance(values, Numbers | Moments):
        if values.nothing:
            return f"no value in the {len(values):,} rows before the cutoff"
        if isinstance(values, Numbers):
            return _numbers(name, values.found, False, row_times)
        return _moments(name, values.found)
    kind = value_kind(values)
    if wanted is not None:
        return _as_wanted(name, values, kind, wanted, text, channels)
    if kind == "nothing":
        return f"no value in the {len(values):,} rows before the cutoff"
    if own_time:
        kind = "moment"
    if kind in ("number", "boolean"):
        return _numbers(name, read_numbers(values), kind == "boolean", row_times)
    if kind == "moment":
        return _moments(name, read_times(values))
    if kind == "text":
        return _texts(name, code_texts(read_texts(values)), text, channels, row_times)
    if kind == "list":
        return _lists(name, values)
    return f"values of kind {kind}, which cannot be encoded"


def _moments(name: str, found: NDArray[np.int64]) -> Fitted:
    return _constant(found, found == MISSING) or (TimeColumn.fit(name, found),)


def _constant(found: NDArray[Any], missing: NDArray[np.bool_]) -> str:
    """Why a column is useless; empty if it is not. That a value is missing is information."""
    if missing.all():
        return f"no readable value in the {len(found):,} rows before the cutoff"
    if not missing.any() and (found == found[0]).all():
        return f"the same value in all {len(found):,} rows before the cutoff"
    return ""


def _follows_time(found: NDArray[np.float64], row_times: NDArray[np.int64] | None) -> bool:
    """Whether a number follows the row's time, like a year or a serial number."""
    if row_times is None:
        return False
    there = ~np.isnan(found) & (row_times != MISSING)
    known = _every(there, max(1, int(np.count_nonzero(there)) // 20_000))
    if len(known) < 50:
        return False
    ranks = pd.DataFrame({"value": found[known], "time": row_times[known]}).rank()
    if ranks.nunique().min() < 10:
        return False
    return bool(abs(np.corrcoef(ranks["value"], ranks["time"])[0, 1]) > SAME_AS_TIME)


def _every(chosen: NDArray[np.bool_], step: int) -> NDArray[np.int64]:
    """Each so many of the places where a mask is true, from the first one on."""
    parts, left = [np.empty(0, np.int64)], 0
    for some in blocks(len(chosen)):
        places = np.flatnonzero(chosen[some])
        parts.append(places[left::step] + some.start)
        left = (left - len(places)) % step
    return np.concatenate(parts)


def _recurs(
    found: NDArray[Any], missing: NDArray[np.bool_], row_times: NDArray[np.int64] | None
) -> bool:
    """Whether most values of the latest fifth of the rows occurred before."""
    if row_times is None:
        return True
    known = ~missing & (row_times != MISSING)
    if np.count_nonzero(known) < 50:
        return True
    ordered, times = found[known], row_times[known]
    if (times[1:] < times[:-1]).any():
        ordered = ordered[np.argsort(times, kind="stable")]
    cut = len(ordered) * 4 // 5
    return bool(np.mean(pd.Series(ordered[cut:]).isin(pd.unique(ordered[:cut]))) >= 0.5)


def _numbers(
    name: str, found: NDArray[np.float64], boolean: bool, row_times: NDArray[np.int64] | None
) -> Fitted:
    missing = np.isnan(found)
    reason = _constant(found, missing)
    if reason:
        return reason
    if boolean:
        return (CategoryColumn.fit(name, found, numeric=True),)
    if _follows_time(found, row_times):
        return "increases with the time of its row"
    number = NumberColumn.fit(name, found)
    if not all(_are_codes(found[some]) for some in blocks(len(found))):
        return (number,)
    # A status code means nothing as a number, a rank does: encode small integers both ways.
    known = len(found) - np.count_nonzero(missing)
    if count_values(found, max(FEW, min(MOST_CODES, CODES_PER_ROW * known))) is not None:
        category = CategoryColumn.fit(name, found, numeric=True)
        if len(category.categories) > 1 and _recurs(found, missing, row_times):
            return (number, category)
    return (number,)


def _are_codes(found: NDArray[np.float64]) -> bool:
    """Whether all numbers that are there are integers, and exact."""
    known = found[~np.isnan(found)]
    return not ((known != np.rint(known)) | (np.abs(known) > EXACT)).any()


def _texts(
    name: str,
    found: Coded,
    text: str,
    channels: int,
    row_times: NDArray[np.int64] | None,
) -> Fitted:
    missing = found.codes < 0
    reason = _constant(found.codes, missing)
    if reason:
        return reason
    known, distinct = int((~missing).sum()), int((found.counts() > 0).sum())
    if distinct <= FEW_NAMES or distinct <= min(MOST_NAMES, NAMES_PER_ROW * known):
        category = CategoryColumn.fit_texts(name, found)
        # Categories seen only once would all be unknown; as texts they can be similar.
        if (len(category.categories) > 1 or distinct <= FEW) and _recurs(
            found.codes, missing, row_times
        ):
            return (category,)
    # From a few hundred texts a network would only memorise which is which.
    supported = max(1, distinct // TEXTS_PER_CHANNEL)
    return (TextColumn.fit(name, found, text, min(channels, supported)),)


def _lists(name: str, values: pd.Series) -> Fitted:
    width = vector_width(values)
    if width is not None:
        return (VectorColumn.fit(name, read_vectors(values, width)),)
    lengths, flat = read_lists(values)
    if not flat:
        return f"no entry in the {len(values):,} lists before the cutoff"
    return (BagColumn.fit(name, lengths, flat),)


def _as_wanted(
    name: str, values: pd.Series, kind: str, wanted: str, text: str, channels: int
) -> Fitted:
    """Fit a column as the type that the user chose."""
    found: Any
    if wanted == "numerical":
        found = read_numbers(values)
        _check_readable(values, ~np.isnan(found), wanted)
        return (NumberColumn.fit(name, found),)
    if wanted == "timestamp":
        found = read_times(values)
        _check_readable(values, found != MISSING, wanted)
        return (TimeColumn.fit(name, found),)
    if wanted == "multicategorical":
        lengths, flat = read_lists(values)
        _check_readable(values, lengths >= 0, wanted)
        return (BagColumn.fit(name, lengths, flat),)
    if wanted == "embedding" and kind == "list":
        width = vector_width(values)
        if width is None:
            raise UsageError("embedding: the lists do not all hold the same number of numbers.")
        return (VectorColumn.fit(name, read_vectors(values, width)),)
    if wanted == "embedding":
        return (TextColumn.fit(name, code_texts(read_texts(values)), text, channels),)
    if kind in ("number", "boolean"):
        return (CategoryColumn.fit(name, read_numbers(values), numeric=True),)
    return (CategoryColumn.fit_texts(name, code_texts(read_texts(values))),)


def _check_readable(values: pd.Series, readable: NDArray[np.bool_], wanted: str) -> None:
    known = ~missing_mask(values)
    if known.any() and not readable.any():
        example = values[known].iloc[0]
        raise UsageError(
            f"{wanted}: none of the {int(known.sum()):,} values before the cutoff can be read, "
            f"such as {str(example)[:60]!r}."
        )
