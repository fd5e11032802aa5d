"""Scores of constant predictions, the simplest baselines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relfrog.analysis.bootstrap import Scorer, resample
from relfrog.reporting.material import Material

__all__ = ["BOOTSTRAP_SAMPLES", "ConstantBaseline", "random_ranking", "training_median"]

#: Bootstrap samples for the confidence intervals of scores.
BOOTSTRAP_SAMPLES = 200


class ConstantBaseline(NamedTuple):
    """The same prediction for every entity.

    Attributes:
        name: its name.
        value: its score.
        real: whether the model differs from it by more than noise; None if the confidence
            interval of the model's own score decides.
    """

    name: str
    value: float
    real: bool | None


def random_ranking(m: Material) -> ConstantBaseline | None:
    """A constant has a ROC-AUC of 0.5."""
    return ConstantBaseline("constant", 0.5, None)


def training_median(m: Material) -> ConstantBaseline | None:
    """The median of the training labels, compared with the model on the same seeds."""
    answers, labels = m.answers, m.run.about.get("labels", {})
    if answers is None or not len(answers.truth) or "center" not in labels:
        return None
    same = np.full(len(answers.truth), float(labels["center"]))
    ours = Scorer(m.kind, "mae", answers.truth, answers.predicted)
    theirs = Scorer(m.kind, "mae", answers.truth, same)
    gain = resample(
        np.asarray(answers.seeds.rows), lambda at: theirs(at) - ours(at), times=BOOTSTRAP_SAMPLES
    )
    real = None if np.isnan(gain.low) else gain.certain
    return ConstantBaseline("constant: training median", theirs(np.arange(len(same))), real)
