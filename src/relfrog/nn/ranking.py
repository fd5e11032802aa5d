"""What a ranking is made of: scored targets, lists of labels, and the targets to choose from."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LabelLists", "Pool", "RankingOutput", "draw_rows", "logsumexp"]

#: Rows of which a random order is made as a whole.
MOST_LISTED = 1_000_000


class RankingOutput(NamedTuple):
    """Output of the ranking head for a batch.

    Attributes:
        seeds: embeddings of the seeds. Shape [seeds, c].
        sampled: score of each occurrence of a target. Shape [occurrences].
        seed: the seed in whose subgraph it was sampled. int64, shape [occurrences].
        row: its row in the target table. int64, shape [occurrences].
    """

    seeds: Tensor
    sampled: Tensor
    seed: Tensor
    row: Tensor


class LabelLists(NamedTuple):
    """Labels: a list of targets per seed, in compressed form.

    Attributes:
        rows: the targets of all seeds. int64, shape [labels].
        begin: where the targets of each seed begin. int64, shape [seeds + 1].
    """

    rows: Tensor
    begin: Tensor

    def to(self, device: torch.device | str) -> LabelLists:
        """Copy to a device."""
        return LabelLists(self.rows.to(device), self.begin.to(device))

    def of(self, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """The labels of some seeds: index into `seeds`, and target. Shapes [labels] each."""
        first, count = self.begin[seeds], self.begin[seeds + 1] - self.begin[seeds]
        owner = torch.repeat_interleave(torch.arange(len(seeds), device=seeds.device), count)
        within = torch.arange(len(owner), device=seeds.device) - (count.cumsum(0) - count)[owner]
        return owner, self.rows[first[owner] + within]


class Pool(NamedTuple):
    """The candidate targets at a time.

    Attributes:
        rows: the targets, the most popular first. int64, shape [pool].
        place: where each target of the table is in the order of popularity, -1 for those that may
            not be recommended; those in the pool come first. int64, shape [targets].
        vectors: their vectors; None without towers. Shape [pool, c].
        bias: their biases. Shape [pool].
    """

    rows: Tensor
    place: Tensor
    vectors: Tensor | None
    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(part.nbytes for part in self if part is not None)


def draw_rows(rows: int, number: int) -> Tensor:
    """Different rows, drawn at random. Shape [number]."""
    if number == rows:
        return torch.arange(rows)
    if rows <= MOST_LISTED:
        return torch.randperm(rows)[:number]
    # Of very many, without a list of them all; twice as many, because some are drawn twice.
    twice = torch.randint(rows, (2 * number,)).unique()
    return twice[torch.randperm(len(twice))[:number]]


def logsumexp(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Log of the sum of exp, by group. Shapes: [n], [n] -> [groups]."""
    top = torch.full((groups,), -torch.inf, device=values.device)
    top = top.scatter_reduce(0, group, values.detach(), "amax")
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    total = torch.zeros(groups, device=values.device).index_add(
        0, group, (values - top[group]).exp()
    )
    return total.clamp(min=1e-30).log() + top
