"""Arrays of numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["blocks", "unique_pairs"]

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
