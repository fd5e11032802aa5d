"""Columns of made-up values, drawn chunk by chunk from short descriptions.

A description is a word and its options, as in `schemas/*.yaml`:

| description | values |
|---|---|
| `key` | the number of the row |
| `to TABLE` | a foreign key; see `Keys` |
| `time` | a time in the span of the database; rows are in its order |
| `after COLUMN low=1 high=9` | so many days after the time in another column of the row |
| `copy KEY.COLUMN` | what the row that KEY names has there |
| `group 25` | the row's group by which foreign keys choose, as a word |
| `one-of a:3 b:1` | one of these, with weights; numbers where all are numbers |
| `codes 50`, `labels 50` | one of so many numbers or words, some more often than others |
| `integer 0 9`, `number 0 1` | between two bounds, evenly but for `skew` |
| `amount 10` | log-normal around a median |
| `count 2` | small whole numbers with this mean |
| `words 3` | a text; `distinct=1000` for as many different ones |
| `link 8` | a text of so many characters without meaning |
| `empty` | nothing at all |

Every one takes `missing=0.1`, the share of NULLs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Chunk", "Description", "Words", "draw", "filled", "skewed"]

DAY = 86_400_000_000
#: Different texts of one column up to which they are made as a whole, not of two halves.
_WHOLE = 20_000
_HALF = 3_000


@dataclass(frozen=True)
class Description:
    """What a column holds: a kind, its arguments and its options."""

    kind: str
    arguments: tuple[str, ...]
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Description:
        """A description from its words."""
        kind, *rest = str(text).split()
        options = dict(part.split("=", 1) for part in rest if "=" in part)
        return cls(kind, tuple(part for part in rest if "=" not in part), options)

    def number(self, name: str, default: float) -> float:
        """An option that is a number."""
        return float(self.options.get(name, default))


@dataclass
class Chunk:
    """A run of rows of a table, while it is drawn.

    Attributes:
        first: The number of its first row.
        size: How many rows it has.
        rows: How many the table has.
        rng: Its own source of random numbers, so that chunks can be drawn in any order.
        session: For each row, the first row of the run of rows that were made together.
        values: What was drawn so far, by column.
    """

    first: int
    size: int
    rows: int
    rng: np.random.Generator
    session: np.ndarray
    values: dict[str, np.ndarray]

    @property
    def numbers(self) -> np.ndarray:
        """The numbers of its rows in the table."""
        return np.arange(self.first, self.first + self.size)


class Words:
    """Words that nobody uses, frequent ones and rare ones, and texts of them."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        starts, ends = list("bdfgklmnprstvz"), list("aeiou")
        syllables = np.array([a + b for a in starts for b in ends])
        parts = syllables[rng.integers(len(syllables), size=(6000, 4))]
        lengths = rng.integers(1, 5, size=6000)
        self.words = np.array(
            ["".join(p[:n]) for p, n in zip(parts, lengths, strict=True)], dtype=object
        )
        self._pools: dict[tuple[str, int, int], pa.Array] = {}

    def pool(self, name: str, length: int, size: int) -> pa.Array:
        """As many texts of a length; the same ones each time for the same name."""
        found = self._pools.get((name, length, size))
        if found is None:
            rng = np.random.default_rng([len(name), *name.encode(), length, size])
            chosen = self.words[skewed(rng.random((size, max(1, length))), len(self.words), 3)]
            texts = [" ".join(row) for row in chosen]
            found = self._pools[name, length, size] = pa.array(texts, pa.string())
        return found


def skewed(uniform: np.ndarray, size: int, skew: float) -> np.ndarray:
    """Numbers below `size`, small ones the more often the higher the skew; 1 is even."""
    found = (size * uniform**skew).astype(np.int64)
    return np.minimum(found, size - 1)


def draw(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    """Draw one column that depends on no other table.

    Args:
        name: Table and column, of which texts are made.
        column: What to draw.
        chunk: The rows to draw it for.
        words: Where texts come from.

    Raises:
        ValueError: There is no such kind of column.
    """
    if column.kind not in _MAKERS:
        raise ValueError(f"{name}: no such kind of column: {column.kind}")
    return filled(_MAKERS[column.kind](name, column, chunk, words), column, chunk)


def filled(values: pa.Array, column: Description, chunk: Chunk) -> pa.Array:
    """The values with as many NULLs as the description asks for."""
    share = column.number("missing", 0)
    if not share:
        return values
    return pc.if_else(pa.array(chunk.rng.random(chunk.size) >= share), values, None)


def _group(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    size = int(column.arguments[0])
    return words.pool(name, 2, size).take(pa.array(chunk.numbers % size))


def _one_of(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    parts = [part.rpartition(":") for part in column.arguments]
    kept = [(left, float(right)) if left else (right, 1.0) for left, _, right in parts]
    weights = np.array([weight for _, weight in kept])
    texts = [text.replace("_", " ") for text, _ in kept]
    try:
        values = pa.array([int(text) for text in texts])
    except ValueError:
        values = pa.array(texts, pa.string())
    if texts in (["True", "False"], ["False", "True"]):
        values = pa.array([text == "True" for text in texts])
    return values.take(pa.array(chunk.rng.choice(len(kept), chunk.size, p=weights / weights.sum())))


def _codes(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    return pa.array(skewed(chunk.rng.random(chunk.size), int(column.arguments[0]), 2))


def _labels(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    size = int(column.arguments[0])
    chosen = skewed(chunk.rng.random(chunk.size), size, 2)
    return words.pool(name, 1 + int(column.number("words", 1)), size).take(pa.array(chosen))


def _integer(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    low, high = map(int, column.arguments)
    return pa.array(chunk.rng.integers(low, high + 1, chunk.size))


def _number(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    low, high = map(float, column.arguments)
    uniform = chunk.rng.random(chunk.size) ** column.number("skew", 1)
    return pa.array(low + (high - low) * uniform)


def _amount(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    spread = column.number("spread", 1)
    values = float(column.arguments[0]) * np.exp(chunk.rng.normal(0, spread, chunk.size))
    return pa.array(np.round(values, 6))


def _count(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    mean = float(column.arguments[0])
    return pa.array(chunk.rng.geometric(1 / (1 + mean), chunk.size) - 1)


def _words(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    length = int(column.arguments[0])
    size = int(column.number("distinct", 1e9))
    if size <= _WHOLE:
        chosen = skewed(chunk.rng.random(chunk.size), size, column.number("skew", 2))
        return words.pool(name, length, size).take(pa.array(chosen))
    halves = [
        words.pool(f"{name} {half}", max(1, part), _HALF).take(
            pa.array(chunk.rng.integers(_HALF, size=chunk.size))
        )
        for half, part in enumerate((length // 2, length - length // 2))
    ]
    return pc.binary_join_element_wise(*halves, " ")


def _link(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    length = int(column.arguments[0])
    letters = chunk.rng.integers(97, 123, (chunk.size, length), dtype=np.uint8)
    return pa.array(letters.reshape(-1).view(f"S{length}"), pa.binary()).cast(pa.string())


def _empty(name: str, column: Description, chunk: Chunk, words: Words) -> pa.Array:
    return pa.nulls(chunk.size, pa.float64())


_MAKERS: dict[str, Callable[[str, Description, Chunk, Words], pa.Array]] = {
    "group": _group,
    "one-of": _one_of,
    "codes": _codes,
    "labels": _labels,
    "integer": _integer,
    "number": _number,
    "amount": _amount,
    "count": _count,
    "words": _words,
    "link": _link,
    "empty": _empty,
}
