"""Calibrators: increasing maps from a model's raw probabilities to calibrated ones.

All of them keep the order of predictions, so ROC-AUC, average precision and the most likely class
stay what they were. Values are plain numbers for JSON; reading one checks them.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["Calibrator", "Isotonic", "PerLabel", "Platt", "Temperature", "fit_isotonic",
           "fit_per_label", "fit_platt", "fit_temperature"]  # fmt: skip

#: Added to both sides of the odds, so that a probability of exactly 0 or 1 has a finite logit.
SOFT = 1e-5
#: Bounds of Platt's slope and shift: logits stay in a range in which doubles tell them apart.
SLOPES, SHIFTS = (0.05, 2.5), (-8.0, 8.0)
#: The largest logit up to which doubles tell apart what neighbouring raw probabilities become.
LARGEST = 30.0
TEMPERATURES = (0.1, 20.0)
#: Part of the distance to the next step by which an isotonic step rises, so that it has no ties.
RISE = 0.01

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Platt(msgspec.Struct, frozen=True, tag="platt", forbid_unknown_fields=True):
    """A logistic curve over the logit of the raw probability.

    Attributes:
        slope: slope over the logit.
        shift: added to it.
    """

    slope: Annotated[float, msgspec.Meta(gt=0, le=100)]
    shift: Annotated[float, msgspec.Meta(ge=-100, le=100)]

    def apply(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Calibrated probabilities, of any shape."""
        return _sigmoid(self.slope * _logit(raw) + self.shift)


class Isotonic(msgspec.Struct, frozen=True, tag="isotonic", forbid_unknown_fields=True):
    """A piecewise linear curve, strictly increasing.

    Attributes:
        raw: raw probabilities, from 0 to 1, increasing.
        calibrated: the calibrated probability of each, increasing.
    """

    raw: list[Share]
    calibrated: list[Share]

    def __post_init__(self) -> None:
        both = self.raw, self.calibrated
        if len(self.raw) != len(self.calibrated) or len(self.raw) < 2:
            raise ValueError("an isotonic curve needs two points or more")
        if any((np.diff(side) <= 0).any() for side in both):
            raise ValueError("an isotonic curve must increase")

    def apply(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Calibrated probabilities, of any shape."""
        return np.asarray(np.interp(np.asarray(raw, float), self.raw, self.calibrated))


class Temperature(msgspec.Struct, frozen=True, tag="temperature", forbid_unknown_fields=True):
    """Logits of several classes divided by one number.

    Attributes:
        temperature: above 1 it makes predictions less sure, below 1 more.
    """

    temperature: Annotated[float, msgspec.Meta(gt=0, le=1000)]

    def apply(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Calibrated probabilities. Shape [n, classes]."""
        logits = np.log(np.maximum(np.asarray(raw, float), 1e-12)) / self.temperature
        scaled = np.exp(logits - logits.max(1, keepdims=True, initial=-np.inf))
        return np.asarray(scaled / scaled.sum(1, keepdims=True))


class PerLabel(msgspec.Struct, frozen=True, tag="per label", forbid_unknown_fields=True):
    """A curve for each label of a multilabel task.

    Attributes:
        labels: the curves.
    """

    labels: list[Platt]

    def apply(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Calibrated probabilities. Shape [n, labels]."""
        parts = [one.apply(raw[:, number]) for number, one in enumerate(self.labels)]
        return np.stack(parts, axis=1)


Calibrator: TypeAlias = Platt | Isotonic | Temperature | PerLabel


def _logit(raw: NDArray[Any]) -> NDArray[Any]:
    values = np.asarray(raw, float)
    return np.asarray(np.log((values + SOFT) / (1 - values + SOFT)))


def _sigmoid(logits: NDArray[Any]) -> NDArray[Any]:
    from scipy.special import expit

    return np.asarray(expit(logits))


def fit_platt(raw: NDArray[Any], truth: NDArray[Any]) -> Platt:
    """Fit a logistic curve, with Platt's smoothed targets; labels and values are flattened."""
    from scipy.optimize import minimize

    x, y = _logit(raw).ravel(), np.asarray(truth, float).ravel()
    positive = y.sum()
    high, low = (positive + 1) / (positive + 2), 1 / (len(y) - positive + 2)
    target = np.where(y > 0, high, low)

    def loss(both: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        z = both[0] * x + both[1]
        off = _sigmoid(z) - target
        value = np.logaddexp(0, z) - target * z
        return float(value.mean()), np.array([(off * x).mean(), off.mean()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B",
                     bounds=[SLOPES, SHIFTS])  # fmt: skip
    slope, shift = map(float, found.x)
    return Platt(slope, min(shift, LARGEST - slope * float(_logit(np.ones(())))))


def fit_isotonic(raw: NDArray[Any], truth: NDArray[Any]) -> Isotonic:
    """Fit a step function by isotonic regression, and give its steps a slight rise."""
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(raw, kind="stable")
    x, y = np.asarray(raw, float)[order], np.asarray(truth, float)[order]
    fitted = IsotonicRegression().fit(x, y).predict(x)
    begins = np.flatnonzero(np.diff(fitted, prepend=-1.0) > 1e-12)
    ends = np.append(begins[1:], len(x))
    level = fitted[begins]
    # The outermost steps may be pure. Certainty is not to be had from finitely many labels.
    floor, ceiling = 0.5 / (ends[0] + 1), 1 - 0.5 / (len(x) - begins[-1] + 1)
    level[0] = max(level[0], min(floor, level[1] / 2 if len(level) > 1 else floor))
    level[-1] = min(level[-1], max(ceiling, (1 + level[-2]) / 2 if len(level) > 1 else ceiling))
    below, above = np.append(0.0, level[:-1]), np.append(level[1:], 1.0)
    points: dict[float, float] = {}
    for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        first, last = float(x[begin]), float(x[end - 1])
        if first == last:
            points[first] = float(level[i])
        else:
            points[first] = float(level[i] - RISE * (level[i] - below[i]))
            points[last] = float(level[i] + RISE * (above[i] - level[i]))
    first, last = min(points), max(points)
    # Beyond what was seen the curve stays close to its ends.
    points.setdefault(0.0, points[first] * (1 - RISE))
    points.setdefault(1.0, 1 - (1 - points[last]) * (1 - RISE))
    knots = sorted(points)
    return Isotonic(knots, [points[knot] for knot in knots])


def fit_temperature(raw: NDArray[Any], truth: NDArray[Any]) -> Temperature:
    """Fit one temperature to class numbers. Shapes: [n, classes], [n]."""
    from scipy.optimize import minimize_scalar

    at = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        found = Temperature(float(np.exp(log_temperature))).apply(raw)
        return float(-np.log(np.maximum(found[at, truth], 1e-300)).mean())

    bounds = tuple(np.log(TEMPERATURES))
    return Temperature(float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)))


def fit_per_label(raw: NDArray[Any], truth: NDArray[Any], least: int) -> PerLabel:
    """Fit a curve for each label; labels with fewer than `least` of either value share one."""
    shared = fit_platt(raw, truth)
    count = truth.sum(0)
    enough = np.minimum(count, len(truth) - count) >= least
    return PerLabel([
        fit_platt(raw[:, number], truth[:, number]) if enough[number] else shared
        for number in range(truth.shape[1])
    ])  # fmt: skip
