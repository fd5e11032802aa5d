"""LightGBM for tasks with one label per entity, on automatic features or only the own columns.

Random search over a given number of trials, each scored by backtests; the best few are averaged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.cluster.workers import RayWorkers
from relfrog.errors import RunError, TaskError, UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.models.aggregates.feature_job import features_elsewhere
from relfrog.models.aggregates.features import FeatureMaker
from relfrog.models.aggregates.sources import feature_sources
from relfrog.models.aggregates.streams import TRIED
from relfrog.models.backtest import MOST_FOLDS, SURE, Backtests, Fold, helps, plan_folds
from relfrog.models.booster_file import read_boosters, trees_text, write_boosters
from relfrog.models.distributed_trees import boosted_on_cluster
from relfrog.models.feature_budget import make_in_time
from relfrog.models.model import Model, TableChange
from relfrog.models.out_of_time import Foretold, aligned
from relfrog.models.run_folder import BACKTESTS
from relfrog.models.run_forms import TreesFile
from relfrog.models.tree_learner import TreeLearner, rounds_of
from relfrog.models.tree_search import FIRST, PROBE, FoldData, TreeSearch, Trial, spread
from relfrog.setting_values import RANGES
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.support.lists import matrix
from relfrog.support.text import text_digest
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["BoostedTrees", "QuickBoostedTrees"]

Floats = NDArray[np.float32]


def _file(number: int, part: int) -> str:
    return f"lightgbm-{number}-{part}.txt"


class BoostedTrees(Model):
    """Gradient-boosted trees on features computed at the cut-off of each seed."""

    FILE = "lightgbm.json"
    #: The most training seeds of a trial, and of the final models.
    SEARCH_SEEDS, SEEDS = 30_000, 300_000
    #: The most seeds that a fold within the training time learns from, and is scored on.
    FOLD_SEEDS, FOLD_SCORED = 15_000, 5_000
    #: The most folds within the training time; with none, validation alone decides.
    FOLDS = MOST_FOLDS
    #: Whether to try families of features that help on some databases only.
    TRIES = True
    #: The most boosting rounds, and the patience of early stopping.
    ROUNDS, PATIENCE = 2000, 60
    #: The first trial has this time at least, or half of what its features took: a few rounds more
    #: are little beside them, and trees of one round say nothing.
    FIRST_SECONDS = 5.0
    #: Settings of the first trial.
    FIRST: ClassVar[dict[str, Any]] = FIRST
    #: The most labels of a multilabel task; each has a model of its own.
    MOST_LABELS = 30

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self.models: list[list[Any]] = []
        self._saved: dict[str, Any] | None = None
        self._learner = TreeLearner(self.kind, labels, prepared.config.seed)
        #: What backtests said of features and settings, for `backtests.json`.
        self.evidence: dict[str, Any] = {}
        #: What was predicted in the backtests within the training time.
        self._foretold: Foretold | None = None
        self._folder: Path | None = None

    @cached_property
    def maker(self) -> FeatureMaker:
        """Computes the features of seeds."""
        maker = FeatureMaker(self.prepared, self.labels, self._saved, tried=self.TRIES)
        if self._saved is not None and self._saved.get("names") != maker.names:
            raise RunError("the features do not fit the dataset as it is now: train again.")
        return maker

    def with_change(self, change: TableChange) -> BoostedTrees:
        """Only the features that the change can touch are computed anew."""
        other = self._on(change.opened)
        other.maker = self.maker.with_change(
            other.prepared, change.table, change.order, change.column
        )
        return other

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Search for features and settings, and train with the best."""
        train, val = self.prepared.train_seeds, self.prepared.seeds("val")
        assert train is not None
        if int(self.labels.get("labels", 0)) > self.MOST_LABELS:
            raise TaskError(
                f"lightgbm: {self.labels['labels']} labels; it learns {self.MOST_LABELS} at most, "
                "one model each. Take frog or recent."
            )
        config, tell = self.prepared.config, partial(announce, callbacks)
        if self.workers is not None:
            self.maker.elsewhere = partial(features_elsewhere, self.workers)
        if config.distributed and not isinstance(self.workers, RayWorkers):
            raise UsageError("distributed=true needs the nodes of a Ray cluster: add --cluster.")
        rng = np.random.default_rng(config.seed)
        places = _places(train, self.SEEDS, rng)
        train = train if len(places) == len(train) else train.take(places)
        if self.FOLDS and config.regime == "frozen" and not config.staleness:
            self._choose_staleness(train, val, budget.share(4), tell)
        left = self.maker.plan.left_out
        tell(
            f"lightgbm: {len(self.maker.names)} features"
            + (f"; no room for {len(left)} more, such as {left[0]}" if left else ""),
        )
        cutoff, started = self.prepared.cutoff("val", config.regime), time.monotonic()
        seen = self.maker.make(np.asarray(val.rows), self.limits(val, cutoff), val.times)
        took = time.monotonic() - started
        # Trials need time, too, and scores need the features of three more splits.
        x, some = self._training_features(
            train, budget.share(2).left - 3 * took, len(val), took, rng
        )
        if len(some) < len(train):
            tell(f"lightgbm: there is time for {len(some):,} of {len(train):,} training seeds")
            train, places = train.take(some), places[some]
        made = time.monotonic() - started
        y = self._targets(train)
        search, folds = self._search(train, val, x, y, seen, rng)
        if self.FOLDS and (families := self.maker.families):
            dropped, known = search.drop_families(
                families, TRIED, search.settings(0, rng), budget.share(3),
                lambda words: tell(f"lightgbm: {words}"),
            )  # fmt: skip
            kept = np.arange(x.shape[1])
            if dropped:
                kept = np.setdiff1d(kept, np.concatenate([families[name] for name in dropped]))
                self.maker = self.maker.without(dropped)
                x, seen = x[:, kept], seen[:, kept]
            search.use(kept)
            self.evidence["families"] = {name: asdict(found) for name, found in known.items()}
            self.evidence["dropped"] = dropped
        found = self._trials(search, val, budget, max(self.FIRST_SECONDS, made / 2), rng, tell)
        best = search.best(found)
        chosen = search.mean_of([found[n] for n in best])
        self._foretold = Foretold.of(
            self.prepared, [(f.cut, places[f.scored]) for f in folds], chosen[:-1]
        )
        self._say_how_sure(search, [found[n] for n in best], found[0], tell)
        self.models = [found[n].models for n in best]
        some_only, again = len(search.learned) < len(x), sum(found[n].seconds for n in best)
        del search  # it holds all features
        if config.distributed or (some_only and not budget.over):
            tell(f"lightgbm: the best settings with all {len(x):,} seeds")
            stop, started = (seen, self._targets(val)), time.monotonic()
            self.models = [self._train(found[n].settings, x, y, stop, budget) for n in best]
            again = time.monotonic() - started
        if self._refits and not (config.refit == "auto" and budget.over_in(again)):
            tell("lightgbm: refit on training and validation labels")
            both = self.prepared.opened.with_validation(train)
            more = both.take(np.arange(len(x), len(both)))
            x = np.concatenate([x, self.maker.make(more.rows, self._stale(more), more.times)])
            y = np.concatenate([y, self._targets(more)])
            self.selected = self._copy()
            self.models = [
                self._train(found[n].settings, x, y, rounds=[rounds_of(m) for m in models])
                for n, models in zip(best, self.models, strict=True)
            ]

    @property
    def _refits(self) -> bool:
        """Whether to refit: as the setting says, or as backtests say of newer labels."""
        setting, newer = self.prepared.config.refit, self.evidence.get("newer_labels")
        return setting == "on" or (setting == "auto" and helps(newer))

    def _choose_staleness(
        self, train: Seeds, val: Seeds, budget: Budget, tell: Callable[[str], None]
    ) -> None:
        """Let backtests choose whether the database stops before training seeds, too.

        In the frozen regime it does for the seeds that are asked about: by as long as the split
        lasts, at most.
        """
        cut = self.prepared.dataset.val_timestamp
        window = self.prepared.task.timedelta
        span = (val.times.max() - cut.to_datetime64()) / window.to_timedelta64() if window else 0.0
        predicted, makers = [], []
        for staleness in (0.0, min(float(span), RANGES["staleness"][1])):
            other = self._copy()
            other.prepared = replace(
                self.prepared, config=replace(self.prepared.config, staleness=staleness)
            )
            vars(other).pop("maker", None)
            rng = np.random.default_rng(self.prepared.config.seed)
            some = train.take(_places(train, self.SEARCH_SEEDS, rng))
            limits = other._stale(some)
            x = other.maker.make(np.asarray(some.rows), limits, some.times)
            y, asked = self._targets(some), self.limits(val, cut)
            seen = other.maker.make(np.asarray(val.rows), asked, val.times)
            search, _ = other._search(some, val, x, y, seen, rng)
            if span <= 0 or len(search.tests.truth) < 2 or budget.over:
                return
            predicted.append(search.trial(search.settings(0, rng) | PROBE, budget).predicted)
            makers.append(other)
        found = search.tests.compare(*reversed(predicted))
        self.evidence["staleness"] = asdict(found)
        tell(f"lightgbm: training seeds with older data: {found.words}")
        if found.sure >= SURE:
            self.prepared, self.maker = makers[-1].prepared, makers[-1].maker

    def _training_features(
        self, train: Seeds, seconds: float, before: int, took: float, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Features of the training seeds, or of as many as there is time for; and which."""
        limits = self._stale(train)

        def make(some: NDArray[np.int64]) -> NDArray[Any]:
            part = train if len(some) == len(train) else train.take(some)
            return self.maker.make(np.asarray(part.rows), limits[some], part.times)

        return make_in_time(make, len(train), seconds, (before, took), rng)

    def _search(
        self, train: Seeds, val: Seeds, x: Floats, y: NDArray[np.float64], seen: Floats,
        rng: np.random.Generator,
    ) -> tuple[TreeSearch, list[Fold]]:  # fmt: skip
        """A search on the folds of the backtests, and those of them before validation."""
        opened, config = self.prepared.opened, self.prepared.config
        few = np.sort(rng.permutation(len(x))[: self.SEARCH_SEEDS])
        cut = opened.dataset.val_timestamp
        *earlier, _ = plan_folds(train, val, opened.task.timedelta, cut, self.FOLDS)
        data, truths, kept = [], [], list[Fold]()
        for fold in earlier:
            scored = np.sort(rng.permutation(fold.scored)[: self.FOLD_SCORED])
            part = train.take(scored)
            if config.regime == "frozen" or config.staleness:
                # The training seeds' own features look at another time than a prediction does.
                limits = self.limits(part, fold.cut if config.regime == "frozen" else None)
                features = self.maker.make(np.asarray(part.rows), limits, part.times)
            else:
                features = x[scored]
            learned = np.intersect1d(few, fold.learned, assume_unique=True)
            learned = spread(learned, self.FOLD_SEEDS)
            if not len(learned):
                continue
            data.append(FoldData(fold.learned, learned, features, y[scored]))
            truths.append(self.truth(part))
            kept.append(replace(fold, scored=scored))
        data.append(FoldData(np.arange(len(x)), few, seen, self._targets(val)))
        truths.append(self.truth(val))
        self.evidence["cuts"] = [*(str(fold.cut) for fold in kept), str(cut)]
        tests = Backtests(self.kind, truths, self.labels.get("quantile"), config.seed)
        search = TreeSearch(
            self._learner, x, y, data, tests, self.maker.categorical, first=self.FIRST,
            rounds=self.ROUNDS, patience=self.PATIENCE,
        )  # fmt: skip
        return search, kept

    def _trials(
        self, search: TreeSearch, val: Seeds, budget: Budget, first: float,
        rng: np.random.Generator, tell: Callable[[str], None],
    ) -> list[Trial]:  # fmt: skip
        """Try settings until the time is over; the first have so many seconds all the same."""
        config, metric = self.prepared.config, self.kind.metric
        found: list[Trial] = []
        for number in range(config.trials):
            if number and budget.over:
                tell(f"lightgbm: time is over after {number} of {config.trials} trials")
                break
            own = budget if number else budget.at_least(first)
            trial = search.trial(search.settings(number, rng), own)
            if not number and self.FOLDS and (newer := search.newer_labels(trial, budget)):
                self.evidence["newer_labels"] = asdict(newer)
                tell(f"lightgbm: better with the newest labels, too: {newer.words}")
            found.append(trial)
            scores = self.metrics(val, trial.predicted[-1])
            self.trials.append(
                {"trial": number, "settings": trial.settings, "rounds": trial.rounds,
                 "regime": config.regime, "val": scores, "backtests": trial.scores}
            )  # fmt: skip
            words = f"lightgbm: trial {number + 1} of {config.trials}, val {metric}"
            words += f" {scores[metric]:.4f}"
            if len(trial.scores) > 1:
                words += f", {len(trial.scores)} backtests {search.tests.mean(trial.scores):.4f}"
            tell(words)
        return found

    def _say_how_sure(
        self, search: TreeSearch, best: list[Trial], first: Trial, tell: Callable[[str], None]
    ) -> None:
        """Keep and say how sure it is that the chosen settings are better than the first ones."""
        if not self.FOLDS:
            return
        tests, chosen = search.tests, search.mean_of(best)
        against = tests.compare(chosen, first.predicted)
        self.evidence |= {
            "metric": self.kind.metric, "labels": [len(part) for part in tests.truth],
            "chosen": tests.scores(chosen), "first": first.scores,
            "models": len(best), "against_first": asdict(against),
        }  # fmt: skip
        if len(tests.truth) > 1:
            tell(
                f"lightgbm: {len(best)} of {len(self.trials)} trials averaged; better than the "
                f"first settings: {against.words}"
            )

    def save(self, folder: Path) -> None:
        """Write the models in LightGBM's text format, and the description of the features."""
        named = {
            _file(number, part): model
            for number, models in enumerate(self.models)
            for part, model in enumerate(models)
        }
        about = {
            "models": len(self.models), "parts": len(self.models[0]),
            "files": write_boosters(folder, named),
        }  # fmt: skip
        write_json(folder / self.FILE, about | {"features": self.maker.to_json()})
        if self.evidence:
            write_json(folder / BACKTESTS, self.evidence)
        if self._foretold is not None and self._foretold.folds:
            self._foretold.save(folder)

    def load(self, folder: Path) -> None:
        """Read the models and the description of the features."""
        found = read_json(folder / self.FILE, TreesFile)
        self._saved = found["features"]
        models, parts, files = found["models"], found["parts"], found["files"]
        if set(files) != {_file(n, part) for n in range(models) for part in range(parts)}:
            raise RunError(f"{folder / self.FILE} is damaged (its files). Train again.")
        try:
            width = len(self.maker.names)
        except RunError as error:
            raise RunError(f"{folder}: {error}") from None
        self._folder = folder
        read = read_boosters(folder, files, width)
        self.models = [[read[_file(n, part)] for part in range(parts)] for n in range(models)]

    def content(self) -> str | None:
        """A hash of the trees and of what their features are."""
        trees = [trees_text(model) for models in self.models for model in models]
        return text_digest(json.dumps(self.maker.to_json(), default=str, sort_keys=True), *trees)

    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """The mean prediction of the models."""
        limits = self.limits(seeds, cutoff)
        x = self.maker.make(np.asarray(seeds.rows), limits, seeds.times)
        return self._learner.predict(self.models, x)

    @property
    def foretold(self) -> Foretold | None:
        """What was predicted in the backtests within the training time; None without any."""
        if self._foretold is None and self._folder is not None:
            self._foretold = Foretold.load(self._folder, self.prepared, self._learner.shape)
        return self._foretold

    def foretell(self, folds: Sequence[Fold]) -> list[NDArray[Any]] | None:
        """The predictions of the backtests, if these are their folds."""
        known = self.foretold
        return known.predicted if known is not None and aligned(known.folds, folds) else None

    def finish(self, found: NDArray[Any]) -> NDArray[Any]:
        """The prediction from the mean of the models."""
        return self._learner.finish(found)

    def importance(self) -> pd.DataFrame:
        """Feature importance by gain, sorted; with what each feature is, in words."""
        gain = np.zeros(len(self.maker.names))
        for models in self.models:
            for model in models:
                gain += model.feature_importance("gain")
        sources = feature_sources(self.maker, 0, np.iinfo(np.int64).max)
        frame = pd.DataFrame(
            {
                "feature": self.maker.names, "gain": gain / max(gain.sum(), 1e-12),
                "words": [source.words for source in sources],
            }
        )  # fmt: skip
        return frame.sort_values("gain", ascending=False, kind="stable", ignore_index=True)

    def _stale(self, train: Seeds) -> NDArray[np.int64]:
        """Cut-offs of training seeds: random times before their own, if `staleness` is set."""
        limits = self.limits(train, None)
        most = self.prepared.config.staleness
        if not most:
            return limits
        rng = np.random.default_rng(self.prepared.config.seed)
        less = rng.random(len(limits)) * most * self.maker.horizon
        return np.asarray(limits - less.astype(np.int64))

    def _targets(self, seeds: Seeds) -> NDArray[np.float64]:
        """Labels for LightGBM, one column per model. Shape [seeds, models]."""
        assert seeds.labels is not None
        if self.kind.name == "multilabel_classification":
            return matrix(seeds.labels).astype(float)
        return np.asarray(self.truth(seeds), float)[:, None]

    def _train(
        self, settings: dict[str, Any], x: Floats, y: NDArray[np.float64],
        stop: tuple[Floats, NDArray[np.float64]] | None = None, budget: Budget = UNLIMITED,
        rounds: Sequence[int] = (),
    ) -> list[Any]:  # fmt: skip
        """Train a model per column of y, with early stopping or for the given rounds."""
        learner, codes = self._learner, self.maker.categorical
        models = []
        for part in range(y.shape[1]):
            most = rounds[part] if rounds else self.ROUNDS
            seen = None if stop is None else (stop[0], stop[1][:, part])
            if self.prepared.config.distributed and isinstance(self.workers, RayWorkers):
                models.append(
                    boosted_on_cluster(
                        self.workers, learner, settings, (x, y[:, part]), seen, codes,
                        rounds=most, patience=self.PATIENCE,
                    )
                )  # fmt: skip
                continue
            data = learner.data(x, y[:, part], codes)
            model, _ = learner.train(
                settings, data, patience=self.PATIENCE, budget=budget, rounds=most,
                stop=None if seen is None else learner.data(*seen, codes, data),
            )  # fmt: skip
            models.append(model)
        return models


class QuickBoostedTrees(BoostedTrees):
    """A quick version with few seeds and rounds, as a baseline for networks."""

    SEARCH_SEEDS = SEEDS = 10_000
    ROUNDS, PATIENCE, FOLDS = 300, 30, 0
    TRIES = False
    FIRST: ClassVar[dict[str, Any]] = FIRST | {"learning_rate": 0.1, "extra_trees": "false"}


def _places(seeds: Seeds, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The positions of a random subset of at most `most` seeds."""
    if len(seeds) <= most:
        return np.arange(len(seeds))
    return np.sort(rng.permutation(len(seeds))[:most])
