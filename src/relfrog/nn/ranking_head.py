"""The head of recommendations: a score for each target, sampled around the seed or not.

Two parts, of which either can be left out. *Sampled* (ID-GNN): every row of the target table in
the seed's own subgraph is scored by what the layers have made of it, which knows of the seed by
the vector that marks it. *Towers*: the seed's embedding times a vector of the target that is made
of its columns and of how often it was joined before; it reaches targets that no path leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from relfrog.features.columns import Features, TableColumns
from relfrog.graph.popularity import ListRequest, Popularity, Snapshot
from relfrog.nn.batch_plan import Plan
from relfrog.nn.encoders import RowEncoder
from relfrog.nn.heads import Head, Targets
from relfrog.support.times import PER_SECOND

__all__ = ["Answers", "Lists", "RankingHead"]


class Answers(NamedTuple):
    """What the network says of a batch.

    Attributes:
        seeds: embeddings of the seeds. Shape [seeds, c].
        sampled: a score for each occurrence of a target. Shape [occurrences].
        seed: the seed that it is sampled for. int64, shape [occurrences].
        row: which row it is. int64, shape [occurrences].
    """

    seeds: Tensor
    sampled: Tensor
    seed: Tensor
    row: Tensor


class Lists(NamedTuple):
    """Labels: a set of targets for each seed, one after the other.

    Attributes:
        rows: the targets. int64, shape [labels].
        begin: where those of each seed begin. int64, shape [seeds + 1].
    """

    rows: Tensor
    begin: Tensor

    def to(self, device: torch.device | str) -> Lists:
        """The same on another device."""
        return Lists(self.rows.to(device), self.begin.to(device))

    def of(self, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """For some seeds, which of them a label belongs to, and its target. Shapes [labels]."""
        first, count = self.begin[seeds], self.begin[seeds + 1] - self.begin[seeds]
        owner = torch.repeat_interleave(torch.arange(len(seeds), device=seeds.device), count)
        within = torch.arange(len(owner), device=seeds.device) - (count.cumsum(0) - count)[owner]
        return owner, self.rows[first[owner] + within]


class RankingHead(Head):
    """Scores of targets; the k best are the prediction.

    Args:
        channels: size of embeddings.
        about: k and which parts there are.
        columns: of the target table.
        target: its name.
        popularity: of its rows.
        dropout: in the hidden layers.
        bins: pieces per number in the row encoder.
        column_dropout: share of columns that are hidden from it while training.
    """

    kind: ClassVar[str] = "recommendation"
    #: Targets that a training step compares with; all of them if there are no more.
    NEGATIVES = 1024
    #: Targets that a prediction looks at; of more, those that are asked for most.
    MOST = 1_000_000
    #: Scores that are computed at once.
    AT_ONCE = 20_000_000

    def __init__(
        self,
        channels: int,
        about: dict[str, Any],
        columns: TableColumns,
        target: str,
        popularity: Popularity,
        *,
        dropout: float = 0.0,
        bins: int = 8,
        column_dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, 1, dropout)
        self.k, self.parts = int(about["k"]), str(about["parts"])
        self.target, self.popularity = target, popularity
        if self.parts != "sampled":
            self.columns_of_target = RowEncoder(columns, channels, 1, bins, column_dropout)
            self.standing = nn.Linear(popularity.parts, channels)
            self.target_tower = nn.Sequential(
                nn.LayerNorm(channels), nn.ReLU(), nn.Linear(channels, channels + 1)
            )
            self.seed_tower = nn.Sequential(
                nn.Linear(channels, channels), nn.LayerNorm(channels), nn.ReLU(),
                nn.Dropout(dropout), nn.Linear(channels, channels),
            )  # fmt: skip

    # Labels.

    @classmethod
    def describe(cls, labels: NDArray[Any]) -> dict[str, Any]:
        """How long lists of labels are."""
        return {"mean_length": float(np.mean([len(some) for some in labels]))}

    @classmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> RankingHead:
        """A head for a table of targets."""
        assert targets is not None
        return cls(
            channels, about, targets.columns, targets.table, targets.popularity, dropout=dropout,
            bins=targets.bins, column_dropout=targets.column_dropout,
        )  # fmt: skip

    def targets(self, labels: NDArray[Any]) -> Any:
        """Labels one after the other."""
        lengths = [len(some) for some in labels]
        rows = np.concatenate([np.zeros(0, np.int64), *(np.asarray(x, np.int64) for x in labels)])
        begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Lists(torch.from_numpy(rows), torch.from_numpy(begin))

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Of the sampled targets alone: binary cross-entropy, as in the paper."""
        return functional.binary_cross_entropy_with_logits(out, target)

    def predict(self, out: Tensor) -> Tensor:
        """Scores as they are."""
        return out

    # A batch.

    def read(self, h: Mapping[str, Tensor], plan: Plan) -> Answers:
        """Scores of the sampled targets, and the seeds."""
        batch = plan.batch
        seeds = h[batch.seed_table].index_select(0, batch.seeds)
        rows = batch.tables[self.target]
        # A seed whose own row is not visible yet is no target, nor is it read as one.
        there = torch.ones(len(rows), dtype=torch.bool, device=seeds.device)
        if self.target == batch.seed_table:
            there[batch.seeds[batch.hidden()]] = False
        at = there.nonzero().squeeze(1)
        # Subgraphs are separate: the group is the seed.
        sampled = self(h[self.target].index_select(0, at)).squeeze(1)
        return Answers(seeds, sampled, rows.group[at].long(), rows.rows[rows.index[at]])

    def batch_loss(
        self, answers: Answers, plan: Plan, targets: Any, features: Mapping[str, Features]
    ) -> Tensor:
        """How far the labels are from the top."""
        ids = plan.batch.seed_ids.to(answers.seeds.device)
        owner, wanted = targets.of(ids)
        rows = self.popularity.graph.num_rows[self.target]
        right = torch.isin(answers.seed * rows + answers.row, owner * rows + wanted)
        if self.parts == "sampled":
            if not len(right):
                return answers.seeds.sum() * 0.0
            return self.loss(answers.sampled, right.float())
        return self._softmax(answers, plan, owner, wanted, right, features)

    def _softmax(
        self,
        answers: Answers,
        plan: Plan,
        owner: Tensor,
        wanted: Tensor,
        right: Tensor,
        features: Mapping[str, Features],
    ) -> Tensor:
        """Cross-entropy over all targets; those not sampled around the seed by a sample of them.

        With m of n targets drawn, each stands for n / m of them.
        """
        device, count = answers.seeds.device, len(answers.seeds)
        rows = self.popularity.graph.num_rows[self.target]
        m = min(rows, self.NEGATIVES)
        drawn = torch.arange(rows) if m == rows else torch.randperm(rows)[:m]
        drawn = drawn.to(device)
        ticks, moment = self._ticks(plan)
        standings = [self.popularity.at(tick) for tick in ticks]
        visible = torch.stack([s.visible[drawn.cpu()] for s in standings]).to(device)
        # Vectors of targets at times: of those drawn at every time, of others one by one.
        pairs_seed = torch.cat([answers.seed, owner])
        pairs_row = torch.cat([answers.row, wanted])
        needed, place = torch.cat([drawn, pairs_row]).unique(return_inverse=True)
        content = self.columns_of_target(features[self.target], needed)
        seeds = self.seed_tower(answers.seeds)
        vectors, bias = self._vectors(
            content.index_select(0, place[m:]),
            self._counts(standings, moment[pairs_seed], pairs_row, device),
        )
        score = (seeds.index_select(0, pairs_seed) * vectors).sum(1) + bias
        number = len(answers.seed)
        sampled = score[:number]
        if self.parts == "both":
            sampled = sampled + answers.sampled
        # A label that was sampled has that score, another one its towers'.
        met = torch.isin(owner * rows + wanted, answers.seed * rows + answers.row)
        exists = torch.stack([s.visible for s in standings]).to(device)[moment[owner], wanted]
        unmet = ~met & exists
        others = torch.full((count, m), -torch.inf, device=device)
        share = float(np.log(rows / m)) if m else 0.0
        for which in range(len(ticks)):
            at = (moment == which).nonzero().squeeze(1)
            vectors, bias = self._vectors(
                content.index_select(0, place[:m]), standings[which].counts[drawn.cpu()].to(device)
            )
            found = seeds.index_select(0, at) @ vectors.T + bias + share
            others[at] = found.masked_fill(~visible[which], -torch.inf)
        others = self._without(others, drawn, rows, answers, owner, wanted)
        labels = torch.cat([sampled[right], score[number:][unmet]])
        label_owner = torch.cat([answers.seed[right], owner[unmet]])
        if not len(labels):
            return answers.seeds.sum() * 0.0
        everything = torch.cat([sampled, score[number:][unmet], others.flatten()])
        whose = torch.cat(
            [answers.seed, owner[unmet], torch.arange(count, device=device).repeat_interleave(m)]
        )
        total = _logsumexp(everything, whose, count)
        each = total[label_owner] - labels
        share_of = torch.bincount(label_owner, minlength=count).float()
        return (each / share_of[label_owner]).sum() / (share_of > 0).sum()

    @staticmethod
    def _without(
        others: Tensor, drawn: Tensor, rows: int, answers: Answers, owner: Tensor, wanted: Tensor
    ) -> Tensor:
        """Leave out of those drawn what is counted already."""
        place = torch.full((rows,), -1, dtype=torch.int64, device=drawn.device)
        place[drawn] = torch.arange(len(drawn), device=drawn.device)
        seed = torch.cat([answers.seed, owner])
        column = place[torch.cat([answers.row, wanted])]
        known = column >= 0
        taken = torch.zeros_like(others, dtype=torch.bool)
        taken[seed[known], column[known]] = True
        return others.masked_fill(taken, -torch.inf)

    def _ticks(self, plan: Plan) -> tuple[list[int], Tensor]:
        """The different times up to which seeds see, and which of them is each seed's."""
        batch = plan.batch
        per_second = PER_SECOND[self.popularity.graph.unit]
        lags = (batch.group_lags.cpu() * float(per_second)).round().to(torch.int64)
        limits = batch.group_times.cpu() - lags
        ticks, moment = limits.unique(return_inverse=True)
        return ticks.tolist(), moment.to(batch.seeds.device)

    def _counts(
        self, standings: list[Snapshot], moment: Tensor, rows: Tensor, device: torch.device
    ) -> Tensor:
        counts = torch.empty(len(rows), self.popularity.parts, dtype=torch.float16)
        where, chosen = moment.cpu(), rows.cpu()
        for number, standing in enumerate(standings):
            at = (where == number).nonzero().squeeze(1)
            counts[at] = standing.counts[chosen[at]]
        return counts.to(device)

    def _vectors(self, content: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors and biases of targets. Shapes: [n, c], [n, parts] -> [n, c], [n]."""
        both = self.target_tower(content + self.standing(counts.float()))
        return both[:, :-1] / both.shape[1] ** 0.5, both[:, -1]

    # Predictions.

    def batch_predict(
        self,
        answers: Answers,
        plan: Plan,
        features: Mapping[str, Features],
        request: ListRequest | None = None,
    ) -> Tensor:
        """The best targets and their scores; -1 where there are no more. Shape [seeds, k, 2]."""
        request = request or ListRequest(self.k)
        ticks, moment = self._ticks(plan)
        found = torch.full((len(answers.seeds), request.k, 2), -1.0, dtype=torch.float64)
        found[:, :, 1] = -torch.inf
        ids = plan.batch.seed_ids.cpu()
        for number, tick in enumerate(ticks):
            pool, base = self._pool(tick, request, answers, features)
            whole = torch.full((self.popularity.graph.num_rows[self.target],), -1)
            whole[pool] = torch.arange(len(pool))
            mine = (moment == number).nonzero().squeeze(1)
            step = max(1, self.AT_ONCE // max(len(pool), 1))
            for some in mine.split(step):
                scores = self._scores(some, base, answers, pool, whole)
                self._exclude(scores, some, ids, whole, request)
                best = scores.topk(min(request.k, len(pool)), dim=1)
                there = best.values > -torch.inf
                rows = torch.where(there, pool[best.indices], -1)
                found[some.cpu(), : rows.shape[1], 0] = rows.double()
                found[some.cpu(), : rows.shape[1], 1] = best.values.double()
        return found

    def _pool(
        self, tick: int, request: ListRequest, answers: Answers, features: Mapping[str, Features]
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Targets that may be recommended at a time, and their vectors."""
        standing = self.popularity.at(tick)
        order = standing.order
        allowed = None if request.allowed is None else torch.from_numpy(request.allowed)
        if allowed is not None:
            order = order[allowed[order]]
        if len(order) > self.MOST:
            near = answers.row.cpu().unique()
            near = near[standing.visible[near]]
            if allowed is not None:
                near = near[allowed[near]]
            more = order[self.MOST :]
            order = torch.cat([order[: self.MOST], more[torch.isin(more, near)]])
        if self.parts == "sampled":
            return order, None
        device = answers.seeds.device
        parts = []
        for rows in order.split(65_536):
            content = self.columns_of_target(features[self.target], rows.to(device))
            vectors, bias = self._vectors(content, standing.counts[rows].to(device))
            parts.append(torch.cat([vectors, bias.unsqueeze(1)], 1))
        both = torch.cat(parts) if parts else answers.seeds.new_zeros(0, answers.seeds.shape[1] + 1)
        return order, (both[:, :-1], both[:, -1])

    def _scores(
        self,
        some: Tensor,
        base: tuple[Tensor, Tensor] | None,
        answers: Answers,
        pool: Tensor,
        whole: Tensor,
    ) -> Tensor:
        """Scores of all targets of the pool for some seeds. Shape [seeds, pool]."""
        if base is None:
            # Those not sampled come after all that were, the most asked for first.
            after = -1e6 - torch.arange(len(pool), dtype=torch.float32)
            scores = after.expand(len(some), -1).clone()
        else:
            towers = self.seed_tower(answers.seeds.index_select(0, some))
            scores = (towers @ base[0].T + base[1]).cpu()
        if self.parts == "towers":
            return scores
        line = torch.full((len(answers.seeds),), -1)
        line[some.cpu()] = torch.arange(len(some))
        at, column = line[answers.seed.cpu()], whole[answers.row.cpu()]
        use = (at >= 0) & (column >= 0)
        own = answers.sampled.cpu()[use].float()
        if base is None:
            scores[at[use], column[use]] = own
        else:
            scores[at[use], column[use]] += own
        return scores

    def _exclude(
        self, scores: Tensor, some: Tensor, ids: Tensor, whole: Tensor, request: ListRequest
    ) -> None:
        if request.exclude is None:
            return
        begin, known = request.exclude
        for line, number in enumerate(ids[some.cpu()].tolist()):
            column = whole[torch.from_numpy(known[begin[number] : begin[number + 1]])]
            scores[line, column[column >= 0]] = -torch.inf


def _logsumexp(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Log of the sum of exp, by group. Shapes: [n], [n] -> [groups]."""
    top = torch.full((groups,), -torch.inf, device=values.device)
    top = top.scatter_reduce(0, group, values.detach(), "amax")
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    total = torch.zeros(groups, device=values.device).index_add(
        0, group, (values - top[group]).exp()
    )
    return total.clamp(min=1e-30).log() + top
