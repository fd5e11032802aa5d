"""Drawing of the rows behind one prediction: a lane per table, time from left to right."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from relfrog.analysis.explanation import Explanation, Reason
from relfrog.reporting.html import GREEN, PURPLE, Markup, signed, tag

__all__ = ["draw_past"]

LABELS, TIMELESS, SPAN, NOW, TOP = 158.0, 96.0, 420.0, 112.0, 26.0
#: The most rows to draw.
MOST = 30
#: Tick marks of the axis: age in seconds, and label.
MARKS = (
    (60, "1 min"), (3600, "1 h"), (86400, "1 day"), (7 * 86400, "1 week"), (30 * 86400, "1 month"),
    (182 * 86400, "6 months"), (365 * 86400, "1 year"), (5 * 365 * 86400, "5 years"),
    (20 * 365 * 86400, "20 years"),
)  # fmt: skip


class _Dot(NamedTuple):
    x: float
    y: float
    radius: float


def draw_past(found: Explanation) -> Markup:
    """Draw the rows of an explanation as SVG."""
    rows = list(found.rows[:MOST])  # the strongest first, so numbers in `leads_to` still hold
    ages = [age for row in rows if (age := _age(found, row)) is not None]
    # Three orders of magnitude are enough; younger rows are drawn at the right end.
    high = max([3600.0, *ages]) * 1.25
    low = max(min(ages, default=60.0) * 0.8, high / 2000)

    def across(age: float) -> float:
        share = (math.log(high) - math.log(max(age, low))) / max(math.log(high / low), 1e-9)
        return LABELS + TIMELESS + SPAN * min(max(share, 0.0), 1.0)

    strongest = max([abs(row.effect) for row in rows], default=0.0) or 1.0
    lanes = _lanes(rows)
    dots: dict[int, _Dot] = {}
    y, parts = TOP, []
    width = LABELS + TIMELESS + SPAN + NOW
    for lane in lanes:
        here = [i for i, row in enumerate(rows) if row.table == lane]
        placed = _swarm(found, rows, here, across, strongest)
        reach = max((abs(dot.y) + dot.radius for dot in placed.values()), default=8.0)
        height = max(30.0, 2 * reach + 10)
        middle = y + height / 2
        for i, dot in placed.items():
            dots[i] = _Dot(dot.x, middle + dot.y, dot.radius)
        shown = lane if len(lane) <= 20 else lane[:19] + "…"
        parts += [
            tag("line", x1=LABELS - 4, x2=width - NOW, y1=f"{y + height:.1f}",
                y2=f"{y + height:.1f}", class_="rail"),
            tag("text", shown, tag("title", lane), x=LABELS - 12, y=f"{middle + 4:.1f}",
                class_="lane"),
        ]  # fmt: skip
        y += height
    centre = TOP + (y - TOP) / 2
    now = width - NOW / 2 + 6
    parts += _axis(low, high, across, y, bool([r for r in rows if r.time is None]))
    links = []
    for i, row in enumerate(rows):
        for to in row.leads_to:
            if to == -1 or to in dots:
                end = _Dot(now - 34, centre, 0) if to == -1 else dots[to]
                start, bend = dots[i], (dots[i].x + end.x) / 2
                links.append(tag(
                    "path", d=f"M{start.x:.1f},{start.y:.1f}C{bend:.1f},{start.y:.1f} {bend:.1f},"
                    f"{end.y:.1f} {end.x:.1f},{end.y:.1f}", class_="link"))  # fmt: skip
    circles = [_circle(rows[i], dot) for i, dot in dots.items()]
    name = found.key if len(found.key) <= 12 else found.key[:11] + "…"
    seed = tag(
        "g", tag("title", f"{found.table} {found.key} at {found.time:%Y-%m-%d %H:%M}"),
        tag("rect", x=f"{now - 36:.1f}", y=f"{centre - 20:.1f}", width=86, height=40, rx=8),
        tag("text", name, x=f"{now + 7:.1f}", y=f"{centre - 2:.1f}", class_="name"),
        tag("text", f"{found.time:%Y-%m-%d}", x=f"{now + 7:.1f}", y=f"{centre + 13:.1f}",
            class_="rows"), class_="seed",
    )  # fmt: skip
    alt = f"Rows behind the prediction for {found.table} {found.key}: " + "; ".join(
        f"{row.table} {row.key} {signed(row.effect, 3)}" for row in rows[:8]
    )
    return tag(
        "svg", tag("title", alt), *parts, *links, *circles, seed, class_="past", role="img",
        aria_label=alt, viewBox=f"0 0 {width + 18:.0f} {max(y, centre + 30) + 30:.0f}",
        style="min-width:560px;max-width:880px",
    )  # fmt: skip


def _age(found: Explanation, row: Reason) -> float | None:
    return None if row.time is None else (found.time - row.time).total_seconds()


def _lanes(rows: list[Reason]) -> list[str]:
    """The tables of the rows, by distance from the entity."""
    near: dict[str, int] = {}
    for row in rows:
        near[row.table] = min(near.get(row.table, 99), row.hops)
    return sorted(near, key=lambda name: (near[name], name))


def _swarm(
    found: Explanation,
    rows: list[Reason],
    here: list[int],
    across: Callable[[float], float],
    strongest: float,
) -> dict[int, _Dot]:
    """Beeswarm layout of a lane: no two dots overlap; y is relative to the middle of the lane."""
    placed: dict[int, _Dot] = {}
    timeless = [i for i in here if rows[i].time is None]
    for i in here:
        radius = 3.5 + 9.0 * math.sqrt(abs(rows[i].effect) / strongest)
        age = _age(found, rows[i])
        if age is None:
            rank = timeless.index(i)
            x = LABELS + 14 + (TIMELESS - 28) * ((rank + 0.5) / len(timeless))
        else:
            x = across(age)
        for step in range(200):
            y = (step + 1) // 2 * 4.0 * (1 if step % 2 else -1)
            if all(math.hypot(x - d.x, y - d.y) >= radius + d.radius + 1 for d in placed.values()):
                break
        placed[i] = _Dot(x, y, radius)
    return placed


def _axis(
    low: float, high: float, across: Callable[[float], float], bottom: float, timeless: bool
) -> list[Markup]:
    parts = []
    for seconds, words in MARKS:
        if low <= seconds <= high:
            x = across(seconds)
            parts += [
                tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=TOP - 4, y2=f"{bottom:.1f}",
                    class_="tick"),
                tag("text", words, x=f"{x:.1f}", y=f"{bottom + 16:.1f}", class_="mark"),
            ]  # fmt: skip
    parts.append(tag("text", "before the prediction →", x=LABELS + TIMELESS + SPAN,
                     y=TOP - 10, class_="mark end"))  # fmt: skip
    if timeless:
        parts.append(tag("text", "no time", x=LABELS + TIMELESS / 2 - 4, y=f"{bottom + 16:.1f}",
                         class_="mark"))  # fmt: skip
    return parts


def _circle(row: Reason, dot: _Dot) -> Markup:
    when = "no time" if row.time is None else f"{row.time:%Y-%m-%d %H:%M}"
    cells = "; ".join(f"{name}: {value}" for name, value in row.cells.items())
    words = f"{row.table} {row.key}; {when}; effect {signed(row.effect)}"
    return tag(
        "circle", tag("title", f"{words}; {cells}" if cells else words), cx=f"{dot.x:.1f}",
        cy=f"{dot.y:.1f}", r=f"{dot.radius:.1f}", fill=GREEN if row.effect >= 0 else PURPLE,
        class_="row",
    )  # fmt: skip
