"""Which targets of a recommendation exist at a time, and how often rows referred to them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relfrog.graph.references import children_at, count_references
from relfrog.graph.relational import ForeignKey, RelationalGraph
from relfrog.support.times import MISSING, PER_SECOND

__all__ = ["ListRequest", "Popularity", "Snapshot", "joined_before"]

Ints = NDArray[np.int64]


class Snapshot(NamedTuple):
    """All rows of a table at one time.

    Attributes:
        visible: which of them exist. bool, shape [rows].
        counts: how often and how recently rows referred to them; see `Popularity`. float16, shape
            [rows, parts].
        order: the existing rows, the most popular first. int64, shape [existing rows].
        named: the popularity that `order` sorts by: the number of referring rows, of the last
            window or of all time, plus a fraction for the others. float64, shape [rows].
    """

    visible: Tensor
    counts: Tensor
    order: Tensor
    named: Tensor


class Popularity:
    """How popular the rows of a table are at any time, counted over rows known at that time.

    For each foreign key to the table there are three numbers, all as log(1 + x): referring rows so
    far, those of the last window, and windows since the last of them. One more is the row's own age
    in windows.

    Args:
        graph: the graph.
        table: the table.
        window: length of the task's window in seconds.
        key: the foreign key whose counts rank the rows; by default all of them together.
        latest: whether to rank by rows of the last window, or by rows of all time.
    """

    #: Size of the cache of snapshots: training returns to each time in every epoch.
    CACHE_BYTES = 512 * 2**20

    def __init__(
        self,
        graph: RelationalGraph,
        table: str,
        window: float,
        key: ForeignKey | None = None,
        *,
        latest: bool = True,
    ) -> None:
        self.graph, self.table, self.key, self.latest = graph, table, key, latest
        self.window = max(float(window), 1e-6) * PER_SECOND[graph.unit]
        self.keys = tuple(k for k in graph.foreign_keys if k.parent == table)
        self.parts = 3 * len(self.keys) + 1
        self._cache: OrderedDict[int, Snapshot] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, Any]) -> Popularity:
        return self  # it has no weights, and its graph is large

    def at(self, tick: int) -> Snapshot:
        """The snapshot at a time, in the unit of the graph."""
        found = self._cache.get(tick)
        if found is None:
            found = self._cache[tick] = self._count(tick)
            size = sum(part.nbytes for part in found)
            while len(self._cache) > max(1, self.CACHE_BYTES // max(size, 1)):
                self._cache.popitem(last=False)
        return found

    def visible(self, rows: Ints, tick: int) -> NDArray[np.bool_]:
        """Which of some rows exist at a time. Shape [n]."""
        own = self.graph.time(self.table)
        return np.ones(len(rows), bool) if own is None else np.asarray(own[rows] <= tick)

    def counts(self, rows: Ints, ticks: Ints | int) -> Tensor:
        """The numbers of some rows, each at a time of its own. float16, shape [n, parts]."""
        return torch.from_numpy(self._numbers(np.asarray(rows), np.asarray(ticks))[0])

    def _count(self, tick: int) -> Snapshot:
        rows = np.arange(self.graph.num_rows[self.table])
        visible = self.visible(rows, tick)
        counts, named = self._numbers(rows, np.asarray(tick))
        there = np.flatnonzero(visible)
        # Equal ones stay in the order of their rows.
        order = there[np.argsort(-named[there], kind="stable")]
        return Snapshot(*map(torch.from_numpy, (visible, counts, order, named)))

    def _numbers(
        self, rows: Ints, ticks: NDArray[Any]
    ) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        """The counts of rows, and what the order of all rows at one time goes by."""
        parts = np.zeros((len(rows), self.parts), np.float16)
        own = self.graph.time(self.table)
        if own is not None:
            own = own[rows]
            known = own != MISSING
            age = np.where(known, (ticks - np.where(known, own, ticks)) / self.window, 0.0)
            parts[:, -1] = _half(np.log1p(np.maximum(age, 0.0)))
        named = np.zeros(len(rows))
        for number, key in enumerate(self.keys):
            found = count_references(self.graph, key, rows, ticks, self.window)
            total, recent = (count.astype(float) for count in found[:2])
            ever = found[2] != MISSING
            since = np.where(ever, (ticks - np.where(ever, found[2], ticks)) / self.window, 0.0)
            for place, values in enumerate((total, recent, since)):
                parts[:, 3 * number + place] = _half(np.log1p(values))
            if self.key is None or key == self.key:
                # The second count only breaks ties.
                first, then = (recent, total) if self.latest else (total, recent)
                named += first + then / (1.0 + then.max(initial=0.0))
        return parts, named


def _half(values: NDArray[np.float64]) -> NDArray[np.float16]:
    return values.astype(np.float32).astype(np.float16)


@dataclass(frozen=True, eq=False)
class ListRequest:
    """What is asked of a list of recommendations.

    Attributes:
        k: its length.
        allowed: the targets that may be in it. bool, shape [targets].
        exclude: targets that must not be in a seed's list: where those of each seed begin, and the
            targets.
    """

    k: int
    allowed: NDArray[np.bool_] | None = None
    exclude: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def take(self, order: NDArray[np.int64]) -> ListRequest:
        """The same of the seeds in another order."""
        if self.exclude is None:
            return self
        begin, targets = self.exclude
        sizes = np.diff(begin)[order]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        moved = targets[np.repeat(begin[:-1][order], sizes) + within]
        return replace(self, exclude=(starts.astype(begin.dtype), moved))


def joined_before(
    graph: RelationalGraph,
    source: str,
    target: str,
    rows: NDArray[np.int64],
    times: Any,
    *,
    ticks: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Targets that rows of the source table were joined to by a time: some row refers to both.

    A foreign key between the two tables joins rows as well.

    Args:
        graph: the graph.
        source: the table of the rows.
        target: the table of the targets.
        rows: the rows. Shape [n].
        times: the time of each row. Shape [n].
        ticks: whether `times` are ticks in the unit of the graph.

    Returns:
        Where the targets of each row begin, shape [n + 1], and the targets, shape [found].
    """
    limits = times if ticks else graph.ticks(times)
    # A pair is one number: seed * count + target.
    count = graph.num_rows[target]
    pairs = []
    for key in graph.foreign_keys:
        if key.table == source and key.parent == target:
            named = graph.parent(key)[rows].astype(np.int64)
            pairs.append((np.arange(len(rows)) * count + named)[named >= 0])
        if key.parent != source:
            continue
        seed, child = children_at(graph, key, rows, limits)
        if key.table == target:
            pairs.append(seed * count + child)
        for other in graph.foreign_keys:
            if other.table == key.table and other.parent == target and other != key:
                named = graph.parent(other)[child].astype(np.int64)
                pairs.append((seed * count + named)[named >= 0])
    both = np.unique(np.concatenate([np.empty(0, np.int64), *pairs]))
    begin = np.searchsorted(both, np.arange(len(rows) + 1) * count)
    return begin, both % max(count, 1)
