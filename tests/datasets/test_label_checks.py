"""Checks of labels against the plain way to say what they refuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from relfrog.datasets.label_checks import check_labels
from relfrog.errors import TaskError
from relfrog.support.lists import unflatten


@pytest.mark.parametrize("most", [4, 1000, 1 << 61])
def test_targets_named_twice_are_found_in_any_list(most: int) -> None:
    rng = np.random.default_rng(most % 7)
    seen = set()
    for _ in range(200):
        lengths = rng.integers(3, size=5)
        flat = rng.integers(most, size=lengths.sum()) // rng.choice([1, most // 3])
        lists = np.split(flat, np.cumsum(lengths)[:-1])
        twice = any(len(set(some.tolist())) < len(some) for some in lists)
        frame = pd.DataFrame({"list": unflatten(lengths, flat)})
        if twice:
            with pytest.raises(TaskError, match="names a target twice"):
                check_labels(frame, "list", "recommendation")
        else:
            check_labels(frame, "list", "recommendation")
        seen.add(twice)
    assert seen == {False, True}
