"""One column as numbers for the network: what is kept of it, and how a value is encoded.

Each class is fitted on the values before the cut and then encodes any value, each by itself.
What it keeps goes into JSON, arrays apart.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.features.coded import Coded
from relfrog.features.streamed import count_values
from relfrog.features.text import BATCH, MOST_ROWS, TextModel, restore_text_model, text_model
from relfrog.support.arrays import blocks
from relfrog.support.times import MISSING

__all__ = [
    "KINDS",
    "BagColumn",
    "CategoryColumn",
    "Column",
    "NumberColumn",
    "TextColumn",
    "TimeColumn",
    "VectorColumn",
    "column_from",
]

Floats = NDArray[np.float64]
Dense = NDArray[np.float32]

#: Local codes of a category column; its categories follow.
NO_VALUE, UNKNOWN, FIRST = 0, 1, 2
#: With more categories than this, those seen once count as unknown, so that unknown is learned.
FEW = 20
#: Vocabulary of a column at most; what is rarer is unknown.
MOST_CATEGORIES = 10_000
#: Points of the distribution kept for each numerical column.
NUM_QUANTILES = 17
DAY = 86_400_000_000


@dataclass(frozen=True, eq=False)
class Column(ABC):
    """What all columns have: a name, the type PyTorch Frame calls it by, and a way to JSON."""

    name: str
    stype: ClassVar[str]
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """All fields that are no arrays."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
            if not isinstance(value, np.ndarray)
        }
        return {"kind": self.kind, **plain}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields that are arrays."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Column:
        """The column that gave these."""
        given = {**record, **arrays}
        if strange := given.keys() - {part.name for part in dataclasses.fields(cls)}:
            raise ValueError(f"{min(strange)} is no part of a {cls.kind} column")
        return msgspec.convert(given, cls)

    @abstractmethod
    def encode(self, found: Any) -> NDArray[Any]:
        """What `read` gives, as numbers. Shape [rows] or [rows, channels]."""


@dataclass(frozen=True, eq=False)
class NumberColumn(Column):
    """Numbers, shifted by their median, scaled by their spread, and squeezed.

    A number beyond those before the cut counts as the nearest of them: what a network makes of
    values that it has never seen is anybody's guess.

    Attributes:
        median: before the cut, as all the others.
        scale: distance of the quartiles over 1.349, as for a normal distribution the deviation.
        has_missing: whether values were missing.
        mean: of the raw values, for PyTorch Frame, as are the next two.
        std: the standard deviation.
        five: lowest, quartiles, highest.
        quantiles: of the encoded values. Shape [NUM_QUANTILES].
    """

    median: float
    scale: float
    has_missing: bool
    mean: float
    std: float
    five: tuple[float, ...]
    quantiles: NDArray[np.float32]
    stype: ClassVar[str] = "numerical"
    kind: ClassVar[str] = "number"

    @classmethod
    def fit(cls, name: str, found: Floats) -> NumberColumn:
        """From numbers with NaN where there is none."""
        missing = np.isnan(found)
        absent = bool(missing.any())
        known = found[~missing] if absent else found  # a copy may be large
        if not known.size:
            known = np.zeros(1)
        with np.errstate(over="ignore", invalid="ignore"):
            five = np.quantile(known, [0, 0.25, 0.5, 0.75, 1])
            scales = [five[3] / 1.349 - five[1] / 1.349, known.std(), 1.0]
            mean, std = float(known.mean()), float(scales[1])
        scale = next(float(s) for s in scales if np.isfinite(s) and s > 0)
        # Numbers near the end of what floats can hold have no mean.
        mean, std = (mean, std) if np.isfinite([mean, std]).all() else (float(five[2]), scale)
        column = cls(name, float(five[2]), scale, absent, mean, std, tuple(five.tolist()),
                     np.zeros(NUM_QUANTILES, np.float32))  # fmt: skip
        encoded = np.empty(len(known), np.float32)
        for some in blocks(len(known)):
            encoded[some] = column.encode(known[some])
        points = np.quantile(encoded, np.linspace(0, 1, NUM_QUANTILES), overwrite_input=True)
        points = np.maximum.accumulate(points).astype(np.float32)
        return dataclasses.replace(column, quantiles=points)

    def encode(self, found: Floats) -> Dense:
        """Between -10 and 10, 0 where missing. Shape [rows]."""
        with np.errstate(over="ignore"):
            inside = np.clip(found, self.five[0], self.five[4])
            squeezed = np.arcsinh((inside - self.median) / self.scale)
        return np.asarray(np.clip(np.nan_to_num(squeezed, nan=0.0), -10, 10), np.float32)


