"""What workers that train together tell each other: sums, and what the first of them says."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

__all__ = ["ALONE", "Collective"]

Said = TypeVar("Said")


class Collective:
    """A group of workers; this one, which others derive from, is a group of one.

    Every worker calls the same methods in the same order, and waits for the others in each.

    Attributes:
        rank: the number of this worker. The first, 0, writes the run folder and reports progress.
        size: the number of workers.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the worker that writes and reports."""
        return self.rank == 0

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all workers, in place."""

    def share(self, thing: Said) -> Said:
        """What the first worker gives; what others give is ignored."""
        return thing

    def collect(self, thing: Said) -> list[Said]:
        """What each worker gives, in their order, at all of them."""
        return [thing]


#: Nobody else.
ALONE = Collective()
