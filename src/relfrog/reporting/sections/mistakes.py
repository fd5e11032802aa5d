"""The most confident mistakes, with the keys of their entities."""

from __future__ import annotations

import numpy as np

from relfrog.reporting.html import Markup, amount, join, note, sheet, tag
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.sections.curves import label_name

__all__ = ["mistakes"]

#: Rows of the list.
MISTAKES = 12


def mistakes(m: Material, answers: Answers) -> Markup:
    """The predictions that were furthest off, with the keys of their entities."""
    truth, predicted = answers.truth, answers.predicted
    label = label_name(m)
    if m.kind == "multiclass_classification":
        classes = m.run.about["labels"].get("classes", [])
        chosen = predicted.argmax(1)
        wrong = np.where(chosen != truth, predicted.max(1), -1.0)
        order = [i for i in np.argsort(-wrong, kind="stable") if wrong[i] >= 0][:MISTAKES]
        named = {i: str(value) for i, value in enumerate(classes)}
        cells = [(named.get(int(chosen[i]), "?"), amount(predicted[i].max(), 3),
                  named.get(int(truth[i]), "not seen in training")) for i in order]  # fmt: skip
        headers = ["predicted", "probability", "true"]
    elif m.kind == "multilabel_classification":
        real = np.stack(truth.tolist()).astype(int)
        error = np.abs(real - predicted).max(1)
        order = list(np.argsort(-error, kind="stable")[:MISTAKES])
        which = np.abs(real - predicted).argmax(1)
        cells = [(f"label {which[i]}", amount(predicted[i, which[i]], 3), str(real[i, which[i]]))
                 for i in order]  # fmt: skip
        headers = ["of", "probability", "true"]
    else:
        values = truth.astype(float)
        error = np.abs(values - predicted)
        order = [i for i in np.argsort(-error, kind="stable")[:MISTAKES] if error[i] > 0]
        most = float(np.abs(values).max())
        digits = max(0, 2 - int(np.floor(np.log10(most)))) if most else 2
        digits = 3 if m.kind != "regression" else digits
        cells = [(f"{float(predicted[i]):,.{digits}f}", f"{float(values[i]):,.{digits}f}"
                  if m.kind == "regression" else str(int(values[i])),
                  f"{float(error[i]):,.{digits}f}") for i in order]  # fmt: skip
        headers = [f"predicted {label}", f"true {label}", "off by"]
    if not len(order):
        return note("There is no mistake among the test predictions.")
    times = answers.seeds.times.reset_index(drop=True)
    entity = ((m.database or {}).get("task") or {}).get("entity_table", "entity")
    rows = [[answers.keys[i], f"{times[i]:%Y-%m-%d %H:%M}", *row, f"{answers.past[i]:,}"]
            for i, row in zip(order, cells, strict=True)]  # fmt: skip
    table = sheet([entity, "time", *headers, "rows of history"], rows,
                  numbers=range(2, 6), label="The most confident mistakes", sorts=True)  # fmt: skip
    return join([tag("h3", "The most confident mistakes"), table,
                 note("Explain any of them: ", tag("code", f"relfrog explain {m.run.folder} "
                      "--entity KEY --at TIME"), ".")])  # fmt: skip
