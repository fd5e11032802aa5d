"""Weights of the members of `auto`, by what their mean would have been worth on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.kinds import TaskKind
from relfrog.models.backtest import fold_score

__all__ = ["Blend", "choose"]

#: Bootstrap samples of the validation seeds, and the most seeds in each.
DRAWS, DRAWN = 60, 5_000
#: The share of samples that a blend must lose to be clearly worse than the best model.
CLEARLY = 0.9
#: The most members of a blend, the steps from 0 to 1 of weights that are tried, and the least
#: weight of a member.
MOST, STEPS, LEAST = 3, 4, 0.1


@dataclass(frozen=True)
class Blend:
    """Weights of models, which sum to 1, and their evidence.

    Attributes:
        weights: weights of the models in the blend, the largest first.
        score: validation metric of the blend.
        best: the best single model.
        sure: share of bootstrap samples in which the blend beats the best model; 0 without a blend.
    """

    weights: dict[str, float]
    score: float
    best: str
    sure: float

    @property
    def words(self) -> str:
        """Who answers, and how sure it is that this is better than the best model alone."""
        parts = [f"{name} {weight:.2f}" for name, weight in self.weights.items()]
        if len(parts) == 1:
            return f"{self.best} answers"
        return f"{', '.join(parts)} answer; better than {self.best} alone in {self.sure:.0%} of samples"


def choose(
    kind: TaskKind,
    truth: NDArray[Any],
    predicted: Mapping[str, NDArray[Any]],
    labels: Mapping[str, Any] | None = None,
    *,
    quick: Sequence[str] = (),
    seed: int = 0,
) -> Blend:
    """Choose the weights of the best few models.

    In each bootstrap sample of the validation seeds the best weights on a coarse grid are found,
    and their mean over all samples is taken. Weights fitted once to validation labels, or the
    winner of a close race, generalise less well: where samples disagree, the mean is nearer to
    equal weights. A slightly worse validation score of the blend is no reason against it: the best
    model's score is biased, as its epoch or settings were selected on the same labels. But what
    answers is never worse on validation than the best quick model.

    Args:
        kind: the task type.
        truth: labels for the metrics. Shape [seeds].
        predicted: predictions of each model for the validation seeds.
        labels: description of the training labels.
        quick: the models that the choice must not be worse than.
        seed: random seed of the samples.
    """

    def score(values: NDArray[Any], rows: Any = slice(None)) -> float:
        return fold_score(kind, truth[rows], values[rows], (labels or {}).get("quantile"))

    alone = {name: score(values) for name, values in predicted.items()}
    badness = {name: -value if kind.higher else value for name, value in alone.items()}
    order = sorted(alone, key=lambda name: np.nan_to_num(badness[name], nan=np.inf))
    first, names = order[0], [name for name in order[:MOST] if not np.isnan(alone[name])]
    plain = Blend({first: 1.0}, alone[first], first, 0.0)
    if kind.ranks or len(names) < 2:
        return plain  # scores of lists have no common scale
    every = np.stack([predicted[name].astype(float) for name in names])
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(truth), min(len(truth), DRAWN)) for _ in range(DRAWS)]
    weights = np.mean([_best_weights(score, every, rows, kind.higher) for rows in draws], axis=0)
    weights = np.where(weights < LEAST, 0.0, weights)
    weights /= weights.sum()
    if (weights > 0).sum() < 2:
        return plain
    mixed = np.tensordot(weights, every, 1)
    blended = score(mixed)
    if any(kind.better(alone[name], blended) for name in quick):
        return plain
    pairs = [(score(mixed, rows), score(every[0], rows)) for rows in draws]
    if np.mean([kind.better(theirs, ours) for ours, theirs in pairs]) >= CLEARLY:
        return plain
    won = [kind.better(ours, theirs) for ours, theirs in pairs]
    kept = {
        names[n]: round(float(weights[n]), 4) for n in np.argsort(-weights, kind="stable")
        if weights[n] > 0
    }  # fmt: skip
    kept[next(iter(kept))] += 1.0 - sum(kept.values())  # what rounding left
    return Blend(kept, blended, first, float(np.mean(won)))


def _best_weights(
    score: Any, every: NDArray[np.float64], rows: NDArray[np.int64], higher: bool
) -> NDArray[np.float64]:
    """The weights whose mean prediction is best for some seeds.

    Among equals those with the most weight on the first models: one that predicts the same for all
    leaves ranks as they are, and has no weight.

    Args:
        score: the metric of predictions for seeds.
        every: predictions, the best model's first. Shape [models, seeds, ...].
        rows: the seeds.
        higher: whether higher scores are better.
    """
    count = len(every)
    grid = [w for w in product(range(STEPS, -1, -1), repeat=count) if sum(w) == STEPS]
    shares = np.array(grid, float) / STEPS
    found = np.array([score(np.tensordot(w, every, 1), rows) for w in shares])
    if np.isnan(found).all():
        return np.full(count, 1.0 / count)
    found = found if higher else -found
    best = np.nanmax(found)
    return np.asarray(shares[np.argmax(found >= best - 1e-12 * abs(best))])
