"""A batch: the sampled rows of every table, and the pointers between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Matches, Route

__all__ = ["Batch", "SampledRows"]


@dataclass(frozen=True)
class SampledRows:
    """The sampled rows of one table.

    A row in several subgraphs is one distinct row with several occurrences: encode `rows` once,
    then gather with `index`. Occurrences are ordered by hop, so those within h hops are the first
    `within(h)`.

    Attributes:
        rows: the distinct rows, numbered as in the database. int64, shape [distinct].
        index: the distinct row of each occurrence. int64, shape [occurrences].
        group: the subgraph of each occurrence. int32, shape [occurrences].
        hop: distance from the nearest seed. int8, shape [occurrences].
        age: seconds from the row's time to the cutoff of its subgraph, which is the seed's time
            unless the database ends earlier; NaN for a row without a time; None for a table
            without a time column. Negative only for a seed that is not visible yet, whose contents
            must not be read; see `Batch.hidden`. float64, shape [occurrences].
        per_hop: number of occurrences at each hop; the last two entries are the last sampled hop
            and the parents added after it.
    """

    rows: Tensor
    index: Tensor
    group: Tensor
    hop: Tensor
    age: Tensor | None
    per_hop: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.index)

    def within(self, hops: int) -> int:
        """Number of occurrences within this many hops of a seed."""
        return sum(self.per_hop[: hops + 1])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> SampledRows:
        """Copy to a device."""
        return replace(
            self,
            rows=self.rows.to(device, non_blocking=non_blocking),
            index=self.index.to(device, non_blocking=non_blocking),
            group=self.group.to(device, non_blocking=non_blocking),
            hop=self.hop.to(device, non_blocking=non_blocking),
            age=None if self.age is None else self.age.to(device, non_blocking=non_blocking),
        )


@dataclass(frozen=True)
class Batch:
    """Subgraphs around seeds.

    With L fan-outs, rows within L hops are sampled, and rows at hop L + 1 are added parents. For
    every occurrence within L - 1 hops, or more if the sampler's `whole` says so, the batch holds
    all visible parents and grandparents, and all visible parents of each of its sampled children:
    a layer that computes it finds every row it depends on.

    Attributes:
        tables: the sampled rows of every table of the graph.
        parents: for each foreign key, the position of each child occurrence's parent among the
            occurrences of the parent table; -1 if there is none or it is later than the seed. A
            seed that is not visible itself is still pointed to, see `hidden`. int64, shape
            [occurrences of the child table].
        routes: the routes of the model.
        seed_table: the table of the seeds.
        seeds: position of each seed among the occurrences of the seed table, in the order given.
            int64, shape [seeds].
        seed_ids: index of each seed in the loader's list, to look up its label. int64, shape
            [seeds].
        group_times: the seeds' time of each subgraph, in the unit of the graph. int64, shape
            [groups].
        group_lags: seconds from the cutoff of each subgraph to its time; positive if the database
            ends before the seeds' time. float64, shape [groups].
        brought: of an unrolled past, where a row occurs at every hop at which it is reached: the
            position of the parent that brought each child occurrence, which is one hop closer to
            the seed, while `parents` are one hop further out. Otherwise None.
    """

    tables: Mapping[str, SampledRows]
    parents: Mapping[ForeignKey, Tensor]
    routes: tuple[Route, ...]
    seed_table: str
    seeds: Tensor
    seed_ids: Tensor
    group_times: Tensor
    group_lags: Tensor
    brought: Mapping[ForeignKey, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.seeds)

    def hidden(self) -> Tensor:
        """Which seeds are not visible at their own cutoff. bool, shape [seeds]."""
        rows = self.tables[self.seed_table]
        if rows.age is None:
            return torch.zeros_like(self.seeds, dtype=torch.bool)
        return rows.age[self.seeds] < 0  # NaN, a row without a time, is visible

    def matches(self, route: Route) -> Matches:
        """All matches of a route among the sampled rows, each once.

        Returns:
            Positions among the occurrences of the three tables. int64, shape [matches] each.
        """
        if self.brought is None:
            return route.match(self.parents)
        return route.match_directed(self.brought, self.parents)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Copy to a device."""
        return replace(
            self,
            tables={name: rows.to(device, non_blocking) for name, rows in self.tables.items()},
            parents={
                key: pointers.to(device, non_blocking=non_blocking)
                for key, pointers in self.parents.items()
            },
            brought=None
            if self.brought is None
            else {
                key: pointers.to(device, non_blocking=non_blocking)
                for key, pointers in self.brought.items()
            },
            **{
                name: getattr(self, name).to(device, non_blocking=non_blocking)
                for name in ("seeds", "seed_ids", "group_times", "group_lags")
            },
        )
