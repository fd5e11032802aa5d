"""LightGBM for tasks with one label per entity, on automatic features or only the own columns.

Random search over a given number of trials, each with early stopping on validation; the best few by
the validation metric are averaged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from relfrog.models.booster_file import load_lightgbm, read_boosters, write_boosters
from relfrog.models.distributed_trees import boosted_on_cluster
from relfrog.models.feature_budget import make_in_time, stop_in_time
from relfrog.models.model import Model, TableChange
from relfrog.models.run_forms import TreesFile
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = [
    "BoostedTrees",
    "QuickBoostedTrees",
    "boosted",
]


Floats = NDArray[np.float32]

#: Settings of the first trial; the other trials are sampled from `SEARCHED`.
FIRST: dict[str, Any] = {
    "learning_rate": 0.05, "num_leaves": 15, "min_data_in_leaf": 50, "feature_fraction": 0.4,
    "bagging_fraction": 0.8, "lambda_l2": 1.0,
}  # fmt: skip
SEARCHED: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.03, 0.05, 0.1), "num_leaves": (4, 7, 15, 31, 63),
    "min_data_in_leaf": (10, 20, 50, 100, 200), "feature_fraction": (0.1, 0.2, 0.4, 0.7),
    "bagging_fraction": (0.5, 0.8, 1.0), "lambda_l2": (0.0, 1.0, 10.0),
}  # fmt: skip


#: LightGBM's objectives by the setting `loss`, the first trial's first.
OBJECTIVES = {
    "l1": ("l1", "huber"), "quantile": ("quantile",), "squared": ("regression",),
    "poisson": ("poisson",), "tweedie": ("tweedie",),
    "mean": ("regression", "poisson", "tweedie"),
}  # fmt: skip


def _file(number: int, part: int) -> str:
    return f"lightgbm-{number}-{part}.txt"


class BoostedTrees(Model):
    """Gradient-boosted trees on features computed at the cut-off of each seed."""

    FILE = "lightgbm.json"
    #: The most training seeds of a trial, and of the final models.
    SEARCH_SEEDS, SEEDS = 30_000, 300_000
    #: The most boosting rounds, and the patience of early stopping.
    ROUNDS, PATIENCE = 2000, 60
    #: Settings of the first trial.
    FIRST: ClassVar[dict[str, Any]] = FIRST
    #: Number of models to average.
    BEST = 3
    #: The most labels of a multilabel task; each has a model of its own.
    MOST_LABELS = 30

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self.models: list[list[Any]] = []
        self._saved: dict[str, Any] | None = None
        self._budget = UNLIMITED

    @cached_property
    def maker(self) -> FeatureMaker:
        """Computes the features of seeds."""
        maker = FeatureMaker(self.prepared, self.labels, self._saved)
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
        """Search for settings, and train with the best."""
        train, val = self.prepared.train_seeds, self.prepared.seeds("val")
        assert train is not None
        assert train.labels is not None
        if int(self.labels.get("labels", 0)) > self.MOST_LABELS:
            raise TaskError(
                f"lightgbm: {self.labels['labels']} labels; it learns {self.MOST_LABELS} at most, "
                "one model each. Take frog or recent."
            )
        self._budget = budget
        if self.workers is not None:
            self.maker.elsewhere = partial(features_elsewhere, self.workers)
        if self.prepared.config.distributed and not isinstance(self.workers, RayWorkers):
            raise UsageError("distributed=true needs the nodes of a Ray cluster: add --cluster.")
        rng = np.random.default_rng(self.prepared.config.seed)
        train = _some(train, self.SEEDS, rng)
        assert train.labels is not None
        left = self.maker.plan.left_out
        announce(
            callbacks,
            f"lightgbm: {len(self.maker.names)} features"
            + (f"; no room for {len(left)} more, such as {left[0]}" if left else ""),
        )
        regime, limits = self.prepared.config.regime, self._stale(train, rng)
        cutoff, started = self.prepared.cutoff("val", regime), time.monotonic()
        seen = self.maker.make(np.asarray(val.rows), self.limits(val, cutoff), val.times)
        took = time.monotonic() - started

        every = train

        def make(some: NDArray[np.int64]) -> NDArray[Any]:
            """Features of some training seeds."""
            part = every if len(some) == len(every) else every.take(some)
            return self.maker.make(np.asarray(part.rows), limits[some], part.times)

        # Trials need time, too, and scores need the features of three more splits.
        seconds = budget.share(2).left - 3 * took
        x, some = make_in_time(make, len(train), seconds, (len(val), took), rng)
        if len(some) < len(train):
            announce(
                callbacks,
                f"lightgbm: there is time for {len(some):,} of {len(train):,} training seeds",
            )
            train = train.take(some)
        y, z = (self._targets(seeds) for seeds in (train, val))
        few = np.sort(rng.permutation(len(x))[: self.SEARCH_SEEDS])
        metric, higher = self.kind.metric, self.kind.higher
        found: list[tuple[float, int, dict[str, Any], list[Any]]] = []
        trials = self.prepared.config.trials
        for number in range(trials):
            if number and budget.over:
                announce(callbacks, f"lightgbm: time is over after {number} of {trials} trials")
                break
            settings = self._settings(number, rng)
            models = self._train(settings, x[few], y[few], seen, z)
            scores = self.metrics(val, self._answer([models], seen))
            rounds = [model.best_iteration for model in models]
            self.trials.append(
                {"trial": number, "settings": settings, "rounds": rounds, "regime": regime,
                 "val": scores}
            )  # fmt: skip
            score = scores[metric] if higher else -scores[metric]
            found.append((score if np.isfinite(score) else -np.inf, -number, settings, models))
            announce(
                callbacks,
                f"lightgbm: trial {number + 1} of {trials}, val {metric} {scores[metric]:.4f}",
            )
        found.sort(key=lambda entry: entry[:2], reverse=True)
        best = found[: self.BEST]
        if len(few) < len(x) and not budget.over:
            announce(callbacks, f"lightgbm: the best settings with all {len(x):,} seeds")
            self.models = [self._train(settings, x, y, seen, z) for _, _, settings, _ in best]
        else:
            self.models = [models for *_, models in best]
        if self.prepared.config.refit:
            announce(callbacks, "lightgbm: refit on training and validation labels")
            both = self.prepared.opened.with_validation(train)
            more = both.take(np.arange(len(x), len(both)))
            x = np.concatenate([x, self.maker.make(more.rows, self._stale(more, rng), more.times)])
            y = np.concatenate([y, self._targets(more)])
            self.selected = self._copy()
            self.models = [
                self._train(settings, x, y, rounds=[model.best_iteration for model in models])
                for (*_, settings, _), models in zip(best, self.models, strict=True)
            ]

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
        read = read_boosters(folder, files, width)
        self.models = [[read[_file(n, part)] for part in range(parts)] for n in range(models)]

    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """The mean prediction of the models."""
        limits = self.limits(seeds, cutoff)
        return self._answer(
            self.models, self.maker.make(np.asarray(seeds.rows), limits, seeds.times)
        )

    def importance(self) -> pd.DataFrame:
        """Feature importance by gain, sorted."""
        gain = np.zeros(len(self.maker.names))
        for models in self.models:
            for model in models:
                gain += model.feature_importance("gain")
        frame = pd.DataFrame({"feature": self.maker.names, "gain": gain / max(gain.sum(), 1e-12)})
        return frame.sort_values("gain", ascending=False, kind="stable", ignore_index=True)

    def _stale(self, train: Seeds, rng: np.random.Generator) -> NDArray[np.int64]:
        """Cut-offs of training seeds: random times before their own, if `staleness` is set."""
        limits = self.limits(train, None)
        most = self.prepared.config.staleness
        if not most:
            return limits
        less = rng.random(len(limits)) * most * self.maker.horizon
        return np.asarray(limits - less.astype(np.int64))

    def _settings(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        chosen = {name: rng.choice(np.array(values)) for name, values in SEARCHED.items()}
        settings = dict(self.FIRST) if number == 0 else {k: v.item() for k, v in chosen.items()}
        if self.kind.name == "regression":
            objectives = self._objectives()
            objective = str(rng.choice(np.array(objectives)))
            settings["objective"] = objectives[0] if number == 0 else objective
        return settings

    def _objectives(self) -> tuple[str, ...]:
        """LightGBM's names of what may be minimised under the loss of a regression."""
        loss = str(self.labels.get("loss", "l1"))
        if loss == "mean":
            return OBJECTIVES[loss] if float(self.labels["low"]) >= 0 else OBJECTIVES["squared"]
        return OBJECTIVES[loss]

    def _targets(self, seeds: Seeds) -> NDArray[np.float64]:
        """Labels for LightGBM, one column per model. Shape [seeds, models]."""
        assert seeds.labels is not None
        if self.kind.name == "multilabel_classification":
            return np.stack([np.asarray(row, float) for row in seeds.labels])
        return np.asarray(self.truth(seeds), float)[:, None]

    def _train(
        self, settings: dict[str, Any], x: Floats, y: NDArray[np.float64],
        seen: Floats | None = None, z: NDArray[np.float64] | None = None,
        rounds: Sequence[int] = (),
    ) -> list[Any]:  # fmt: skip
        """Train a model per column of y, with early stopping or for the given rounds."""
        if seen is None or z is None:
            seen, z = x[:0], y[:0]
        return [
            self._booster(settings, x, y[:, n], seen, z[:, n], rounds[n] if rounds else None)
            for n in range(y.shape[1])
        ]

    def _booster(
        self, settings: dict[str, Any], x: Floats, y: NDArray[np.float64], seen: Floats,
        z: NDArray[np.float64], rounds: int | None,
    ) -> Any:  # fmt: skip
        lightgbm = load_lightgbm()
        given: dict[str, Any] = {
            "objective": "binary", "metric": "auc", "verbosity": -1, "bagging_freq": 1,
            "seed": self.prepared.config.seed, "deterministic": True, "force_col_wise": True,
            # One thread, for reproducibility and to leave the cores to other processes.
            "num_threads": 1, "feature_pre_filter": False,
        }  # fmt: skip
        if self.kind.name == "regression":
            low, high = float(self.labels["low"]), float(self.labels["high"])
            y = np.clip(y, low, high)
            # Alpha is where Huber's loss becomes linear, or the quantile.
            alpha = self.labels.get("quantile", 0.5 * float(self.labels["scale"]))
            metric = {"mae": "l1", "rmse": "rmse", "pinball": "quantile"}[self.kind.metric]
            given |= {"metric": metric, "alpha": float(alpha)}
        elif self.kind.name == "multiclass_classification":
            classes = len(self.labels["classes"])
            given |= {"objective": "multiclass", "metric": "multi_logloss", "num_class": classes}
            # Classes unseen in training have no index.
            x, y, seen, z = x[y >= 0], y[y >= 0], seen[z >= 0], z[z >= 0]
        elif weight := self.labels.get("weight"):
            given["scale_pos_weight"] = weight
        if len(np.unique(z)) < 2 and given["metric"] == "auc":
            given["metric"] = "binary_logloss"
        rounds = rounds or (self.ROUNDS if len(seen) else 200)
        codes = self.maker.categorical
        if self.prepared.config.distributed and isinstance(self.workers, RayWorkers):
            patience = self.PATIENCE if len(seen) else 0
            return boosted_on_cluster(
                self.workers, given | settings, (x, y), (seen, z), codes, rounds, patience
            )
        data = lightgbm.Dataset(x, y, categorical_feature=codes, params=given, free_raw_data=False)
        callbacks, valid = [], []
        if len(seen):
            valid = [lightgbm.Dataset(seen, z, reference=data, free_raw_data=False)]
            callbacks = [
                lightgbm.early_stopping(self.PATIENCE, verbose=False),
                stop_in_time(lightgbm, self._budget),
            ]
        return boosted(given | settings, data, rounds, valid, callbacks)

    def _answer(self, models: list[list[Any]], x: Floats) -> NDArray[Any]:
        """The mean prediction of the models, for the metrics."""
        classes = len(self.labels.get("classes", ()))
        if not len(x):
            wide = classes or int(self.labels.get("labels", 0))
            return np.zeros((0, wide)) if wide else np.zeros(0)
        found: Any = 0.0
        for some in models:
            parts = [np.asarray(m.predict(x, num_iteration=m.best_iteration)) for m in some]
            single = self.kind.name != "multilabel_classification"
            found = found + (parts[0] if single else np.stack(parts, 1))
        return self.finish(found / len(models))

    def finish(self, found: NDArray[Any]) -> NDArray[Any]:
        """The prediction from the mean of the models."""
        if weight := self.labels.get("weight"):
            found = found / (found + weight * (1 - found))  # what the weight added to the odds
        if self.kind.name == "regression":
            found = np.clip(found, float(self.labels["low"]), float(self.labels["high"]))
        return np.asarray(found)


class QuickBoostedTrees(BoostedTrees):
    """A quick version with few seeds and rounds, as a baseline for networks."""

    SEARCH_SEEDS = SEEDS = 10_000
    ROUNDS, PATIENCE = 300, 30
    FIRST: ClassVar[dict[str, Any]] = FIRST | {"learning_rate": 0.1, "feature_fraction": 0.2}


def _some(seeds: Seeds, most: int, rng: np.random.Generator) -> Seeds:
    """A random subset of at most `most` seeds."""
    if len(seeds) <= most:
        return seeds
    return seeds.take(np.sort(rng.permutation(len(seeds))[:most]))


def boosted(
    settings: dict[str, Any], data: Any, rounds: int, valid: list[Any], callbacks: list[Any]
) -> Any:
    """Train a LightGBM model.

    Raises:
        RunError: LightGBM raises an error.
    """
    lightgbm = load_lightgbm()
    try:
        return lightgbm.train(settings, data, rounds, valid, callbacks=callbacks)
    except lightgbm.basic.LightGBMError as error:
        raise RunError(f"LightGBM cannot learn from these labels: {error}") from None
