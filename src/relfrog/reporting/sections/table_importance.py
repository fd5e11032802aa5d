"""Importance of tables and columns: the loss of score without them."""

from __future__ import annotations

from typing import Any

from relfrog.analysis.bootstrap import Interval
from relfrog.analysis.importance import Importance, TableImportance
from relfrog.reporting.charts import chart, colour, intervals
from relfrog.reporting.html import (
    BLUE,
    ORANGE,
    Markup,
    figure,
    join,
    metric_name,
    missing,
    note,
    sheet,
    signed,
    tag,
)
from relfrog.reporting.material import Material

__all__ = ["table_importance"]

#: The most columns to draw.
MOST = 25
WAYS = ("rows hidden", "values shuffled")


def table_importance(m: Material) -> Markup:
    """The section."""
    found = m.importance
    if found is None:
        return missing(m.why.get("importance", "The importance of tables was not computed."))
    name = metric_name(found.metric)
    sure = [t.table for t in found.tables if any(p and p.certain and p.value > 0 for p in _both(t))]
    text = (
        f"Certainly needed: {', '.join(sure)}." if sure
        else "No single table is certainly needed."
    )  # fmt: skip
    some = f"{found.seeds:,} of {found.of:,}" if found.seeds < found.of else f"all {found.of:,}"
    parts: list[Any] = [
        tag("p", text, " A table whose range includes zero may not matter."),
        figure(
            chart(_spec(found.tables, name), f"Loss of {name} by table. " + _words(found.tables)),
            f"Loss of {name} when the rows of a table are hidden, and when their values are "
            f"shuffled; on {some} test labels, 95 % range over entities.", wide=True,
        ),
        tag("details", tag("summary", "The same as numbers"), _sheet(found, name)),
    ]  # fmt: skip
    if found.unmeasured:
        names = ", ".join(found.unmeasured)
        parts.append(note(f"Not measured, as it would have taken too long: {names}."))
    if found.columns:
        shown = found.columns[:MOST]
        parts += [
            tag("h3", "Which columns matter"),
            figure(
                chart(_spec(shown, name, only=True), f"Loss of {name} by column. " + _words(shown)),
                f"Loss of {name} when the values of one column are shuffled"
                f"; {len(shown)} of {len(found.columns)} columns.",
                wide=True,
            ),
        ]  # fmt: skip
    else:
        parts.append(note("All tables, more labels, several shuffles and single columns: ",
                          tag("code", f"relfrog report {m.run.folder} --deep"), "."))  # fmt: skip
    return join(parts)


def _both(entry: TableImportance) -> tuple[Interval | None, Interval | None]:
    return entry.hidden, entry.shuffled


def _label(entry: TableImportance) -> str:
    return entry.table if entry.column is None else f"{entry.table}.{entry.column}"


def _words(entries: tuple[TableImportance, ...]) -> str:
    parts = []
    for entry in entries:
        for way, part in zip(WAYS, _both(entry), strict=True):
            if part is not None:
                parts.append(f"{_label(entry)}, {way}: {signed(part.value)}")
    return "; ".join(parts)


def _spec(entries: tuple[TableImportance, ...], name: str, only: bool = False) -> dict[str, Any]:
    data = []
    for entry in entries:
        for way, part in zip(WAYS, _both(entry), strict=True):
            if part is not None:
                low, high = (part.low, part.high) if part.low == part.low else (None, None)
                data.append({"name": _label(entry), "value": part.value, "low": low, "high": high,
                             "way": way})  # fmt: skip
    hue = None if only else colour("way", WAYS, [BLUE, ORANGE])
    spec = intervals(data, "value", f"loss of {name} (right: it matters)", hue=hue, zero=True,
                     reference=0.0, height=18 if only else 32)  # fmt: skip
    return spec | {"width": 640}


def _sheet(found: Importance, name: str) -> Markup:
    def cell(part: Interval | None) -> tuple[str, float]:
        if part is None:
            return "–", 0.0
        span = f" ({signed(part.low)} to {signed(part.high)})" if part.low == part.low else ""
        return f"{signed(part.value)}{span}", part.value

    rows = [[_label(e), cell(e.hidden), cell(e.shuffled)] for e in (*found.tables, *found.columns)]
    headers = ["table", f"loss of {name}, rows hidden", f"loss of {name}, values shuffled"]
    return sheet(headers, rows, numbers=[1, 2], label="Loss of score by table", sorts=True)
