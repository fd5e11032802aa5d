"""Medians of slices, many at a time, are those of a loop."""

from __future__ import annotations

import numpy as np
import pytest

from relfrog.models import past_labels


@pytest.mark.parametrize(("labels", "at_once"), [(0, 1), (1, 10), (300, 100), (300, 10**6)])
def test_medians_are_those_of_a_loop(
    labels: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_labels, "AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(labels, 2))
    begin = rng.integers(0, labels + 1, 200)
    end = np.minimum(begin + rng.integers(0, 30, 200), labels)
    found = past_labels.slice_medians(values, begin, end)
    for number, (first, last) in enumerate(zip(begin, end, strict=True)):
        expected = np.median(values[first:last], axis=0) if last > first else [np.nan] * 2
        np.testing.assert_array_equal(found[number], expected)
