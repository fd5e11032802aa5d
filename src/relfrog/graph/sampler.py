"""The temporal sampler: seeds in, batches out, and no row later than its seed.

A seed is a row and a time. The sampler walks from it along the foreign keys, hop by hop, to rows
that existed at that time, and returns them as a `Batch`.

The children drawn for a row depend only on the random seed, the epoch, the seed's time, the row and
the number of its visible children: not on the number of workers, and not on later rows. So
evaluation always sees the same subgraphs, and changing the future changes no batch. Other seeds
matter only in a shared subgraph, where one may bring a row closer and so add more of its children,
unless the past is unrolled.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relfrog.errors import TaskError, UsageError
from relfrog.graph import _kernels
from relfrog.graph._kernels import walk
from relfrog.graph.batch import Batch, SampledRows
from relfrog.graph.relational import ForeignKey, RelationalGraph
from relfrog.graph.routes import Route, find_routes
from relfrog.support.times import MISSING, PER_SECOND

__all__ = ["Mode", "Strategy", "TemporalSampler", "halving"]


class Strategy(str, Enum):
    """Which children to take if there are more than the fan-out.

    Sixteen latest rows may be one shopping basket. To EVENTS, rows with the same parent and time
    are one event: the latest row of each of the latest events is taken, then their second rows,
    until there are enough. Where times differ, or there are none, that is the same as LAST.
    """

    UNIFORM = "uniform"
    LAST = "last"
    EVENTS = "events"


#: By the numbers that kernels know them by.
STRATEGIES = (Strategy.UNIFORM, Strategy.LAST, Strategy.EVENTS)


class Mode(str, Enum):
    """Whether seeds with the same time share a subgraph or have one each."""

    SHARED = "shared"
    SEPARATE = "separate"


def halving(neighbors: int, hops: int) -> tuple[int, ...]:
    """Fan-outs that halve: `neighbors / 2**i` at hop i, at least 1; -1 for all neighbors.

    >>> halving(128, 3)
    (128, 64, 32)
    """
    if neighbors < -1 or hops < 0:
        raise UsageError(
            f"fan-outs: neighbors must be -1 or more and hops 0 or more "
            f"(got {neighbors} and {hops})."
        )
    return tuple(max(neighbors >> i, 1) if neighbors > 0 else neighbors for i in range(hops))


@lru_cache(maxsize=16)
def _stream(seed: int, epoch: int) -> np.uint64:
    """The key of an epoch's random choices."""
    return np.uint64(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True, eq=False)
