"""Explained predictions of a few entities: the rows with the largest effects."""

from __future__ import annotations

from typing import Any

from relfrog.analysis.explained import MEASURED, Explanation, FeatureShare
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
        tag("p", f"The effect of a row is {MEASURED[m.explanations[0].measured]}."),
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
        _members(found) if found.members else None,
        figure(draw_past(found), f"The rows with the largest effects, of {found.looked_at:,} that "
               "the prediction could see.", wide=True, class_="graph"),
        sheet(["table", "rows seen", "newest time used", "effect of all its rows"], tables,
              numbers=[1, 3], label="Tables behind this prediction", sorts=True),
        _features(found) if found.features else None,
        sheet(["table", "key", "time", "effect", "values"], rows, numbers=[3],
              label="Rows behind this prediction", sorts=True),
    ])  # fmt: skip


def _members(found: Explanation) -> Markup:
    """How the predictions of the members make that of the blend."""
    words = [f"{m.weight:.2f} × {amount(m.prediction, 3)} ({m.name})" for m in found.members]
    return tag("p", f"{' + '.join(words)} = {amount(found.prediction, 3)}")


def _features(found: Explanation) -> Markup:
    """The largest contributions, and the rest of them, so that they add up."""
    several = len(found.members) > 1
    rows: list[list[Any]] = [
        [f.feature, "missing" if f.value is None else amount(f.value, 4), f"{f.rows:,}",
         _span(f), (signed(f.effect), f.effect), *([f.member] if several else [])]
        for f in found.features[:LISTED]
    ]  # fmt: skip
    rest = found.features[LISTED:]
    if rest:
        effect = sum(f.effect for f in rest)
        rows.append(
            [f"{len(rest)} others", "", "", "", (signed(effect), effect), *([""] * several)]
        )
    if found.base is not None:
        rows.append(["base: without any feature", "", "", "",
                     (amount(found.base, 4), found.base), *([""] * several)])  # fmt: skip
    headers = ["feature", "value", "rows", "of", "contribution", *(["member"] if several else [])]
    return sheet(headers, rows, numbers=[1, 2, 4], label="Features behind this prediction",
                 sorts=True)  # fmt: skip


def _span(feature: FeatureShare) -> str:
    """From when to when the rows of a feature are."""
    if feature.first is None or feature.last is None:
        return feature.table
    days = dict.fromkeys([f"{feature.first:%Y-%m-%d}", f"{feature.last:%Y-%m-%d}"])
    return f"{feature.table}, {' to '.join(days)}"
