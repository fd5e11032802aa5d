"""Explained predictions of a few entities: the rows with the largest effects."""

from __future__ import annotations

from relfrog.analysis.explanation import Explanation
from relfrog.reporting.html import (
    GREEN,
    PURPLE,
    Markup,
    amount,
    figure,
    join,
    missing,
    note,
    sheet,
    signed,
    tag,
)
from relfrog.reporting.material import Material
from relfrog.reporting.past_graph import draw_past

__all__ = ["explanations"]

#: The most rows to list.
LISTED = 10


def explanations(m: Material) -> Markup:
    """The section."""
    if not m.explanations:
        return missing(m.why.get("explanations", "No prediction was explained."))
    dot = [tag("i", class_="dot", style=f"background:{c}") for c in (GREEN, PURPLE)]
    parts = [
        tag("p", "The effect of a row is measured: each row of the sampled past is hidden in turn, "
            "and the prediction is repeated. The effect is the prediction minus the prediction "
            "without the row."),
        tag("div", dot[0], " raises the prediction", dot[1], " lowers it; larger dots count more. "
            "Lines are foreign keys on the way to the entity.", class_="legend"),
    ]  # fmt: skip
    for number, found in enumerate(m.explanations):
        parts.append(tag("details", tag("summary", _title(found)), _one(found), open=number == 0))
    parts.append(note("Explain any other: ", tag("code", f"relfrog explain {m.run.folder} --entity "
                      "KEY [--at TIME]"), "."))  # fmt: skip
    if m.why.get("explanations"):
        parts.append(missing(m.why["explanations"]))
    return join(parts)


def _title(found: Explanation) -> str:
    return (
        f"{found.table} {found.key} at {found.time:%Y-%m-%d %H:%M}: {found.answer} "
        f"{amount(found.prediction, 3)}"
    )


def _one(found: Explanation) -> Markup:
    tables = [
        [share.table, f"{share.rows:,}",
         "no times" if share.newest is None else f"{share.newest:%Y-%m-%d %H:%M:%S}",
         ("–" if share.effect is None else signed(share.effect), share.effect or 0.0)]
        for share in found.tables
    ]  # fmt: skip
    rows = [
        [row.table, row.key, "" if row.time is None else f"{row.time:%Y-%m-%d %H:%M}",
         (signed(row.effect), row.effect),
         ", ".join(f"{name} {value}" for name, value in row.cells.items())]
        for row in found.rows[:LISTED]
    ]  # fmt: skip
    return join([
        figure(draw_past(found), f"The rows with the largest effects, of {found.looked_at:,} that "
               "the prediction could see.", wide=True, class_="graph"),
        sheet(["table", "rows seen", "newest time used", "effect of all its rows"], tables,
              numbers=[1, 3], label="Tables behind this prediction", sorts=True),
        sheet(["table", "key", "time", "effect", "values"], rows, numbers=[3],
              label="Rows behind this prediction", sorts=True),
    ])  # fmt: skip
