"""Arrays: pairs of numbers and numbers of classes, as simpler ways find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from relfrog.support.arrays import class_numbers, different, unique_pairs


@examples(50)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-(2**63), 0, 5, 2**63 - 1]))))
def test_pairs_are_the_distinct_rows(pairs: list[tuple[int, int]]) -> None:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    first, second, place = unique_pairs(both[:, 0], both[:, 1])
    expected, where = np.unique(both, axis=0, return_inverse=True)
    np.testing.assert_array_equal(np.stack([first, second], 1), expected)
    np.testing.assert_array_equal(place, where.ravel())


@given(st.lists(st.sampled_from(["a", "b", "", None]), max_size=20))
def test_classes_have_their_numbers(labels: list[str | None]) -> None:
    classes = ["b", "a"]
    found = class_numbers(np.array(labels, object), classes, unseen=-100)
    assert found.tolist() == [classes.index(one) if one in classes else -100 for one in labels]


@pytest.mark.parametrize("values", [np.array([3, 1, 3]), np.array([True, False, True]),
                                    np.array([2.5, np.nan, 2.5]), np.array(["x", "y"], object)])  # fmt: skip
def test_different_values_and_their_numbers(values: Any) -> None:
    words, codes = different(values)
    assert len(set(words)) == len(words)
    for value, code in zip(values.tolist(), codes, strict=True):
        assert value != value or words[code] == value
