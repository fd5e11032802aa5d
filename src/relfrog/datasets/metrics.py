"""Metrics of predictions, and the regimes under which they are computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["REGIMES", "compute_metrics"]


#: frozen: for all seeds of a split, the database ends at the split's timestamp. rolling: each seed
#: sees everything up to its own time.
REGIMES = ("frozen", "rolling")

#: By name, computed when asked for.
Scores = dict[str, Callable[[], float]]


def compute_metrics(
    kind: str,
    labels: NDArray[Any],
    predicted: NDArray[Any],
    label_std: float | None = None,
    only: str | None = None,
    quantile: float | None = None,
) -> dict[str, float]:
    """Compute metrics, RelBench's own first; NaN where one is undefined.

    Args:
        kind: RelBench's name of the task type.
        labels: the true labels.
        predicted: the predictions.
        label_std: standard deviation of the training labels, for NMAE.
        only: compute only this metric; by default all.
        quantile: what regression predicts, if it is a quantile: adds the pinball loss.
    """
    scores = _SCORES[kind](labels, predicted, label_std)
    if quantile is not None:
        scores = {"pinball": lambda: _pinball(labels, predicted, quantile), **scores}
    if only is not None:
        scores = {only: scores[only]}
    return {name: _defined(score) for name, score in scores.items()}


def _binary(labels: NDArray[Any], predicted: NDArray[Any], _: float | None) -> Scores:
    import sklearn.metrics as skm

    truth, chosen = labels.astype(int), predicted >= 0.5
    return {
        "roc_auc": lambda: skm.roc_auc_score(truth, predicted),
        "average_precision": lambda: skm.average_precision_score(truth, predicted),
        "accuracy": lambda: skm.accuracy_score(truth, chosen),
        "f1": lambda: skm.f1_score(truth, chosen),
    }


def _regression(labels: NDArray[Any], predicted: NDArray[Any], std: float | None) -> Scores:
    import sklearn.metrics as skm

    truth = labels.astype(float)
    scores: Scores = {
        "mae": lambda: skm.mean_absolute_error(truth, predicted),
        "rmse": lambda: skm.mean_squared_error(truth, predicted) ** 0.5,
        "r2": lambda: skm.r2_score(truth, predicted),
    }
    if std:
        scores["nmae"] = lambda: skm.mean_absolute_error(truth, predicted) / std
    return scores


def _pinball(labels: NDArray[Any], predicted: NDArray[Any], quantile: float) -> float:
    missed = labels.astype(float) - predicted
    return float(np.mean(np.maximum(quantile * missed, (quantile - 1) * missed)))


def _multiclass(labels: NDArray[Any], predicted: NDArray[Any], _: float | None) -> Scores:
    import sklearn.metrics as skm

    truth, chosen = labels.astype(int), predicted.argmax(1)
    return {
        "accuracy": lambda: skm.accuracy_score(truth, chosen),
        "macro_f1": lambda: skm.f1_score(truth, chosen, average="macro"),
    }


def _multilabel(labels: NDArray[Any], predicted: NDArray[Any], _: float | None) -> Scores:
    import sklearn.metrics as skm

    truth = np.stack(labels.tolist()).astype(int)
    both = (truth.min(0) == 0) & (truth.max(0) == 1)  # ranking metrics need both values
    ranked = truth[:, both], predicted[:, both]
    return {
        "roc_auc_macro": lambda: skm.roc_auc_score(*ranked),
        "average_precision_macro": lambda: skm.average_precision_score(*ranked),
        "f1_macro": lambda: skm.f1_score(truth, predicted >= 0.5, average="macro"),
    }


def _recommendation(labels: NDArray[Any], predicted: NDArray[Any], _: float | None) -> Scores:
    from relbench.metrics import map as ranking_map

    lists = predicted[:, :, 0].astype(np.int64)
    found = [np.isin(row, some) for row, some in zip(lists, labels, strict=True)]
    hit: NDArray[Any] = np.array(found, bool).reshape(lists.shape)
    count = np.array([len(some) for some in labels])
    return {
        "map": lambda: ranking_map(hit, count),
        "precision": lambda: hit.mean(),
        "recall": lambda: (hit.sum(1) / count).mean(),
        "mrr": lambda: (hit / np.arange(1, lists.shape[1] + 1)).max(1).mean(),
    }


_SCORES: dict[str, Callable[[NDArray[Any], NDArray[Any], float | None], Scores]] = {
    "binary_classification": _binary,
    "regression": _regression,
    "multiclass_classification": _multiclass,
    "multilabel_classification": _multilabel,
    "recommendation": _recommendation,
}


def _defined(score: Callable[[], float]) -> float:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing classes: the result is NaN
            return float(score())
    except (ValueError, IndexError):
        return float("nan")
