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
    """The best model, or the average of it and the second best.

    They are averaged evenly unless the second, or the average, is clearly worse: loses to the best
    in nearly all draws of the validation seeds. Weights that are fitted to validation labels, or a
    single winner of a close race, hold less of what they promise; and that the average scores a
    little worse is no reason to leave it, since the best model's epoch or settings were chosen on
    these very labels, which flatters it.

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
    badness = {name: -value if higher else value for name, value in alone.items()}
    first, *others = sorted(alone, key=lambda name: np.nan_to_num(badness[name], nan=np.inf))
    plain = Blend({first: 1.0}, alone[first], first, 0.0)
    if ranks or not others or np.isnan(alone[others[0]]):
        return plain  # scores of lists have no common scale
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(truth), min(len(truth), DRAWN)) for _ in range(DRAWS)]
    known = [score(predicted[first], rows) for rows in draws]

    def lost_and_won(values: NDArray[Any]) -> tuple[float, float]:
        """The shares of draws in which the values lose to the best model, and win."""
        drawn = [score(values, rows) for rows in draws]
        pairs = list(zip(drawn, known, strict=True))
        won = [better(ours, theirs, higher) for ours, theirs in pairs]
        lost = [better(theirs, ours, higher) for ours, theirs in pairs]
        return float(np.mean(lost)), float(np.mean(won))

    mixed = np.mean([predicted[name].astype(float) for name in (first, others[0])], axis=0)
    second_lost, _ = lost_and_won(predicted[others[0]])
    lost, won = lost_and_won(mixed)
    if max(second_lost, lost) >= CLEARLY:
        return plain
    return Blend({first: 0.5, others[0]: 0.5}, score(mixed), first, won)
