"""HTML, safe from injection: everything except `markupsafe.Markup` is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "GRID",
    "INK",
    "METRIC_NAMES",
    "MUTED",
    "ORANGE",
    "PAIRS",
    "PURPLE",
    "Markup",
    "amount",
    "asset",
    "bytes_",
    "columns",
    "figure",
    "gate_colour",
    "join",
    "metric_name",
    "missing",
    "model_name",
    "note",
    "regime_words",
    "sheet",
    "signed",
    "standalone",
    "tag",
    "theme",
]


_EMPTY = {"input", "br", "hr", "meta"}


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. Children are escaped unless they are `Markup`, attributes always.

    ``class_`` is class, ``_`` becomes ``-``. Attributes that are None or False are left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(str(value))}"')
    if name in _EMPTY:
        return Markup(f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{join(children)}</{name}>")


def join(children: Sequence[Any]) -> Markup:
    """Concatenate children; None is skipped."""
    return Markup("".join(escape(child) for child in children if child is not None))


def figure(picture: Markup, caption: Any, *, wide: bool = False, class_: str = "") -> Markup:
    """A picture with a caption."""
    return tag(
        "figure", tag("div", picture, class_="frame"), tag("figcaption", caption),
        class_=f"{'wide ' if wide else ''}{class_}".strip() or None,
    )  # fmt: skip


def note(*text: Any) -> Markup:
    """A remark."""
    return tag("p", *text, class_="note")


def missing(text: str) -> Markup:
    """A paragraph that says what is missing, and why."""
    return tag("p", text, class_="missing")


def columns(*figures: Markup | None) -> Markup:
    """Figures side by side where there is room."""
    return tag("div", *figures, class_="columns")


def sheet(
    headers: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    *,
    numbers: Sequence[int] = (),
    label: str,
    sorts: bool = False,
    keys: Sequence[dict[str, Any]] | None = None,
) -> Markup:
    """A table.

    Args:
        headers: the headers of its columns.
        rows: its cells; a pair (shown, value) sorts by its value.
        numbers: the columns to align right.
        label: what it shows, for screen readers.
        sorts: whether a click on a header sorts the table.
        keys: attributes of each row.
    """
    head = [
        tag(
            "th", tag("button", header, type="button") if sorts else header,
            class_="number" if i in numbers else None, scope="col",
        )
        for i, header in enumerate(headers)
    ]  # fmt: skip
    body = []
    for number, row in enumerate(rows):
        cells = []
        for i, cell in enumerate(row):
            shown, value = cell if isinstance(cell, tuple) else (cell, None)
            short = isinstance(shown, str) and not isinstance(shown, Markup) and len(shown) <= 24
            kind = "number" if i in numbers else "short" if short else None
            cells.append(tag("td", shown, class_=kind, data_value=value))
        body.append(tag("tr", *cells, **(keys[number] if keys else {})))
    inside = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), aria_label=label,
                 class_="sorts" if sorts else None)  # fmt: skip
    return tag("div", inside, class_="sheet", tabindex="0", role="region", aria_label=label)


def amount(value: float | None, digits: int = 4) -> str:
    """Format a number; a dash if it is missing."""
    if value is None or math.isnan(value):
        return "–"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 1000):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:,.{max(digits - 2, 0)}f}"
    if value and abs(value) < 10**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 4) -> str:
    """Format a difference with its sign, using a typographic minus."""
    text = amount(value, digits)
    if text.startswith("-"):
        return "−" + text[1:]
    return text if value is None or math.isnan(value) or value == 0 else f"+{text}"


def bytes_(count: float) -> str:
    """Format a size in memory or on disk."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


METRIC_NAMES = {
    "roc_auc": "ROC-AUC", "average_precision": "average precision", "accuracy": "accuracy",
    "f1": "F1", "mae": "MAE", "rmse": "RMSE", "r2": "R²", "nmae": "NMAE", "macro_f1": "macro F1",
    "map": "MAP", "precision": "precision", "recall": "recall", "mrr": "MRR",
    "roc_auc_macro": "macro ROC-AUC", "average_precision_macro": "macro average precision",
    "f1_macro": "macro F1", "calibration_error": "calibration error", "coverage": "coverage",
    "interval_width": "interval width",
}  # fmt: skip

