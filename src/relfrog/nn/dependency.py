"""Functional-dependency regulariser: a row determines its parent, in the embedding space, too.

Both losses are computed on diff = h_parent - h_child of the foreign-key pairs of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from relfrog.graph.relational import ForeignKey
from relfrog.nn.difference_scores import difference_scores

__all__ = ["Dependencies", "DependencyLosses", "DependencyOptions", "Pairs"]

#: A foreign key from child to parent, or with "down" from parent to child.
Way = ForeignKey | tuple[ForeignKey, str]


class Pairs(NamedTuple):
    """Embeddings of foreign-key pairs of a batch.

    Attributes:
        child: embeddings of the children. Shape [pairs, c].
        parent: embeddings of their parents. Shape [pairs, c].
        parent_row: index of the distinct row of each parent in the batch. int64, shape [pairs].
    """

    child: Tensor
    parent: Tensor
    parent_row: Tensor

    def detach(self) -> Pairs:
        """A copy detached from the computation graph."""
        return Pairs(self.child.detach(), self.parent.detach(), self.parent_row)

    def reversed(self) -> Pairs:
        """From parent to child; what is mismatched in one direction is so in the other."""
        return Pairs(self.parent, self.child, self.parent_row)


class DependencyLosses(NamedTuple):
    """L_emb and L_pair, averaged over pairs and then over foreign keys. Shapes: []."""

    emb: Tensor
    pair: Tensor


@dataclass(frozen=True)
class DependencyOptions:
    """What the paper leaves open about the losses.

    Attributes:
        negatives: mismatched parents per pair.
        tau: temperature of L_pair.
        orthonormal: whether the subspaces of L_emb have orthonormal bases.
        normal: whether P and s start from a normal distribution of scale 1, not from an orthogonal
            matrix and zero.
        both: whether the losses are computed from parent to child, too, as relations of their own.
        true_negatives: whether a negative is never the true parent.
    """

    negatives: int = 8
    tau: float = 0.1
    orthonormal: bool = False
    normal: bool = False
    both: bool = False
    true_negatives: bool = True


class Dependencies(nn.Module):
    """L_emb, Eq. (13), and L_pair, Eq. (15), with one subspace, shift and scorer per foreign key.

    L_emb = |(diff - s) - P P^T (diff - s)|^2 with P of shape [c, c/4]. In the paper P is
    unconstrained; with `orthonormal` its columns are orthonormal, and the loss is the variance
    outside the subspace.

    L_pair = -log(d(pos) / (d(pos) + sum of d(neg))), d(x) = exp(x / tau). Negative sampling draws
    parents of other pairs, by default never the child's own. The scorer is an MLP on the
    difference.
    """

    def __init__(
        self,
        keys: Sequence[ForeignKey],
        channels: int,
        options: DependencyOptions | None = None,
    ) -> None:
        super().__init__()
        self.options = options = options or DependencyOptions()
        # Without direction: from child to parent.
        ways: list[Way] = [*keys, *((key, "down") for key in keys if options.both)]
        self.number: dict[Way, int] = {way: number for number, way in enumerate(ways)}
        rank = max(1, channels // 4)
        self.subspace = nn.Parameter(torch.empty(len(ways), channels, rank))
        self.shift = nn.Parameter(torch.zeros(len(ways), channels))
        self.hidden = nn.ModuleList(nn.Linear(channels, channels) for _ in ways)
        self.score = nn.ModuleList(nn.Linear(channels, 1) for _ in ways)
        if options.normal:
            nn.init.normal_(self.subspace)
            nn.init.normal_(self.shift)
        else:
            for matrix in self.subspace:
                nn.init.orthogonal_(matrix)

    def emb(self, key: Way, pairs: Pairs) -> Tensor:
        """L_emb of one foreign key, the mean over its pairs. Shape []."""
        number = self.number[key]
        basis = self.subspace[number]
        if self.options.orthonormal:
            basis = torch.linalg.qr(basis).Q
        off = pairs.parent - pairs.child - self.shift[number]
        return (off - (off @ basis) @ basis.T).square().sum(1).mean()  # Eq. (13)

    def pair(self, key: Way, pairs: Pairs, generator: torch.Generator | None = None) -> Tensor:
        """L_pair of one foreign key, the mean over its pairs. Shape []."""
        count = len(pairs.child)
        device = pairs.child.device
        drawn = torch.randint(
            count, (count, self.options.negatives), generator=generator,
            device=generator.device if generator is not None else device,
        ).to(device)  # fmt: skip
        if self.options.true_negatives:
            allowed = pairs.parent_row[drawn] != pairs.parent_row.unsqueeze(1)
        else:
            allowed = torch.ones_like(drawn, dtype=torch.bool)
        return self.pair_against(key, pairs, drawn, allowed)

    def pair_against(self, key: Way, pairs: Pairs, drawn: Tensor, allowed: Tensor) -> Tensor:
        """L_pair with the given negatives: the parents of the pairs `drawn`, where `allowed`.

        Shapes: drawn, allowed [pairs, negatives] -> [].
        """
        number = self.number[key]
        hidden, score = self.hidden[number], self.score[number]
        assert isinstance(hidden, nn.Linear)
        assert isinstance(score, nn.Linear)
        scores = difference_scores(pairs.parent, pairs.child, drawn, hidden, score)
        own = torch.ones_like(allowed[:, :1])
        scores = scores / self.options.tau
        scores = scores.masked_fill(~torch.cat([own, allowed], 1), -torch.inf)
        return -scores.log_softmax(1)[:, 0].mean()  # Eq. (15)

    def forward(
        self,
        pairs: dict[ForeignKey, Pairs],
        generator: torch.Generator | None = None,
        shares: Mapping[ForeignKey, float] | None = None,
    ) -> DependencyLosses:
        """Both losses over all foreign keys that have pairs, in each of their directions.

        Args:
            pairs: the pairs of each key.
            generator: of the mismatched parents.
            shares: the weight of each key; by default all have the same, and the sum is 1.
        """
        if not pairs:
            nothing = self.shift.new_zeros(())
            return DependencyLosses(nothing, nothing)
        ways: dict[Way, Pairs] = {key: some for key, some in pairs.items()}
        if self.options.both:
            ways |= {(key, "down"): some.reversed() for key, some in pairs.items()}
        emb = torch.stack([self.emb(way, some) for way, some in ways.items()])
        pair = torch.stack([self.pair(way, some, generator) for way, some in ways.items()])
        if shares is None:
            return DependencyLosses(emb.mean(), pair.mean())
        each = [shares[way if isinstance(way, ForeignKey) else way[0]] for way in ways]
        weights = emb.new_tensor(each) / (len(ways) // len(pairs))
        return DependencyLosses((emb * weights).sum(), (pair * weights).sum())
