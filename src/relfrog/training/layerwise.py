"""Layer-wise inference: what a row sends is computed once, however many rows it is sent to.

With the latest children of every row (strategies "last" and "events"), what a row sends depends on
the row, its distance from the seed and the cut-off alone: see `relfrog.graph.unrolled`. So
predictions take sequential passes over rows, from the far ends of the past to the seeds, in blocks:
the time is proportional to the number of rows that are reached, not to what each seed reaches, and
memory to the size of a block, as what rows send is kept on disk where it is much. A prediction
does not depend on which other seeds are predicted with it, up to rounding.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relfrog.features.columns import Features
from relfrog.graph.sampler import Strategy, TemporalSampler
from relfrog.graph.unrolled import Occurrences, UnrolledPast, concatenated
from relfrog.nn.age_pieces import AgePieces, age_pieces
from relfrog.nn.encoders import KNOTS, age_parts
from relfrog.nn.network import Network
from relfrog.nn.unrolled_plan import (
    Level,
    Tree,
    TreePlan,
    can_unroll,
    find_rows,
    make_tree_plan,
    plan_tree,
)
from relfrog.support.memory import is_out_of_memory
from relfrog.support.times import MISSING, PER_SECOND
from relfrog.training.row_states import RowIndex, RowStates

__all__ = ["LayerwiseInference", "is_layerwise"]

Ints = NDArray[np.int64]
T = TypeVar("T")
R = TypeVar("R")

#: About how many rows a block computes, and the most that it begins with.
BLOCK, MOST_ROOTS = 1 << 16, 1 << 13
#: Seeds of several times that are predicted together, and seeds of one time from which on the rows
#: needed are marked in arrays over whole tables.
SEEDS, MANY = 1 << 12, 1 << 12
#: Parts of a level that tell how much its rows depend on, if nothing else is asked of them.
FEW = 4
#: The most threads that compute blocks, each with memory for one.
MOST_WORKERS = 8


def is_layerwise(network: Network, sampler: TemporalSampler) -> bool:
    """Whether predictions are the same layer by layer: what a row sends must not depend on a seed.

    It does where children are drawn at random, and where the seed is marked.
    """
    drawn = sampler.strategy is Strategy.UNIFORM
    return not drawn and network.seed_encoder.mark is None and can_unroll(sampler.routes or ())


@dataclass(frozen=True, eq=False)
class LayerwiseInference:
    """Predicts for seeds, layer by layer.

    Attributes:
        network: the network, in evaluation mode.
        sampler: says what each row sees: the graph, the fan-outs, the strategy.
        features: the columns as tensors, on the network's device.
        device: where to compute.
    """

    network: Network
    sampler: TemporalSampler
    features: Mapping[str, Features]
    device: torch.device

    def predict(self, rows: Ints, ticks: Ints, limits: Ints | None = None) -> NDArray[np.generic]:
        """Predict for seeds, in their order. Shape [seeds] or [seeds, k].

        Args:
            rows: rows of the seed table. Shape [seeds].
            ticks: their times, in ticks of the graph. Shape [seeds].
            limits: the last time that each seed sees, if earlier. Shape [seeds].
        """
        limits = ticks if limits is None else limits
        order = np.lexsort((rows, limits, ticks))
        rows, ticks, limits = rows[order], ticks[order], limits[order]
        parts = []
        for chosen in _batches(ticks, limits):
            times, ends = ticks[chosen], limits[chosen]
            new = np.ones(len(times), bool)
            new[1:] = (np.diff(times) != 0) | (np.diff(ends) != 0)
            passes = _Passes(self, times[new], ends[new], len(times))
            parts.append(passes.predict(Occurrences(rows[chosen], np.cumsum(new) - 1)))
        if not parts:
            return np.empty(0)
        found = torch.cat(parts)
        ordered = torch.empty_like(found)
        ordered[torch.from_numpy(order)] = found
        return np.asarray(ordered.numpy())


def _batches(ticks: Ints, limits: Ints) -> Iterator[slice]:
    """Cut sorted seeds between times: one time of any size, or several with few seeds."""
    if not len(ticks):
        return
    changes = np.flatnonzero((np.diff(ticks) != 0) | (np.diff(limits) != 0)) + 1
    begin = 0
    ends = [*changes.tolist(), len(ticks)]
    for number, end in enumerate(ends):
        following = ends[number + 1] if number + 1 < len(ends) else None
        if following is None or following - begin > SEEDS:
            yield slice(begin, end)
            begin = end


class _Passes:
    """The passes for seeds at some times."""

    def __init__(
        self, inference: LayerwiseInference, ticks: Ints, limits: Ints, seeds: int
    ) -> None:
        self.network, self.sampler = inference.network, inference.sampler
        self.features, self.device = inference.features, inference.device
        graph = self.sampler.graph
        self.past = UnrolledPast(
            graph, tuple(self.sampler.fanouts), Strategy(self.sampler.strategy), limits.copy()
        )
        per_second = float(PER_SECOND[graph.unit])
        self.seconds = torch.from_numpy(ticks / per_second).to(self.device)
        self.lags = torch.from_numpy((ticks - limits) / per_second).to(self.device)
        self.keys, self.routes = graph.foreign_keys, tuple(self.sampler.routes or ())
        self.seed_level = Level(self.sampler.table, 0)
        self.dense = seeds >= MANY and len(limits) == 1
        unseen = self.network.seed_encoder.unseen
        self.channels, self.dtype = len(unseen), unseen.dtype
        # Where ages are measured from, in ticks and in seconds.
        at_cutoff = self.network.ages_from == "cutoff"
        self.origin = self.past.moments if at_cutoff else ticks
        self.ends = self.seconds - self.lags if at_cutoff else self.seconds
        #: Rows per block of each level, and the rows that are looked up.
        self.roots: dict[Level, int] = {}
        self.levels: dict[Level, RowIndex] = {}
        self.encoded: dict[str, RowIndex] = {}
        #: What rows of a level send after each layer, and what the rows of a table are encoded as.
        self.states: dict[tuple[Level, int], Tensor] = {}
        self.encodings: dict[str, Tensor] = {}

    @cached_property
    def trees(self) -> dict[Level, Tree]:
        """What each level that is computed depends on, from the seeds outwards."""
        needed = {self.seed_level: len(self.network.layers)}
        found: dict[Level, Tree] = {}
        while needed:
            level = min(needed, key=lambda level: level.hop)  # no other adds to what it needs
            tree = plan_tree(level, needed.pop(level), self.keys, self.routes, self.past.fanout)
            found[level] = tree
            for above, layer in tree.looked_up.items():
                if layer:
                    needed[above] = max(needed.get(above, 0), layer)
        return found

    def predict(self, seeds: Occurrences) -> Tensor:
        """Predict for seeds. Shape [seeds, ...]."""
        with RowStates() as room, ThreadPoolExecutor(_workers(), "relfrog-layerwise") as pool:
            self._mark(seeds, pool)
            for table, index in self.encoded.items():
                self._encode_all(table, index, room, pool)
            for level, index in sorted(self.levels.items(), key=lambda item: -item[0].hop):
                self._compute_all(level, index, room, pool)

            def predicted(some: Occurrences) -> Tensor:
                states = self._computed(self.seed_level, some)
                return self.network.head.predict(self.network.head(states[-1])).cpu()

            found = torch.cat(_all(pool, predicted, self._blocks(self.seed_level, seeds)))
            self.states, self.encodings = {}, {}
        return found

    # Which rows are needed.

    def _mark(self, seeds: Occurrences, pool: ThreadPoolExecutor) -> None:
        """Find the rows whose embeddings are looked up, from the seeds outwards."""
        counts, groups = self.past.graph.num_rows, len(self.past.moments)
        for tree in self.trees.values():
            for level, layer in tree.looked_up.items():
                if level.table not in self.encoded:
                    self.encoded[level.table] = RowIndex(counts[level.table], groups, self.dense)
                if layer and level not in self.levels:
                    self.levels[level] = RowIndex(counts[level.table], groups, self.dense)
        for level, tree in self.trees.items():  # by hop, so all rows of a level are known by then
            rows = seeds if level == self.seed_level else self.levels[level].rows
            found = _all(pool, self._marker(level, tree), self._to_mark(tree, rows))
            size, among = (sum(numbers) for numbers in zip((0, 0), *found, strict=True))
            # Blocks follow from the rows alone, so that any number of threads computes the same.
            self.roots[level] = max(1, min(BLOCK * among // max(size, 1), MOST_ROOTS))

    def _marker(self, level: Level, tree: Tree) -> Callable[[Occurrences], tuple[int, int]]:
        """Marks what some rows of a level look up; tells how many they depend on, and are."""

        def mark(some: Occurrences) -> tuple[int, int]:
            found = find_rows(tree, self.past, some, self._hidden(level, some))
            for above, parents in found.looked_up.items():
                for index in (self.encoded[above.table], self.levels.get(above)):
                    if index is not None and not index.whole:
                        index.add(parents)
            return sum(map(len, found.rows.values())), len(some)

        return mark

    def _to_mark(self, tree: Tree, rows: Occurrences) -> Iterator[Occurrences]:
        """The rows of a level in parts; only a few of them if all they can look up is marked.

        Of tables that are much smaller, and of the rows' own if they are nearly all of it, most
        rows are looked up by somebody: to compute the rest costs less than to find out which.
        """
        every = 1
        if self.dense:
            there = {above: self.past.all_visible(above.table) for above in tree.looked_up}
            needless = sum(
                np.count_nonzero(known) - (len(rows) if above.table == tree.root.table else 0)
                for above, known in there.items()
            )
            if needless <= len(rows) // 8:
                every = max(1, len(rows) // BLOCK // FEW)
                for above, known in there.items():
                    for index in (self.encoded[above.table], self.levels.get(above)):
                        if index is not None and not index.whole:
                            index.add_all(known)
        for number, part in enumerate(_parts(rows, BLOCK)):
            if number % every == 0:
                yield part

    def _hidden(self, level: Level, rows: Occurrences) -> NDArray[np.bool_] | None:
        """Which seeds do not exist yet; None for other rows, which all do."""
        return ~self.past.is_visible(level.table, rows) if level == self.seed_level else None

    def _blocks(self, level: Level, rows: Occurrences) -> Iterator[Occurrences]:
        """The rows of a level, in blocks of about the same work."""
        return _parts(rows, self.roots[level])

    # What they send.

    def _encode_all(
        self, table: str, index: RowIndex, room: RowStates, pool: ThreadPoolExecutor
    ) -> None:
        """Encode the rows of a table that are looked up."""
        held = room.empty(len(index), self.channels, self.dtype)

        def encode(numbered: tuple[int, Occurrences]) -> None:
            at, some = numbered[0] * BLOCK, numbered[1]
            held[at : at + len(some)] = self._encode(table, some, self._ages(table, some))

        _all(pool, encode, enumerate(_parts(index.rows, BLOCK)))
        self.encodings[table] = held

    def _compute_all(
        self, level: Level, index: RowIndex, room: RowStates, pool: ThreadPoolExecutor
    ) -> None:
        """Compute what the rows of a level send."""
        for layer in range(1, self.trees[level].depth[level] + 1):
            self.states[level, layer] = room.empty(len(index), self.channels, self.dtype)

        def compute(numbered: tuple[int, Occurrences]) -> None:
            at, some = numbered[0] * self.roots[level], numbered[1]
            for layer, x in enumerate(self._computed(level, some), 1):
                self.states[level, layer][at : at + len(some)] = x

        _all(pool, compute, enumerate(self._blocks(level, index.rows)))

    def _plan(self, level: Level, some: Occurrences) -> TreePlan:
        return make_tree_plan(
            self.trees[level], self.past, some, self.keys, self.routes,
            hidden=self._hidden(level, some),
        )  # fmt: skip

    def _computed(self, level: Level, some: Occurrences) -> list[Tensor]:
        """The embeddings of rows of a level after each layer; in halves if memory runs out."""
        try:
            return self._compute(self._plan(level, some))
        except (RuntimeError, MemoryError) as error:
            if len(some) == 1 or not is_out_of_memory(error):
                raise
        half = len(some) // 2
        halves = [
            self._computed(level, some.take(part)) for part in (slice(half), slice(half, None))
        ]
        return [torch.cat(both) for both in zip(*halves, strict=True)]

    def _compute(self, plan: TreePlan) -> list[Tensor]:
        network, root = self.network, plan.tree.root
        count = len(plan.rows[root])
        h, ages = {}, {}
        for table in network.tables:
            some = concatenated([plan.rows[level] for level in plan.computed(table, 0)])
            own = self._ages(table, some)
            if own is not None:
                ages[table] = own
            asked = count if table == root.table and root == self.seed_level else 0
            x = self._encode(table, some, own, asked)
            h[table] = _joined([x, *self._looked_up(plan, table, 0)])
        found = []
        for number, layer in enumerate(network.layers[: len(plan.layers)]):
            links = plan.layers[number]
            sizes = {
                table: sum(len(plan.rows[level]) for level in plan.computed(table, number))
                for table in ages
            }
            moved = links.to(self.device)
            h = layer(h, moved, network.roles, {t: a[: sizes[t]] for t, a in ages.items()})
            found.append(h[root.table][:count])
            if number + 1 < len(plan.layers):
                h = {
                    table: _joined([x, *self._looked_up(plan, table, number + 1)])
                    for table, x in h.items()
                }
        return found

    def _looked_up(self, plan: TreePlan, table: str, layer: int) -> Iterator[Tensor]:
        """What the parents in a plan send after a layer, level by level."""
        for level in plan.read(table, layer):
            rows = plan.looked_up[level]
            if not len(rows):
                continue
            index = self.levels[level] if layer else self.encoded[table]
            held = self.states[level, layer] if layer else self.encodings[table]
            yield held.index_select(0, index.find(rows)).to(self.device)

    def _ages(self, table: str, rows: Occurrences) -> Tensor | AgePieces | None:
        """Ages of rows as the network takes them, if their table has times."""
        graph = self.past.graph
        known = graph.time(table)
        if known is None:
            return None
        ticks = known[rows.rows]
        ages = (self.origin[rows.groups] - ticks) / float(PER_SECOND[graph.unit])
        ages[ticks == MISSING] = np.nan
        if self.device.type == "cpu":
            return age_pieces(ages, KNOTS)
        return age_parts(torch.from_numpy(ages).to(self.device))

    def _encode(
        self, table: str, rows: Occurrences, ages: Tensor | AgePieces | None, seeds: int = 0
    ) -> Tensor:
        """Embeddings before the first layer; the first few rows may be seeds. Shape [rows, c]."""
        hidden = np.zeros(len(rows), bool)
        if seeds:
            own = self._hidden(self.seed_level, rows.take(slice(0, seeds)))
            assert own is not None
            hidden[:seeds] = own
        if table in self.encodings and self.encoded[table].whole and not hidden.any():
            return (
                self.encodings[table]
                .index_select(0, self.encoded[table].find(rows))
                .to(self.device)
            )
        groups = torch.from_numpy(rows.groups).to(self.device)
        chosen, index = rows.rows, None
        if len(self.past.moments) > 1:  # a row may be seen at several times
            chosen, inverse = np.unique(rows.rows, return_inverse=True)
            index = torch.from_numpy(inverse).to(self.device)
        x = self.network.encode_rows(
            table, self.features[table], torch.from_numpy(chosen).to(self.device), index, ages,
            self.ends[groups],
        )  # fmt: skip
        if table != self.seed_level.table:
            return x
        return self.network.seed_encoder(  # type: ignore[no-any-return]
            x, groups, torch.from_numpy(hidden).to(self.device), self.seconds, self.lags
        )


def _joined(parts: list[Tensor]) -> Tensor:
    """One after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _parts(rows: Occurrences, size: int) -> Iterator[Occurrences]:
    """Rows in parts of some size."""
    for at in range(0, len(rows), size):
        yield rows.take(slice(at, at + size))


def _workers() -> int:
    """Threads to compute on: one per processor that this process may use."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def _all(pool: ThreadPoolExecutor, do: Callable[[T], R], parts: Iterable[T]) -> list[R]:
    """Apply a function to all parts in threads, without gradients; results in order."""

    def one(part: T) -> R:
        with torch.no_grad():  # a thread has a switch of its own
            return do(part)

    waiting: deque[Future[R]] = deque()
    found = []
    for part in parts:
        if len(waiting) > MOST_WORKERS:  # not all at once: parts take memory
            found.append(waiting.popleft().result())
        waiting.append(pool.submit(one, part))
    return found + [future.result() for future in waiting]
