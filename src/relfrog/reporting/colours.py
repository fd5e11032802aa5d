"""Colours that the colour-blind can tell apart (those of Okabe and Ito), light and dark.

Pictures are made in the light colours. The page's style sheet turns each of them into its dark
partner where the reader's screen is dark.
"""

from __future__ import annotations

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "GRID",
    "INK",
    "MUTED",
    "ORANGE",
    "PAIRS",
    "PURPLE",
    "gate_colour",
]

INK, MUTED, GRID, GREY = "#1f2933", "#52606d", "#e4e7eb", "#9aa5b1"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#aa4499"

#: Per light colour the dark one.
PAIRS = {
    INK: "#e8ecf1",
    MUTED: "#a3b0bd",
    GRID: "#2e3a46",
    GREY: "#7b8794",
    BLUE: "#4aa8e0",
    ORANGE: "#f28c45",
    GREEN: "#2fc49a",
    PURPLE: "#d68ac8",
}

_NODE, _MIDDLE, _EDGE = (0, 114, 178), (176, 176, 176), (213, 94, 0)


def gate_colour(gate: float) -> str:
    """From node (blue) over undecided (grey) to edge (orange); reads on light and dark alike."""
    gate = min(max(gate, 0.0), 1.0)
    one, other, share = (_NODE, _MIDDLE, gate * 2) if gate < 0.5 else (_MIDDLE, _EDGE, gate * 2 - 1)
    mixed = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
