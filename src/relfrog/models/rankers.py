"""Rankers without a network: popularity, past visits, and LightGBM's LambdaRank on both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from relfrog.errors import RunError, TaskError
from relfrog.graph.popularity import ListRequest, Popularity, joined_before
from relfrog.graph.references import children_at
from relfrog.graph.relational import ForeignKey
from relfrog.models.booster_file import load_lightgbm, read_boosters, trees_text, write_boosters
from relfrog.models.model import Model
from relfrog.models.run_forms import RankerFile
from relfrog.models.tree_learner import boosted
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.support.jit import compiled
from relfrog.support.lists import flatten
from relfrog.support.text import text_digest
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BoostedRanker", "PastVisitRanker", "PopularityRanker", "QuickBoostedRanker", "Ranker"]

Ints = NDArray[np.int64]


class Ranker(Model):
    """Recommends ranked lists of targets for seeds, from what was known at their times.

    Args:
        prepared: the database with its label history.
        labels: description of the training labels; `k` is the length of the lists.
    """

    #: Whether popularity counts labels of the last window, or of all time.
    latest: ClassVar[bool] = True

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self.graph, self.k = prepared.graph, int(labels["k"])
        task = prepared.task
        self.source, self.target = task.entity_table, task.dst_entity_table
        earlier = {
            key.column: key for key in self.graph.foreign_keys if key.table == prepared.history
        }
        self.of_source: ForeignKey = earlier["entity"]
        self.of_target: ForeignKey = earlier["label"]
        self.popularity = Popularity(
            self.graph, self.target, task.timedelta.total_seconds(), self.of_target,
            latest=self.latest,
        )  # fmt: skip

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Do nothing: only counts of the past are used."""

    def save(self, folder: Path) -> None:
        """Do nothing."""

    def load(self, folder: Path) -> None:
        """Do nothing."""

    def content(self) -> str | None:
        """A hash of the rule: the past is all that it depends on."""
        return text_digest(type(self).__name__)

    @abstractmethod
    def scores(self, seed: Ints, limits: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Score candidate targets: index of the seed, target, score. Shapes [candidates] each.

        Other targets rank below the candidates, by popularity.

        Args:
            seed: rows of the source table. Shape [n].
            limits: cut-off of each row. Shape [n].
        """

    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[np.float64]:
        """The top k targets and their scores; -1 pads short lists. Shape [seeds, k, 2]."""
        request = request or ListRequest(self.k)
        limits = self.limits(seeds, cutoff)
        found = np.full((len(seeds), request.k, 2), -1.0)
        found[:, :, 1] = -np.inf
        who, rows, scores = self.scores(np.asarray(seeds.rows), limits)
        order = np.lexsort((rows, -scores, who))
        who, rows, scores = who[order], rows[order], scores[order]
        begin = np.searchsorted(who, np.arange(len(seeds) + 1))
        count = self.graph.num_rows[self.target]
        banned = request.exclude or (np.zeros(len(seeds) + 1, np.int64), np.zeros(0, np.int64))
        for tick in np.unique(limits):
            snapshot = self.popularity.at(int(tick))
            popular, visible = snapshot.order.numpy(), snapshot.visible.numpy()
            if request.allowed is not None:
                popular, visible = popular[request.allowed[popular]], visible & request.allowed
            fill_lists(
                np.flatnonzero(limits == tick), begin, rows, scores, popular, visible,
                *banned, np.full(count, -1, np.int64), found,
            )  # fmt: skip
        return found


@compiled
def fill_lists(
    chosen: Any,
    begin: Any,
    rows: Any,
    scores: Any,
    popular: Any,
    visible: Any,
    first: Any,
    known: Any,
    seen: Any,
    found: Any,
) -> None:
    """Write the lists of some seeds: their candidates, then popular targets.

    Args:
        chosen: the seeds.
        begin: where the candidates of each seed begin.
        rows: the candidates of all seeds, the best first.
        scores: their scores.
        popular: targets to fill up with, in this order; they rank below all candidates.
        visible: the targets that may be listed.
        first: where the targets that must not be listed begin, for each seed.
        known: these targets.
        seen: scratch, one number per target: the last seed that listed it or must not.
        found: targets and scores, the result. Shape [seeds, k, 2].
    """
    k = found.shape[1]
    for number in range(chosen.size):
        i = chosen[number]
        for j in range(first[i], first[i + 1]):
            seen[known[j]] = i
        length, lowest = 0, 0.0
        for j in range(begin[i], begin[i + 1]):
            row = rows[j]
            if not visible[row]:
                continue
            lowest = min(lowest, scores[j])
            if seen[row] != i and length < k:
                seen[row] = i
                found[i, length, 0], found[i, length, 1] = row, scores[j]
                length += 1
        for j in range(popular.size):
            if length == k:
                break
            row = popular[j]
            if seen[row] != i:
                found[i, length, 0], found[i, length, 1] = row, lowest - 1.0 - j
                length += 1


class PopularityRanker(Ranker):
    """The same list for all seeds: the targets with the most labels so far, as in the paper."""

    latest = False

    def scores(self, seed: Ints, limits: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """No candidates: all targets rank by popularity."""
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)


class PastVisitRanker(Ranker):
    """Targets of the seed's own past labels, the most frequent first; then popularity."""

    latest = False

    def scores(self, seed: Ints, limits: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """The number of times each target was a label of the seed."""
        who, label = children_at(self.graph, self.of_source, seed, limits)
        target = self.graph.parent(self.of_target)[label].astype(np.int64)
        size = max(self.graph.num_rows[self.target], 1)
        pairs, count = np.unique(who * size + target, return_counts=True)
        return pairs // size, pairs % size, count.astype(float)


class BoostedRanker(Ranker):
    """LightGBM's LambdaRank on counts and columns of seed and target.

    Candidates are the targets that the seed was joined to before, and the most popular ones.
    Features are how often and how recently seed and target were joined, by past labels and by rows
    that refer to both, the popularity of the target, and the columns of both.
    """

    encoded = True
    #: Popular targets among the candidates of every seed.
    POPULAR = 100
    #: The most candidates that a seed was joined to: LightGBM allows 10,000 per seed.
    OWN = 5_000
    #: The most pairs of seed and target to train on.
    PAIRS = 1_000_000
    #: Seeds scored at once, to bound the memory.
    AT_ONCE = 1_000
    ROUNDS, PATIENCE = 300, 30
    FILE, SUMS = "lightgbm.txt", "lightgbm.json"

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self.model: Any = None

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Train on the latest training seeds, with early stopping on validation."""
        lightgbm = load_lightgbm()
        train, val = (self.prepared.seeds(split) for split in ("train", "val"))
        sets = [self._data(self._latest(train)), self._data(self._some(val))]
        if not sets[0][1].any():
            raise TaskError("lightgbm: no label is among the candidates. Try --model popularity.")
        data = [lightgbm.Dataset(x, y, group=g) for x, y, g in sets if len(x)]
        settings = {
            "objective": "lambdarank", "metric": "map", "eval_at": [self.k], "verbosity": -1,
            "learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 50,
            "seed": self.prepared.config.seed, "lambdarank_truncation_level": 2 * self.k,
            # With two threads, LambdaRank gave a different model in one of twenty fits of the same
            # data, even with `deterministic`; and by default LightGBM chooses row-wise or
            # column-wise histograms by timing them.
            "deterministic": True, "force_col_wise": True, "num_threads": 1,
        }  # fmt: skip
        # Without candidates in validation there is no early stopping.
        stop = [lightgbm.early_stopping(self.PATIENCE, verbose=False)] * len(data[1:])
        rounds = self.ROUNDS if stop else self.PATIENCE
        self.model = boosted(settings, data[0], rounds, data[1:], stop)
        if self.prepared.config.refit == "on":
            announce(callbacks, "lightgbm: refit on training and validation labels")
            x, y, g = self._data(self._latest(self.prepared.opened.with_validation(train)))
            # Without early stopping there is no best round: use all.
            rounds = self.model.best_iteration or rounds
            self.selected = self._copy()
            self.model = boosted(settings, lightgbm.Dataset(x, y, group=g), rounds, [], [])

    def save(self, folder: Path) -> None:
        """Write LightGBM's text format."""
        sums = write_boosters(folder, {self.FILE: self.model})
        write_json(folder / self.SUMS, {"files": sums})

    def content(self) -> str | None:
        """A hash of the trees."""
        return text_digest(trees_text(self.model))

    def load(self, folder: Path) -> None:
        """Read LightGBM's text format."""
        files = read_json(folder / self.SUMS, RankerFile)["files"]
        if set(files) != {self.FILE}:
            raise RunError(f"{folder / self.SUMS} is damaged (its files). Train again.")
        nobody = np.zeros(0, np.int64)
        width = self.pair_features(nobody, nobody, nobody, nobody).shape[1]
        self.model = read_boosters(folder, files, width)[self.FILE]

    def scores(self, seed: Ints, limits: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """The model's scores of the candidates."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        for first in range(0, len(seed), self.AT_ONCE):
            some = slice(first, first + self.AT_ONCE)
            who, rows = self._candidates(seed[some], limits[some])
            if len(who):
                marks = self.model.predict(self.pair_features(seed[some], limits[some], who, rows))
                found.append((who + first, rows, marks))
        who, rows, marks = (np.concatenate(part) for part in zip(*found, strict=True))
        return who, rows, marks

    def _latest(self, seeds: Seeds) -> Seeds:
        """A random sample of the latest seeds, within the limit on pairs."""
        most = max(1, self.PAIRS // (2 * self.POPULAR))
        order = np.argsort(seeds.times, kind="stable")[::-1]
        rng = np.random.default_rng(self.prepared.config.seed)
        late = order[: 4 * most]
        chosen = np.sort(rng.permutation(late)[:most])
        return seeds.take(chosen)

    def _some(self, seeds: Seeds) -> Seeds:
        """A random sample of seeds, within the limit on pairs."""
        most = max(1, self.PAIRS // self.POPULAR)
        if len(seeds) <= most:
            return seeds
        rng = np.random.default_rng(self.prepared.config.seed)
        return seeds.take(np.sort(rng.permutation(len(seeds))[:most]))

    def _data(self, seeds: Seeds) -> tuple[NDArray[np.float32], NDArray[np.bool_], Ints]:
        """Features, labels, and number of candidates per seed."""
        limits = self.graph.ticks(seeds.times)
        who, rows = self._candidates(np.asarray(seeds.rows), limits)
        assert seeds.labels is not None
        lengths, labels = flatten(seeds.labels)
        count = self.graph.num_rows[self.target]
        wanted = np.repeat(np.arange(len(seeds)), lengths) * count + labels.astype(np.int64)
        right = np.isin(who * count + rows, wanted)
        group = np.bincount(who, minlength=len(seeds))
        x = self.pair_features(np.asarray(seeds.rows), limits, who, rows)
        return x, right, group[group > 0]

    def _candidates(self, seed: Ints, limits: Ints) -> tuple[Ints, Ints]:
        begin, known = joined_before(self.graph, self.source, self.target, seed, limits, ticks=True)
        own = np.repeat(np.arange(len(seed)), np.diff(begin))
        ticks, moment = np.unique(limits, return_inverse=True)
        for i in np.flatnonzero(np.diff(begin) > self.OWN):
            # Too many candidates: keep the most popular.
            named = self.popularity.at(int(limits[i])).named.numpy()
            named = named[known[begin[i] : begin[i + 1]]]
            least = np.argsort(-named, kind="stable")[self.OWN :]
            own[begin[i] + least] = -1
        own, known = own[own >= 0], known[own >= 0]
        tops = [self.popularity.at(int(t)).order.numpy()[: self.POPULAR] for t in ticks]
        popular = np.concatenate([np.zeros(0, np.int64), *(tops[m] for m in moment)])
        sizes = np.array([len(top) for top in tops], np.int64)[moment]
        count = max(self.graph.num_rows[self.target], 1)
        named = np.repeat(np.arange(len(seed)), sizes) * count + popular
        both = np.unique(np.concatenate([own * count + known, named]))
        return both // count, both % count

    def pair_features(self, seed: Ints, limits: Ints, who: Ints, rows: Ints) -> NDArray[np.float32]:
        """Features of pairs of a seed and a target. Shape [pairs, features]."""
        parts = [self.popularity.counts(rows, limits[who]).numpy().astype(np.float32)]
        for first, second in self.joins():
            parts.append(self._joined(first, second, seed, limits, who, rows))
        for table, chosen in ((self.source, seed[who]), (self.target, rows)):
            rows_of = torch.from_numpy(np.asarray(chosen, np.int64))
            parts.append(self.prepared.features[table].dense[rows_of].numpy())
        return np.concatenate(parts, 1)

    def joins(self) -> list[tuple[ForeignKey, ForeignKey]]:
        """Pairs of foreign keys by which a row refers to a seed and to a target."""
        keys = self.graph.foreign_keys
        return [
            (first, second)
            for first in keys
            for second in keys
            if first.table == second.table and first != second
            and first.parent == self.source and second.parent == self.target
        ]  # fmt: skip

    def _joined(
        self, first: ForeignKey, second: ForeignKey, seed: Ints, limits: Ints, who: Ints, rows: Ints
    ) -> NDArray[np.float32]:
        """Rows that refer to both: count, share, and windows since the last one."""
        owner, child = children_at(self.graph, first, seed, limits)
        target = self.graph.parent(second)[child].astype(np.int64)
        size = self.graph.num_rows[self.target]
        pair = owner * size + target
        pair, owner, child = pair[target >= 0], owner[target >= 0], child[target >= 0]
        known, place, count = np.unique(pair, return_inverse=True, return_counts=True)
        times = self.graph.time(first.table)
        since = np.full(len(known), np.nan)
        if times is not None and len(known):
            last = np.full(len(known), np.iinfo(np.int64).min)
            np.maximum.at(last, place, times[child])
            since = (limits[known // size] - last) / self.popularity.window
        at = np.searchsorted(known, who * size + rows)
        at = np.minimum(at, max(len(known) - 1, 0))
        total = np.bincount(owner, minlength=len(seed))
        out = np.zeros((len(who), 3), np.float32)
        out[:, 2] = np.nan
        if len(known):
            met = known[at] == who * size + rows
            out[met, 0] = count[at[met]]
            out[met, 1] = count[at[met]] / total[who[met]]
            out[met, 2] = since[at[met]]
        return out


class QuickBoostedRanker(BoostedRanker):
    """A quick version with few pairs and rounds, as a baseline for networks."""

    PAIRS = 100_000
    ROUNDS, PATIENCE = 100, 10
