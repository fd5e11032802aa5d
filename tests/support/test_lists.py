"""Lists as two arrays, against lists of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relfrog.support.lists import Lists, as_labels, flatten, matrix

SOME = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=8)


def same(one: Any, other: Any) -> bool:
    return [list(some) for some in one] == [list(some) for some in other]


@given(SOME, SOME, st.data())
def test_lists_are_as_a_list_of_lists(values: Any, others: Any, data: Any) -> None:
    lists = Lists.of(values)
    assert same(lists, values)
    assert len(lists) == len(values)
    assert lists.lengths.tolist() == [len(some) for some in values]
    assert same(lists.joined(Lists.of(others)), values + others)
    assert same(np.asarray(lists), values)
    at = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=9 if values else 0))
    assert same(lists[np.array(at, np.int64)], [values[i] for i in at])
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    chosen = [some for some, kept in zip(values, mask, strict=True) if kept]
    assert same(lists[mask.astype(bool)], chosen)
    assert same(lists[1:3], values[1:3])
    if at:
        assert lists[at[0]].tolist() == values[at[0]]
        assert lists[at[0] - len(values)].tolist() == values[at[0]]
    with pytest.raises(IndexError):
        lists[len(values)]


@given(SOME)
def test_labels_in_any_form_are_the_same(values: Any) -> None:
    column = pa.chunked_array([pa.array(values, pa.list_(pa.int64()))])
    series = pd.Series(pd.arrays.ArrowExtensionArray(column))
    objects = np.empty(len(values), object)
    objects[:] = [np.array(some, np.int64) for some in values]
    for form in (column, series, Lists.of(values), *([objects] if values else [])):
        found = as_labels(form)
        assert isinstance(found, Lists)
        assert same(found, values)
        assert [part.tolist() for part in flatten(form)] == [
            part.tolist() for part in flatten(found)
        ]


def test_labels_that_are_no_lists_stay() -> None:
    for values in (np.array([1.5, 2.5]), np.array(["a", None], object), np.zeros(0)):
        assert as_labels(values) is values


def test_lists_of_one_length_are_a_matrix() -> None:
    assert matrix([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    for wrong in ([[1], [2, 3]], []):
        with pytest.raises(ValueError, match="lists"):
            matrix(wrong)
