"""Examples of recommended lists: what was recommended, and what came."""

from __future__ import annotations

from typing import Any

import numpy as np

from relfrog.reporting.markup import Html, join, note, sheet, tag
from relfrog.reporting.material import Material, entity_names

__all__ = ["example_lists"]

#: Entities that are shown, and entries of their lists.
LISTS, ENTRIES = 10, 10


def example_lists(m: Material) -> Html:
    """Lists from the best to the worst, evenly spread."""
    answers = m.answers
    assert answers is not None
    assert m.keys is not None
    lists = answers.predicted[:, :, 0].astype(np.int64)
    hits = np.array(
        [np.isin(row, some).mean() for row, some in zip(lists, answers.truth, strict=True)]
    )
    order = np.argsort(-hits, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, LISTS).astype(int))]
    table = m.run.prepared.task.dst_entity_table
    rows = []
    times = answers.seeds.times.reset_index(drop=True)
    for i in chosen:
        wanted = np.asarray(answers.truth[i], np.int64)
        listed = [row for row in lists[i][:ENTRIES] if row >= 0]
        names = list(entity_names(m.run, np.array(listed, np.int64), table))
        shown: list[Any] = []
        for row, name in zip(listed, names, strict=True):
            hit = row in wanted
            shown.append(tag("span", f"✓ {name}" if hit else name, class_="hit" if hit else "miss"))
        missed = [row for row in wanted if row not in set(lists[i].tolist())]
        rest = list(entity_names(m.run, np.array(missed[:ENTRIES], np.int64), table))
        more = f" and {len(missed) - ENTRIES} more" if len(missed) > ENTRIES else ""
        right = round(hits[i] * lists.shape[1])
        rows.append([
            m.keys.iloc[i], f"{times[i]:%Y-%m-%d %H:%M}", tag("span", *shown, class_="chips"),
            (", ".join(rest) + more) or "none", (f"{right} of {len(wanted)}", float(hits[i])),
        ])  # fmt: skip
    entity = m.run.prepared.task.entity_table
    return join([
        tag("h3", "Examples of lists"),
        sheet([entity, "time", f"recommended {table}, best first", "came, but was not listed",
               "right"], rows, numbers=[4], label="Examples of recommended lists", sorts=True),
        note("✓ came within the task's window. The examples run from the best list to the worst."),
    ])  # fmt: skip
