"""What a column is to the network, decided by its values before the cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import UsageError
from relfrog.features import values as reading
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
from relfrog.support.times import MISSING

__all__ = ["TYPES", "fit_column"]

#: Types that a column can be given by hand: those of PyTorch Frame, or to leave it out.
TYPES = ("numerical", "categorical", "multicategorical", "timestamp", "embedding", "skip")

#: Whole numbers are names of things as well if there are so few, or so few per row.
MOST_CODES, CODES_PER_ROW = 256, 0.2
#: Strings are names of things if there are so few, or fewer than this and so few per row.
FEW_NAMES, MOST_NAMES, NAMES_PER_ROW = 32, 1_000, 0.2
#: Different texts for each number that a text is turned into.
TEXTS_PER_CHANNEL = 500
#: Rank correlation with the row's time from which on a number says nothing of its own.
SAME_AS_TIME = 0.99
#: Whole numbers beyond this are not exact as floats.
EXACT = 2.0**53

Fitted = tuple[Column, ...] | str


def fit_column(
    name: str,
    values: pd.Series,
    wanted: str | None,
    text: str,
    channels: int,
    own_time: bool,
    row_times: NDArray[np.int64] | None = None,
) -> Fitted:
    """Fit a column, in one or two ways, or say why it is of no use.

    Args:
        name: Its name.
        values: Its values before the cut.
        wanted: The type that the user gives it, one of `TYPES`.
        text: The model for texts.
        channels: Numbers per text.
        own_time: Whether it is the time column of its table.
        row_times: The times of the rows, where the table has any. A number that only counts on
            with time and names that are always new say nothing about the rows to come.

    Raises:
        UsageError: No value can be read as the type that is wanted.
    """
    if wanted == "skip":
        return "left out on request"
    kind = reading.kind_of(values)
    if wanted is not None:
        return _as_wanted(name, values, kind, wanted, text, channels)
    if kind == "nothing":
        return f"no value in the {len(values):,} rows before the cut"
    if own_time:
        kind = "moment"
    if kind in ("number", "boolean"):
        return _numbers(name, reading.numbers(values), kind == "boolean", row_times)
    if kind == "moment":
        found = reading.moments(values)
        return _constant(found, found == MISSING) or (TimeColumn.fit(name, found),)
    if kind == "text":
        return _texts(name, reading.texts(values), text, channels, row_times)
    if kind == "list":
        return _lists(name, values)
    return f"values of kind {kind}, of which nothing is learned"


def _constant(found: NDArray[Any], missing: NDArray[np.bool_]) -> str:
    """Why a column says nothing, or an empty string. Whether a value is missing does count."""
    if missing.all():
        return f"no value that can be read in the {len(found):,} rows before the cut"
    if not missing.any() and (found == found[0]).all():
        return f"the same value in all {len(found):,} rows before the cut"
    return ""


def _follows_time(found: NDArray[np.float64], row_times: NDArray[np.int64] | None) -> bool:
    """Whether a number is the row's time in other words: a year, a serial number."""
    if row_times is None:
        return False
    known = np.flatnonzero(~np.isnan(found) & (row_times != MISSING))
    known = known[:: max(1, len(known) // 20_000)]
    if len(known) < 50:
        return False
    ranks = pd.DataFrame({"value": found[known], "time": row_times[known]}).rank()
    if ranks.nunique().min() < 10:
        return False
    return bool(abs(np.corrcoef(ranks["value"], ranks["time"])[0, 1]) > SAME_AS_TIME)


def _comes_again(found: NDArray[Any], row_times: NDArray[np.int64] | None) -> bool:
    """Whether the values of the latest fifth of the rows have mostly been there before."""
    if row_times is None:
        return True
    known = np.flatnonzero(~pd.isna(found) & (row_times != MISSING))
    if len(known) < 50:
        return True
    ordered = found[known[np.argsort(row_times[known], kind="stable")]]
    cut = len(ordered) * 4 // 5
    return bool(np.mean(pd.Series(ordered[cut:]).isin(pd.unique(ordered[:cut]))) >= 0.5)


def _numbers(
    name: str, found: NDArray[np.float64], boolean: bool, row_times: NDArray[np.int64] | None
) -> Fitted:
    missing = np.isnan(found)
    reason = _constant(found, missing)
    if reason:
        return reason
    category = CategoryColumn.fit(name, found, numeric=True)
    if boolean:
        return (category,)
    if _follows_time(found, row_times):
        return "counts on with the time of its row"
    number = NumberColumn.fit(name, found)
    known = found[~missing]
    if (known != np.rint(known)).any() or np.abs(known).max() > EXACT:
        return (number,)
    # Codes such as a status mean nothing as numbers, ranks mean much: who is to know?
    distinct = np.unique(known).size
    few = distinct <= FEW or distinct <= min(MOST_CODES, CODES_PER_ROW * known.size)
    if few and len(category.categories) > 1 and _comes_again(found, row_times):
        return (number, category)
    return (number,)


def _texts(
    name: str,
    found: NDArray[Any],
    text: str,
    channels: int,
    row_times: NDArray[np.int64] | None,
) -> Fitted:
    missing = np.array([value is None for value in found], bool)
    reason = _constant(found, missing)
    if reason:
        return reason
    known = found[~missing]
    distinct = pd.Series(known, dtype=object).nunique()
    if distinct <= FEW_NAMES or distinct <= min(MOST_NAMES, NAMES_PER_ROW * known.size):
        category = CategoryColumn.fit(name, found, numeric=False)
        # Names that occur once each would all be unknown: as texts they are at least alike.
        if (len(category.categories) > 1 or distinct <= FEW) and _comes_again(found, row_times):
            return (category,)
    # Of a few hundred names a network learns no language, only who is who.
    bearable = max(1, distinct // TEXTS_PER_CHANNEL)
    return (TextColumn.fit(name, found, text, min(channels, bearable)),)


def _lists(name: str, values: pd.Series) -> Fitted:
    width = reading.vector_width(values)
    if width is not None:
        return (VectorColumn.fit(name, reading.vectors(values, width)),)
    lengths, flat = reading.lists(values)
    if not flat:
        return f"no entry in the {len(values):,} lists before the cut"
    return (BagColumn.fit(name, lengths, flat),)


def _as_wanted(
    name: str, values: pd.Series, kind: str, wanted: str, text: str, channels: int
) -> Fitted:
    """Fit a column as the type that the user gives it."""
    found: Any
    if wanted == "numerical":
        found = reading.numbers(values)
        _must_be_read(values, ~np.isnan(found), wanted)
        return (NumberColumn.fit(name, found),)
    if wanted == "timestamp":
        found = reading.moments(values)
        _must_be_read(values, found != MISSING, wanted)
        return (TimeColumn.fit(name, found),)
    if wanted == "multicategorical":
        lengths, flat = reading.lists(values)
        _must_be_read(values, lengths >= 0, wanted)
        return (BagColumn.fit(name, lengths, flat),)
    if wanted == "embedding" and kind == "list":
        width = reading.vector_width(values)
        if width is None:
            raise UsageError("embedding: the lists do not hold equally many numbers each.")
        return (VectorColumn.fit(name, reading.vectors(values, width)),)
    if wanted == "embedding":
        return (TextColumn.fit(name, reading.texts(values), text, channels),)
    numeric = kind in ("number", "boolean")
    found = reading.numbers(values) if numeric else reading.texts(values)
    return (CategoryColumn.fit(name, found, numeric),)


def _must_be_read(values: pd.Series, readable: NDArray[np.bool_], wanted: str) -> None:
    known = ~reading.missing(values)
    if known.any() and not readable.any():
        example = values[known].iloc[0]
        raise UsageError(
            f"{wanted}: none of the {int(known.sum()):,} values before the cut can be read so, "
            f"for example {str(example)[:60]!r}."
        )
