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


#: A share of the ages: if no more of them differ, each is computed once.
FEW = 4


@dataclass(frozen=True, eq=False)
class AgePieces:
    """Ages, each as the piece of the time scale that it is on and how far.

    Times are often days, so that many rows have the same age: then each age is here once.

    Attributes:
        piece: number of the piece; one more than there are for ages beyond all, two more for none.
            Shape [n], or [different ages].
        share: how much of the piece has passed. Shape [n], or [different ages].
        index: which of the different ages each row has, if they are here once. Shape [n].
    """

    piece: NDArray[np.uint8]
    share: NDArray[np.float32]
    index: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.piece if self.index is None else self.index)

    def __getitem__(self, some: slice) -> AgePieces:
        if self.index is not None:
            return AgePieces(self.piece, self.share, self.index[some])
        return AgePieces(self.piece[some], self.share[some])

    def add_linear(self, total: Tensor, linear: nn.Linear) -> Tensor:
        """Add a linear map of `age_parts` in place. Shape [n, c]."""
        start, slope = (lines.numpy() for lines in _broken_lines(linear))
        if self.index is None:
            _add_lines(self.piece, self.share, start, slope, total.numpy())
        else:
            _add_lines_at(self.index, self.piece, self.share, start, slope, total.numpy())
        return total

    def exp_linear(self, linear: nn.Linear, low: float, high: float) -> Tensor:
        """Exp of a linear map of `age_parts` that is kept within some bounds. Shape [n, c]."""
        start, slope = _broken_lines(linear)
        found = start.new_empty(len(self.piece), start.shape[1])
        lines = start.numpy(), slope.numpy()
        _write_lines(self.piece, self.share, *lines, low, high, found.numpy())
        found.exp_()
        return found if self.index is None else found.index_select(0, torch.from_numpy(self.index))


def age_pieces(ages: NDArray[np.float64], knots: Sequence[float]) -> AgePieces:
    """Where ages in seconds are between the knots of the time scale; NaN for no age."""
    scale = torch.tensor(knots, dtype=torch.float32).log1p().numpy()
    index = np.empty(len(ages), np.int32)
    different = np.empty(len(ages) // FEW, np.float64)
    places = np.full(1 << (4 * len(different) + 1).bit_length(), -1, np.int32)
    count = _number(ages.view(np.uint64), places, different.view(np.uint64), index)
    known = ages if count < 0 else different[:count]
    piece, share = np.empty(len(known), np.uint8), np.empty(len(known), np.float32)
    _find_pieces(known, scale, piece, share)
    return AgePieces(piece, share, None if count < 0 else index)


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
def _number(values: Any, places: Any, different: Any, index: Any) -> int:
    """Number the different ones among values, by their bits; -1 if they are too many.

    `places` is a hash table, all -1, whose length is a power of 2.
    """
    count, last = 0, len(places) - 1
    for i in range(len(values)):
        value = values[i]
        at = np.int64((value * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & last
        while places[at] >= 0 and different[places[at]] != value:
            at = (at + 1) & last
        if places[at] < 0:
            if count == len(different):
                return -1
            different[count] = value
            places[at] = count
            count += 1
        index[i] = places[at]
    return count


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


@compiled
def _add_lines_at(index: Any, piece: Any, share: Any, start: Any, slope: Any, out: Any) -> None:
    """`_add_lines`, for rows of which several have one piece and share."""
    for i in range(len(out)):
        at = index[i]
        row, base, rise = out[i], start[piece[at]], slope[piece[at]]
        part = start.dtype.type(share[at])
        for c in range(len(row)):
            row[c] += base[c] + part * rise[c]
