"""Charts as SVG that read on light and on dark pages, with a text alternative.

Written by hand: no library, no script, no font, no background. Text and lines take the colour of
the page's scheme; marks have colours of middle brightness that the colour-blind can tell apart,
and shapes beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Mark", "Panel", "curves", "dots", "scatter", "shares"]

COLORS = ("#2a7fba", "#d1701c", "#2f9e6e", "#b25591", "#a08a10", "#7463c9", "#c24b4b", "#4f8f96",
          "#8a6d5b", "#6b8f23", "#3d63d6", "#cc7fb4", "#b8863b", "#17a2a2", "#9a4fd0",
          "#7d8896")  # fmt: skip
#: What is neither of two.
_NEITHER = "#8a97a8"
_STYLE = (
    "<style>text{fill:#2d3748}.muted{fill:#5a6779}.axis{stroke:#8a97a8;fill:none}"
    ".grid{stroke:#8a97a8;stroke-opacity:.3}"
    "@media (prefers-color-scheme:dark){text{fill:#e2e8f0}.muted{fill:#a9b4c4}}</style>"
)


@dataclass(frozen=True)
class Mark:
    """A figure with its name.

    Attributes:
        name: what it is of.
        value: what it is.
        deviation: how far it varies.
        at: where on the horizontal axis, for curves.
    """

    name: str
    value: float
    deviation: float | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Panel:
    """A part of a chart with an axis of its own."""

    title: str
    marks: Sequence[Mark]


def _svg(width: float, height: float, title: str, desc: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-labelledby="title desc" '
        'font-family="system-ui, sans-serif" font-size="12">'
        f'<title id="title">{escape(title)}</title><desc id="desc">{escape(desc)}</desc>'
        f"{_STYLE}{body}</svg>\n"
    )


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _known(marks: Sequence[Mark]) -> list[Mark]:
    return [mark for mark in marks if math.isfinite(mark.value)]


def _scale(
    marks: Sequence[Mark], low: float, high: float
) -> tuple[Callable[[float], float], list[float]]:
    """From values to places between two ends, and round values for the axis."""
    ends = [m.value + sign * (m.deviation or 0.0) for m in _known(marks) for sign in (-1, 1)]
    least, most = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = (most - least) * 0.08 or abs(most) * 0.05 or 1.0
    least, most = least - margin, most + margin
    step = 10 ** math.floor(math.log10((most - least) / 2))
    step *= next(k for k in (1, 2, 5, 10) if (most - least) / (k * step) <= 5)
    first = math.ceil(least / step)
    ticks = [n * step for n in range(first, math.floor(most / step) + 1)]
    return lambda value: low + (value - least) / (most - least) * (high - low), ticks


def dots(title: str, panels: Sequence[Panel]) -> str:
    """A panel per task, a row per variant: its mean, and its deviation as a line."""
    across, wide = min(3, max(1, len(panels))), 330
    rows = max((len(_known(p.marks)) for p in panels), default=0)
    high = 62 + 20 * rows
    parts, said = [], []
    names = list(dict.fromkeys(mark.name for panel in panels for mark in panel.marks))
    for number, panel in enumerate(panels):
        x, y = (number % across) * wide, 8 + (number // across) * high
        marks = _known(panel.marks)
        place, ticks = _scale(marks, x + 125, x + wide - 25)
        bottom = y + 30 + 20 * len(marks)
        parts.append(_text(x + 8, y + 14, _cut(panel.title, 46), 'font-weight="600"'))
        for tick in ticks:
            at = place(tick)
            parts.append(f'<path class="grid" d="M{at:.1f},{y + 24} V{bottom}"/>')
            parts.append(
                _text(at, bottom + 14, f"{tick:g}", 'class="muted" text-anchor="middle" '
                      'font-size="10"')
            )  # fmt: skip
        for row, mark in enumerate(marks):
            at, level = place(mark.value), y + 38 + 20 * row
            color = COLORS[names.index(mark.name) % len(COLORS)]
            spread = mark.deviation or 0.0
            told = f"{mark.name}: {mark.value:.4g}" + (f" ± {spread:.2g}" if spread else "")
            parts.append(
                _text(x + 118, level + 4, _cut(mark.name, 19), 'text-anchor="end"')
                + f"<g><title>{escape(told)}</title>"
                f'<path d="M{place(mark.value - spread):.1f},{level} H'
                f'{place(mark.value + spread):.1f}" stroke="{color}" stroke-width="2"/>'
                f'<circle cx="{at:.1f}" cy="{level}" r="4.5" fill="{color}"/></g>'
            )
        said.append(f"{panel.title}: " + ", ".join(f"{m.name} {m.value:.4g}" for m in marks))
    height = 16 + high * math.ceil(len(panels) / across)
    return _svg(across * wide, height, title, ". ".join(said), "".join(parts))


def curves(title: str, panels: Sequence[Panel]) -> str:
    """A panel per task and setting: the figure over values of the setting, from the left on.

    Values stand at equal distances, as they are far apart; a mark's `name` is its value.
    """
    across, wide, high = min(2, max(1, len(panels))), 400, 210
    parts, said = [], []
    for number, panel in enumerate(panels):
        x, y = (number % across) * wide, 8 + (number // across) * high
        marks = _known(panel.marks)
        place, ticks = _scale(marks, y + 155, y + 30)
        step = (wide - 100) / max(1, len(marks) - 1)
        color = COLORS[number % 2]
        parts.append(_text(x + 8, y + 14, _cut(panel.title, 56), 'font-weight="600"'))
        for tick in ticks:
            at = place(tick)
            parts.append(f'<path class="grid" d="M{x + 55},{at:.1f} H{x + wide - 25}"/>')
            parts.append(
                _text(x + 50, at + 4, f"{tick:g}", 'class="muted" text-anchor="end" font-size="10"')
            )
        points = [(x + 65 + i * step, place(m.value)) for i, m in enumerate(marks)]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (a, b), mark in zip(points, marks, strict=True):
            spread = mark.deviation or 0.0
            told = f"{mark.name}: {mark.value:.4g}" + (f" ± {spread:.2g}" if spread else "")
            parts.append(
                f"<g><title>{escape(told)}</title>"
                f'<path d="M{a:.1f},{place(mark.value - spread):.1f} V'
                f'{place(mark.value + spread):.1f}" stroke="{color}"/>'
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{color}"/></g>'
                + _text(a, y + 176, mark.name, 'class="muted" text-anchor="middle" font-size="10"')
            )
        said.append(f"{panel.title}: " + ", ".join(f"{m.name} {m.value:.4g}" for m in marks))
    height = 16 + high * math.ceil(len(panels) / across)
    return _svg(across * wide, height, title, ". ".join(said), "".join(parts))


def shares(
    title: str,
    rows: Mapping[str, Mapping[str, Mapping[str, float]]],
    parts: Mapping[str, Sequence[str]],
) -> str:
    """Bars of shares that add up to one: a row per name, a column per question.

    Args:
        title: of the chart.
        rows: per row and question the share of each answer; none where it does not arise.
        parts: per question its answers.
    """
    label, wide = 230, 230
    body, said = [], []
    for number, (question, answers) in enumerate(parts.items()):
        x = float(label + number * wide)
        body.append(_text(x, 18, question, 'font-weight="600"'))
        for order, answer in enumerate(answers):
            at = x + order * 70
            color = COLORS[order] if order < 2 else _NEITHER
            body.append(f'<rect x="{at}" y="26" width="10" height="10" fill="{color}"/>')
            body.append(_text(at + 14, 35, answer, 'class="muted" font-size="11"'))
    for level, (name, found) in enumerate(rows.items()):
        y = 48 + 22 * level
        body.append(_text(label - 10, y + 12, _cut(name, 34), 'text-anchor="end"'))
        told = []
        for number, (question, answers) in enumerate(parts.items()):
            x = float(label + number * wide)
            mine = found.get(question) or {}
            if not mine:
                body.append(_text(x, y + 12, "none", 'class="muted" font-size="11"'))
            for order, answer in enumerate(answers):
                width = mine.get(answer, 0.0) * (wide - 25)
                color = COLORS[order] if order < 2 else _NEITHER
                if width > 0:
                    body.append(
                        f"<g><title>{escape(f'{answer}: {mine[answer]:.0%}')}</title>"
                        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="15" '
                        f'fill="{color}"/></g>'
                    )
                    if width > 32:
                        body.append(
                            _text(x + 4, y + 12, f"{mine[answer]:.0%}", 'font-size="10" '
                                  'style="fill:#fff"')
                        )  # fmt: skip
                    x += width
            told += [f"{question} {answer} {share:.0%}" for answer, share in mine.items()]
        said.append(f"{name}: " + ", ".join(told))
    width, height = label + wide * len(parts), 60 + 22 * len(rows)
    return _svg(width, height, title, ". ".join(said), "".join(body))


@dataclass(frozen=True)
class Cloud:
    """Points in two dimensions, each of a group, filled or hollow."""

    title: str
    points: Sequence[Sequence[float]]
    group: Sequence[str]
    filled: Sequence[bool]


def scatter(title: str, clouds: Sequence[Cloud], note: str = "") -> str:
    """A panel per cloud; groups by colour; filled points are true pairs, hollow ones are not."""
    across, side = max(1, len(clouds)), 360
    groups = list(dict.fromkeys(g for cloud in clouds for g in cloud.group))
    color = {group: COLORS[i % len(COLORS)] for i, group in enumerate(groups)}
    body = []
    for number, cloud in enumerate(clouds):
        x = number * side
        body.append(_text(x + 10, 18, _cut(cloud.title, 52), 'font-weight="600"'))
        body.append(f'<rect class="axis" x="{x + 10}" y="28" width="{side - 20}" height="310"/>')
        marks = [[Mark("", float(p[axis])) for p in cloud.points] for axis in (0, 1)]
        right, _ = _scale(marks[0], x + 16, x + side - 16)
        up, _ = _scale(marks[1], 332, 34)
        for point, group, filled in zip(cloud.points, cloud.group, cloud.filled, strict=True):
            look = f'fill="{color[group]}" fill-opacity=".75"'
            if not filled:
                look = f'fill="none" stroke="{color[group]}" stroke-opacity=".7"'
            a, b = right(float(point[0])), up(float(point[1]))
            body.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" {look}/>')
    for number, group in enumerate(groups):
        x, y = 10 + (number % 2) * 345, 362 + 18 * (number // 2)
        body.append(f'<circle cx="{x + 5}" cy="{y - 4}" r="5" fill="{color[group]}"/>')
        body.append(_text(x + 16, y, _cut(group, 48), 'font-size="11"'))
    bottom = 362 + 18 * math.ceil(len(groups) / 2)
    body.append(_text(10, bottom + 4, "filled: true pairs; hollow: mismatched", 'class="muted"'))
    return _svg(max(across * side, 720), bottom + 16, title, note or title, "".join(body))


__all__ += ["Cloud"]
