"""What each feature contributes to a prediction of boosted trees: SHAP values that add up.

LightGBM computes Shapley values of its features exactly, in the space of its raw scores, where
trees add up. They are carried over to the prediction along the straight line from the raw score
without any feature to that of the seed, so that they still add up, to the prediction itself. Where
a raw score is one number, that multiplies all contributions by the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.models.boosting import BoostedTrees
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Contributions", "booster_contributions", "link_of", "tree_contributions"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions to one prediction: `base` and all `values` add up to it.

    Attributes:
        base: the prediction without any feature.
        values: what each feature contributes. Shape [features].
        features: the features of the seed. Shape [features].
    """

    base: float
    values: Floats
    features: Floats

    @property
    def total(self) -> float:
        """The prediction."""
        return float(self.base + self.values.sum())


def link_of(booster: Any) -> str:
    """How a booster turns raw scores into predictions: "identity", "sigmoid", "softmax", "exp"."""
    words = str(booster.dump_model(num_iteration=1).get("objective") or "").split()
    name = words[0] if words else ""
    if name in ("poisson", "gamma", "tweedie"):
        return "exp"
    if name in ("binary", "cross_entropy", "multiclassova"):
        return "sigmoid"
    return "softmax" if name == "multiclass" else "identity"


def booster_contributions(booster: Any, x: NDArray[Any]) -> tuple[Floats, Floats]:
    """Raw scores of one seed: without any feature, and what each feature adds.

    Args:
        booster: of LightGBM.
        x: its features. Shape [1, features].

    Returns:
        Shapes [outputs], [outputs, features].
    """
    found = booster.predict(x, num_iteration=booster.best_iteration, pred_contrib=True)
    each = np.asarray(found, float).reshape(-1, x.shape[1] + 1)
    return each[:, -1], each[:, :-1]


def _carried(link: str, base: Floats, added: Floats, output: int) -> tuple[float, Floats]:
    """From raw scores to predictions: the base, and contributions that still add up."""
    start, end = base, base + added.sum(1)
    if link == "identity":
        return float(start[output]), added[output]
    if link == "softmax":
        # The mean slope along the line, by Gauss and Legendre: exact to the last digits.
        at, weight = np.polynomial.legendre.leggauss(64)
        slope = np.zeros(len(base))
        for share, mass in zip((at + 1) / 2, weight / 2, strict=True):
            chances = _softmax(start + share * (end - start))
            own = (np.arange(len(base)) == output).astype(float)
            slope += mass * chances[output] * (own - chances)
        return float(_softmax(start)[output]), slope @ added
    function = np.exp if link == "exp" else lambda z: 1.0 / (1.0 + np.exp(-z))
    low, high = start[output], end[output]
    before, after = float(function(low)), float(function(high))
    slope_at = after if link == "exp" else after * (1 - after)
    slope_between = (after - before) / (high - low) if abs(high - low) > 1e-9 else slope_at
    return before, added[output] * slope_between


def _softmax(z: Floats) -> Floats:
    power = np.exp(z - z.max())
    return np.asarray(power / power.sum())


def tree_contributions(
    model: BoostedTrees, seeds: Seeds, cutoff: pd.Timestamp | None, output: int = 0
) -> Contributions:
    """Contributions to the prediction for one seed, averaged over the model's boosters.

    Args:
        model: fitted.
        seeds: one seed.
        cutoff: see `relfrog.models.model.Model.predict`.
        output: the class, or the label of several.
    """
    x = model.maker.make(np.asarray(seeds.rows), model.limits(seeds, cutoff), seeds.times)
    bases, values = [], []
    for boosters in model.models:
        several = len(boosters) > 1
        booster = boosters[output] if several else boosters[0]
        base, added = booster_contributions(booster, x)
        inside = output if len(base) > 1 else 0
        one, each = _carried(link_of(booster), base, added, inside)
        bases.append(one)
        values.append(each)
    found = Contributions(float(np.mean(bases)), np.mean(values, axis=0), x[0].astype(float))
    if found.base == found.total:
        return found
    # What is done to the mean of the boosters stretches all contributions by the same number.
    ends = model.finish(np.array([found.base, found.total]))
    share = float(ends[1] - ends[0]) / (found.total - found.base)
    return Contributions(float(ends[0]), found.values * share, found.features)
