"""Compiled loops for text: count words, word pairs and character n-grams in hash buckets.

This does what scikit-learn's `HashingVectorizer` does, some hundred times as fast: a text is an
array of code points, and every word, every two consecutive words and every three to five
consecutive letters of a word (including its edges) are hashed to a bucket. Rows are independent,
and sums run in the order of the text, so the same text always gives the same bits.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.support.jit import compiled

__all__ = ["as_points", "count_buckets", "embed_rows"]

Array = NDArray[Any]

#: Longer texts are cut, so that a book in one cell does not cost a minute.
MOST_LETTERS = 2_000
#: Marks the edges of a word; not a code point.
EDGE = 0x110000
#: FNV-1a with 64 bits.
BASIS, PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
#: Spreads the high bits of a hash over the buckets.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def as_points(texts: Sequence[str | None]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The code points of all texts in lower case, -1 between words, and where each begins."""
    cut = [text[:MOST_LETTERS].lower() if text else "" for text in texts]
    starts = np.zeros(len(cut) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, cut), np.int64, len(cut)), out=starts[1:])
    raw = "".join(cut).encode("utf-32-le", "surrogatepass")
    points = np.frombuffer(raw, np.int32)
    found = np.flatnonzero(_occurring(points))
    # Words consist of letters, marks, numbers and symbols such as emoji.
    words = [unicodedata.category(chr(point))[0] in "LMNS" for point in found]
    table = np.full(found.max(initial=0) + 1, -1, np.int32)
    table[found[words]] = found[words]
    return _looked_up(table, points), starts


@compiled
def _occurring(points: Array) -> NDArray[np.bool_]:
    """Which code points there are. NumPy would copy them to wider numbers first."""
    found = np.zeros(EDGE, np.bool_)
    for point in points:
        found[point] = True
    return found


@compiled
def _looked_up(table: Array, points: Array) -> NDArray[np.int32]:
    out = np.empty(points.size, np.int32)
    for i in range(points.size):
        out[i] = table[points[i]]
    return out


@compiled
def _row(points: Array, first: Any, last: Any, counts: Array, touched: Array) -> Any:
    """Count the buckets of one text; returns how many buckets were touched.

    The number of buckets is a power of 2: a division would cost more than all else.
    """
    mask = np.uint64(counts.size - 1)
    num, before, at = 0, np.uint64(0), first
    while at < last:
        if points[at] < 0:
            at += 1
            continue
        end = at
        while end < last and points[end] >= 0:
            end += 1
        word = BASIS
        for i in range(at, end):
            word = (word ^ np.uint64(points[i])) * PRIME
        # Kinds of features start from different hashes: 1 word, 2 pair, 3 to 5 letters.
        for kind in range(1, 3):
            if kind == 2 and before == 0:
                continue
            hashed = (word ^ np.uint64(kind)) * PRIME
            if kind == 2:
                hashed = (hashed ^ before) * PRIME
            bucket = np.int64((hashed * GOLDEN >> np.uint64(32)) & mask)
            if counts[bucket] == 0:
                touched[num] = bucket
                num += 1
            counts[bucket] += 1
        for begin in range(at - 1, end - 1):
            hashed = BASIS
            for i in range(begin, min(begin + 5, end + 1)):
                point = points[i] if at <= i < end else EDGE
                hashed = (hashed ^ np.uint64(point)) * PRIME
                if i < begin + 2:
                    continue
                bucket = np.int64((hashed * GOLDEN >> np.uint64(32)) & mask)
                if counts[bucket] == 0:
                    touched[num] = bucket
                    num += 1
                counts[bucket] += 1
        before = word
        at = end
    return num


@compiled
def count_buckets(
    points: Array, starts: Array, num_buckets: Any
) -> tuple[Array, Array, NDArray[np.float32]]:
    """The matrix [texts, buckets] in compressed rows; a bucket counts 1 + log(how often)."""
    rows = starts.size - 1
    counts = np.zeros(num_buckets, np.int64)
    touched = np.empty(num_buckets, np.int64)
    begin = np.zeros(rows + 1, np.int64)
    # A letter starts three pieces, a word's edge three more, and a word is two features.
    most = 0
    for row in range(rows):
        most += min(num_buckets, 8 * (starts[row + 1] - starts[row]))
    columns, values = np.empty(most, np.int32), np.empty(most, np.float32)
    at = 0
    for row in range(rows):
        num = _row(points, starts[row], starts[row + 1], counts, touched)
        for i in range(num):
            columns[at] = touched[i]
            values[at] = 1 + np.log(counts[touched[i]])
            counts[touched[i]] = 0
            at += 1
        begin[row + 1] = at
    return begin, columns[:at].copy(), values[:at].copy()


@compiled
def embed_rows(
    points: Array, starts: Array, idf: Array, directions: Array, shift: Array
) -> NDArray[np.float32]:
    """Weighted and normalised counts times `directions`, minus `shift`; zeros without words.

    Args:
        points: code points, see `as_points`.
        starts: where each text begins. Shape [texts + 1].
        idf: weight of each bucket. Shape [buckets].
        directions: shape [buckets, channels].
        shift: shape [channels].
    """
    rows, channels = starts.size - 1, directions.shape[1]
    counts = np.zeros(idf.size, np.int64)
    touched = np.empty(idf.size, np.int64)
    out = np.zeros((rows, channels), np.float32)
    sums = np.empty(channels, np.float64)
    # Most buckets are met a few times.
    logs = np.zeros(64, np.float64)
    for often in range(1, logs.size):
        logs[often] = 1 + np.log(often)
    for row in range(rows):
        num = _row(points, starts[row], starts[row + 1], counts, touched)
        norm = 0.0
        sums[:] = 0
        for i in range(num):
            bucket = touched[i]
            often = counts[bucket]
            weight = (logs[often] if often < logs.size else 1 + np.log(often)) * idf[bucket]
            counts[bucket] = 0
            norm += weight * weight
            for c in range(channels):
                sums[c] += weight * directions[bucket, c]
        if norm > 0:
            norm = np.sqrt(norm)
            for c in range(channels):
                out[row, c] = sums[c] / norm - shift[c]
    return out
