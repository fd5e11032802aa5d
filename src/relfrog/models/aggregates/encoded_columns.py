"""Columns encoded as one number per row, for aggregation in DuckDB; simpler than for networks.

Kind, levels and centre of a column are fitted on rows before the validation time and saved with the
run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.features.values import read_lists, read_numbers, read_texts, read_times, value_kind
from relfrog.support.times import MISSING

__all__ = ["EncodedColumn", "days", "fit_encoded_columns"]

Floats = NDArray[np.float64]

#: The most levels of a category that have a code of their own.
MOST_LEVELS = 200
#: Numbers are clipped here, so that sums of their squares stay finite.
LARGE = 1e15


@dataclass(frozen=True)
class EncodedColumn:
    """An encoding of a column as one number per row.

    Attributes:
        table: its table.
        column: its column.
        kind: "number"; "moment", in days since 1970; "length" of a text or list; "category", the
            code of a level; "value", the code of one of few integers; or "label", one output of
            the label history.
        center: subtracted from the values, so that sums of squares stay precise.
        levels: levels of a category, the most frequent first; rarer ones share a last code.
        part: index of the output, for a label.
    """

    table: str
    column: str
    kind: str
    center: float = 0.0
    levels: tuple[str, ...] = ()
    part: int = 0

    @property
    def name(self) -> str:
        """Its name in the names of features."""
        suffix = {"length": " length", "label": f" {self.part}" if self.part else ""}
        return f"{self.column}{suffix.get(self.kind, '')}"

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self) | {"levels": list(self.levels)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> EncodedColumn:
        """Restore from JSON values."""
        return cls(
            str(found["table"]), str(found["column"]), str(found["kind"]), float(found["center"]),
            tuple(map(str, found["levels"])), int(found["part"]),
        )  # fmt: skip

    def encode(self, values: pd.Series) -> Floats:
        """Encode values, minus the centre; NaN where missing. Shape [rows]."""
        if self.kind == "number":
            found = np.clip(read_numbers(values), -LARGE, LARGE)
        elif self.kind == "moment":
            found = days(read_times(values), "us")
        elif self.kind == "length":
            found = _lengths(values)
        else:
            assert self.kind in ("category", "value"), self.kind
            number = {level: code for code, level in enumerate(self.levels)}
            words, other = read_texts(values), len(self.levels)
            found = np.array(
                [np.nan if word is None else number.get(word, other) for word in words], float
            )
        return found - self.center


def days(ticks: NDArray[np.int64], unit: str) -> Floats:
    """Days since 1970, NaN where the time is missing."""
    per_day = 86_400 * {"us": 1e6, "ns": 1e9}[unit]
    return np.where(ticks == MISSING, np.nan, ticks / per_day)


def _lengths(values: pd.Series) -> Floats:
    if value_kind(values) == "list":
        lengths, _ = read_lists(values)
        return np.where(lengths < 0, np.nan, lengths.astype(float))
    return np.array([np.nan if w is None else len(w) for w in read_texts(values)], float)


def fit_encoded_columns(table: str, column: str, values: pd.Series) -> list[EncodedColumn]:
    """Choose the encodings of a column from its values; none if it is empty or constant."""
    kind = value_kind(values)
    if kind in ("boolean", "number"):
        found = np.clip(read_numbers(values), -LARGE, LARGE)
        known = found[~np.isnan(found)]
        if not len(known):
            return []
        distinct = np.unique(known)
        if len(distinct) < 2:
            return []
        encodings = [EncodedColumn(table, column, "number", float(known.mean()))]
        whole = bool((known == np.rint(known)).all())
        if whole and 2 < len(distinct) <= min(MOST_LEVELS, len(known) // 10):
            encodings.append(EncodedColumn(table, column, "value", 0.0, _levels(values)))
        return encodings
    if kind == "moment":
        found = EncodedColumn(table, column, "moment").encode(values)
        known = found[~np.isnan(found)]
        center = float(known.mean()) if len(known) else 0.0
        return [EncodedColumn(table, column, "moment", center)] if len(known) else []
    if kind == "list":
        lengths = _lengths(values)
        return [EncodedColumn(table, column, "length", float(np.nanmean(lengths)))]
    if kind != "text":
        return []
    words = pd.Series(read_texts(values)).dropna()
    count = words.nunique()
    encodings = []
    if 2 <= count <= min(max(MOST_LEVELS, len(words) // 20), len(words) // 2):
        encodings.append(EncodedColumn(table, column, "category", 0.0, _levels(values)))
    lengths = words.str.len()
    if (not encodings or count > MOST_LEVELS) and lengths.nunique() > 1:
        encodings.append(EncodedColumn(table, column, "length", float(lengths.mean())))
    return encodings


def _levels(values: pd.Series) -> tuple[str, ...]:
    """The most frequent texts, in order of frequency."""
    words = pd.Series(read_texts(values)).dropna()
    counts = words.value_counts()
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    return tuple(str(word) for word, _ in ordered[:MOST_LEVELS])
