"""Scores that need no learning: an entity's earlier labels, and what is popular."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relfrog.datasets.metrics import compute_metrics

__all__ = ["QuickScore", "quick_score"]

#: The length of lists.
_LIST = 10


@dataclass(frozen=True)
class QuickScore:
    """The best of the quick baselines.

    Attributes:
        metric: The metric.
        score: Its validation score.
        chance: That of an answer that is the same for all.
        baseline: Its name.
        gain: How much better it is: 0 as good as the same answer for all, 1 perfect.
    """

    metric: str
    score: float
    chance: float
    baseline: str
    gain: float


def quick_score(
    kind: str, frame: pd.DataFrame, val: list[pd.Timestamp], horizon: pd.Timedelta
) -> QuickScore | None:
    """Score the quick baselines on the labels of validation.

    Args:
        kind: The type of task.
        frame: Labels, with columns `timestamp`, `entity` and `label`.
        val: The seed times of validation.
        horizon: From when on a label is known: this much after its time.

    Returns:
        None for types of task that have no quick baseline here, or if all labels are the same.
    """
    asked = frame[frame["timestamp"].isin(val)]
    # What is known at the first validation time: a little less than later ones could know.
    known = frame[frame["timestamp"] + horizon <= min(val)].sort_values("timestamp")
    if asked.empty or known.empty or kind not in _SCORERS:
        return None
    return _SCORERS[kind](known, asked)


def _means(known: pd.DataFrame, asked: pd.DataFrame) -> dict[str, pd.Series]:
    """Predictions of numbers: the mean of an entity's labels, its last one."""
    by_entity = known.groupby("entity")["label"]
    fallback = float(known["label"].mean())
    return {
        "mean": asked["entity"].map(by_entity.mean()).fillna(fallback),
        "median": asked["entity"].map(by_entity.median()).fillna(float(known["label"].median())),
        "recent": asked["entity"].map(by_entity.last()).fillna(fallback),
    }


def _binary(known: pd.DataFrame, asked: pd.DataFrame) -> QuickScore | None:
    truth = asked["label"].to_numpy(float)
    if len(np.unique(truth)) < 2:
        return None
    scores = {
        name: _metric("binary_classification", truth, values.to_numpy(float), "roc_auc")
        for name, values in _means(known, asked).items()
    }
    best = max(scores, key=lambda name: scores[name])
    return QuickScore("roc_auc", scores[best], 0.5, best, 2 * scores[best] - 1)


def _regression(known: pd.DataFrame, asked: pd.DataFrame) -> QuickScore | None:
    truth = asked["label"].to_numpy(float)
    chance = float(np.abs(truth - float(known["label"].median())).mean())
    if not chance:
        return None
    scores = {
        name: float(np.abs(truth - values.to_numpy(float)).mean())
        for name, values in _means(known, asked).items()
    }
    best = min(scores, key=lambda name: scores[name])
    return QuickScore("mae", scores[best], chance, best, 1 - scores[best] / chance)


def _multiclass(known: pd.DataFrame, asked: pd.DataFrame) -> QuickScore | None:
    truth = asked["label"]
    usual = known["label"].mode().iloc[0]
    chance = float((truth == usual).mean())
    if chance == 1:
        return None
    by_entity = known.groupby("entity")["label"]
    found = {
        "mode": asked["entity"].map(by_entity.agg(lambda some: some.mode().iloc[0])),
        "recent": asked["entity"].map(by_entity.last()),
    }
    scores = {n: float((values.fillna(usual) == truth).mean()) for n, values in found.items()}
    best = max(scores, key=lambda name: scores[name])
    gain = (scores[best] - chance) / (1 - chance)
    return QuickScore("accuracy", scores[best], chance, best, gain)


def _recommendation(known: pd.DataFrame, asked: pd.DataFrame) -> QuickScore:
    popular = Counter(item for some in known["label"] for item in some)
    top = [item for item, _ in popular.most_common(_LIST)]
    visits: dict[Any, Counter[Any]] = {}
    for entity, some in zip(known["entity"], known["label"], strict=True):
        visits.setdefault(entity, Counter()).update(some)

    def past(entity: Any) -> list[Any]:
        own = [item for item, _ in visits.get(entity, Counter()).most_common(_LIST)]
        return (own + [item for item in top if item not in own])[:_LIST]

    chance = _precision(asked["label"], [top] * len(asked))
    score = _precision(asked["label"], [past(entity) for entity in asked["entity"]])
    if score >= chance:
        return QuickScore("map", score, chance, "past-visit", score)
    return QuickScore("map", chance, chance, "popularity", chance)


def _precision(labels: pd.Series, lists: list[list[Any]]) -> float:
    """Mean average precision of lists."""
    total = 0.0
    for wanted, items in zip(labels, lists, strict=True):
        there, hits, found = set(wanted), 0, 0.0
        for place, item in enumerate(items, start=1):
            if item in there:
                hits += 1
                found += hits / place
        total += found / min(len(there), _LIST)
    return total / len(labels)


def _metric(kind: str, truth: Any, predicted: Any, name: str) -> float:
    return compute_metrics(kind, truth, predicted, only=name)[name]


_SCORERS: dict[str, Callable[[pd.DataFrame, pd.DataFrame], QuickScore | None]] = {
    "binary": _binary, "regression": _regression, "multiclass": _multiclass,
    "recommendation": _recommendation,
}  # fmt: skip
