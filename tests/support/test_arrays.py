"""Pairs of numbers, as NumPy finds them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from relfrog.support.arrays import unique_pairs


@examples(50)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-(2**63), 0, 5, 2**63 - 1]))))
def test_pairs_are_the_distinct_rows(pairs: list[tuple[int, int]]) -> None:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    first, second, place = unique_pairs(both[:, 0], both[:, 1])
    expected, where = np.unique(both, axis=0, return_inverse=True)
    np.testing.assert_array_equal(np.stack([first, second], 1), expected)
    np.testing.assert_array_equal(place, where.ravel())
