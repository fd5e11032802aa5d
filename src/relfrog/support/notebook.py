"""Tables and bars as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Bar", "bars", "html_table"]

_LINE, _LABEL, _WIDTH = 20, 220, 260
#: As in the report: one colour per end of a scale, readable on light and dark grounds.
_COLOURS = {"plain": "#8a8f98", "first": "#2a78b5", "second": "#d9772b"}


@dataclass(frozen=True)
class Bar:
    """A bar.

    Attributes:
        label: What it is.
        value: Where it ends.
        text: The value as text.
        colour: "plain", "first" or "second".
    """

    label: str
    value: float
    text: str
    colour: str = "plain"


def html_table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> Markup:
    """A table; everything is escaped."""
    titles = Markup("").join(Markup("<th>{}</th>").format(name) for name in head)
    lines = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row)
        )
        for row in rows
    )
    return Markup(
        "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
    ).format(titles, lines)  # fmt: skip


def bars(found: Sequence[Bar], low: float = 0.0, high: float | None = None) -> Markup:
    """A picture of bars that begin at 0, or where the scale does.

    Args:
        found: The bars.
        low: The left end of the scale.
        high: Its right end; by default the longest bar's.
    """
    finite = [bar.value for bar in found if bar.value == bar.value]
    if not finite:
        return Markup("")
    low = min([low, *finite])
    high = max([low, *finite]) if high is None else high
    scale = _WIDTH / ((high - low) or 1.0)
    zero = _LABEL + (max(low, min(0.0, high)) - low) * scale
    parts = []
    for number, bar in enumerate(found):
        y = number * _LINE
        end = zero if bar.value != bar.value else _LABEL + (min(bar.value, high) - low) * scale
        name = bar.label if len(bar.label) <= 34 else bar.label[:33] + "…"
        parts.append(
            Markup(
                '<text x="{}" y="{}" text-anchor="end">{}<title>{}</title></text>'
                '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}"/>'
                '<text x="{:.1f}" y="{}">{}</text>'
            ).format(
                _LABEL - 8, y + 14, name, bar.label, min(zero, end), y + 3,
                max(1.0, abs(end - zero)), _LINE - 6, _COLOURS[bar.colour],
                max(zero, end) + 6, y + 14, bar.text,
            )
        )  # fmt: skip
    width, height = _LABEL + _WIDTH + 110, len(found) * _LINE + 4
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="0 0 {} {}" '
        'font-family="sans-serif" font-size="12" fill="currentColor" role="img">{}</svg>'
    ).format(width, height, width, height, Markup("").join(parts))
