"""A batch in shards: pieces that are sampled and computed each on its own, by any worker.

The pieces of a batch, and all that is drawn at random in one, depend on the batch alone. Their
gradients are added up in double precision, which for a few float32 is exact but for rare cases, so
that the order of the sum does not matter. Who computes which piece therefore changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["FlatSum", "cut_batch", "seed_piece"]


def cut_batch(
    times: NDArray[np.int64], shards: int, shares: bool = True
) -> list[NDArray[np.int64]]:
    """Cut a batch into pieces of about the same size.

    Seeds of the same time share a subgraph and stay together, unless they are much more than a
    piece.

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
    parts = [
        part for some in groups for part in np.array_split(some, max(round(len(some) / fair), 1))
    ]
    # The largest first, each to the piece that has least so far.
    pieces: list[list[NDArray[np.int64]]] = [[] for _ in range(shards)]
    sizes = [0] * shards
    for part in sorted(parts, key=len, reverse=True):
        least = sizes.index(min(sizes))
        pieces[least].append(part)
        sizes[least] += len(part)
    return [np.sort(np.concatenate(some)) if some else np.empty(0, np.int64) for some in pieces]


def seed_piece(*numbers: int) -> None:
    """Let everything random that follows depend on these numbers alone."""
    words = np.random.SeedSequence([abs(number) for number in numbers]).generate_state(2, np.uint32)
    torch.manual_seed((int(words[0]) << 32 | int(words[1])) >> 1)


class FlatSum:
    """Gradients and numbers of several pieces, as one vector of double precision.

    Attributes:
        values: the gradients of all weights, whether each weight has one, and the numbers.
    """

    def __init__(self, modules: Iterable[nn.Module | None], numbers: int) -> None:
        self.weights = [p for module in modules if module is not None for p in module.parameters()]
        self._sizes = [weight.numel() for weight in self.weights]
        lengths = [sum(self._sizes), len(self.weights), numbers]
        device = self.weights[0].device
        self.values = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self._gradients, self._there, self.numbers = self.values.split(lengths)
        self._none = torch.zeros(max(self._sizes), device=device)

    def clear(self) -> None:
        """Begin a new sum."""
        self.values.zero_()

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
        self._gradients += torch.cat(found)
        self._there[there] += 1

    @torch.no_grad()
    def give_gradients(self) -> None:
        """Make the sums the gradients of the weights; where no piece has one, there is none."""
        there = self._there.tolist()
        rounded = self._gradients.float().split(self._sizes)
        for weight, gradient, count in zip(self.weights, rounded, there, strict=True):
            weight.grad = gradient.view_as(weight) if count else None
