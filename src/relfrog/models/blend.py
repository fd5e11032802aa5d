"""Weights of the members of `auto`, by what their mean would have been worth in backtests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.kinds import TaskKind
from relfrog.models.backtest import fold_score

__all__ = ["Blend", "DatedLabels", "choose", "mean_score"]

#: Bootstrap samples of the seeds of each test, and the most seeds in each.
DRAWS, DRAWN = 60, 5_000
#: The share of samples that a blend must lose to be clearly worse than the best model.
CLEARLY = 0.9
#: The most members of a blend, the steps from 0 to 1 of weights that are tried, and the least
#: weight of a member.
MOST, STEPS, LEAST = 3, 4, 0.1
#: Name of what the models with backtests answer together, while it is weighed against others.
TOGETHER = "\0"

Predicted = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class DatedLabels:
    """Labels of a time, and what models that were trained before it predict for them.

    Attributes:
        truth: labels for the metrics. Shape [seeds].
        predicted: predictions of each model.
    """

    truth: NDArray[Any]
    predicted: Predicted


@dataclass(frozen=True)
class Blend:
    """Weights of models, which sum to 1, and their evidence.

    Attributes:
        weights: weights of the models in the blend, the largest first.
        score: validation metric of the blend.
        best: the best single model.
        sure: share of bootstrap samples in which the blend beats the best model, of all times if
            all of it has backtests, otherwise of validation; 0 without a blend.
        backtests: scores at each time, validation the last: of each model that has backtests, and
            as "together" of what these answer together. Empty if validation alone decided.
    """

    weights: dict[str, float]
    score: float
    best: str
    sure: float
    backtests: dict[str, list[float]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Who answers, and how sure it is that this is better than the best model alone."""
        parts = [f"{name} {weight:.2f}" for name, weight in self.weights.items()]
        # One without backtests is in the blend by what validation says of it.
        times = min(len(self.backtests.get(name, [])) for name in self.weights)
        if len(parts) == 1:
            return f"{next(iter(self.weights))} answers" + (f" by {times} backtests" * (times > 1))
        where = f" of {times} backtests" if times > 1 else ""
        won = f"better than {self.best} alone in {self.sure:.0%} of samples{where}"
        return f"{', '.join(parts)} answer; {won}"


def choose(
    kind: TaskKind,
    truth: NDArray[Any],
    predicted: Predicted,
    labels: Mapping[str, Any] | None = None,
    *,
    earlier: Sequence[DatedLabels] = (),
    quick: Sequence[str] = (),
    seed: int = 0,
) -> Blend:
    """Choose the weights of the best few models.

    In each bootstrap sample of the seeds the best weights on a coarse grid are found, and their
    mean over all samples is taken. Weights fitted once to validation labels, or the winner of a
    close race, generalise less well: where samples disagree, the mean is nearer to equal weights. A
    slightly worse validation score of the blend is no reason against it: the best model's score is
    biased, as its epoch or settings were selected on the same labels.

    Models that have predictions for earlier times, too, are weighed by all these times, which are
    drawn as well as the seeds in them: one that was best at one time only has a small weight. What
    they answer together is then weighed against the others, on validation.

    What answers is never worse on validation than the best quick model: where the choice by all
    times would be, validation alone decides.

    Args:
        kind: the task type.
        truth: labels for the metrics. Shape [seeds].
        predicted: predictions of each model for the validation seeds.
        labels: description of the training labels.
        earlier: the same for earlier times; some models may have no predictions there.
        quick: the models that the choice must not be worse than.
        seed: random seed of the samples.
    """
    quantile = (labels or {}).get("quantile")

    def score(truth: NDArray[Any], values: NDArray[Any]) -> float:
        return fold_score(kind, truth, values, quantile)

    rng = np.random.default_rng(seed)
    val = DatedLabels(truth, predicted)
    dated = [name for name in predicted if earlier and all(name in t.predicted for t in earlier)]
    alone = _Weighing(kind, [val], score, rng)
    if len(dated) < 2 or kind.ranks:
        return alone.choose(list(predicted), quick)
    found = _by_all_times(kind, [*earlier, val], dated, score, rng, quick)
    if any(kind.better(score(truth, predicted[name]), found.score) for name in quick):
        return alone.choose(list(predicted), quick)
    return found


def _by_all_times(
    kind: TaskKind, tests: Sequence[DatedLabels], dated: Sequence[str],
    score: Callable[[NDArray[Any], NDArray[Any]], float], rng: np.random.Generator,
    quick: Sequence[str],
) -> Blend:  # fmt: skip
    """The blend of models that have backtests by all of them, and of the others by validation."""
    truth, predicted = tests[-1].truth, tests[-1].predicted
    first = _Weighing(kind, tests, score, rng).choose(dated, [n for n in quick if n in dated])
    scores = {name: [score(t.truth, t.predicted[name]) for t in tests] for name in dated}
    scores["together"] = [score(t.truth, _mean(first.weights, t.predicted)) for t in tests]
    others = {name: values for name, values in predicted.items() if name not in dated}
    if not others:
        return Blend(first.weights, first.score, first.best, first.sure, scores)
    both = {TOGETHER: _mean(first.weights, predicted), **others}
    weighing = _Weighing(kind, [DatedLabels(truth, both)], score, rng)
    last = weighing.choose(list(both), [TOGETHER])
    if len(last.weights) == 1:
        only = first if TOGETHER in last.weights else last
        return Blend(only.weights, only.score, only.best, only.sure, scores)
    best = first.best if last.best == TOGETHER else last.best
    sure = weighing.sure([_mean(last.weights, both)], [predicted[best]])
    weights = {name: w for name, w in last.weights.items() if name != TOGETHER}
    for name, weight in first.weights.items():
        weights[name] = weight * last.weights.get(TOGETHER, 0.0)
    return Blend(_rounded(weights), last.score, best, sure, scores)


