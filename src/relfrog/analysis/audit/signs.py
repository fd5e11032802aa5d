"""Signs that predictions know what they could not have known, from their relation to labels.

No sign is a proof: each has an innocent explanation, which the finding names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.bootstrap import Interval, resample
from relfrog.models.booster_file import load_lightgbm
from relfrog.models.tree_learner import boosted
from relfrog.training.seeds import Seeds

__all__ = ["beyond_the_past", "copied", "spike"]

Floats = NDArray[np.float64]

#: Folds of entities over which what the past explains is estimated.
FOLDS = 5
#: Settings of the models that explain predictions, and labels, by the past.
_TREES: dict[str, Any] = {
    "objective": "regression", "learning_rate": 0.05, "num_leaves": 15, "min_data_in_leaf": 20,
    "feature_fraction": 0.4, "verbosity": -1, "num_threads": 1, "seed": 0, "deterministic": True,
    "force_col_wise": True,
}  # fmt: skip
_ROUNDS = 150


def copied(truth: Floats, predicted: Floats, known: Floats) -> tuple[float, float]:
    """The shares of predictions, and of those of an honest model, that equal their label.

    Only labels that are not the most frequent one count, as any constant meets that.

    Args:
        truth: labels. Shape [seeds].
        predicted: predictions. Shape [seeds].
        known: predictions from what was known. Shape [seeds].
    """
    values, counts = np.unique(truth, return_counts=True)
    rare = truth != values[counts.argmax()]
    if not rare.any():
        return 0.0, 0.0
    return tuple(float(np.mean(some[rare] == truth[rare])) for some in (predicted, known))  # type: ignore[return-value]


def spike(
    predicted: Floats, seeds: Seeds, labels: dict[tuple[int, int], float], step: pd.Timedelta
) -> tuple[Interval, int]:
    """How much more predictions agree with their own label than with those before and after.

    The label before was known, and the one after is about as hard to tell as the own one: honest
    predictions agree with the three to a similar degree, more with the one before.

    Args:
        predicted: predictions. Shape [seeds].
        seeds: their seeds.
        labels: labels of all splits, by row and time in microseconds.
        step: the time between labels.

    Returns:
        The difference of rank correlations, with its range; and the number of seeds that have a
        label before and after.
    """
    ticks = seeds.times.astype("datetime64[us]").astype(np.int64)
    apart = step // pd.Timedelta(microseconds=1)
    missing = float("nan")
    rows = np.asarray(seeds.rows).tolist()
    around = np.array(
        [
            [labels.get((row, tick + lag * apart), missing) for lag in (-1, 0, 1)]
            for row, tick in zip(rows, ticks.tolist(), strict=True)
        ]
    ).reshape(-1, 3)
    whole = np.flatnonzero(~np.isnan(around).any(1))

    def gap(at: NDArray[np.int64]) -> float:
        some = whole[at]
        before, own, after = (_rank_correlation(predicted[some], around[some, i]) for i in range(3))
        return own - max(before, after)

    return resample(np.asarray(seeds.rows)[whole], gap), len(whole)


def beyond_the_past(
    features: NDArray[np.float32], known: Floats, truth: Floats, predicted: Floats,
    entities: NDArray[np.int64],
) -> Interval:  # fmt: skip
    """How far predictions follow labels where the past says nothing.

    Predictions and labels are both explained by what was known at the time. If what is left of
    both still moves together, the predictions hold something about the labels that was not in the
    past, or that our features of it do not show.

    Args:
        features: what was known. Shape [seeds, features].
        known: an honest model's prediction of the labels. Shape [seeds].
        truth: labels. Shape [seeds].
        predicted: predictions. Shape [seeds].
        entities: entity of each seed; those of one entity are in one fold. Shape [seeds].

    Returns:
        The correlation of what is left, with its range.
    """
    x = np.concatenate([features, known[:, None].astype(np.float32)], 1)
    left = [
        values - _explained(x, values, entities) for values in (_ranks(predicted), _ranks(truth))
    ]

    def together(at: NDArray[np.int64]) -> float:
        return _correlation(left[0][at], left[1][at])

    return resample(entities, together)


def _explained(x: NDArray[np.float32], y: Floats, entities: NDArray[np.int64]) -> Floats:
    """What features say of values, by models that have not seen the entity."""
    lightgbm = load_lightgbm()
    _, owner = np.unique(entities, return_inverse=True)
    fold = np.random.default_rng(0).permutation(owner.max() + 1)[owner] % FOLDS
    found = np.full(len(y), float(y.mean()))
    for number in range(FOLDS):
        inside, outside = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        if not len(inside) or len(outside) < 2 * _TREES["min_data_in_leaf"]:
            continue
        data = lightgbm.Dataset(x[outside], y[outside], params=_TREES, free_raw_data=False)
        found[inside] = boosted(_TREES, data, _ROUNDS, [], []).predict(x[inside])
    return found


def _ranks(values: Floats) -> Floats:
    """Ranks between 0 and 1; ties share one."""
    return np.asarray(pd.Series(values).rank(pct=True), float)


def _rank_correlation(one: Floats, two: Floats) -> float:
    return _correlation(_ranks(one), _ranks(two))


def _correlation(one: Floats, two: Floats) -> float:
    if len(one) < 3 or one.std() == 0 or two.std() == 0:
        return float("nan")
    return float(np.corrcoef(one, two)[0, 1])
