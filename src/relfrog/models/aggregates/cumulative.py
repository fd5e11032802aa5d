"""The rows of a stream with what has come together up to each, made some rows at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relfrog.models.aggregates._running import (
    running_begins,
    running_distinct,
    running_fading,
    running_numbers,
    running_sums,
)
from relfrog.models.aggregates.streams import Measure, Stream
from relfrog.support.times import MISSING

__all__ = ["Cumulative"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How much of its weight a value keeps when another comes: half of it is left after 3, or 12.
KEEPS = {"fading mean": 0.5 ** (1 / 3), "slowly fading mean": 0.5 ** (1 / 12)}


class Cumulative:
    """Adds up the rows of a stream, which are sorted by owner and time.

    Args:
        stream: the stream.
        parents: number of rows of each table.
    """

    def __init__(self, stream: Stream, parents: Mapping[str, int]) -> None:
        self.stream = stream
        measures = stream.measures
        self._last, self._begin = -1, np.full(1, MISSING)
        self._sums = np.zeros((len(measures), 2))  # of values and of squares
        self._fading = np.zeros((len(measures), len(KEEPS), 2))
        self._whole = np.zeros((len(measures), 3), np.int64)
        self._bounds = np.full((len(measures), 2), np.nan)
        self._distinct = np.zeros((len(stream.pointers), 1), np.int64)
        self._seen = [np.full(parents[key.parent], -1, np.int64) for key in stream.pointers]

    @property
    def columns(self) -> list[str]:
        """SQL for what `add` takes."""
        numbers = [f"v{n}" for n in range(len(self.stream.measures))]
        numbers += [f"k{n}" for n in range(len(self.stream.codes))]
        return [
            "rowid + 1 AS g", "owner", "tick",
            *(f"coalesce({name}, 'nan'::DOUBLE) AS {name}" for name in numbers),
            *(f"coalesce(p{n}, -1) AS p{n}" for n in range(len(self.stream.pointers))),
        ]  # fmt: skip

    def add(self, rows: Mapping[str, NDArray[Any]]) -> pa.Table:
        """Add the next rows.

        Returns:
            Per row: its number g, its time and the first one t0; of each measure the value v, the
            count n and the sum s of values, and where it is asked for the sum of squares q, the
            least and the greatest value, the streak and the fading means; the level k of each
            code; of each pointer the parent p and the number u of different ones.
        """
        owners = np.asarray(rows["owner"], np.int64)
        ticks, begins = np.asarray(rows["tick"], np.int64), np.empty(len(owners), np.int64)
        running_begins(owners, ticks, self._last, MISSING, self._begin, begins)
        found = {
            "g": pa.array(np.asarray(rows["g"], np.int64)), "tick": pa.array(ticks),
            "t0": pa.array(begins, mask=begins == MISSING),
        }  # fmt: skip
        for number, measure in enumerate(self.stream.measures):
            values = np.asarray(rows[f"v{number}"], np.float64)
            found |= self._measured(number, measure, owners, values)
        for number in range(len(self.stream.codes)):
            found[f"k{number}"] = _known(np.asarray(rows[f"k{number}"], np.float64))
        for number in range(len(self.stream.pointers)):
            parents, counts = np.asarray(rows[f"p{number}"], np.int64), np.empty_like(owners)
            running_distinct(
                owners, parents, self._last, self._distinct[number], self._seen[number], counts
            )
            found[f"p{number}"] = pa.array(parents, mask=parents < 0)
            found[f"u{number}"] = pa.array(counts)
        self._last = int(owners[-1]) if len(owners) else self._last
        return pa.table(found)

    def _measured(
        self, number: int, measure: Measure, owners: Ints, values: Floats
    ) -> dict[str, pa.Array]:
        """What has come together of a measure."""
        counts, streaks = np.empty_like(owners), np.empty_like(owners)
        lows, highs = np.empty_like(values), np.empty_like(values)
        running_numbers(
            owners, values, self._last, self._whole[number], self._bounds[number], counts, lows,
            highs, streaks,
        )  # fmt: skip
        sums = np.stack([values, values * values] if measure.squared else [values])
        running_sums(owners, sums, self._last, self._sums[number, : len(sums)])
        found = {"v": _known(values), "n": pa.array(counts), "s": pa.array(sums[0])}
        if measure.squared:
            found["q"] = pa.array(sums[1])
        if "min" in measure.stats:
            found["min"] = _known(lows)
        if "max" in measure.stats:
            found["max"] = _known(highs)
        if "streak" in measure.stats:
            found["streak"] = pa.array(streaks, mask=streaks == 0)
        for way, (stat, keeps) in enumerate(KEEPS.items()):
            if stat in measure.stats:
                faded, state = np.empty_like(values), self._fading[number, way]
                running_fading(owners, values, self._last, keeps, state, faded)
                found[f"{stat.split()[0]}_"] = _known(faded)
        return {f"{name}{number}": column for name, column in found.items()}


def _known(values: Floats) -> pa.Array:
    """Numbers, with NULL for NaN."""
    return pa.array(values, from_pandas=True)
