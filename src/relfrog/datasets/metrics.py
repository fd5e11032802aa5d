"""Metrics of predictions, and the regimes under which they are computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.support.lists import flatten, matrix

__all__ = ["REGIMES", "ReliabilityBin", "calibration_error", "compute_metrics", "reliability"]


#: frozen: for all seeds of a split, the database ends at the split's timestamp. rolling: each seed
#: sees everything up to its own time.
REGIMES = ("frozen", "rolling")


@dataclass(frozen=True)
class Details:
    """What some metrics need beside labels and predictions; see `compute_metrics`."""

    label_std: float | None = None
    thresholds: NDArray[Any] | float = 0.5
    bounds: tuple[NDArray[Any], NDArray[Any]] | None = None


#: By name, computed when asked for.
Scores = dict[str, Callable[[], float]]


def compute_metrics(
    kind: str,
    labels: NDArray[Any],
    predicted: NDArray[Any],
    label_std: float | None = None,
    only: str | None = None,
    *,
    quantile: float | None = None,
    thresholds: NDArray[Any] | float = 0.5,
    bounds: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> dict[str, float]:
    """Compute metrics, RelBench's own first; NaN where one is undefined.

    Args:
        kind: RelBench's name of the task type.
        labels: the true labels.
        predicted: the predictions.
        label_std: standard deviation of the training labels, for NMAE.
        only: compute only this metric; by default all.
        quantile: what regression predicts, if it is a quantile: adds the pinball loss.
        thresholds: from which probability on a decision is yes: one, or one per label.
        bounds: lower and upper ends of prediction intervals, if there are any.
    """
    scores = _SCORES[kind](labels, predicted, Details(label_std, thresholds, bounds))
    if quantile is not None:
        scores = {"pinball": lambda: _pinball(labels, predicted, quantile), **scores}
    if only is not None:
        scores = {only: scores[only]}
    return {name: _defined(score) for name, score in scores.items()}


def _binary(labels: NDArray[Any], predicted: NDArray[Any], details: Details) -> Scores:
    import sklearn.metrics as skm

    truth, chosen = labels.astype(int), predicted >= details.thresholds
    return {
        "roc_auc": lambda: skm.roc_auc_score(truth, predicted),
        "average_precision": lambda: skm.average_precision_score(truth, predicted),
        "accuracy": lambda: skm.accuracy_score(truth, chosen),
        "f1": lambda: skm.f1_score(truth, chosen),
        "precision": lambda: skm.precision_score(truth, chosen, zero_division=np.nan),
        "recall": lambda: skm.recall_score(truth, chosen, zero_division=np.nan),
        "calibration_error": lambda: calibration_error(truth, predicted),
    }


def _regression(labels: NDArray[Any], predicted: NDArray[Any], details: Details) -> Scores:
    import sklearn.metrics as skm

    truth = labels.astype(float)
    scores: Scores = {
        # Ranges of scores ask for these a thousand times; scikit-learn's checks cost most of it.
        "mae": lambda: _mean(np.abs(truth - predicted)),
        "rmse": lambda: _mean((truth - predicted) ** 2) ** 0.5,
        "r2": lambda: skm.r2_score(truth, predicted),
    }
    std, bounds = details.label_std, details.bounds
    if std:
        scores["nmae"] = lambda: _mean(np.abs(truth - predicted)) / std
    if bounds is not None:
        low, high = bounds
        scores["coverage"] = lambda: _mean((low <= truth) & (truth <= high))
        scores["interval_width"] = lambda: _mean(high - low)
    return scores


def _pinball(labels: NDArray[Any], predicted: NDArray[Any], quantile: float) -> float:
    missed = labels.astype(float) - predicted
    return float(np.mean(np.maximum(quantile * missed, (quantile - 1) * missed)))


def _multiclass(labels: NDArray[Any], predicted: NDArray[Any], _: Details) -> Scores:
    import sklearn.metrics as skm

    truth, chosen = labels.astype(int), predicted.argmax(1)
    return {
        "accuracy": lambda: skm.accuracy_score(truth, chosen),
        "macro_f1": lambda: skm.f1_score(truth, chosen, average="macro"),
        "calibration_error": lambda: calibration_error(chosen == truth, predicted.max(1)),
    }


def _multilabel(labels: NDArray[Any], predicted: NDArray[Any], details: Details) -> Scores:
    import sklearn.metrics as skm

    truth = matrix(labels).astype(int)
    both = (truth.min(0) == 0) & (truth.max(0) == 1)  # ranking metrics need both values
    ranked = truth[:, both], predicted[:, both]
    chosen = predicted >= details.thresholds
    return {
        "roc_auc_macro": lambda: skm.roc_auc_score(*ranked),
        "average_precision_macro": lambda: skm.average_precision_score(*ranked),
        "f1_macro": lambda: skm.f1_score(truth, chosen, average="macro"),
        "calibration_error": lambda: calibration_error(truth.ravel(), predicted.ravel()),
    }


def _recommendation(labels: NDArray[Any], predicted: NDArray[Any], _: Details) -> Scores:
    from relbench.metrics import map as ranking_map

    lists = predicted[:, :, 0].astype(np.int64)
    # A pair of seed and target is one number; -1, which pads a list, is no target.
    count, wanted = flatten(labels)
    wanted = wanted.astype(np.int64)
    size = max(int(part.max(initial=0)) for part in (lists, wanted)) + 1
    listed = np.arange(len(lists))[:, None] * size + lists
    hit: NDArray[Any] = np.isin(
        listed, np.repeat(np.arange(len(labels)), count) * size + wanted
    ) & (lists >= 0)
    return {
        "map": lambda: ranking_map(hit, count),
        "precision": lambda: hit.mean(),
        "recall": lambda: (hit.sum(1) / count).mean(),
        "mrr": lambda: (hit / np.arange(1, lists.shape[1] + 1)).max(1).mean(),
    }


_SCORES: dict[str, Callable[[NDArray[Any], NDArray[Any], Details], Scores]] = {
    "binary_classification": _binary,
    "regression": _regression,
    "multiclass_classification": _multiclass,
    "multilabel_classification": _multilabel,
    "recommendation": _recommendation,
}


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions of about the same size, and what became of them.

    Attributes:
        count: how many there are.
        predicted: their mean.
        observed: share of positive labels among them.
    """

    count: int
    predicted: float
    observed: float


def reliability(
    labels: NDArray[Any], predicted: NDArray[Any], bins: int = 10
) -> list[ReliabilityBin]:
    """Predictions in bins of about the same number, the lowest first. Equal ones stay together."""
    if not len(predicted):
        return []
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)[1:-1]))
    place = np.searchsorted(edges, predicted, side="right")
    found = []
    for number in np.unique(place):
        at = place == number
        found.append(
            ReliabilityBin(
                int(at.sum()), float(predicted[at].mean()), float(np.asarray(labels)[at].mean())
            )
        )
    return found


def calibration_error(labels: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Expected calibration error: how far predicted probabilities are from observed shares."""
    found = reliability(np.asarray(labels), np.asarray(predicted, float))
    off = [one.count * abs(one.predicted - one.observed) for one in found]
    return sum(off) / len(predicted) if len(predicted) else float("nan")


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _defined(score: Callable[[], float]) -> float:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing classes: the result is NaN
            return float(score())
    except (ValueError, IndexError):
        return float("nan")