class TemporalSampler:
    """Samples subgraphs of the past of seeds.

    Attributes:
        graph: the graph to sample from.
        table: the table of the seeds.
        fanouts: children per row and foreign key at each hop; -1 for all, 0 for none. Parents
            are always followed. See `halving`.
        mode: "shared" (seeds with the same time share a subgraph) or "separate".
        strategy: "uniform" (without replacement), "last" (the latest children) or "events" (the
            latest, spread over as many times as there is room for). See `Strategy`.
        seed: random seed.
        routes: the routes of the model, kept in the batches; by default those of the paper.
        whole: number of hops within which a batch holds everything that a row's matches depend on,
            see `Batch`: as many as the layers compute. At least, and by default, one less than the
            number of fan-outs.
        unrolled: whether a row occurs at every hop at which it is reached. If not, it occurs once,
            has the children of the hop at which it was reached first, and receives from all of
            them that are there, whoever brought them: the seed itself or, in a shared subgraph,
            another one. Unrolled, it has the children that it takes at each hop, and is the same
            for every seed of a time.
    """

    graph: RelationalGraph
    table: str
    fanouts: Sequence[int] = halving(128, 2)
    mode: Mode | str = Mode.SHARED
    strategy: Strategy | str = Strategy.UNIFORM
    seed: int = 0
    routes: tuple[Route, ...] | None = None
    whole: int = 0
    unrolled: bool = False

    def __post_init__(self) -> None:
        if self.table not in self.graph.num_rows:
            known = ", ".join(self.graph.num_rows)
            raise UsageError(f"sampler: there is no table {self.table!r}. The graph has {known}.")
        if any(fanout < -1 for fanout in self.fanouts) or len(self.fanouts) > 100:
            raise UsageError(f"sampler: fan-outs must be -1 or more (got {list(self.fanouts)}).")
        object.__setattr__(self, "mode", Mode(self.mode))
        fanouts = [int(fanout) for fanout in self.fanouts]
        if self.unrolled:  # parents and grandparents of the farthest rows are hops of their own
            fanouts += [0] * (self.whole + 1 - len(fanouts))
        object.__setattr__(self, "fanouts", tuple(fanouts))
        hops = len(self.fanouts)
        object.__setattr__(self, "whole", min(max(self.whole, hops - 1), hops + 1))
        object.__setattr__(self, "strategy", Strategy(self.strategy))
        if self.routes is None:
            object.__setattr__(self, "routes", find_routes(self.graph.foreign_keys))

    @property
    def shares(self) -> bool:
        """Whether seeds with the same time share a subgraph."""
        return self.mode is Mode.SHARED

    @cached_property
    def _adjacent(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Foreign keys from and to each table, padded with -1. Shape [tables, longest] each."""
        sides = []
        for side in (0, 1):
            lists: list[list[int]] = [[] for _ in self.graph.num_rows]
            for number, key in enumerate(self.graph.keys):
                lists[key[side]].append(number)
            most = max([1, *map(len, lists)])
            padded = np.full((len(lists), most), -1, np.int64)
            for table, numbers in enumerate(lists):
                padded[table, : len(numbers)] = numbers
            sides.append(padded)
        return sides[0], sides[1]

    @cached_property
    def _timed(self) -> dict[str, bool]:
        """Whether each table has times."""
        timed = self.graph.tables[:, _kernels.TIMES] >= 0
        return dict(zip(self.graph.num_rows, timed.tolist(), strict=True))

    @cached_property
    def _scratch(self) -> threading.local:
        """Buffers of each thread, reused between batches: fresh pages cost more than the walk."""
        return threading.local()

    def _cutoffs(self, moments: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of visible rows per time and table, -1 where rows are not sorted by time."""
        return _kernels.count_visible(self.graph.tables, self.graph.times, moments)

    def check(self, rows: ArrayLike, times: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Convert seeds to row numbers and ticks.

        Raises:
            TaskError: a seed has no row or no time.
        """
        chosen, ticks = np.asarray(rows), self.graph.ticks(times)
        count = self.graph.num_rows[self.table]
        if chosen.shape != ticks.shape or chosen.ndim != 1:
            raise TaskError(
                f"seeds: rows of shape {chosen.shape}, but times of shape {ticks.shape}."
            )
        if chosen.size and not np.issubdtype(chosen.dtype, np.integer):
            raise TaskError(f"seeds: rows of {self.table!r} must be integers (got {chosen.dtype}).")
        chosen = chosen.astype(np.int64)
        outside = (chosen < 0) | (chosen >= count)
        if outside.any():
            raise TaskError(
                f"seeds: {outside.sum():,} of {len(chosen):,} rows are not in {self.table!r} "
                f"({count:,} rows): {chosen[outside][0]}, for example. Drop them."
            )
        if (ticks == MISSING).any():
            raise TaskError(f"seeds: {(ticks == MISSING).sum():,} have no time. Drop them.")
        # Writable copies, so that each kernel has one signature.
        return chosen, ticks.copy()

    def sample(
        self,
        rows: ArrayLike,
        times: Any,
        epoch: int = 0,
        seed_ids: ArrayLike | None = None,
        cutoffs: Any = None,
    ) -> Batch:
        """Sample the subgraphs around seeds.

        Args:
            rows: rows of the seed table. Shape [seeds].
            times: their times, in any form that pandas converts to times. Shape [seeds].
            epoch: each epoch has its own random choices.
            seed_ids: stored in the batch; by default 0, 1, 2, ...
            cutoffs: the last time that each seed sees, if earlier than its own. Shape [seeds].

        Raises:
            TaskError: see `check`.
        """
        chosen, ticks = self.check(rows, times)
        ids = np.arange(len(chosen)) if seed_ids is None else np.asarray(seed_ids, np.int64)
        limits = None if cutoffs is None else np.minimum(self.graph.ticks(cutoffs), ticks)
        return self.sample_checked(chosen, ticks, epoch, ids, limits)

    def sample_checked(
        self,
        rows: NDArray[np.int64],
        ticks: NDArray[np.int64],
        epoch: int,
        seed_ids: NDArray[np.int64],
        limits: NDArray[np.int64] | None = None,
    ) -> Batch:
        """`sample` for seeds from `check`."""
        moments, moment = np.unique(ticks if limits is None else limits, return_inverse=True)
        if not self.shares:
            order, groups, group_moments = None, np.arange(len(rows)), moment
            group_times = ticks
        elif limits is None:
            order = np.argsort(moment, kind="stable")
            rows, groups, group_moments = rows[order], moment[order], np.arange(len(moments))
            group_times = moments
        else:
            # Seeds of different times have different ages and lags, even with the same cutoff.
            order = np.lexsort((ticks, moment))
            first = np.ones(len(order), bool)
            first[1:] = (np.diff(ticks[order]) != 0) | (np.diff(moment[order]) != 0)
            rows, groups = rows[order], np.cumsum(first) - 1
            group_moments, group_times = moment[order][first], ticks[order][first]
        ends = moments[group_moments]
        lags = (group_times - ends) / float(PER_SECOND[self.graph.unit])
        graph = self.graph
        outgoing, incoming = self._adjacent
        stream = _stream(self.seed, epoch)
        # Removed while in use; empty arrays at the first call of each thread.
        memory = self._scratch.__dict__.pop("memory", None) or [
            np.empty((0, 4), np.int32),
            np.empty((0, outgoing.shape[1]), np.int32),
            np.empty(0, np.int64),
            np.empty((0, 4), np.int64),
            np.empty(0, np.int32),
            np.empty((0, outgoing.shape[1]), np.int32),
        ]
        *memory, levels, found = walk(
            graph.tables, graph.keys, graph.parents, graph.children, graph.blocks, graph.times,
            outgoing, incoming, graph.table_number[self.table], rows, groups, moments,
            self._cutoffs(moments), group_moments, np.array(self.fanouts, np.int64),
            self.whole, STRATEGIES.index(self.strategy), stream, int(self.unrolled), *memory,
        )  # fmt: skip
        arrays = _kernels.split_by_table(
            memory[0], memory[1], memory[2], levels, found, ends, graph.tables,
            float(PER_SECOND[graph.unit]), outgoing, len(graph.foreign_keys), memory[5],
            int(self.unrolled),
        )  # fmt: skip
        self._scratch.memory = memory
        return self._batch(arrays, group_times, lags, order, seed_ids)

    def _batch(
        self,
        arrays: tuple[NDArray[Any], ...],
        group_times: NDArray[np.int64],
        lags: NDArray[np.float64],
        order: NDArray[np.int64] | None,
        seed_ids: NDArray[np.int64],
    ) -> Batch:
        counts, distinct = arrays[0].tolist(), arrays[1].tolist()
        rows, index, group, age, hop, pointers, seeds, senders = arrays[2:]
        # Sliced by NumPy, which is faster than PyTorch for many small parts.
        tensor = torch.from_numpy
        tables: dict[str, SampledRows] = {}
        sizes = []
        at = 0
        for number, (name, timed) in enumerate(self._timed.items()):
            per_hop = tuple(counts[number])
            sizes.append(sum(per_hop))
            end = at + sizes[-1]
            tables[name] = SampledRows(
                rows=tensor(rows[at : at + distinct[number]]),
                index=tensor(index[at:end]),
                group=tensor(group[at:end]),
                hop=tensor(hop[at:end]),
                age=tensor(age[at:end]) if timed else None,
                per_hop=per_hop,
            )
            at = end
        parents: dict[ForeignKey, Tensor] = {}
        brought: dict[ForeignKey, Tensor] = {}
        at = 0
        for key, number in zip(
            self.graph.foreign_keys, self.graph.keys[:, _kernels.CHILD].tolist(), strict=True
        ):
            parents[key] = tensor(pointers[at : at + sizes[number]])
            if self.unrolled:
                brought[key] = tensor(senders[at : at + sizes[number]])
            at += sizes[number]
        if order is not None:
            seeds[order] = seeds.copy()
        return Batch(
            tables, parents, self.routes or (), self.table, tensor(seeds),
            tensor(seed_ids), tensor(group_times), tensor(lags),
            brought if self.unrolled else None,
        )  # fmt: skip
