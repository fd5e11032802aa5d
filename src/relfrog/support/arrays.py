"""Arrays of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blocks", "class_numbers", "different", "unique_pairs"]

Ints = NDArray[np.int64]
#: Values of a block: what is computed of one takes little memory, and stays in the cache.
BLOCK = 1 << 18


def blocks(length: int) -> Iterator[slice]:
    """The slices into which a long array is cut, so that temporary ones are short."""
    for first in range(0, length, BLOCK):
        yield slice(first, min(first + BLOCK, length))


def unique_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct pairs of two arrays in ascending order, and where each pair is among them.

    As `np.unique` of their rows, which compares rows byte by byte and takes ten times as long.

    Returns:
        The first numbers of the pairs, the second, and the place of each given pair.
    """
    left, at_left = np.unique(first, return_inverse=True)
    right, at_right = np.unique(second, return_inverse=True)
    codes, place = np.unique(at_left * max(len(right), 1) + at_right, return_inverse=True)
    return left[codes // max(len(right), 1)], right[codes % max(len(right), 1)], place


def different(values: NDArray[Any]) -> tuple[list[Any], Ints]:
    """The different values of an array of labels, and the number of each value among them.

    Returns:
        The different values, without missing ones among objects; and their numbers, -1 for those.
    """
    if values.dtype != object:
        known, numbers = np.unique(values, return_inverse=True)
        return known.tolist(), numbers.ravel()
    import pyarrow as pa

    # To sort texts takes much longer.
    found = pa.array(values, from_pandas=True).dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return found.dictionary.to_pylist(), codes.astype(np.int64)


def class_numbers(labels: NDArray[Any], classes: Sequence[Any], *, unseen: int) -> Ints:
    """The number of each label among the classes.

    Args:
        labels: the labels. Shape [n].
        classes: the classes.
        unseen: the number of what is none of them.
    """
    number = {value: place for place, value in enumerate(classes)}
    words, codes = different(labels)
    return np.array([*(number.get(word, unseen) for word in words), unseen], np.int64)[codes]
