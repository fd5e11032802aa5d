"""Which of several models to take, or which to average, by validation alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.evaluation import better, compute_metrics
from relfrog.nn.heads import HEADS

__all__ = ["Blend", "choose"]

#: Models in a blend, counted as often as they are taken.
MOST = 6
#: Draws of validation seeds, seeds in each, and the share of draws in which a blend must win.
DRAWS, DRAWN, SURE = 100, 20_000, 0.9


@dataclass(frozen=True)
class Blend:
    """Weights of models, which sum to 1, and why.

    Attributes:
        weights: of the models that take part.
        score: the validation metric of the blend.
        best: the best single model.
        sure: the share of draws of validation seeds in which averaging beats it; 0 where no
            average looked better.
    """

    weights: dict[str, float]
    score: float
    best: str
    sure: float


def choose(
    kind: str,
    truth: NDArray[Any],
    predicted: dict[str, NDArray[Any]],
    label_std: float | None = None,
    seed: int = 0,
) -> Blend:
    """The best model, or an average of some where that is clearly better.

    Models are added one by one, the one that helps most first, and may be added again. The average
    is taken only if it beats the best single one in nearly all draws of the validation seeds.

    Args:
        kind: RelBench's name of the type of task.
        truth: labels as the metrics want them. Shape [seeds].
        predicted: per model its predictions for the validation seeds.
        label_std: spread of the training labels.
        seed: of the draws.
    """
    ranks = kind == "recommendation"
    metric, higher = ("map", True) if ranks else HEADS[kind].metric

    def score(values: NDArray[Any], rows: Any = slice(None)) -> float:
        return compute_metrics(kind, truth[rows], values[rows], label_std)[metric]

    alone = {name: score(values) for name, values in predicted.items()}
    best = next(iter(alone))
    for name, value in alone.items():
        if better(value, alone[best], higher):
            best = name
    plain = Blend({best: 1.0}, alone[best], best, 0.0)
    if ranks or len(predicted) < 2:
        return plain  # scores of lists have no common scale
    taken, top = [best], alone[best]
    total = predicted[best].astype(float)
    while len(taken) < MOST:
        tried = {name: score((total + v) / (len(taken) + 1)) for name, v in predicted.items()}
        name = next(iter(tried))
        for other, value in tried.items():
            if better(value, tried[name], higher):
                name = other
        if not better(tried[name], top, higher):
            break
        taken, top, total = [*taken, name], tried[name], total + predicted[name]
    if len(set(taken)) < 2:
        return plain
    mixed = total / len(taken)
    rng = np.random.default_rng(seed)
    count = min(len(truth), DRAWN)
    won = 0.0
    for _ in range(DRAWS):
        rows = rng.integers(0, len(truth), count)
        won += better(score(mixed, rows), score(predicted[best], rows), higher)
    if won / DRAWS < SURE:
        return Blend({best: 1.0}, alone[best], best, won / DRAWS)
    weights = {name: taken.count(name) / len(taken) for name in dict.fromkeys(taken)}
    return Blend(weights, top, best, won / DRAWS)
