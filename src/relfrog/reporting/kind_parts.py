"""What the report shows for each task type, registered once per type.

Sections ask `KIND_PARTS` for the figures, examples and baseline of a task type and never test its
name, so a new task type needs one entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from relfrog.reporting.html import Markup
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.sections.constant_baselines import (
    ConstantBaseline,
    random_ranking,
    training_median,
)
from relfrog.reporting.sections.curves import against, calibration, precision_recall, residuals, roc
from relfrog.reporting.sections.example_lists import example_lists
from relfrog.reporting.sections.in_short import (
    binary_in_short,
    multiclass_in_short,
    multilabel_in_short,
    regression_in_short,
)
from relfrog.reporting.sections.mistakes import (
    mistakes,
    worst_classes,
    worst_labels,
    worst_probabilities,
    worst_values,
)
from relfrog.support.lists import matrix

__all__ = ["KIND_PARTS", "KindParts"]


@dataclass(frozen=True)
class KindParts:
    """The parts of a report that depend on the task type.

    Attributes:
        question: what is asked, with `{entities}`, `{targets}` and `{label}`. A label may be any
            word, so it is quoted, not conjugated.
        figures: charts of the test predictions.
        examples: shown after the charts: the worst mistakes, or example lists.
        in_short: what a manager asks first, in words and numbers.
        constant: the score of a constant prediction; None if that says nothing.
    """

    question: str
    figures: Callable[[Material, Answers], list[Markup | None]]
    examples: Callable[[Material, Answers], Markup]
    in_short: Callable[[Material, Answers], Markup | None] = lambda m, a: None
    constant: Callable[[Material], ConstantBaseline | None] = lambda m: None


def _raw(m: Material, answers: Answers) -> NDArray[Any] | None:
    """Predictions before calibration, if they were calibrated."""
    return None if m.postprocessing.calibration is None else answers.raw


def _binary_figures(m: Material, answers: Answers) -> list[Markup | None]:
    truth = answers.truth.astype(int)
    return [
        calibration(truth, answers.predicted, raw=_raw(m, answers)),
        roc(truth, answers.predicted),
        precision_recall(truth, answers.predicted),
    ]


def _regression_figures(m: Material, answers: Answers) -> list[Markup | None]:
    return [residuals(m, answers), against(m, answers)]


def _multiclass_figures(m: Material, answers: Answers) -> list[Markup | None]:
    """Calibration of the probability of the most likely class."""
    chosen = answers.predicted.argmax(1)
    right = (chosen == answers.truth).astype(int)
    raw = _raw(m, answers)
    before = None if raw is None else raw.max(1)
    return [calibration(right, answers.predicted.max(1), "the chosen class", raw=before)]


def _multilabel_figures(m: Material, answers: Answers) -> list[Markup | None]:
    """Calibration of all labels together."""
    truth = matrix(answers.truth).astype(int)
    raw = _raw(m, answers)
    before = None if raw is None else raw.ravel()
    return [calibration(truth.ravel(), answers.predicted.ravel(), raw=before)]


#: Parts of the report by RelBench's name of the task type.
KIND_PARTS: dict[str, KindParts] = {
    "binary_classification": KindParts(
        "Which {entities} will have the label “{label}”",
        _binary_figures,
        lambda m, a: mistakes(m, a, worst_probabilities),
        binary_in_short,
        random_ranking,
    ),
    "regression": KindParts(
        "What will “{label}” be for each of the {entities}",
        _regression_figures,
        lambda m, a: mistakes(m, a, worst_values),
        regression_in_short,
        training_median,
    ),
    "multiclass_classification": KindParts(
        "Which “{label}” will each of the {entities} have",
        _multiclass_figures,
        lambda m, a: mistakes(m, a, worst_classes),
        multiclass_in_short,
    ),
    "multilabel_classification": KindParts(
        "Which labels of “{label}” will each of the {entities} have",
        _multilabel_figures,
        lambda m, a: mistakes(m, a, worst_labels),
        multilabel_in_short,
    ),
    "recommendation": KindParts(
        "Which {targets} will each of the {entities} be linked to",
        lambda m, a: [],
        lambda m, a: example_lists(m),
    ),
}
