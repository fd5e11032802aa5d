"""The best scores, piece by piece: the same as of all scores at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relfrog.nn.top_scores import Best, Cells


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("width", [1, 7, 64, 1000])
def test_pieces_are_ranked_like_the_whole(k: int, width: int) -> None:
    rng = np.random.default_rng(k * width)
    scores = torch.from_numpy(rng.normal(size=(9, 300)).astype(np.float32))
    scores[1] = scores[1].round()  # equal ones
    scores[2, 20:] = -torch.inf  # hidden ones
    scores[3] = torch.arange(300)  # each better than the one before
    best = Best(9, k)
    for first in range(0, 300, width):
        best.add(scores[:, first : first + width], first)
    for row, line in enumerate(scores.tolist()):
        order = sorted(range(300), key=lambda column: (-line[column], column))
        order = [column for column in order if line[column] > -np.inf][:k]
        assert best.columns[row].tolist() == order + [-1] * (k - len(order))
        values = [line[column] for column in order]
        assert best.values[row].tolist() == values + [-np.inf] * (k - len(order))


def test_nothing_is_ranked_for_an_empty_list() -> None:
    best = Best(2, 0)
    best.add(torch.zeros(2, 3), 0)
    assert best.values.shape == best.columns.shape == (2, 0)


def test_every_cell_is_within_one_piece() -> None:
    rng = np.random.default_rng(0)
    line, column = torch.from_numpy(rng.integers(10, size=(2, 50)))
    cells = Cells.sorted(line, column, torch.arange(50.0))
    found = []
    for first in range(0, 10, 3):
        part = cells.within(first, first + 3)
        found += list(zip(part.line.tolist(), (part.column + first).tolist(), part.value.tolist(),
                          strict=True))  # fmt: skip
    wanted = zip(line.tolist(), column.tolist(), np.arange(50.0).tolist(), strict=True)
    assert sorted(found) == sorted(wanted)