class _Weighing:
    """Weights of models by their predictions at several times.

    Args:
        kind: the task type.
        tests: the times, validation the last.
        score: the metric.
        rng: for the samples.
    """

    def __init__(
        self, kind: TaskKind, tests: Sequence[DatedLabels],
        score: Callable[[NDArray[Any], NDArray[Any]], float], rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self._kind, self._tests, self._score = kind, list(tests), score
        self._draws = [self._draw(rng) for _ in range(DRAWS)]
        #: What a worth of 1 is at each time: errors differ from time to time.
        self._scales = np.ones(len(tests))

    def _draw(self, rng: np.random.Generator) -> list[tuple[int, NDArray[np.int64]]]:
        """Times, and seeds of each; validation alone is not drawn."""
        count = len(self._tests)
        drawn = rng.integers(0, count, count) if count > 1 else np.zeros(1, np.int64)
        sizes = [len(test.truth) for test in self._tests]
        return [(int(n), rng.integers(0, sizes[n], min(sizes[n], DRAWN))) for n in drawn]

    def choose(self, names: Sequence[str], quick: Sequence[str]) -> Blend:
        """The weights of the best few of some models; see `choose`."""
        whole = [(n, slice(None)) for n in range(len(self._tests))]
        parts = {name: [np.asarray(t.predicted[name], float) for t in self._tests]
                 for name in names}  # fmt: skip
        if not self._kind.higher:
            errors = [[self._score(t.truth, p[n]) for p in parts.values()]
                      for n, t in enumerate(self._tests)]  # fmt: skip
            self._scales = np.array([np.nan_to_num(min(e), nan=1.0) or 1.0 for e in errors])
        alone = {name: self._worth(values, whole) for name, values in parts.items()}
        order = sorted(alone, key=lambda name: -np.nan_to_num(alone[name], nan=-np.inf))
        first, names = order[0], [name for name in order[:MOST] if not np.isnan(alone[name])]
        plain = Blend({first: 1.0}, self._last(parts[first]), first, 0.0)
        if self._kind.ranks or len(names) < 2:
            return plain  # scores of lists have no common scale
        every = [np.stack([parts[name][n] for name in names]) for n in range(len(self._tests))]
        weights = np.mean([self._best_weights(every, draw) for draw in self._draws], axis=0)
        weights = np.where(weights < LEAST, 0.0, weights)
        weights /= weights.sum()
        if (weights > 0).sum() < 2:
            return plain
        mixed = [np.tensordot(weights, part, 1) for part in every]
        blended = self._worth(mixed, whole)
        if any(alone[name] > blended for name in quick):
            return plain
        if self.sure(parts[first], mixed) >= CLEARLY:
            return plain
        kept = {name: float(w) for name, w in zip(names, weights, strict=True) if w > 0}
        return Blend(_rounded(kept), self._last(mixed), first, self.sure(mixed, parts[first]))

    def sure(self, ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> float:
        """The share of samples in which some predictions, by time, are better than others."""
        won = [self._worth(ours, draw) > self._worth(theirs, draw) for draw in self._draws]
        return float(np.mean(won))

    def _last(self, predicted: Sequence[NDArray[Any]]) -> float:
        return self._score(self._tests[-1].truth, predicted[-1])

    def _worth(self, predicted: Sequence[NDArray[Any]], rows: Sequence[tuple[int, Any]]) -> float:
        """How good predictions are for some seeds of some times: higher is better."""
        scores = [self._score(self._tests[n].truth[some], predicted[n][some]) for n, some in rows]
        if not self._kind.higher:
            scores = [-s / self._scales[n] for s, (n, _) in zip(scores, rows, strict=True)]
        sizes = np.array([min(len(self._tests[n].truth), DRAWN) for n, _ in rows], float)
        known = ~np.isnan(scores) & (sizes > 0)
        if not known.any():
            return float("nan")
        return float(np.average(np.array(scores)[known], weights=sizes[known]))

    def _best_weights(
        self, every: Sequence[NDArray[np.float64]], draw: list[tuple[int, NDArray[np.int64]]]
    ) -> NDArray[np.float64]:
        """The weights whose mean prediction is best for some seeds.

        Among equals those with the most weight on the first models: one that predicts the same for
        all leaves ranks as they are, and has no weight.

        Args:
            every: predictions, the best model's first, by time. Shapes [models, seeds, ...].
            draw: the times and seeds.
        """
        count = len(every[0])
        grid = [w for w in product(range(STEPS, -1, -1), repeat=count) if sum(w) == STEPS]
        shares = np.array(grid, float) / STEPS
        found = np.array(
            [self._worth([np.tensordot(w, part, 1) for part in every], draw) for w in shares]
        )
        if np.isnan(found).all():
            return np.full(count, 1.0 / count)
        best = np.nanmax(found)
        return np.asarray(shares[np.argmax(found >= best - 1e-12 * abs(best))])


def mean_score(scores: Sequence[float | None] | None) -> float | None:
    """The mean of a model's scores at several times; None if there is none."""
    known = [score for score in scores or () if score is not None and score == score]
    return sum(known) / len(known) if known else None


def _mean(weights: Mapping[str, float], predicted: Predicted) -> NDArray[Any]:
    """The weighted mean of predictions."""
    return np.asarray(np.sum([w * predicted[name] for name, w in weights.items()], axis=0))


def _rounded(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights with four digits that sum to 1, the largest first."""
    order = sorted(weights, key=lambda name: -weights[name])
    kept = {name: round(weights[name], 4) for name in order if weights[name] > 0}
    kept[next(iter(kept))] += 1.0 - sum(kept.values())  # what rounding left
    return kept
