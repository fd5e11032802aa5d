"""Batches of seeds, in an order that depends on a seed alone, sampled ahead in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
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


def group_seeds(
    ticks: NDArray[np.int64], batch_size: int, times_per_batch: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """An order of the seeds in which neighbours share a time, but a batch has several times.

    The seeds of each time are shuffled and cut into runs of `batch_size / times_per_batch`; the
    runs are shuffled. With 1 time per batch sharing pays most; with as many as a batch has seeds,
    the order is that of a plain shuffle.

    Returns:
        A permutation of the seeds. Shape [seeds].
    """
    shuffled = rng.permutation(len(ticks))
    by_time = shuffled[np.argsort(ticks[shuffled], kind="stable")]
    sorted_ticks = ticks[by_time]
    length = max(1, batch_size // times_per_batch)
    _, first, count = np.unique(sorted_ticks, return_index=True, return_counts=True)
    within = np.arange(len(ticks)) - np.repeat(first, count)
    starts = np.flatnonzero(within % length == 0)
    rank = np.empty(len(starts), np.int64)
    rank[rng.permutation(len(starts))] = np.arange(len(starts))
    run = np.repeat(rank, np.diff(np.append(starts, len(ticks))))
    return by_time[np.argsort(run, kind="stable")]


@dataclass(frozen=True, eq=False)
class Loader:
    """Runs through seeds, a batch at a time.

    Iterating gives the batches in the order of the seeds with the same subgraphs every time, as
    evaluation needs it. Training calls `epoch`, which shuffles.

    What a batch holds depends on the sampler, the seeds, and the epoch; never on `workers`.

    Attributes:
        sampler: how the subgraphs are sampled.
        rows: rows of the seed table. Shape [seeds].
        times: their times: anything pandas reads as times. Shape [seeds].
        batch_size: seeds per batch.
        times_per_batch: about how many different times a shuffled batch has, where the sampler
            shares subgraphs; see `group_seeds`. More variety, less sharing.
        workers: threads that sample ahead; 0 samples when a batch is asked for.
        ahead: batches that are sampled and wait, at most.
        cutoffs: up to when each seed sees rows, where the database stops before its time.
        staleness: while training, each time sees a database that stops up to so many seconds
            before it: what evaluation on a database that has stopped will be like.
        prepare: what to make of a batch, in the same threads.
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
        return self._run(np.arange(len(self.times)), 0, 0, self.cutoffs)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch, shuffled; from batch `start` on, to resume inside it."""
        rng = np.random.default_rng([self.sampler.seed, number])
        if self.sampler.shares:
            order = group_seeds(self.times, self.batch_size, self.times_per_batch, rng)
        else:
            order = rng.permutation(len(self.times))
        return self._run(order, number, start, self._limits(rng))

    def part(self, batch: Batch, which: NDArray[np.int64], epoch: int = 0) -> Any:
        """Some seeds of a batch by themselves.

        What is sampled for a seed is the same as in the batch where subgraphs are separate. Where
        they are shared, the others may have brought a row nearer and so more of its children.

        Args:
            batch: a batch of this loader.
            which: positions of seeds in it.
            epoch: whose random choices.
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
        """Cut-offs while training: for each time one that is up to `staleness` earlier."""
        if not self.staleness:
            return None if self.cutoffs is None else np.asarray(self.cutoffs)
        moments, moment = np.unique(self.times, return_inverse=True)
        lag = self.staleness * PER_SECOND[self.sampler.graph.unit]
        limits = moments - (rng.random(len(moments)) * lag).astype(np.int64)
        limits = limits[moment]
        return limits if self.cutoffs is None else np.minimum(limits, self.cutoffs)

    def _run(
        self, order: NDArray[np.int64], epoch: int, start: int, limits: NDArray[np.int64] | None
    ) -> Iterator[Any]:
        def sample(number: int) -> Any:
            ids = order[number * self.batch_size : (number + 1) * self.batch_size]
            batch = self.sampler.sample_checked(
                rows[ids], self.times[ids], epoch, ids, None if limits is None else limits[ids]
            )
            return batch if self.prepare is None else self.prepare(batch)

        rows: NDArray[np.int64] = np.asarray(self.rows)
        numbers = iter(range(start, len(self)))
        if self.workers == 0:
            yield from map(sample, numbers)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="relfrog-sampler")
        waiting: deque[Future[Any]] = deque()
        try:
            waiting.extend(pool.submit(sample, number) for number in islice(numbers, self.ahead))
            while waiting:
                batch = waiting.popleft().result()
                waiting.extend(pool.submit(sample, number) for number in islice(numbers, 1))
                yield batch
        finally:
            # Reached by the end, an error, Ctrl-C, or a reader that stops early. A batch in the
            # making is finished, which takes milliseconds; the rest is dropped.
            pool.shutdown(wait=True, cancel_futures=True)
