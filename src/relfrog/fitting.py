"""What a column is to the network, decided by its values before the cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog import values as reading
from relfrog.encodings import (
    FEW,
    BagColumn,
    CategoryColumn,
    Column,
    NumberColumn,
    TextColumn,
    TimeColumn,
    VectorColumn,
)
from relfrog.errors import UsageError
from relfrog.times import MISSING

__all__ = ["TYPES", "fit_column"]

#: Types that a column can be given by hand: those of PyTorch Frame, or to leave it out.
TYPES = ("numerical", "categorical", "multicategorical", "timestamp", "embedding", "skip")

#: Whole numbers are names of things as well if there are so few, or so few per row.
MOST_CODES, CODES_PER_ROW = 256, 0.2
#: Strings are names of things if there are so few, or fewer than this and so few per row.
FEW_NAMES, MOST_NAMES, NAMES_PER_ROW = 32, 1_000, 0.2
#: Whole numbers beyond this are not exact as floats.
EXACT = 2.0**53

Fitted = tuple[Column, ...] | str


def fit_column(
    name: str, values: pd.Series, wanted: str | None, text: str, channels: int, own_time: bool
) -> Fitted:
    """Fit a column, in one or two ways, or say why it is of no use.

    Args:
        name: Its name.
        values: Its values before the cut.
        wanted: The type that the user gives it, one of `TYPES`.
        text: The model for texts.
        channels: Numbers per text.
        own_time: Whether it is the time column of its table.

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
        return _numbers(name, reading.numbers(values), kind == "boolean")
    if kind == "moment":
        found = reading.moments(values)
        return _constant(found, found == MISSING) or (TimeColumn.fit(name, found),)
    if kind == "text":
        return _texts(name, reading.texts(values), text, channels)
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


def _numbers(name: str, found: NDArray[np.float64], boolean: bool) -> Fitted:
    missing = np.isnan(found)
    reason = _constant(found, missing)
    if reason:
        return reason
    category = CategoryColumn.fit(name, found, numeric=True)
    if boolean:
        return (category,)
    number = NumberColumn.fit(name, found)
    known = found[~missing]
    if (known != np.rint(known)).any() or np.abs(known).max() > EXACT:
        return (number,)
    # Codes such as a status mean nothing as numbers, ranks mean much: who is to know?
    distinct = np.unique(known).size
    few = distinct <= FEW or distinct <= min(MOST_CODES, CODES_PER_ROW * known.size)
    return (number, category) if few and len(category.categories) > 1 else (number,)


def _texts(name: str, found: NDArray[Any], text: str, channels: int) -> Fitted:
    missing = np.array([value is None for value in found], bool)
    reason = _constant(found, missing)
    if reason:
        return reason
    known = found[~missing]
    distinct = pd.Series(known, dtype=object).nunique()
    if distinct <= FEW_NAMES or distinct <= min(MOST_NAMES, NAMES_PER_ROW * known.size):
        category = CategoryColumn.fit(name, found, numeric=False)
        # Names that occur once each would all be unknown: as texts they are at least alike.
        if len(category.categories) > 1 or distinct <= FEW:
            return (category,)
    return (TextColumn.fit(name, found, text, channels),)


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
