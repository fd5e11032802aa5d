"""Iterate over batches of seeds, in a reproducible order, sampled ahead in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relfrog.errors import UsageError
from relfrog.graph.batch import Batch
from relfrog.graph.sampler import TemporalSampler
from relfrog.support.times import PER_SECOND

__all__ = ["Loader", "group_seeds"]

#: Pieces of a batch, as positions of seeds, from the times of its seeds.
Cut = Callable[[NDArray[np.int64]], Sequence[NDArray[np.int64]]]


def group_seeds(
    ticks: NDArray[np.int64], batch_size: int, times_per_batch: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffle seeds so that runs of them share a time, but a batch has several times.

    The seeds of each time are shuffled and cut into runs of `batch_size / times_per_batch`; then
    the runs are shuffled. With 1 time per batch, subgraphs are shared most; with as many times as a
    batch has seeds, this is a plain shuffle.

    Returns:
        A permutation of the seeds. Shape [seeds].
    """
    shuffled = rng.permutation(len(ticks))
    by_time = shuffled[np.argsort(ticks[shuffled], kind="stable")]
    sorted_ticks = ticks[by_time]
    length = max(1, batch_size // times_per_batch)
    first = np.flatnonzero(np.diff(sorted_ticks, prepend=sorted_ticks[:1] - 1))
    within = np.arange(len(ticks)) - np.repeat(first, np.diff(first, append=len(ticks)))
    starts = np.flatnonzero(within % length == 0)
    order = rng.permutation(len(starts))
    sizes = np.diff(starts, append=len(ticks))[order]
    ends = np.cumsum(sizes)
    # The places of the runs, one after another in their new order.
    places: NDArray[np.int64] = np.arange(len(ticks))
    places += np.repeat(starts[order] - (ends - sizes), sizes)
    return by_time[places]


@dataclass(frozen=True, eq=False)
class Loader:
    """Iterates over seeds in batches.

    Iteration gives batches in the order of the seeds, with the same subgraphs every time, for
    evaluation. Training calls `epoch`, which shuffles.

    A batch depends only on the sampler, the seeds and the epoch, never on `workers`.

    Attributes:
        sampler: samples the subgraphs.
        rows: rows of the seed table. Shape [seeds].
        times: their times, in any form that pandas converts to times. Shape [seeds].
        batch_size: seeds per batch.
        times_per_batch: about how many different times a shuffled batch has, if the sampler shares
            subgraphs; see `group_seeds`. More times mean more variety and less sharing.
        workers: threads that sample ahead; with 0, a batch is sampled when it is needed.
        ahead: number of batches to sample ahead.
        cutoffs: the last time that each seed sees, if the database ends before the seed's time.
        staleness: in training, the database ends up to this many seconds before each time, as it
            does in evaluation on a frozen database.
        prepare: applied to each batch, in the same threads.
    """

    sampler: TemporalSampler
    rows: ArrayLike
    times: Any
    batch_size: int = 512
    times_per_batch: int = 8
    workers: int = 2
    ahead: int = 4
    cutoffs: Any = None
    staleness: float = 0.0
    prepare: Callable[[Batch], Any] | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("batch_size", 1),
            ("times_per_batch", 1),
            ("workers", 0),
            ("ahead", 1),
        ):
            if getattr(self, name) < least:
                raise UsageError(
                    f"loader: {name} must be {least} or more (got {getattr(self, name)})."
                )
        rows, ticks = self.sampler.check(self.rows, self.times)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "times", ticks)
        if self.cutoffs is not None:
            limits = np.minimum(self.sampler.graph.ticks(self.cutoffs), ticks)
            object.__setattr__(self, "cutoffs", limits)

    def __len__(self) -> int:
        return -(-len(self.times) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self.batches(range(len(self)))

    def batches(self, numbers: Iterable[int]) -> Iterator[Any]:
        """Some of the batches that iteration gives."""
        return self._run(np.arange(len(self.times)), 0, numbers, self.cutoffs)

    def epoch(self, number: int, start: int = 0, cut: Cut | None = None) -> Iterator[Any]:
        """The shuffled batches of an epoch, from batch `start` on, to resume within it.

        Args:
            number: of the epoch.
            start: the first batch.
            cut: the pieces to sample, as positions in the batch, from the times of its seeds; each
                is sampled on its own, and a batch is the list of them. By default it is whole.
        """
        rng = np.random.default_rng([self.sampler.seed, number])
        if self.sampler.shares:
            order = group_seeds(self.times, self.batch_size, self.times_per_batch, rng)
        else:
            order = rng.permutation(len(self.times))
        return self._run(order, number, range(start, len(self)), self._limits(rng), cut)

    def part(self, batch: Batch, which: NDArray[np.int64], epoch: int = 0) -> Any:
        """Sample some seeds of a batch again, as a micro-batch.

        If subgraphs are separate, they are the same as in the batch. If they are shared, other
        seeds may have brought a row closer and so added more of its children.

        Args:
            batch: a batch of this loader.
            which: positions of seeds in it.
            epoch: the epoch of the batch.
        """
        ids = batch.seed_ids.cpu().numpy()[which]
        groups = batch.tables[batch.seed_table].group[batch.seeds].long().cpu().numpy()[which]
        lags = batch.group_lags.cpu().numpy() * PER_SECOND[self.sampler.graph.unit]
        limits = (batch.group_times.cpu().numpy() - np.rint(lags).astype(np.int64))[groups]
        times = np.asarray(self.times)[ids]
        sampled = self.sampler.sample_checked(
            np.asarray(self.rows)[ids], times, epoch, ids, limits if lags.any() else None
        )
        return sampled if self.prepare is None else self.prepare(sampled)

    def _limits(self, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """Cutoffs in training: for each time one that is up to `staleness` earlier."""
        if not self.staleness:
            return None if self.cutoffs is None else np.asarray(self.cutoffs)
        moments, moment = np.unique(self.times, return_inverse=True)
        lag = self.staleness * PER_SECOND[self.sampler.graph.unit]
        limits = moments - (rng.random(len(moments)) * lag).astype(np.int64)
        limits = limits[moment]
        return limits if self.cutoffs is None else np.minimum(limits, self.cutoffs)

    def _run(
        self,
        order: NDArray[np.int64],
        epoch: int,
        numbers: Iterable[int],
        limits: NDArray[np.int64] | None,
        cut: Cut | None = None,
    ) -> Iterator[Any]:
        def sample(ids: NDArray[np.int64]) -> Any:
            batch = self.sampler.sample_checked(
                rows[ids], self.times[ids], epoch, ids, None if limits is None else limits[ids]
            )
            return batch if self.prepare is None else self.prepare(batch)

        def make(number: int) -> Any:
            ids = order[number * self.batch_size : (number + 1) * self.batch_size]
            if cut is None:
                return sample(ids)
            return [sample(ids[piece]) for piece in cut(self.times[ids])]

        rows: NDArray[np.int64] = np.asarray(self.rows)
        numbers = iter(numbers)
        if self.workers == 0:
            yield from map(make, numbers)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="relfrog-sampler")
        waiting: deque[Future[Any]] = deque()
        try:
            waiting.extend(pool.submit(make, number) for number in islice(numbers, self.ahead))
            while waiting:
                batch = waiting.popleft().result()
                waiting.extend(pool.submit(make, number) for number in islice(numbers, 1))
                yield batch
        finally:
            # Reached at the end, after an error or Ctrl-C, or when the caller stops early. Batches
            # in progress are finished, which takes milliseconds; the rest is cancelled.
            pool.shutdown(wait=True, cancel_futures=True)
