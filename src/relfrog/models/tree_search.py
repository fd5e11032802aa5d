"""Search for features and settings of boosted trees by backtests.

Every trial is trained once per fold and scored on seeds that follow. The number of rounds is one
for all folds: the one that is best on their average.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.models.backtest import SURE, Backtests, Comparison
from relfrog.models.tree_learner import TreeLearner
from relfrog.training.budget import UNLIMITED, Budget

__all__ = ["FIRST", "FoldData", "TreeSearch", "Trial", "common_rounds"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

#: Settings of the first trial; the other trials are sampled from `SEARCHED`.
FIRST: dict[str, Any] = {
    "learning_rate": 0.05, "num_leaves": 15, "min_data_in_leaf": 50, "feature_fraction": 0.2,
    "bagging_fraction": 0.8, "lambda_l2": 1.0, "extra_trees": "true",
}  # fmt: skip
SEARCHED: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.03, 0.05, 0.1), "num_leaves": (4, 7, 15, 31, 63),
    "min_data_in_leaf": (10, 20, 50, 100, 200), "feature_fraction": (0.1, 0.2, 0.4, 0.7),
    "bagging_fraction": (0.5, 0.8, 1.0), "lambda_l2": (0.0, 1.0, 10.0),
    "extra_trees": ("true", "true", "false"),
}  # fmt: skip
#: Settings with which families of features are tried: fewer rounds than the first trial's. And the
#: most seeds to learn from.
PROBE, PROBE_SEEDS = {"learning_rate": 0.1}, 15_000
#: How many of the best trials may be averaged.
TOGETHER = (1, 3, 5)


@dataclass(frozen=True, eq=False)
class FoldData:
    """The data of a fold.

    Attributes:
        known: the training seeds whose labels were known by its time, as positions. Shape [known].
        learned: those of them to learn from. Shape [learned].
        x: features of the seeds to be scored on. Shape [scored, features].
        y: labels of these. Shape [scored, models].
    """

    known: Ints
    learned: Ints
    x: Floats
    y: NDArray[np.float64]

    def without_labels_since(self, earlier: FoldData) -> FoldData:
        """The same, less the seeds whose labels were not known by the time of an earlier fold."""
        return replace(self, learned=np.intersect1d(self.learned, earlier.known))


@dataclass(frozen=True, eq=False)
class Trial:
    """Settings, and what backtests say of them.

    Attributes:
        settings: of LightGBM.
        rounds: for each model of a fold.
        predicted: predictions for the scored seeds of each fold.
        scores: the metric in each fold.
        models: those of the last fold, which have learned from all training seeds.
        seconds: how long it took.
    """

    settings: dict[str, Any]
    rounds: list[int]
    predicted: list[NDArray[Any]]
    scores: list[float]
    models: list[Any]
    seconds: float


class TreeSearch:
    """Tries features and settings on all folds.

    Args:
        learner: trains the models.
        x: features of the training seeds. Shape [seeds, features].
        y: their labels. Shape [seeds, models].
        folds: the folds, the validation split last.
        tests: scores predictions for their seeds.
        codes: indices of categorical features.
        first: settings of the first trial.
        rounds: the most rounds.
        patience: rounds without a better score before training stops.
    """

    def __init__(
        self, learner: TreeLearner, x: Floats, y: NDArray[np.float64], folds: Sequence[FoldData],
        tests: Backtests, codes: Sequence[int], *, first: dict[str, Any], rounds: int,
        patience: int,
    ) -> None:  # fmt: skip
        self.learner, self.tests = learner, tests
        self._x, self._y, self._folds, self._codes = x, y, folds, list(codes)
        self._first, self._rounds, self._patience = first, rounds, patience
        self._columns: Ints = np.arange(x.shape[1])
        self._data: list[list[tuple[Any, Any]]] = []
        self._most = len(x)

    @property
    def learned(self) -> Ints:
        """The training seeds that the models of the last fold learn from."""
        return self._folds[-1].learned

    def use(self, columns: Ints, most: int | None = None) -> None:
        """Use only some of the features, and of the seeds to learn from, from now on."""
        self._columns, self._data = np.asarray(columns), []
        self._most = len(self._x) if most is None else most

    def settings(self, number: int, rng: np.random.Generator) -> dict[str, Any]:
        """The settings of a trial: at first fixed ones, then random ones."""
        chosen = {name: rng.choice(np.array(values)).item() for name, values in SEARCHED.items()}
        objectives = self.learner.objectives
        if objectives:
            chosen["objective"] = str(rng.choice(np.array(objectives)))
        first = self._first | ({"objective": objectives[0]} if objectives else {})
        return chosen if number else first

    def trial(
        self, settings: dict[str, Any], budget: Budget = UNLIMITED, patience: int | None = None
    ) -> Trial:
        """Train with settings on every fold, and score the predictions.

        No fold takes the time of later ones, the last of which has the models that are kept.
        """
        started = time.monotonic()
        datasets = self._datasets()
        left = iter(range(sum(map(len, datasets)), 0, -1))
        trained = [
            [
                self.learner.train(
                    settings, data, stop=stop, patience=patience or self._patience,
                    rounds=self._rounds, budget=budget.share(next(left)),
                )
                for data, stop in parts
            ]
            for parts in datasets
        ]  # fmt: skip
        sizes = [len(fold.y) for fold in self._folds]
        rounds = [
            common_rounds([fold[part][1] for fold in trained], sizes)
            for part in range(self._y.shape[1])
        ]
        for fold in trained:
            for (model, _), count in zip(fold, rounds, strict=True):
                model.best_iteration = min(count, model.current_iteration())
        predicted = [
            self.learner.predict([[model for model, _ in models]], fold.x[:, self._columns])
            for fold, models in zip(self._folds, trained, strict=True)
        ]
        last = [model for model, _ in trained[-1]]
        scores, took = self.tests.scores(predicted), time.monotonic() - started
        return Trial(settings, rounds, predicted, scores, last, took)

    def drop_families(
        self, families: dict[str, Ints], tried: Sequence[str], settings: dict[str, Any],
        budget: Budget = UNLIMITED, tell: Callable[[str], None] = lambda _: None,
    ) -> tuple[list[str], dict[str, Comparison]]:  # fmt: skip
        """Choose the families of features to do without.

        Those whose absence is better in most bootstrap samples of the backtests are dropped,
        unless everything, or the families that need no backtests, score better.

        Args:
            families: the features of each family.
            tried: families that backtests have to speak for: without any, or without time, they go.
            settings: of the trials.
            budget: time budget.
            tell: notified of what is dropped.

        Returns:
            The families to drop; and how everything does beside everything but each family.
        """
        every = np.arange(self._x.shape[1])
        probe = settings | PROBE
        patience = self._patience // 2

        def without(names: Sequence[str]) -> Trial:
            gone = [families[name] for name in names]
            self.use(np.setdiff1d(every, np.concatenate([every[:0], *gone])), PROBE_SEEDS)
            return self.trial(probe, budget, patience)

        core = [name for name in families if name in tried]
        if not families or len(self._folds) < 2:
            return core, {}  # one split cannot say which of many features help
        everything = without([])
        known: dict[str, Comparison] = {}
        for name in families:
            if budget.over:
                tell(f"no time to try features: {', '.join(core) or 'nothing'} left out")
                return core, known
            known[name] = self.tests.compare(everything.predicted, without([name]).predicted)
        dropped = [name for name, found in known.items() if found.sure <= 1 - SURE]
        choices: dict[tuple[str, ...], Trial] = {(): everything}
        for names in (dropped, core):
            if tuple(names) not in choices and not budget.over:
                choices[tuple(names)] = without(names)
        best = max(choices, key=lambda names: self._gain(choices[names], everything))
        tell(_dropped_in_words(best, known))
        return list(best), known

    def newer_labels(self, trial: Trial, budget: Budget = UNLIMITED) -> Comparison | None:
        """What the labels between a fold and the one before it are worth, as a refit would add.

        Returns:
            How the models of a trial do beside those that lack them; None with a single fold.
        """
        if len(self._folds) < 2 or budget.over:
            return None
        pairs = list(pairwise(self._folds))
        tests = Backtests(self.tests.kind, self.tests.truth[1:], self.tests.quantile)
        older = TreeSearch(
            self.learner, self._x, self._y,
            [fold.without_labels_since(before) for before, fold in pairs], tests,
            self._codes, first=self._first, rounds=self._rounds, patience=self._patience,
        )  # fmt: skip
        older.use(self._columns)
        found = older.trial(trial.settings, budget)
        # Models that ran out of time would be worse for that alone.
        return None if budget.over else tests.compare(trial.predicted[1:], found.predicted)

    def best(self, trials: Sequence[Trial]) -> list[int]:
        """The trials that are best together, by their mean prediction; the best one first."""
        first = trials[0]
        order = sorted(range(len(trials)), key=lambda n: (-self._gain(trials[n], first), n))
        sizes = [size for size in TOGETHER if size <= len(trials)]
        means = {size: self.mean_of([trials[n] for n in order[:size]]) for size in sizes}
        reference = self.tests.scores(first.predicted)
        gains = {s: self.tests.gain(self.tests.scores(m), reference) for s, m in means.items()}
        return order[: max(sizes, key=lambda size: (np.nan_to_num(gains[size], nan=-np.inf), size))]

    @staticmethod
    def mean_of(trials: Sequence[Trial]) -> list[NDArray[Any]]:
        """The mean predictions of trials, by fold."""
        return [
            np.mean(parts, axis=0) for parts in zip(*(t.predicted for t in trials), strict=True)
        ]

    def _gain(self, trial: Trial, reference: Trial) -> float:
        found = self.tests.gain(trial.scores, reference.scores)
        return found if np.isfinite(found) else -np.inf

    def _datasets(self) -> list[list[tuple[Any, Any]]]:
        """For each fold and model the data to learn from and those to stop by, made once."""
        if not self._data:
            kept = set(self._columns.tolist())
            codes = [int(np.searchsorted(self._columns, c)) for c in self._codes if c in kept]
            for fold in self._folds:
                learned = spread(fold.learned, self._most)
                x, y = self._x[learned][:, self._columns], self._y[learned]
                seen = fold.x[:, self._columns]
                parts = []
                for part in range(y.shape[1]):
                    data = self.learner.data(x, y[:, part], codes)
                    parts.append((data, self.learner.data(seen, fold.y[:, part], codes, data)))
                self._data.append(parts)
        return self._data


def spread(seeds: Ints, most: int) -> Ints:
    """At most so many seeds, evenly from the first to the last."""
    if len(seeds) <= most:
        return seeds
    return np.asarray(seeds[np.linspace(0, len(seeds) - 1, most).astype(int)])


def common_rounds(curves: Sequence[NDArray[np.float64]], sizes: Sequence[int]) -> int:
    """The number of rounds that is best on the average of several folds.

    Args:
        curves: how bad a model was after each round, per fold.
        sizes: the weight of each fold.
    """
    some = [(curve, size) for curve, size in zip(curves, sizes, strict=True) if len(curve)]
    if not some:
        return 1
    longest = max(len(curve) for curve, _ in some)
    total = np.zeros(longest)
    for curve, size in some:
        # It was no better later on, or it would not have been stopped.
        whole = np.concatenate([curve, np.full(longest - len(curve), curve[-1])])
        scale = abs(whole.min()) or 1.0
        total += size * (whole - whole.min()) / scale
    return int(total.argmin()) + 1


def _dropped_in_words(dropped: Sequence[str], known: dict[str, Comparison]) -> str:
    if not dropped:
        return "all families of features are kept"
    words = [f"{name} ({1 - known[name].sure:.0%} sure)" for name in dropped]
    return f"features left out: {', '.join(words)}"
