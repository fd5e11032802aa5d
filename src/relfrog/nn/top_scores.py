"""The best of very many scores, computed and ranked piece by piece.

All scores of a batch would be a hundred times as large as a processor's cache. A piece that fits
into it is ranked as soon as it is computed, so that nothing is written to memory and read again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from relfrog.support.jit import compiled

__all__ = ["Best", "Cells"]

#: Scores that are compared at once with the least of the best so far.
_STRIDE = 64


class Best:
    """The k best scores of each row so far, the best first; of equal ones the earliest column.

    Attributes:
        values: the scores, -inf where there are fewer. float32, shape [rows, k].
        columns: their columns, -1 where there are fewer. int64, shape [rows, k].

    Args:
        rows: number of rows.
        k: how many to keep.
    """

    def __init__(self, rows: int, k: int) -> None:
        self.values = torch.full((rows, k), -torch.inf)
        self.columns = torch.full((rows, k), -1)

    def add(self, scores: Tensor, first: int) -> None:
        """Rank more scores: those of the columns from `first` on. Shape [rows, columns]."""
        if self.values.shape[1]:
            _keep_best(scores.numpy(), first, self.values.numpy(), self.columns.numpy())


@compiled
def _keep_best(scores: Any, first: Any, values: Any, columns: Any) -> None:
    k, count = values.shape[1], scores.shape[1]
    for row in range(len(scores)):
        line, best, where = scores[row], values[row], columns[row]
        for begin in range(0, count, _STRIDE):
            end = min(begin + _STRIDE, count)
            larger = 0
            for i in range(begin, end):  # mostly none is: a loop without branches is fast
                larger += line[i] > best[k - 1]
            if larger == 0:
                continue
            for i in range(begin, end):
                score = line[i]
                if not score > best[k - 1]:
                    continue
                at = k - 1
                while at > 0 and best[at - 1] < score:
                    best[at], where[at] = best[at - 1], where[at - 1]
                    at -= 1
                best[at], where[at] = score, first + i


class Cells(NamedTuple):
    """Cells of a matrix, by column.

    Attributes:
        line: their rows. int64, shape [cells].
        column: their columns, in order. int64, shape [cells].
        value: float32, shape [cells].
    """

    line: Tensor
    column: Tensor
    value: Tensor

    @classmethod
    def none(cls) -> Cells:
        """No cells."""
        empty = torch.zeros(0, dtype=torch.int64)
        return cls(empty, empty, torch.zeros(0))

    @classmethod
    def sorted(cls, line: Tensor, column: Tensor, value: Tensor) -> Cells:
        """Cells in any order."""
        column, order = column.sort(stable=True)
        return cls(line[order], column, value[order])

    def within(self, first: int, last: int) -> Cells:
        """Those of some columns, counted from the first of them."""
        begin, end = torch.searchsorted(self.column, torch.tensor([first, last])).tolist()
        some = slice(begin, end)
        return Cells(self.line[some], self.column[some] - first, self.value[some])
