"""Columns encoded as one number per row, for aggregation in DuckDB; simpler than for networks.

Kind, levels and centre of a column are fitted on rows before the validation time and saved with the
run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.features.coded import Coded, code_values
from relfrog.features.values import read_lists, read_numbers, read_times, value_kind
from relfrog.support.times import MISSING

if TYPE_CHECKING:
    import pandas as pd

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

    def encode(self, values: pd.Series | Coded) -> Floats:
        """Encode values, minus the centre; NaN where missing. Shape [rows]."""
        if isinstance(values, Coded) and self.kind in ("number", "moment"):
            values = values.expanded()  # it was something else when it was fitted
        if self.kind == "number":
            found = np.clip(read_numbers(values), -LARGE, LARGE)
        elif self.kind == "moment":
            found = days(read_times(values), "us")
        elif self.kind == "length":
            found = _lengths(values)
        else:
            assert self.kind in ("category", "value"), self.kind
            words = code_values(values)
            places = words.find(self.levels)
            code = np.where(places < 0, len(self.levels), places).astype(float)
            found = np.append(code, np.nan)[words.codes]
        return found - self.center


def days(ticks: NDArray[np.int64], unit: str) -> Floats:
    """Days since 1970, NaN where the time is missing."""
    per_day = 86_400 * {"us": 1e6, "ns": 1e9}[unit]
    return np.where(ticks == MISSING, np.nan, ticks / per_day)


def _lengths(values: pd.Series | Coded) -> Floats:
    if not isinstance(values, Coded) and value_kind(values) == "list":
        lengths, _ = read_lists(values)
        return np.where(lengths < 0, np.nan, lengths.astype(float))
    words = code_values(values)
    return np.append(_text_lengths(words), np.nan)[words.codes]


def _text_lengths(words: Coded) -> Floats:
    """The length of each different text."""
    texts = words.some(np.arange(len(words.texts)))
    return np.fromiter(map(len, texts), np.float64, len(texts))


def fit_encoded_columns(table: str, column: str, values: pd.Series | Coded) -> list[EncodedColumn]:
    """Choose the encodings of a column from its values; none if it is empty or constant."""
    if isinstance(values, Coded):
        return _fit_texts(table, column, values)
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
        if np.isnan(lengths).all():
            return []
        return [EncodedColumn(table, column, "length", float(np.nanmean(lengths)))]
    if kind != "text":
        return []
    return _fit_texts(table, column, code_values(values))


def _fit_texts(table: str, column: str, words: Coded) -> list[EncodedColumn]:
    counts = words.counts()
    rows, count = int(counts.sum()), int((counts > 0).sum())
    encodings = []
    if 2 <= count <= min(max(MOST_LEVELS, rows // 20), rows // 2):
        encodings.append(EncodedColumn(table, column, "category", 0.0, _levels(words)))
    lengths = _text_lengths(words)
    if (not encodings or count > MOST_LEVELS) and len(np.unique(lengths[counts > 0])) > 1:
        mean = float((lengths * counts).sum() / rows)
        encodings.append(EncodedColumn(table, column, "length", mean))
    return encodings


def _levels(values: pd.Series | Coded) -> tuple[str, ...]:
    """The most frequent texts, in order of frequency."""
    words = code_values(values)
    counts = words.counts()
    seen = np.flatnonzero(counts)
    pairs = zip(words.some(seen), counts[seen].tolist(), strict=True)
    ordered = sorted(pairs, key=lambda entry: (-entry[1], str(entry[0])))
    return tuple(str(word) for word, _ in ordered[:MOST_LEVELS])