def _vocabulary(values: Sequence[Any], counts: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Categories by count and then value, without those seen once if there are many."""
    pairs = sorted(zip(values, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))
    if len(pairs) > FEW:
        pairs = [pair for pair in pairs if pair[1] > 1][:MOST_CATEGORIES]
    return [value for value, _ in pairs], [count for _, count in pairs]


def _sampled(found: Coded) -> list[str]:
    """The texts of rows that have one: all, or as many rows as a model is fitted on."""
    full = np.array([bool(text) for text in found.some(np.arange(len(found.texts)))], bool)
    codes = found.codes[np.append(full, False)[found.codes]]
    if len(codes) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(codes), MOST_ROWS, replace=False)
        codes = codes[np.sort(chosen)]
    different, places = np.unique(codes, return_inverse=True)
    texts = np.array(found.some(different), object)
    return list(texts[places])


def _look_up(categories: tuple[str, ...], found: Any) -> NDArray[np.int64]:
    """Local codes of texts."""
    places = pd.Index(list(categories), dtype=object).get_indexer(pd.Index(found, dtype=object))
    return np.where(places < 0, UNKNOWN, places + FIRST)


@dataclass(frozen=True, eq=False)
class CategoryColumn(Column):
    """Names of things, one per row.

    Attributes:
        numeric: whether they are numbers (or truth values), not texts.
        categories: by how often they were seen before the cut, then by value.
        counts: how often.
    """

    numeric: bool
    categories: tuple[Any, ...]
    counts: tuple[int, ...]
    stype: ClassVar[str] = "categorical"
    kind: ClassVar[str] = "category"

    @classmethod
    def fit(cls, name: str, found: Floats, numeric: bool = True) -> CategoryColumn:
        """From numbers with NaN."""
        found_values = count_values(found)
        assert found_values is not None
        values, counts = found_values
        known = [int(v) if v == np.rint(v) else float(v) for v in values]
        return cls(name, numeric, *map(tuple, _vocabulary(known, counts.tolist())))

    @classmethod
    def fit_texts(cls, name: str, found: Coded) -> CategoryColumn:
        """From texts."""
        counts = found.counts()
        seen = np.flatnonzero(counts)
        vocabulary = _vocabulary(found.some(seen), counts[seen].tolist())
        return cls(name, False, *map(tuple, vocabulary))

    def encode(self, found: NDArray[Any] | Coded) -> NDArray[np.int64]:
        """Local codes: missing, unknown, then categories. Shape [rows]."""
        if isinstance(found, Coded):
            places = found.find(self.categories)
            local = np.where(places < 0, UNKNOWN, places + FIRST)
            return np.append(local, NO_VALUE)[found.codes]
        known = ~np.isnan(found)
        values = np.array(self.categories, np.float64)
        if not values.size:
            return np.where(known, UNKNOWN, NO_VALUE)
        order = np.argsort(values)
        at = np.minimum(np.searchsorted(values[order], found), values.size - 1)
        same = values[order][at] == found
        return np.where(known, np.where(same, order[at] + FIRST, UNKNOWN), NO_VALUE)


@dataclass(frozen=True, eq=False)
class BagColumn(Column):
    """Lists of names of things; see `CategoryColumn`."""

    categories: tuple[str, ...]
    counts: tuple[int, ...]
    stype: ClassVar[str] = "multicategorical"
    kind: ClassVar[str] = "bag"

    @classmethod
    def fit(cls, name: str, lengths: NDArray[np.int64], flat: list[str]) -> BagColumn:
        """From lists as `values.lists` gives them; an entry counts once per list."""
        rows = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
        pairs = pd.DataFrame({"row": rows, "entry": pd.Series(flat, dtype=object)})
        seen = pairs.drop_duplicates()["entry"].value_counts()
        return cls(name, *map(tuple, _vocabulary(seen.index.tolist(), seen.tolist())))

    def encode(self, found: tuple[NDArray[np.int64], list[str]]) -> NDArray[np.int64]:
        """Rows and local codes of all entries, each once per row, sorted by both. Shape [2, n]."""
        lengths, flat = found
        rows = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
        codes = _look_up(self.categories, flat) if flat else np.empty(0, np.int64)
        absent = np.flatnonzero(lengths < 0)
        rows = np.concatenate([rows, absent])
        codes = np.concatenate([codes, np.full(absent.size, NO_VALUE)])
        size = FIRST + len(self.categories)
        both = np.unique(rows * size + codes)
        return np.stack([both // size, both % size])


@dataclass(frozen=True, eq=False)
class TimeColumn(Column):
    """Moments as parts of the calendar.

    Attributes:
        has_missing: whether values were missing before the cut.
        hours: whether any was not midnight.
        oldest: in microseconds since 1970, for PyTorch Frame, as are the next two.
        middle: the median.
        newest: the last.
    """

    has_missing: bool
    hours: bool
    oldest: int
    middle: int
    newest: int
    stype: ClassVar[str] = "timestamp"
    kind: ClassVar[str] = "time"

    @classmethod
    def fit(cls, name: str, found: NDArray[np.int64]) -> TimeColumn:
        """From microseconds with `MISSING`."""
        known = found[found != MISSING]
        known.sort()
        absent = known.size < found.size
        if not known.size:
            known = np.zeros(1, np.int64)
        ends = (int(known[0]), int(known[known.size // 2]), int(known[-1]))
        hours = any(bool((known[some] % DAY != 0).any()) for some in blocks(len(known)))
        return cls(name, bool(absent), hours, *ends)

    @property
    def parts(self) -> list[str]:
        """Names of what `encode` gives."""
        around = ["month", "day", "weekday", *(["hour"] if self.hours else [])]
        # No year: it does not come again, and how long ago it was the network knows.
        return [f"{part} {wave}" for part in around for wave in ("sin", "cos")]

    def encode(self, found: NDArray[np.int64]) -> Dense:
        """The parts of the calendar, zeros where missing. Shape [rows, parts]."""
        _, months, days, weekdays, minutes = calendar(found)
        out = np.zeros((len(found), len(self.parts)), np.float32)
        around = [(months, 12), (days, 31), (weekdays, 7), (minutes, 1440)]
        for number, (part, period) in enumerate(around[: len(self.parts) // 2]):
            # Few different values: look them up.
            angles = np.arange(period) * (2 * np.pi / period)
            out[:, 2 * number] = np.sin(angles).astype(np.float32)[part]
            out[:, 1 + 2 * number] = np.cos(angles).astype(np.float32)[part]
        out[found == MISSING] = 0
        return out


def calendar(micros: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Year, and from 0 on: month, day of the month, weekday (Monday first), minute of the day."""
    micros = np.where(micros == MISSING, 0, micros)
    days = micros // DAY
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    in_month = days - months.astype("datetime64[D]").astype(np.int64)
    count = months.astype(np.int64)
    minutes = micros % DAY // 60_000_000
    return 1970 + count // 12, count % 12, in_month, (days + 3) % 7, minutes


@dataclass(frozen=True, eq=False)
class TextColumn(Column):
    """Texts as vectors of a text model."""

    has_missing: bool
    model: TextModel
    stype: ClassVar[str] = "embedding"
    kind: ClassVar[str] = "text"

    @classmethod
    def fit(cls, name: str, found: Coded, text: str, channels: int) -> TextColumn:
        """From texts."""
        model = text_model(text, channels)
        model.fit(_sampled(found))
        return cls(name, bool((found.codes < 0).any()), model)

    @property
    def channels(self) -> int:
        """Numbers per row."""
        return self.model.channels

    def vectors(self, found: Coded) -> Iterator[Dense]:
        """The vectors of different texts, in pieces; then that of a missing one."""
        for first in range(0, len(found.texts), BATCH):
            some = np.arange(first, min(first + BATCH, len(found.texts)))
            yield self.model.embed(found.some(some))
        yield np.zeros((1, self.channels), np.float32)

    def encode(self, found: Coded) -> Dense:
        """Shape [rows, channels]."""
        return np.concatenate(list(self.vectors(found)))[found.codes]

    def to_json(self) -> dict[str, Any]:
        """See `Column`."""
        return {**super().to_json(), "model": self.model.settings()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See `Column`."""
        return self.model.arrays()

    @classmethod
    def from_json(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Column:
        """See `Column`."""
        model = restore_text_model(record["model"], arrays)
        return super().from_json({**record, "model": model}, {})


@dataclass(frozen=True, eq=False)
class VectorColumn(Column):
    """Lists of equally many numbers, each place standardised."""

    has_missing: bool
    mean: Floats
    std: Floats
    stype: ClassVar[str] = "embedding"
    kind: ClassVar[str] = "vector"

    @classmethod
    def fit(cls, name: str, found: Floats) -> VectorColumn:
        """From vectors with rows of NaN."""
        known = found[~np.isnan(found).any(axis=1)]
        if not known.size:
            known = np.zeros((1, found.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = known.mean(axis=0), known.std(axis=0)
        fine = np.isfinite(mean) & np.isfinite(std) & (std > 0)
        absent = bool(np.isnan(found).any())
        return cls(name, absent, np.where(np.isfinite(mean), mean, 0), np.where(fine, std, 1))

    @property
    def channels(self) -> int:
        """Numbers per row."""
        return int(self.mean.size)

    def encode(self, found: Floats) -> Dense:
        """Shape [rows, channels]."""
        with np.errstate(over="ignore"):
            scaled = (found - self.mean) / self.std
        return np.clip(np.nan_to_num(scaled, nan=0.0), -10, 10).astype(np.float32)


#: Classes by what JSON calls them.
KINDS: dict[str, type[Column]] = {
    cls.kind: cls
    for cls in (NumberColumn, CategoryColumn, BagColumn, TimeColumn, TextColumn, VectorColumn)
}


def column_from(record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Column:
    """The column that gave this JSON and these arrays.

    Raises:
        KeyError, TypeError, ValueError, msgspec.ValidationError: It cannot be.
    """
    fields = dict(record)
    return KINDS[fields.pop("kind")].from_json(fields, arrays)
