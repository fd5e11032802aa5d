"""Which of several models to take, or which to average, by validation alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.evaluation import better, compute_metrics
from relfrog.nn.heads import HEADS

__all__ = ["Blend", "choose"]

#: Draws of validation seeds, seeds in each, and the share of draws that a model must lose to be
#: clearly worse.
DRAWS, DRAWN, CLEARLY = 100, 20_000, 0.9


@dataclass(frozen=True)
class Blend:
    """Weights of models, which sum to 1, and why.

    Attributes:
        weights: of the models that take part.
        score: the validation metric of the blend.
        best: the best single model.
        sure: the share of draws of validation seeds in which the average beats it; 0 where there
            is none.
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
    """The best model, or the average of it and those that are not clearly worse.

    A model is clearly worse if it loses to the best in nearly all draws of the validation seeds.
    The others are averaged evenly: weights that are fitted to validation labels, or a single winner
    of a close race, hold less of what they promise. The average must still score better than the
    best alone.

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
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(truth), min(len(truth), DRAWN)) for _ in range(DRAWS)]
    drawn = [score(predicted[best], rows) for rows in draws]

    def share(values: NDArray[Any], won: bool) -> float:
        """Of the draws, how many the values win against the best, or lose."""
        pairs = [(score(values, rows), known) for rows, known in zip(draws, drawn, strict=True)]
        return float(np.mean([better(*(p if won else p[::-1]), higher) for p in pairs]))

    equals = [name for name, values in predicted.items() if share(values, False) < CLEARLY]
    mixed = np.mean([predicted[name].astype(float) for name in equals], axis=0)
    top = score(mixed)
    if len(equals) < 2 or not better(top, alone[best], higher):
        return plain
    return Blend(dict.fromkeys(equals, 1 / len(equals)), top, best, share(mixed, True))
