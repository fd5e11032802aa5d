"""Lists of targets are filled as a loop over seeds fills them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from relfrog.models.rankers import fill_lists


@examples(40)
@given(st.integers(0, 10_000))
def test_lists_are_those_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seeds, targets, k = int(rng.integers(1, 6)), int(rng.integers(1, 12)), int(rng.integers(1, 6))
    own = [rng.permutation(targets)[: rng.integers(0, targets + 1)] for _ in range(seeds)]
    marks = [np.sort(rng.normal(size=len(rows)))[::-1] for rows in own]
    banned = [rng.permutation(targets)[: rng.integers(0, 4)] for _ in range(seeds)]
    visible = rng.random(targets) < 0.7
    popular = rng.permutation(np.flatnonzero(visible))
    found = np.full((seeds, k, 2), -1.0)
    found[:, :, 1] = -np.inf
    expected = found.copy()
    chosen = np.flatnonzero(rng.random(seeds) < 0.8)
    for i in chosen:
        candidates = [(r, m) for r, m in zip(own[i], marks[i], strict=True) if visible[r]]
        lowest = min([0.0, *(mark for _, mark in candidates)])
        candidates += [(row, lowest - 1.0 - j) for j, row in enumerate(popular)]
        listed: dict[int, float] = {}
        for row, mark in candidates:
            if row not in banned[i]:
                listed.setdefault(int(row), float(mark))
        for place, pair in enumerate(list(listed.items())[:k]):
            expected[i, place] = pair
    begin, first = (np.cumsum([0, *map(len, some)]) for some in (own, banned))
    fill_lists(
        chosen, begin, np.concatenate(own), np.concatenate(marks), popular, visible,
        first, np.concatenate(banned), np.full(targets, -1), found,
    )  # fmt: skip
    np.testing.assert_array_equal(found, expected)
