"""Columns as plain numbers, one per row, for DuckDB to add up: simpler than what a network reads.

What a column is, its levels and its centre come from rows before the validation time and are kept
with the run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.features.values import read_lists, read_numbers, read_texts, read_times, value_kind
from relfrog.support.times import MISSING

__all__ = ["Cell", "days", "fit_cells"]

Floats = NDArray[np.float64]

#: Levels of a category that have a code of their own.
MOST_LEVELS = 200
#: Numbers are cut here, so that sums of their squares stay finite.
LARGE = 1e15


@dataclass(frozen=True)
class Cell:
    """One number per row of a table.

    Attributes:
        table: its table.
        column: its column.
        kind: "number"; "moment", in days since 1970; "length" of a text or list; "category", the
            code of a level; "value", likewise of one of few whole numbers; or "label", one output
            of the label history.
        center: a number that is taken off, so that sums of squares keep their digits.
        levels: of a category, the most frequent first; rarer ones share one more code.
        part: of a label, which output.
    """

    table: str
    column: str
    kind: str
    center: float = 0.0
    levels: tuple[str, ...] = ()
    part: int = 0

    @property
    def name(self) -> str:
        """What it is called."""
        suffix = {"length": " length", "label": f" {self.part}" if self.part else ""}
        return f"{self.column}{suffix.get(self.kind, '')}"

    def to_json(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"levels": list(self.levels)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Cell:
        """From JSON."""
        return cls(
            str(found["table"]), str(found["column"]), str(found["kind"]), float(found["center"]),
            tuple(map(str, found["levels"])), int(found["part"]),
        )  # fmt: skip

    def encode(self, values: pd.Series) -> Floats:
        """The numbers with the centre taken off, NaN where there is none. Shape [rows]."""
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


def fit_cells(table: str, column: str, values: pd.Series) -> list[Cell]:
    """What numbers a column gives, judged by these values; none if there is nothing to learn."""
    kind = value_kind(values)
    if kind in ("boolean", "number"):
        found = np.clip(read_numbers(values), -LARGE, LARGE)
        known = found[~np.isnan(found)]
        if not len(known):
            return []
        distinct = np.unique(known)
        if len(distinct) < 2:
            return []
        cells = [Cell(table, column, "number", float(known.mean()))]
        whole = bool((known == np.rint(known)).all())
        if whole and 2 < len(distinct) <= min(MOST_LEVELS, len(known) // 10):
            cells.append(Cell(table, column, "value", 0.0, _levels(values)))
        return cells
    if kind == "moment":
        found = Cell(table, column, "moment").encode(values)
        known = found[~np.isnan(found)]
        center = float(known.mean()) if len(known) else 0.0
        return [Cell(table, column, "moment", center)] if len(known) else []
    if kind == "list":
        lengths = _lengths(values)
        return [Cell(table, column, "length", float(np.nanmean(lengths)))]
    if kind != "text":
        return []
    words = pd.Series(read_texts(values)).dropna()
    count = words.nunique()
    cells = []
    if 2 <= count <= min(max(MOST_LEVELS, len(words) // 20), len(words) // 2):
        cells.append(Cell(table, column, "category", 0.0, _levels(values)))
    lengths = words.str.len()
    if (not cells or count > MOST_LEVELS) and lengths.nunique() > 1:
        cells.append(Cell(table, column, "length", float(lengths.mean())))
    return cells


def _levels(values: pd.Series) -> tuple[str, ...]:
    """The texts that occur, the most frequent first."""
    words = pd.Series(read_texts(values)).dropna()
    counts = words.value_counts()
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    return tuple(str(word) for word, _ in ordered[:MOST_LEVELS])
