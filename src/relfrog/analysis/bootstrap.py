"""Bootstrap confidence intervals of scores, clustered by entity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relfrog.datasets.metrics import compute_metrics
from relfrog.kinds import TASK_KINDS
from relfrog.support.lists import are_in, flatten, matrix

__all__ = ["Interval", "Scorer", "resample"]


class Interval(NamedTuple):
    """A value with its 95 % bootstrap interval; NaN if unknown."""

    value: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval excludes zero."""
        return bool(self.low > 0 or self.high < 0)


def resample(
    entities: NDArray[Any],
    score: Callable[[NDArray[np.int64]], float],
    *,
    times: int = 200,
    seed: int = 0,
) -> Interval:
    """The bootstrap interval of a score, resampling entities.

    All seeds of an entity are drawn together, as they are not independent.

    Args:
        entities: entity of each seed. Shape [seeds].
        score: computes the score of the seeds at some positions; NaN if undefined.
        times: number of bootstrap samples.
        seed: random seed.
    """
    everyone = np.arange(len(entities))
    value = score(everyone) if len(entities) else float("nan")
    _, owner = np.unique(entities, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    begin = np.searchsorted(owner[order], np.arange(owner.max(initial=-1) + 2))
    count = len(begin) - 1
    if count < 2:
        return Interval(value, float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    found: list[float] = []
    for _ in range(times):
        drawn = rng.integers(0, count, count)
        length = begin[drawn + 1] - begin[drawn]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        found.append(score(order[np.repeat(begin[drawn], length) + within]))
    known = np.array(found)[~np.isnan(found)]
    if len(known) < times / 2:
        return Interval(value, float("nan"), float("nan"))
    low, high = np.quantile(known, [0.025, 0.975])
    return Interval(value, float(low), float(high))


class Scorer:
    """A fast version of `compute_metrics` for one metric on subsets of seeds.

    A bootstrap computes a metric thousands of times. Most metrics are means over seeds, so the
    value of each seed is computed once.

    Args:
        kind: RelBench's name of the task type.
        metric: the metric.
        truth: labels of all seeds.
        predicted: predictions for all seeds.
        quantile: what was predicted, if it is a quantile.
    """

    def __init__(
        self, kind: str, metric: str, truth: NDArray[Any], predicted: NDArray[Any],
        quantile: float | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.metric, self.truth, self.predicted = kind, metric, truth, predicted
        self.quantile = quantile
        self.each: NDArray[np.float64] | None = None
        if metric == "mae":
            self.each = np.abs(truth.astype(float) - predicted)
        elif metric == "accuracy" and not TASK_KINDS[kind].scalar:
            self.each = (predicted.argmax(1) == truth).astype(float)
        elif metric == "map":
            self.each = _average_precisions(truth, predicted[:, :, 0].astype(np.int64))
        elif metric == "roc_auc_macro":
            self.truth = matrix(truth).astype(int)

    def __call__(self, at: NDArray[np.int64]) -> float:
        """The metric of the seeds at some positions; NaN if undefined."""
        if self.each is not None:
            values = self.each[at][~np.isnan(self.each[at])]
            return float(values.mean()) if len(values) else float("nan")
        truth, predicted = self.truth[at], self.predicted[at]
        if self.metric == "roc_auc":
            return _roc_auc(truth.astype(bool), predicted)
        if self.metric == "roc_auc_macro":
            areas = [_roc_auc(truth[:, i] == 1, predicted[:, i]) for i in range(truth.shape[1])]
            known = [area for area in areas if not np.isnan(area)]
            return float(np.mean(known)) if known else float("nan")
        found = compute_metrics(
            self.kind, truth, predicted, only=self.metric, quantile=self.quantile
        )
        return found[self.metric]


def _roc_auc(positive: NDArray[np.bool_], predicted: NDArray[Any]) -> float:
    count = int(positive.sum())
    if count in (0, len(positive)):
        return float("nan")
    _, place, times = np.unique(predicted, return_inverse=True, return_counts=True)
    rank = np.cumsum(times) - (times - 1) / 2  # ties share a rank
    above = rank[place][positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(positive) - count)))


def _average_precisions(truth: NDArray[Any], lists: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average precision of each list. Shapes: [seeds], [seeds, k] -> [seeds]."""
    hit = are_in(lists, truth).astype(float)
    precision = hit.cumsum(1) / np.arange(1, lists.shape[1] + 1)
    count = np.minimum(flatten(truth)[0], lists.shape[1])
    # Undefined for seeds without labels.
    return np.where(count > 0, (precision * hit).sum(1) / np.maximum(count, 1), np.nan)
