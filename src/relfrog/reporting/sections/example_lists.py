"""Examples of recommended lists: hits, misses, and true targets that were not listed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from relfrog.reporting.html import Markup, join, note, sheet, tag
from relfrog.reporting.material import ENTRIES, Material, listed, missed, shown_lists

__all__ = ["example_lists"]


def example_lists(m: Material) -> Markup:
    """A table of lists, evenly spread from the best to the worst."""
    answers = m.answers
    assert answers is not None
    chosen, hits = shown_lists(answers.truth, answers.predicted)
    task = (m.database or {}).get("task") or {}
    rows = []
    times = pd.Series(answers.seeds.times)
    for i in chosen:
        wanted = {int(row) for row in answers.truth[i]}
        shown: list[Any] = []
        for row in listed(answers.predicted[i]):
            name, hit = answers.targets.get(row, "?"), row in wanted
            shown.append(tag("span", f"✓ {name}" if hit else name, class_="hit" if hit else "miss"))
        away = missed(answers.truth[i], answers.predicted[i])
        rest = ", ".join(answers.targets.get(row, "?") for row in away[:ENTRIES])
        more = f" and {len(away) - ENTRIES} more" if len(away) > ENTRIES else ""
        right = round(hits[i] * answers.predicted.shape[1])
        rows.append([
            answers.keys[i], f"{times[i]:%Y-%m-%d %H:%M}", tag("span", *shown, class_="chips"),
            (rest + more) or "none", (f"{right} of {len(wanted)}", float(hits[i])),
        ])  # fmt: skip
    entity, table = task.get("entity_table", "entity"), task.get("target_table", "target")
    return join([
        tag("h3", "Examples of lists"),
        sheet([entity, "time", f"recommended {table}, best first", "came, but was not listed",
               "right"], rows, numbers=[4], label="Examples of recommended lists", sorts=True),
        note("✓ came within the task's window. The examples run from the best list to the worst."),
    ])  # fmt: skip
