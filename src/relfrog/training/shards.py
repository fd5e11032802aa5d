"""A batch in shards: pieces that are sampled and computed each on its own, by any worker.

The pieces of a batch, and all that is drawn at random in one, depend on the batch alone. Their
gradients are added up in double precision, which for a few float32 is exact but for rare cases, so
that the order of the sum does not matter. Who computes which piece therefore changes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["FlatSum", "cut_batch", "pieces_of", "seed_piece", "usual_shards"]

#: Seeds of a piece, at least, where the number of pieces is not set.
FEWEST = 256


def usual_shards(batch_size: int) -> int:
    """Into how many pieces a batch is cut, if workers share it and nothing else is said.

    A piece has a price of its own, whatever its size: thousands of small operations. So pieces are
    few, and large. Their number depends on the batch alone: that of workers changes nothing.
    """
    return max(2, batch_size // FEWEST)


def cut_batch(
    times: NDArray[np.int64], shards: int, shares: bool = True
) -> list[NDArray[np.int64]]:
    """Cut a batch into pieces of about the same size.

    Seeds of the same time share a subgraph and stay together, unless they are much more than a
    piece. Neighbouring times are in one piece: most of the rows that they see are the same, and a
    row is encoded once in a piece, however often it occurs.

    Args:
        times: the times of the seeds. Shape [seeds].
        shards: the number of pieces.
        shares: whether seeds of the same time share a subgraph.

    Returns:
        Positions of seeds, in ascending order, per piece; some may be empty.
    """
    if not shares:
        return list(np.array_split(np.arange(len(times)), shards))
    order = np.argsort(times, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(times[order])) + 1) if len(times) else []
    fair = max(len(times) / shards, 1.0)
    pieces: list[list[NDArray[np.int64]]] = [[] for _ in range(shards)]
    begin = 0
    for group in groups:
        for part in np.array_split(group, max(round(len(group) / fair), 1)):
            middle = begin + len(part) / 2
            pieces[min(int(middle / fair), shards - 1)].append(part)
            begin += len(part)
    return [np.sort(np.concatenate(some)) if some else np.empty(0, np.int64) for some in pieces]


def pieces_of(rank: int, size: int, pieces: int) -> list[int]:
    """Which pieces of a batch a worker computes.

    They are dealt out forth and back: later times have more past, so later pieces more rows.
    """
    return [
        number
        for number in range(pieces)
        if rank == (number % size if number // size % 2 == 0 else size - 1 - number % size)
    ]


def seed_piece(*numbers: int) -> None:
    """Let everything random that follows depend on these numbers alone."""
    words = np.random.SeedSequence([abs(number) for number in numbers]).generate_state(2, np.uint32)
    torch.manual_seed((int(words[0]) << 32 | int(words[1])) >> 1)


class FlatSum:
    """Gradients and numbers of several pieces, as one vector of double precision.

    Args:
        first: a module, whose gradients `clip` is about.
        second: another one, if there is one.
        numbers: how many numbers.

    Attributes:
        values: the gradients of all weights, whether each weight has one, and the numbers.
    """

    def __init__(self, first: nn.Module, second: nn.Module | None, numbers: int) -> None:
        self.weights = [*first.parameters(), *([] if second is None else second.parameters())]
        self._sizes = [weight.numel() for weight in self.weights]
        self._first = sum(weight.numel() for weight in first.parameters())
        lengths = [sum(self._sizes), len(self.weights), numbers]
        device = self.weights[0].device
        self.values = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self._gradients, self._there, self.numbers = self.values.split(lengths)
        self._none = torch.zeros(max(self._sizes), device=device)
        # Memory that is new in each step costs more than what is written into it.
        self._flat = torch.empty(lengths[0], dtype=self._none.dtype, device=device)
        parts = self._flat.split(self._sizes)
        self._rounded = [p.view_as(w) for p, w in zip(parts, self.weights, strict=True)]

    def clear(self) -> None:
        """Begin a new sum."""
        self.values.zero_()

    def forget(self) -> None:
        """Drop the gradients that the weights have."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Add the gradients of the weights, and drop them."""
        found: list[Tensor] = []
        there: list[int] = []
        for number, weight in enumerate(self.weights):
            if weight.grad is None:
                found.append(self._none[: self._sizes[number]])
            else:
                found.append(weight.grad.reshape(-1))
                there.append(number)
                weight.grad = None
        self._gradients += torch.cat(found, out=self._flat)
        self._there[there] += 1

    def clip(self, largest: float) -> float:
        """Scale the first module's gradient down to a norm of `largest`; the norm before."""
        own = self._gradients[: self._first]
        norm = float(torch.linalg.vector_norm(own))
        if norm > largest:
            own.mul_(largest / norm)
        return norm

    @torch.no_grad()
    def give_gradients(self) -> None:
        """Make the sums the gradients of the weights; where no piece has one, there is none."""
        self._flat.copy_(self._gradients)
        there = self._there.tolist()
        for weight, gradient, count in zip(self.weights, self._rounded, there, strict=True):
            weight.grad = gradient if count else None
