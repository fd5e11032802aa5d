"""The most confident mistakes, with the keys of their entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from relfrog.reporting.html import Markup, amount, join, note, sheet, tag
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.sections.curves import label_name
from relfrog.support.lists import matrix

__all__ = [
    "Mistakes",
    "mistakes",
    "worst_classes",
    "worst_labels",
    "worst_probabilities",
    "worst_values",
]

#: The most rows of the table.
MISTAKES = 12


class Mistakes(NamedTuple):
    """The worst predictions of a task type.

    Attributes:
        order: positions of the seeds, the worst first.
        cells: what the table shows of each.
        headers: the headers of these cells.
    """

    order: list[int]
    cells: Sequence[tuple[str, ...]]
    headers: list[str]


def mistakes(
    m: Material, answers: Answers, worst: Callable[[Material, Answers], Mistakes]
) -> Markup:
    """A table of the worst predictions.

    Args:
        m: the material of the report.
        answers: the test predictions.
        worst: finds the worst predictions for the task type.
    """
    order, cells, headers = worst(m, answers)
    if not len(order):
        return note("There is no mistake among the test predictions.")
    times = pd.Series(answers.seeds.times)
    entity = ((m.database or {}).get("task") or {}).get("entity_table", "entity")
    rows = [[answers.keys[i], f"{times[i]:%Y-%m-%d %H:%M}", *row, f"{answers.past[i]:,}"]
            for i, row in zip(order, cells, strict=True)]  # fmt: skip
    table = sheet([entity, "time", *headers, "rows of history"], rows,
                  numbers=range(2, 6), label="The most confident mistakes", sorts=True)  # fmt: skip
    return join([tag("h3", "The most confident mistakes"), table,
                 note("Explain any of them: ", tag("code", f"relfrog explain {m.run.folder} "
                      "--entity KEY --at TIME"), ".")])  # fmt: skip


def worst_classes(m: Material, answers: Answers) -> Mistakes:
    """Wrong classes, by their predicted probability."""
    truth, predicted = answers.truth, answers.predicted
    classes = m.run.about["labels"].get("classes", [])
    chosen = predicted.argmax(1)
    wrong = np.where(chosen != truth, predicted.max(1), -1.0)
    order = [i for i in np.argsort(-wrong, kind="stable") if wrong[i] >= 0][:MISTAKES]
    named = {i: str(value) for i, value in enumerate(classes)}
    cells = [(named.get(int(chosen[i]), "?"), amount(predicted[i].max(), 3),
              named.get(int(truth[i]), "not seen in training")) for i in order]  # fmt: skip
    return Mistakes(order, cells, ["predicted", "probability", "true"])


def worst_labels(m: Material, answers: Answers) -> Mistakes:
    """The label of each seed whose probability is furthest off."""
    predicted = answers.predicted
    real = matrix(answers.truth).astype(int)
    error = np.abs(real - predicted).max(1)
    order = list(np.argsort(-error, kind="stable")[:MISTAKES])
    which = np.abs(real - predicted).argmax(1)
    cells = [(f"label {which[i]}", amount(predicted[i, which[i]], 3), str(real[i, which[i]]))
             for i in order]  # fmt: skip
    return Mistakes(order, cells, ["of", "probability", "true"])


def worst_probabilities(m: Material, answers: Answers) -> Mistakes:
    """Probabilities that are furthest from the label."""
    return _furthest(m, answers, 3, lambda value: str(int(value)))


def worst_values(m: Material, answers: Answers) -> Mistakes:
    """Values that are furthest from the label, with three significant digits of the largest."""
    most = float(np.abs(answers.truth.astype(float)).max())
    digits = max(0, 2 - int(np.floor(np.log10(most)))) if most else 2
    return _furthest(m, answers, digits, lambda value: f"{value:,.{digits}f}")


def _furthest(
    m: Material, answers: Answers, digits: int, shown: Callable[[float], str]
) -> Mistakes:
    values, predicted = answers.truth.astype(float), answers.predicted
    error = np.abs(values - predicted)
    order = [i for i in np.argsort(-error, kind="stable")[:MISTAKES] if error[i] > 0]
    cells = [(f"{float(predicted[i]):,.{digits}f}", shown(float(values[i])),
              f"{float(error[i]):,.{digits}f}") for i in order]  # fmt: skip
    label = label_name(m)
    return Mistakes(order, cells, [f"predicted {label}", f"true {label}", "off by"])
