"""The head for recommendation: scores of targets inside and outside the sampled subgraph.

It has two parts, each of which can be left out. *Sampled* (ID-GNN): targets in the seed's subgraph
are scored by their final embedding, which depends on the seed through the vector that marks it.
*Towers* (two-tower model): the dot product of the seed's embedding and a target vector made from
the target's columns and popularity; it also scores targets that no path leads to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from relfrog.features.columns import Features, TableColumns
from relfrog.graph.popularity import ListRequest, Popularity
from relfrog.nn.batch_plan import Plan
from relfrog.nn.encoders import RowEncoder
from relfrog.nn.heads import Head, Targets
from relfrog.nn.ranking import LabelLists, Pool, RankingOutput, draw_rows, logsumexp
from relfrog.nn.top_scores import Best, Cells
from relfrog.support.lists import Lists, flatten
from relfrog.support.times import PER_SECOND

__all__ = ["RankingHead"]


class RankingHead(Head):
    """Scores targets; the prediction is the top k.

    Args:
        channels: size of embeddings.
        about: k, and which parts to use.
        columns: columns of the target table.
        target: name of the target table.
        popularity: popularity of its rows.
        dropout: dropout probability in the hidden layers.
        bins: bins of the piecewise linear encoding of numbers.
        column_dropout: probability of hiding a column of the targets in training.
    """

    kind: ClassVar[str] = "recommendation"
    #: Negative samples per training step; all targets if there are no more.
    NEGATIVES = 1024
    #: The most targets that a prediction scores: the most popular, and all sampled ones.
    MAX_TARGETS = 1_000_000
    #: Scores computed at once: few enough to stay in the processor's cache until they are ranked.
    CHUNK_SCORES = 1 << 21
    #: Memory for the vectors of targets at several times.
    POOL_BYTES = 512 * 2**20

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
        self._pools: OrderedDict[tuple[int, int], Pool] | None = None
        if self.parts != "sampled":
            self.columns_of_target = RowEncoder(columns, channels, 1, bins, column_dropout)
            # Encodes the popularity counts; the name is part of saved weights.
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
    def describe(cls, labels: Any) -> dict[str, Any]:
        """The mean length of the lists of labels."""
        return {"mean_length": float(flatten(labels)[0].mean())}

    @classmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> RankingHead:
        """Create a head for a table of targets."""
        assert targets is not None
        return cls(
            channels, about, targets.columns, targets.table, targets.popularity, dropout=dropout,
            bins=targets.bins, column_dropout=targets.column_dropout,
        )  # fmt: skip

    def targets(self, labels: Any) -> Any:
        """Convert lists of labels to `LabelLists`."""
        lists = Lists.of(labels)
        return LabelLists(
            torch.from_numpy(lists.values.astype(np.int64)), torch.from_numpy(lists.begin)
        )

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy over the sampled targets only, as in the paper."""
        return functional.binary_cross_entropy_with_logits(out, target)

    def predict(self, out: Tensor) -> Tensor:
        """The scores, unchanged."""
        return out

    # A batch.

    def read(self, h: Mapping[str, Tensor], plan: Plan) -> RankingOutput:
        """Scores of the sampled targets, and embeddings of the seeds."""
        batch = plan.batch
        seeds = h[batch.seed_table].index_select(0, batch.seeds)
        rows = batch.tables[self.target]
        # A seed whose own row is not visible yet cannot be a target.
        there = torch.ones(len(rows), dtype=torch.bool, device=seeds.device)
        if self.target == batch.seed_table:
            there[batch.seeds[batch.hidden()]] = False
        at = there.nonzero().squeeze(1)
        # Subgraphs are separate, so the group is the seed.
        sampled = self(h[self.target].index_select(0, at)).squeeze(1)
        return RankingOutput(seeds, sampled, rows.group[at].long(), rows.rows[rows.index[at]])

    def batch_loss(
        self, output: RankingOutput, plan: Plan, targets: Any, features: Mapping[str, Features]
    ) -> Tensor:
        """The mean ranking loss of a batch. Shape []."""
        ids = plan.batch.seed_ids.to(output.seeds.device)
        owner, wanted = targets.of(ids)
        rows = self.popularity.graph.num_rows[self.target]
        right = torch.isin(output.seed * rows + output.row, owner * rows + wanted)
        if self.parts == "sampled":
            if not len(right):
                return output.seeds.sum() * 0.0
            return self.loss(output.sampled, right.float())
        return self._softmax(output, plan, owner, wanted, right, features)

    def loss_count(self, plan: Plan, targets: Any) -> int:
        """The number of sampled targets or, of the softmax, of seeds with a label that exists."""
        if self.parts == "sampled":
            batch = plan.batch
            hidden = int(batch.hidden().sum()) if self.target == batch.seed_table else 0
            return len(batch.tables[self.target]) - hidden
        owner, wanted = targets.of(plan.batch.seed_ids.to(targets.rows.device))
        ticks, moment = self._ticks(plan)
        exists = self._exist(ticks, moment.to(owner.device)[owner], wanted)
        return len(owner.cpu()[exists].unique())

    def _softmax(
        self,
        output: RankingOutput,
        plan: Plan,
        owner: Tensor,
        wanted: Tensor,
        right: Tensor,
        features: Mapping[str, Features],
    ) -> Tensor:
        """Sampled softmax cross-entropy over all targets.

        Targets outside the subgraph are represented by negative samples: each of m samples of n
        targets has the weight n / m.
        """
        device, count = output.seeds.device, len(output.seeds)
        rows = self.popularity.graph.num_rows[self.target]
        m = min(rows, self.NEGATIVES)
        drawn = draw_rows(rows, m)
        ticks, moment = self._ticks(plan)
        visible = torch.stack([self._visible(drawn, tick) for tick in ticks]).to(device)
        counts = [self.popularity.counts(drawn.numpy(), tick).to(device) for tick in ticks]
        drawn = drawn.to(device)
        # Target vectors depend on time: negatives are needed at every time, others at one each.
        pairs_seed = torch.cat([output.seed, owner])
        pairs_row = torch.cat([output.row, wanted])
        needed, place = torch.cat([drawn, pairs_row]).unique(return_inverse=True)
        content = self.columns_of_target(features[self.target], needed)
        seeds = self.seed_tower(output.seeds)
        vectors, bias = self._vectors(
            content.index_select(0, place[m:]),
            self._counts(ticks, moment[pairs_seed], pairs_row).to(device),
        )
        score = (seeds.index_select(0, pairs_seed) * vectors).sum(1) + bias
        number = len(output.seed)
        sampled = score[:number]
        if self.parts == "both":
            sampled = sampled + output.sampled
        # Labels in the subgraph have a sampled score, the others only that of the towers.
        met = torch.isin(owner * rows + wanted, output.seed * rows + output.row)
        unmet = ~met & self._exist(ticks, moment[owner], wanted).to(device)
        others = torch.full((count, m), -torch.inf, device=device)
        share = float(np.log(rows / m)) if m else 0.0
        for which in range(len(ticks)):
            at = (moment == which).nonzero().squeeze(1)
            vectors, bias = self._vectors(content.index_select(0, place[:m]), counts[which])
            found = seeds.index_select(0, at) @ vectors.T + bias + share
            others[at] = found.masked_fill(~visible[which], -torch.inf)
        others = self._without(others, drawn, output, owner, wanted)
        labels = torch.cat([sampled[right], score[number:][unmet]])
        label_owner = torch.cat([output.seed[right], owner[unmet]])
        if not len(labels):
            return output.seeds.sum() * 0.0
        everything = torch.cat([sampled, score[number:][unmet], others.flatten()])
        whose = torch.cat(
            [output.seed, owner[unmet], torch.arange(count, device=device).repeat_interleave(m)]
        )
        total = logsumexp(everything, whose, count)
        each = total[label_owner] - labels
        share_of = torch.bincount(label_owner, minlength=count).float()
        return (each / share_of[label_owner]).sum() / (share_of > 0).sum()

    @staticmethod
    def _without(
        others: Tensor, drawn: Tensor, output: RankingOutput, owner: Tensor, wanted: Tensor
    ) -> Tensor:
        """Mask negative samples that are labels or in the subgraph, and so counted already."""
        known, order = drawn.sort()
        seed, row = torch.cat([output.seed, owner]), torch.cat([output.row, wanted])
        at = torch.searchsorted(known, row).clamp(max=max(len(known) - 1, 0))
        drawn_too = known[at] == row
        taken = torch.zeros_like(others, dtype=torch.bool)
        taken[seed[drawn_too], order[at[drawn_too]]] = True
        return others.masked_fill(taken, -torch.inf)

    def _ticks(self, plan: Plan) -> tuple[list[int], Tensor]:
        """The distinct cut-offs of the batch, and the index of each seed's cut-off."""
        batch = plan.batch
        per_second = PER_SECOND[self.popularity.graph.unit]
        lags = (batch.group_lags.cpu() * float(per_second)).round().to(torch.int64)
        limits = batch.group_times.cpu() - lags
        ticks, moment = limits.unique(return_inverse=True)
        return ticks.tolist(), moment.to(batch.seeds.device)

    def _visible(self, rows: Tensor, tick: int) -> Tensor:
        return torch.from_numpy(self.popularity.visible(rows.numpy(), tick))

    def _exist(self, ticks: list[int], moment: Tensor, rows: Tensor) -> Tensor:
        """Which rows exist, each at a time of its own. Shape [n]."""
        where, chosen = moment.cpu(), rows.cpu()
        found = torch.zeros(len(chosen), dtype=torch.bool)
        for number, tick in enumerate(ticks):
            at = (where == number).nonzero().squeeze(1)
            found[at] = self._visible(chosen[at], tick)
        return found

    def _counts(self, ticks: list[int], moment: Tensor, rows: Tensor) -> Tensor:
        times = torch.tensor(ticks, dtype=torch.int64)[moment.cpu()]
        return self.popularity.counts(rows.cpu().numpy(), times.numpy())

    def _vectors(self, content: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors and biases of targets. Shapes: [n, c], [n, parts] -> [n, c], [n]."""
        both = self.target_tower(content + self.standing(counts.float()))
        return both[:, :-1] / both.shape[1] ** 0.5, both[:, -1]

    # Predictions.

    def batch_predict(
        self,
        output: RankingOutput,
        plan: Plan,
        features: Mapping[str, Features],
        request: ListRequest | None = None,
    ) -> Tensor:
        """The top k targets and their scores; -1 pads short lists. Shape [seeds, k, 2]."""
        request = request or ListRequest(self.k)
        ticks, moment = self._ticks(plan)
        found = torch.full((len(output.seeds), request.k, 2), -1.0, dtype=torch.float64)
        found[:, :, 1] = -torch.inf
        ids = plan.batch.seed_ids.cpu()
        for number, tick in enumerate(ticks):
            pool = self._pool(tick, request, output, features)
            if not len(pool.rows):
                continue
            mine = (moment == number).nonzero().squeeze(1)
            values, columns = self._best(mine, output, pool, ids, request)
            rows = torch.where(columns >= 0, pool.rows[columns.clamp(min=0)], -1)
            found[mine.cpu()] = torch.stack([rows.double(), values.double()], 2)
        return found

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Keep the vectors of targets from one batch to the next while weights do not change."""
        self._pools = OrderedDict()
        try:
            yield
        finally:
            self._pools = None

    def _pool(
        self,
        tick: int,
        request: ListRequest,
        output: RankingOutput,
        features: Mapping[str, Features],
    ) -> Pool:
        """The candidate targets at a time: the most popular, and all in the subgraphs."""
        pool = None if self._pools is None else self._pools.get((tick, id(request.allowed)))
        if pool is None:
            order = self.popularity.at(tick).order
            if request.allowed is not None:
                order = order[torch.from_numpy(request.allowed)[order]]
            place = torch.full((self.popularity.graph.num_rows[self.target],), -1)
            place[order] = torch.arange(len(order))
            rows = order[: self.MAX_TARGETS]
            pool = Pool(rows, place, *self._encoded(rows, tick, output, features))
            if self._pools is not None:
                self._pools[tick, id(request.allowed)] = pool
                while len(self._pools) > max(1, self.POOL_BYTES // max(pool.nbytes, 1)):
                    self._pools.popitem(last=False)
        near = pool.place[output.row.cpu().unique()]
        near = near[near >= len(pool.rows)].sort().values
        if not len(near):
            return pool
        # Less popular ones are added to the end, in the order of popularity.
        order = self.popularity.at(tick).order
        if request.allowed is not None:
            order = order[torch.from_numpy(request.allowed)[order]]
        more = order[near]
        place = pool.place.clone()
        place[more] = len(pool.rows) + torch.arange(len(more))
        parts = self._encoded(more, tick, output, features)
        joined = (
            None if old is None or new is None else torch.cat([old, new])
            for old, new in zip((pool.vectors, pool.bias), parts, strict=True)
        )
        return Pool(torch.cat([pool.rows, more]), place, *joined)

    def _encoded(
        self, rows: Tensor, tick: int, output: RankingOutput, features: Mapping[str, Features]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Vectors and biases of targets at a time."""
        if self.parts == "sampled":
            return None, None
        device = output.seeds.device
        parts = []
        for some in rows.split(65_536):
            content = self.columns_of_target(features[self.target], some.to(device))
            counts = self.popularity.counts(some.numpy(), tick).to(device)
            vectors, bias = self._vectors(content, counts)
            parts.append(torch.cat([vectors, bias.unsqueeze(1)], 1))
        both = torch.cat(parts) if parts else output.seeds.new_zeros(0, output.seeds.shape[1] + 1)
        return both[:, :-1].contiguous(), both[:, -1].contiguous()

    def _best(
        self, some: Tensor, output: RankingOutput, pool: Pool, ids: Tensor, request: ListRequest
    ) -> tuple[Tensor, Tensor]:
        """The best scores of some seeds and their places in the pool. Shapes [seeds, k] each."""
        towers = None
        if pool.vectors is not None:
            towers = self.seed_tower(output.seeds.index_select(0, some))
        sampled = self._sampled(some, output, pool)
        hidden = self._hidden(some, ids, pool, request)
        best = Best(len(some), request.k)
        width = max(1, self.CHUNK_SCORES // len(some))
        for first in range(0, len(pool.rows), width):
            last = min(first + width, len(pool.rows))
            if towers is None or pool.vectors is None or pool.bias is None:
                # Targets outside the subgraph rank below all sampled ones, by popularity.
                after = -1e6 - torch.arange(first, last, dtype=torch.float32)
                scores = after.expand(len(some), -1).clone()
            else:
                vectors, bias = pool.vectors[first:last], pool.bias[first:last]
                scores = torch.addmm(bias, towers, vectors.T).cpu()
            line, column, own = sampled.within(first, last)
            if towers is None:
                scores[line, column] = own
            else:
                scores[line, column] += own
            line, column, _ = hidden.within(first, last)
            scores[line, column] = -torch.inf
            best.add(scores, first)
        return best.values, best.columns

    def _sampled(self, some: Tensor, output: RankingOutput, pool: Pool) -> Cells:
        """Scores of the targets in the subgraphs of some seeds."""
        if self.parts == "towers":
            return Cells.none()
        line = torch.full((len(output.seeds),), -1)
        line[some.cpu()] = torch.arange(len(some))
        at, column = line[output.seed.cpu()], pool.place[output.row.cpu()]
        use = (at >= 0) & (column >= 0)
        return Cells.sorted(at[use], column[use], output.sampled.cpu()[use].float())

    @staticmethod
    def _hidden(some: Tensor, ids: Tensor, pool: Pool, request: ListRequest) -> Cells:
        """Targets that must not be in the lists of some seeds."""
        wanted = request.take(ids[some.cpu()].numpy()).exclude
        if wanted is None:
            return Cells.none()
        begin, targets = wanted
        line = torch.from_numpy(np.repeat(np.arange(len(some)), np.diff(begin)))
        column = pool.place[torch.from_numpy(targets)]
        use = (column >= 0) & (column < len(pool.rows))
        return Cells.sorted(line[use], column[use], torch.zeros(int(use.sum())))
