"""How sure a score is: resampling of entities, which keeps together what belongs together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relfrog.evaluation import compute_metrics

__all__ = ["Interval", "quick_metric", "resample"]


class Interval(NamedTuple):
    """A value with the range in which 95 % of the resampled values lie; NaN if unknown."""

    value: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the range lies on one side of zero."""
        return bool(self.low > 0 or self.high < 0)


def resample(
    entities: NDArray[Any],
    score: Callable[[NDArray[np.int64]], float],
    *,
    times: int = 200,
    seed: int = 0,
) -> Interval:
    """The range of a score when other entities had been drawn: a bootstrap over entities.

    Several seeds of one entity are drawn together, as they are no independent witnesses.

    Args:
        entities: whose seed each is. Shape [seeds].
        score: the score of some seeds, given their positions; NaN where it is not defined.
        times: how often to draw.
        seed: of the draws.
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
    found = []
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


def quick_metric(kind: str, metric: str, truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """One metric, as `relfrog.evaluation.compute_metrics` has it, a few times faster.

    A bootstrap computes it thousands of times.
    """
    if metric == "roc_auc" and kind == "binary_classification":
        positive = truth.astype(bool)
        count = int(positive.sum())
        if count in (0, len(positive)):
            return float("nan")
        _, place, times = np.unique(predicted, return_inverse=True, return_counts=True)
        rank = np.cumsum(times) - (times - 1) / 2  # those that are equal share a rank
        above = rank[place][positive].sum() - count * (count + 1) / 2
        return float(above / (count * (len(positive) - count)))
    if metric == "mae" and len(truth):
        return float(np.abs(truth.astype(float) - predicted).mean())
    return compute_metrics(kind, truth, predicted, only=metric)[metric]
