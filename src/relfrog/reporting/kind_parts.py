"""What the report shows for each task type, registered once per type.

Sections ask `KIND_PARTS` for the figures, examples and baseline of a task type and never test its
name, so a new task type needs one entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relfrog.reporting.html import Markup
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.sections.constant_baselines import (
    ConstantBaseline,
    random_ranking,
    training_median,
)
from relfrog.reporting.sections.curves import against, calibration, precision_recall, residuals, roc
from relfrog.reporting.sections.example_lists import example_lists
from relfrog.reporting.sections.mistakes import (
    mistakes,
    worst_classes,
    worst_labels,
    worst_probabilities,
    worst_values,
)

__all__ = ["KIND_PARTS", "KindParts"]


@dataclass(frozen=True)
class KindParts:
    """The parts of a report that depend on the task type.

    Attributes:
        figures: charts of the test predictions.
        examples: shown after the charts: the worst mistakes, or example lists.
        constant: the score of a constant prediction; None if that says nothing.
    """

    figures: Callable[[Material, Answers], list[Markup | None]]
    examples: Callable[[Material, Answers], Markup]
    constant: Callable[[Material], ConstantBaseline | None] = lambda m: None


def _binary_figures(m: Material, answers: Answers) -> list[Markup | None]:
    truth = answers.truth.astype(int)
    return [
        calibration(truth, answers.predicted),
        roc(truth, answers.predicted),
        precision_recall(truth, answers.predicted),
    ]


def _regression_figures(m: Material, answers: Answers) -> list[Markup | None]:
    return [residuals(m, answers), against(m, answers)]


def _multiclass_figures(m: Material, answers: Answers) -> list[Markup | None]:
    """Calibration of the probability of the most likely class."""
    chosen = answers.predicted.argmax(1)
    right = (chosen == answers.truth).astype(int)
    return [calibration(right, answers.predicted.max(1), "the chosen class")]


def _multilabel_figures(m: Material, answers: Answers) -> list[Markup | None]:
    """Calibration of all labels together."""
    truth = np.stack(answers.truth.tolist()).astype(int)
    return [calibration(truth.ravel(), answers.predicted.ravel())]


#: Parts of the report by RelBench's name of the task type.
KIND_PARTS: dict[str, KindParts] = {
    "binary_classification": KindParts(
        _binary_figures, lambda m, a: mistakes(m, a, worst_probabilities), random_ranking
    ),
    "regression": KindParts(
        _regression_figures, lambda m, a: mistakes(m, a, worst_values), training_median
    ),
    "multiclass_classification": KindParts(
        _multiclass_figures, lambda m, a: mistakes(m, a, worst_classes)
    ),
    "multilabel_classification": KindParts(
        _multilabel_figures, lambda m, a: mistakes(m, a, worst_labels)
    ),
    "recommendation": KindParts(lambda m, a: [], lambda m, a: example_lists(m)),
}
