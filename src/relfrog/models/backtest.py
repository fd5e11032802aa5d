"""Backtests: scores of a model at several times of the past, to choose by more than one split.

A *fold* is a moment at which a model could have been trained. It learns from the labels whose
windows had closed by then, and is scored on the seeds that follow, over as long a time as the
validation split spans. The last fold is the validation split itself; the folds before it lie within
the training time. In the regime "frozen" the database of a fold stops at its cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.datasets.metrics import compute_metrics
from relfrog.kinds import TaskKind
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SURE",
    "Backtests",
    "Comparison",
    "Fold",
    "fold_score",
    "helps",
    "known_by",
    "plan_folds",
]

Ints = NDArray[np.int64]

#: The most folds within the training time.
MOST_FOLDS = 3
#: A fold learns from at least this share of the training labels, and this many; and is scored on
#: at least so many.
LEAST_SHARE, FEWEST_LEARNED, FEWEST_SCORED = 0.2, 200, 50
#: Bootstrap samples of the seeds of each fold, and the most seeds in each.
DRAWS, DRAWN = 100, 5_000
#: A choice is made if it is better in this share of bootstrap samples.
SURE = 0.6


@dataclass(frozen=True, eq=False)
class Fold:
    """A moment at which a model is trained and then scored.

    Attributes:
        cut: the moment.
        learned: training seeds to learn from, as positions among training and then validation
            seeds. Shape [learned].
        scored: seeds to be scored on, as positions. Shape [scored].
    """

    cut: pd.Timestamp
    learned: Ints
    scored: Ints


def plan_folds(
    train: Seeds, val: Seeds, window: pd.Timedelta, cut: pd.Timestamp, most: int = MOST_FOLDS
) -> list[Fold]:
    """Plan the folds, the earliest first; the last one is the validation split.

    Args:
        train: training seeds.
        val: validation seeds.
        window: how long after its seed a label is known.
        cut: the validation time.
        most: the most folds within the training time.
    """
    times = train.times.astype("datetime64[us]")
    split = Fold(cut, np.arange(len(train)), len(train) + np.arange(len(val)))
    # No label is of this time: its window is open.
    last = val.times.astype("datetime64[us]").max(initial=cut.to_datetime64())
    span = max(last - cut.to_datetime64(), np.timedelta64(0, "us")) + np.timedelta64(1, "us")
    moments = np.unique(times)
    learn = max(FEWEST_LEARNED, LEAST_SHARE * len(train))
    folds: list[Fold] = []
    before = cut.to_datetime64()
    while len(folds) < most:
        # The cut is at a seed time, so that the first seeds of a fold are asked at once.
        possible = moments[moments + span <= before]
        if not len(possible):
            break
        at = possible[-1]
        learned = known_by(train, window, at)
        scored = np.flatnonzero((times >= at) & (times < at + span))
        if len(learned) < learn:
            break
        if len(scored) >= FEWEST_SCORED:
            folds.append(Fold(cut + (at - cut.to_datetime64()), learned, scored))
        before = at
    return [*reversed(folds), split]


def known_by(train: Seeds, window: pd.Timedelta, cut: Any) -> Ints:
    """The training seeds whose labels a model could have learned by some time, as positions.

    Where labels are known at once, those of the time itself are asked about then.
    """
    times = train.times.astype("datetime64[us]")
    at = np.datetime64(cut, "us")
    return np.flatnonzero((times + window.to_timedelta64() <= at) & (times < at))


@dataclass(frozen=True)
class Comparison:
    """How a model does beside another, over all folds.

    Attributes:
        gain: how much better it is: for scores that are better higher their difference, for errors
            the share by which it is smaller; the mean over folds, by their numbers of labels.
        sure: the share of bootstrap samples of the seeds in which it is better, ties counting half.
        won: the folds in which it is better.
        folds: all folds.
    """

    gain: float
    sure: float
    won: int
    folds: int

    @property
    def words(self) -> str:
        """How sure it is, in words."""
        if self.sure >= 0.95:
            how = "almost surely"
        elif self.sure >= 0.8:
            how = "probably"
        elif self.sure >= 0.6:
            how = "perhaps"
        else:
            how = "as likely as not" if self.sure > 0.4 else "probably not"
        times = f"{self.won} of {self.folds} backtests" if self.folds > 1 else "the one backtest"
        return f"{how}; better in {times}" if self.won or self.folds > 1 else how


def helps(found: Mapping[str, Any] | None) -> bool:
    """Whether backtests speak for something, by a comparison as it is in `backtests.json`."""
    return found is not None and float(found["sure"]) >= SURE


class Backtests:
    """Scores of predictions for the seeds of all folds.

    Args:
        kind: the task type.
        truth: the labels of each fold, for the metrics. Shapes [scored].
        quantile: what regression predicts, if it is a quantile.
        seed: random seed of the bootstrap samples.
    """

    def __init__(
        self, kind: TaskKind, truth: Sequence[NDArray[Any]], quantile: float | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.kind, self.truth, self.quantile = kind, list(truth), quantile
        sizes = np.array([len(part) for part in self.truth], float)
        self._weights = sizes / max(sizes.sum(), 1.0)
        rng = np.random.default_rng(seed)
        self._draws = [
            [rng.integers(0, len(part), min(len(part), DRAWN)) for _ in range(DRAWS)]
            for part in self.truth
        ]

    def scores(self, predicted: Sequence[NDArray[Any]]) -> list[float]:
        """The metric in each fold."""
        return [
            self._score(truth, values) for truth, values in zip(self.truth, predicted, strict=True)
        ]

    def mean(self, scores: Sequence[float] | NDArray[np.float64]) -> float:
        """The mean of scores of folds, by their numbers of labels; NaN counts for nothing."""
        known = ~np.isnan(scores)
        if not known.any():
            return float("nan")
        return float(np.average(np.asarray(scores)[known], weights=self._weights[known]))

    def gain(self, scores: Sequence[float], reference: Sequence[float]) -> float:
        """How much better scores are than others; see `Comparison`."""
        ours, theirs = np.asarray(scores, float), np.asarray(reference, float)
        if self.kind.higher:
            return self.mean(ours - theirs)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(theirs > 0, 1 - ours / theirs, np.where(ours > theirs, -1.0, 0.0))
        return self.mean(np.where(np.isnan(ours) | np.isnan(theirs), np.nan, shares))

    def compare(
        self, predicted: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]
    ) -> Comparison:
        """Compare the predictions of one model for all folds with those of another."""
        ours, theirs = self.scores(predicted), self.scores(reference)
        drawn = []
        for number in range(DRAWS):
            pairs = [
                [self._score(t[rows], values[rows]) for values in (p, r)]
                for t, p, r, rows in zip(
                    self.truth, predicted, reference, (d[number] for d in self._draws), strict=True
                )
            ]
            drawn.append(self.gain([a for a, _ in pairs], [b for _, b in pairs]))
        gains = np.nan_to_num(np.array(drawn))
        return Comparison(
            gain=self.gain(ours, theirs),
            sure=float(np.mean(gains > 0) + np.mean(gains == 0) / 2),
            won=sum(self.kind.better(a, b) for a, b in zip(ours, theirs, strict=True)),
            folds=len(self.truth),
        )

    def _score(self, truth: NDArray[Any], values: NDArray[Any]) -> float:
        return fold_score(self.kind, truth, values, self.quantile)


def fold_score(
    kind: TaskKind, truth: NDArray[Any], values: NDArray[Any], quantile: float | None = None
) -> float:
    """The main metric of predictions; NaN where it is undefined."""
    name = kind.metric
    if name == "roc_auc":
        return _roc_auc(truth, values)
    if name == "mae":
        return float(np.mean(np.abs(truth.astype(float) - values))) if len(truth) else np.nan
    return compute_metrics(kind.name, truth, values, only=name, quantile=quantile)[name]


def _roc_auc(truth: NDArray[Any], values: NDArray[Any]) -> float:
    """ROC-AUC by ranks: samples are drawn by the hundred, and sklearn takes its time for each."""
    positive = truth.astype(int) > 0
    some, others = int(positive.sum()), int((~positive).sum())
    if not some or not others:
        return float("nan")
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[positive].sum() - some * (some + 1) / 2) / (some * others))