_MODELS = {
    "frog": "FROG", "sage": "plain GNN", "lightgbm": "LightGBM", "mean": "entity mean",
    "median": "entity median", "global-mean": "constant: mean", "global-median": "constant: median",
    "recent": "mean of recent labels", "popularity": "most popular", "past-visit": "past visits",
    "auto": "auto",
}  # fmt: skip


def metric_name(name: str, k: int | None = None) -> str:
    """The display name of a metric."""
    found = METRIC_NAMES.get(name, name.replace("_", " "))
    return f"{found}@{k}" if k and name in ("map", "precision", "recall", "mrr") else found


def model_name(name: str) -> str:
    """The display name of a model, or of a member of an ensemble."""
    model, _, number = name.rpartition("-")
    if number.isdecimal() and model in _MODELS:
        return f"{_MODELS[model]}, seed {number}"
    return _MODELS.get(name, name)


def regime_words(regime: str) -> str:
    """A regime, explained."""
    return {
        "rolling": "each prediction sees everything up to its own time",
        "frozen": "the database stops at the split's time for all predictions",
    }[regime]


INK, MUTED, GRID, GREY = "#1f2933", "#52606d", "#e4e7eb", "#9aa5b1"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#aa4499"

#: The dark-mode colour for each light-mode colour.
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

#: Colours of the page by name, for light and dark mode.
THEME = {
    "page": ("#f6f7f9", "#11161c"), "card": ("#ffffff", "#1a2129"), "ink": (INK, PAIRS[INK]),
    "muted": (MUTED, PAIRS[MUTED]), "line": ("#d9dee4", "#323e4a"), "soft": ("#eef1f4", "#242d37"),
    "accent": (BLUE, PAIRS[BLUE]), "good": ("#00734f", "#2fc49a"), "bad": ("#a83c00", "#f28c45"),
    "shadow": ("0 1px 2px rgba(31, 41, 51, .07)", "none"),
    **{f"c{i}": pair for i, pair in enumerate(PAIRS.items())},
}  # fmt: skip
#: CSS rules that recolour pictures in dark mode.
RECOLOUR = "".join(
    f'svg [fill="{one}"]{{fill:var(--c{i})}}svg [stroke="{one}"]{{stroke:var(--c{i})}}'
    for i, one in enumerate(PAIRS)
)


def theme() -> Markup:
    """The colours as CSS variables, following the system's theme or the choice on the page."""
    light, dark = ("".join(f"--{name}:{both[i]};" for name, both in THEME.items()) for i in (0, 1))
    asked = (
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
    )
    return Markup(f":root{{{light}}}:root[data-theme=dark]{{{dark}}}{asked}{RECOLOUR}")


def standalone(picture: Markup, css: str = "") -> str:
    """A picture as a self-contained SVG file for light and dark pages.

    Args:
        picture: an `svg` element.
        css: its style. Variables are replaced, as not every SVG viewer supports them.
    """
    light = dark = css + RECOLOUR
    for name, both in THEME.items():
        light, dark = (text.replace(f"var(--{name})", value)
                       for text, value in zip((light, dark), both, strict=True))  # fmt: skip
    inside = picture.removeprefix("<svg").removesuffix("</svg>")
    style = f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg"{inside}{style}</svg>\n'


def asset(name: str) -> Markup:
    """The content of a CSS or JavaScript file of this package."""
    return Markup((resources.files(__package__) / name).read_text(encoding="utf-8"))


_NODE, _MIDDLE, _EDGE = (0, 114, 178), (176, 176, 176), (213, 94, 0)


def gate_colour(gate: float) -> str:
    """The colour of a gate: from node (blue) over undecided (grey) to edge (orange)."""
    gate = min(max(gate, 0.0), 1.0)
    one, other, share = (_NODE, _MIDDLE, gate * 2) if gate < 0.5 else (_MIDDLE, _EDGE, gate * 2 - 1)
    mixed = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
