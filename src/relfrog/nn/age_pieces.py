"""Ages as places on the time scale, for linear maps of `age_parts` without a product of matrices.

A linear map of `age_parts` is a broken line over log time: what it is at the knot before the age,
and a share of the piece that follows. So two rows of a small table take the place of a product with
one row of parts per age. That is for predictions alone: weights would need gradients by parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relfrog.support.jit import compiled

__all__ = ["AgePieces", "age_pieces"]


@dataclass(frozen=True, eq=False)
class AgePieces:
    """Ages, each as the piece of the time scale that it is on and how far.

    Attributes:
        piece: number of the piece; one more than there are for ages beyond all, two more for none.
            Shape [n].
        share: how much of the piece has passed. Shape [n].
    """

    piece: NDArray[np.uint8]
    share: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.piece)

    def __getitem__(self, some: slice) -> AgePieces:
        return AgePieces(self.piece[some], self.share[some])

    def add_linear(self, total: Tensor, linear: nn.Linear) -> Tensor:
        """Add a linear map of `age_parts` in place. Shape [n, c]."""
        start, slope = _broken_lines(linear)
        _add_lines(self.piece, self.share, start.numpy(), slope.numpy(), total.numpy())
        return total

    def linear(self, linear: nn.Linear, low: float, high: float) -> Tensor:
        """A linear map of `age_parts`, no lower and no higher than some bounds. Shape [n, c]."""
        start, slope = _broken_lines(linear)
        found = start.new_empty(len(self), start.shape[1])
        lines = start.numpy(), slope.numpy()
        _write_lines(self.piece, self.share, *lines, low, high, found.numpy())
        return found


def age_pieces(ages: NDArray[np.float64], knots: Sequence[float]) -> AgePieces:
    """Where ages in seconds are between the knots of the time scale; NaN for no age."""
    scale = torch.tensor(knots, dtype=torch.float32).log1p().numpy()
    piece, share = np.empty(len(ages), np.uint8), np.empty(len(ages), np.float32)
    _find_pieces(ages, scale, piece, share)
    return AgePieces(piece, share)


def _broken_lines(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Values at the knots, and by how much they rise from each to the next. Shapes [k + 1, c].

    After those of the knots comes what there is without an age, where nothing rises.
    """
    weight, bias = linear.weight.detach(), linear.bias.detach()
    rise = weight[:, :-1].T
    nothing = rise.new_zeros(1, rise.shape[1])
    start = bias + torch.cat([nothing, rise.cumsum(0), weight[:, -1:].T])
    return start, torch.cat([rise, nothing, nothing])


@compiled
def _find_pieces(ages: Any, scale: Any, piece: Any, share: Any) -> None:
    """The piece of each age, and how much of it has passed."""
    last = len(scale) - 1
    for i in range(len(ages)):
        piece[i], share[i] = 0, 0.0
        if np.isnan(ages[i]):
            piece[i] = last + 1
        elif ages[i] > 0:
            at = np.float32(np.log1p(ages[i]))
            low, high = 0, last + 1
            while high - low > 1:
                middle = (low + high) >> 1
                if scale[middle] <= at:
                    low = middle
                else:
                    high = middle
            piece[i] = low
            if low < last:
                share[i] = (at - scale[low]) / (scale[low + 1] - scale[low])


@compiled
def _write_lines(
    piece: Any, share: Any, start: Any, slope: Any, low: float, high: float, out: Any
) -> None:
    """out[i] = start of its piece + share of its slope, within bounds."""
    least, most = start.dtype.type(low), start.dtype.type(high)
    for i in range(len(out)):
        row, base, rise, part = out[i], start[piece[i]], slope[piece[i]], start.dtype.type(share[i])
        for c in range(len(row)):
            row[c] = min(max(base[c] + part * rise[c], least), most)


@compiled
def _add_lines(piece: Any, share: Any, start: Any, slope: Any, out: Any) -> None:
    """out[i] += start of its piece + share of its slope."""
    for i in range(len(out)):
        row, base, rise, part = out[i], start[piece[i]], slope[piece[i]], start.dtype.type(share[i])
        for c in range(len(row)):
            row[c] += base[c] + part * rise[c]
