"""Prediction intervals by split conformal prediction, from residuals on validation."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from relfrog.models.postprocessing.choice import folds

__all__ = ["PredictionInterval", "choose_interval", "interval_score"]

#: Validation labels needed to choose between kinds of interval.
ENOUGH = 100

NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class PredictionInterval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An interval around a prediction.

    Its ends are the prediction minus `down` and plus `up` times a scale, which grows with the size
    of the prediction: `offset + factor * |prediction|`.

    Attributes:
        share: of labels that it is to contain.
        down: distance of the lower end, in scales.
        up: distance of the upper end, in scales.
        offset: scale of a prediction of 0.
        factor: how the scale grows.
        floor: labels are never below it; None without such a bound.
    """

    share: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    down: NotNegative
    up: NotNegative
    offset: NotNegative = 1.0
    factor: NotNegative = 0.0
    floor: float | None = None

    def bounds(self, predicted: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The lower and upper ends. Shape [n] each."""
        values = np.asarray(predicted, float)
        scale = self.offset + self.factor * np.abs(values)
        low = values - self.down * scale
        if self.floor is not None:
            low = np.minimum(np.maximum(low, self.floor), values)
        return low, values + self.up * scale


def choose_interval(
    truth: NDArray[Any],
    predicted: NDArray[Any],
    groups: NDArray[Any],
    share: float,
    floor: float | None = None,
    seed: int = 0,
) -> tuple[PredictionInterval | None, dict[str, Any]]:
    """Fit an interval, choosing its kind by the interval score on folds of entities.

    Both ends may be at the same distance or not, and the distance may grow with the prediction.
    With few labels there is no choice: one distance for all.

    Args:
        truth: labels. Shape [n].
        predicted: predictions. Shape [n].
        groups: the entity of each.
        share: of labels that the interval is to contain.
        floor: lower bound of all labels; None without one.
        seed: of the folds.

    Returns:
        The interval, None with too few labels, and the evidence for JSON.
    """
    truth, predicted = np.asarray(truth, float), np.asarray(predicted, float)
    evidence: dict[str, Any] = {"labels": len(truth), "chosen": "none"}
    if _quantile(np.zeros(len(truth)), share) is None:
        evidence["reason"] = f"too few validation labels for an interval of {100 * share:g} %"
        return None, evidence
    kinds = [(False, False)]
    splits = list(folds(groups, seed)) if len(truth) >= ENOUGH else []
    if splits:
        kinds = list(product((False, True), (False, True)))
        scores = {}
        for kind in kinds:
            low, high = np.empty(len(truth)), np.empty(len(truth))
            for rest, part in splits:
                found = _fit(truth[rest], predicted[rest], share, floor, *kind)
                if found is None:  # one side has too few labels in a fold
                    break
                low[part], high[part] = found.bounds(predicted[part])
            else:
                scores[kind] = interval_score(truth, low, high, share)
        kinds = sorted(scores, key=lambda kind: scores[kind])
        evidence["interval_score"] = {_name(*kind): value for kind, value in scores.items()}
    fitted = _fit(truth, predicted, share, floor, *kinds[0])
    evidence["chosen"] = _name(*kinds[0])
    return fitted, evidence


def interval_score(
    truth: NDArray[Any], low: NDArray[Any], high: NDArray[Any], share: float
) -> float:
    """The mean interval score: the width, plus a fine for labels outside; less is better."""
    outside = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return float((high - low + 2 / (1 - share) * outside).mean())


def _name(scaled: bool, sides: bool) -> str:
    return f"{'scaled' if scaled else 'constant'} {'two-sided' if sides else 'symmetric'}"


def _fit(
    truth: NDArray[Any], predicted: NDArray[Any], share: float, floor: float | None,
    scaled: bool, sides: bool,
) -> PredictionInterval | None:  # fmt: skip
    residual = truth - predicted
    offset, factor = _scale(np.abs(residual), np.abs(predicted)) if scaled else (1.0, 0.0)
    score = residual / (offset + factor * np.abs(predicted))
    if sides:
        half = (1 + share) / 2
        down, up = _quantile(-score, half), _quantile(score, half)
    else:
        down = up = _quantile(np.abs(score), share)
    if down is None or up is None:
        return None
    return PredictionInterval(share, max(down, 0.0), max(up, 0.0), offset, factor, floor)


def _quantile(scores: NDArray[Any], share: float) -> float | None:
    """The conformal quantile: of n + 1 exchangeable scores the last is at most it with `share`."""
    rank = int(np.ceil((len(scores) + 1) * share - 1e-9))
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else None


def _scale(error: NDArray[Any], size: NDArray[Any]) -> tuple[float, float]:
    """A line through absolute errors over the size of predictions, nowhere near 0."""
    typical = float(error.mean()) or 1.0
    spread = float(np.var(size))
    factor = float(np.mean((error - error.mean()) * (size - size.mean()))) / spread if spread else 0
    factor = max(factor, 0.0)
    return max(float(error.mean()) - factor * float(size.mean()), 0.1 * typical), factor
