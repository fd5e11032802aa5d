"""What the sampler returns: the sampled rows of every table, and pointers between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Matches, Route

__all__ = ["Batch", "Rows"]


@dataclass(frozen=True)
class Rows:
    """The sampled rows of one table.

    A row that several subgraphs share is one distinct row with several occurrences: encode
    `rows` once, then gather with `index`. Occurrences are ordered by hop, so that the rows
    within h hops are the first `within(h)`.

    Attributes:
        rows: the distinct rows, numbered as in the database. int64, shape [distinct].
        index: which distinct row an occurrence is. int64, shape [occurrences].
        group: which subgraph it belongs to. int32, shape [occurrences].
        hop: steps from the nearest seed. int8, shape [occurrences].
        age: seconds from the row's time to the cut-off of its subgraph, which is the seed's time
            unless the database stops before; NaN where the row has none; None for a table without
            a time column. Less than 0 for nothing but a seed that is not visible itself: it was
            asked about, but its contents must not be read; see `Batch.hidden`. float64, shape
            [occurrences].
        per_hop: occurrences at each hop; the last two entries are the last sampled hop and the
            parents brought along by it.
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
        """How many occurrences lie within so many hops of a seed."""
        return sum(self.per_hop[: hops + 1])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Rows:
        """The same on another device."""
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
    """Subgraphs around some seeds.

    With L fan-outs, rows within L hops are sampled, and rows at hop L + 1 are parents brought
    along. For every occurrence within L - 1 hops, or more if the sampler is told so, all visible
    parents and grandparents are here, and all visible parents of each of its children that are
    here: what a layer computes for it misses nothing of the rows it rests on.

    Attributes:
        tables: the sampled rows per table, every table of the graph.
        parents: per foreign key, for each occurrence of the child table, the position of its
            parent among the occurrences of the parent table, -1 if there is none or it is later
            than the seed; a seed that is itself not visible is pointed to all the same, see
            `hidden`. int64, shape [occurrences of the child table].
        routes: the routes that `matches` is asked for.
        seed_table: the table of the seeds.
        seeds: position of each seed among the occurrences of the seed table, in the order in
            which the seeds were given. int64, shape [seeds].
        seed_ids: number of each seed in the list that a loader runs through, to look up its
            label. int64, shape [seeds].
        group_times: time of the seeds of each subgraph in the unit of the graph. int64, shape
            [groups].
        group_lags: seconds from its cut-off to its time; more than 0 where the database stops
            before the seeds do. float64, shape [groups].
    """

    tables: Mapping[str, Rows]
    parents: Mapping[ForeignKey, Tensor]
    routes: tuple[Route, ...]
    seed_table: str
    seeds: Tensor
    seed_ids: Tensor
    group_times: Tensor
    group_lags: Tensor

    def __len__(self) -> int:
        return len(self.seeds)

    def hidden(self) -> Tensor:
        """Which seeds are not visible themselves at their cut-off. bool, shape [seeds]."""
        rows = self.tables[self.seed_table]
        if rows.age is None:
            return torch.zeros_like(self.seeds, dtype=torch.bool)
        return rows.age[self.seeds] < 0  # NaN, no time of its own: visible

    def matches(self, route: Route) -> Matches:
        """Every match of a route among the sampled rows, none twice.

        Returns:
            Positions among the occurrences of the three tables. int64, shape [matches] each.
        """
        return route.match(self.parents)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same on another device."""
        return replace(
            self,
            tables={name: rows.to(device, non_blocking) for name, rows in self.tables.items()},
            parents={
                key: pointers.to(device, non_blocking=non_blocking)
                for key, pointers in self.parents.items()
            },
            **{
                name: getattr(self, name).to(device, non_blocking=non_blocking)
                for name in ("seeds", "seed_ids", "group_times", "group_lags")
            },
        )
