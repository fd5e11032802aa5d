"""HTML that cannot be injected into: what is no `markupsafe.Markup` is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

from relfrog.support.text import duration

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
    "horizon",
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
    "task_words",
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
    """Children one after the other; None is nothing."""
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
    """What is not here, and why."""
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
        headers: of its columns.
        rows: its cells; a pair (shown, value) sorts by its value.
        numbers: columns that are set to the right.
        label: what it shows, for those who cannot see it.
        sorts: whether a click on a header sorts by it.
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
    """A number for people; a dash where there is none."""
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
    """A difference: with its sign, which is a real minus."""
    text = amount(value, digits)
    if text.startswith("-"):
        return "−" + text[1:]
    return text if value is None or math.isnan(value) or value == 0 else f"+{text}"


def bytes_(count: float) -> str:
    """A size in memory or on disk."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


METRIC_NAMES = {
    "roc_auc": "ROC-AUC", "average_precision": "average precision", "accuracy": "accuracy",
    "f1": "F1", "mae": "MAE", "rmse": "RMSE", "r2": "R²", "nmae": "NMAE", "macro_f1": "macro F1",
    "map": "MAP", "precision": "precision", "recall": "recall", "mrr": "MRR",
    "roc_auc_macro": "macro ROC-AUC", "average_precision_macro": "macro average precision",
    "f1_macro": "macro F1",
}  # fmt: skip

_MODELS = {
    "frog": "FROG", "sage": "plain GNN", "lightgbm": "LightGBM", "mean": "entity mean",
    "median": "entity median", "global-mean": "constant: mean", "global-median": "constant: median",
    "recent": "mean of recent labels", "popularity": "most popular", "past-visit": "past visits",
    "auto": "auto",
}  # fmt: skip


def metric_name(name: str, k: int | None = None) -> str:
    """A metric as people write it."""
    found = METRIC_NAMES.get(name, name.replace("_", " "))
    return f"{found}@{k}" if k and name in ("map", "precision", "recall", "mrr") else found


def model_name(name: str) -> str:
    """A model as people call it."""
    return _MODELS.get(name, name)


def regime_words(regime: str) -> str:
    """What a regime means."""
    return {
        "rolling": "each prediction sees everything up to its own time",
        "frozen": "the database stops at the split's time for all predictions",
    }[regime]


def horizon(seconds: float) -> str:
    """How far ahead labels look."""
    days = seconds / 86400
    if days >= 1:
        return f"{days:g} day{'' if days == 1 else 's'}"
    return duration(seconds)


def task_words(about: dict[str, Any], database: dict[str, Any] | None) -> str:
    """What is predicted: in the words of whoever made the task, or in ours."""
    task = (database or {}).get("task") or {}
    if task.get("description"):
        return str(task["description"])
    if not task:
        return f"Task {about['task']}"
    if task.get("completes"):
        return f"What is {task['label']} of a row of {task['entity_table']}, where it is missing?"
    ahead = f"over the next {horizon(task['horizon_seconds'])}"
    if about["task_type"] == "recommendation":
        ends = f"{task['target_table']} will belong to a row of {task['entity_table']}"
        return f"Which rows of {ends} {ahead}?"
    return f"What will {task['label']} of a row of {task['entity_table']} be {ahead}?"


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

#: Colours of the page by name: the light one, the dark one.
THEME = {
    "page": ("#f6f7f9", "#11161c"), "card": ("#ffffff", "#1a2129"), "ink": (INK, PAIRS[INK]),
    "muted": (MUTED, PAIRS[MUTED]), "line": ("#d9dee4", "#323e4a"), "soft": ("#eef1f4", "#242d37"),
    "accent": (BLUE, PAIRS[BLUE]), "good": ("#00734f", "#2fc49a"), "bad": ("#a83c00", "#f28c45"),
    "shadow": ("0 1px 2px rgba(31, 41, 51, .07)", "none"),
    **{f"c{i}": pair for i, pair in enumerate(PAIRS.items())},
}  # fmt: skip
#: Rules that turn each light colour of a picture into its dark one.
RECOLOUR = "".join(
    f'svg [fill="{one}"]{{fill:var(--c{i})}}svg [stroke="{one}"]{{stroke:var(--c{i})}}'
    for i, one in enumerate(PAIRS)
)


def theme() -> Markup:
    """The colours as CSS variables: as the reader's system has it, or as chosen on the page."""
    light, dark = ("".join(f"--{name}:{both[i]};" for name, both in THEME.items()) for i in (0, 1))
    asked = (
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
    )
    return Markup(f":root{{{light}}}:root[data-theme=dark]{{{dark}}}{asked}{RECOLOUR}")


def standalone(picture: Markup, css: str = "") -> str:
    """A picture as a file of its own that reads on light and on dark pages.

    Args:
        picture: an `svg` element.
        css: its style. Not every program that shows SVG knows variables: they are replaced.
    """
    light = dark = css + RECOLOUR
    for name, both in THEME.items():
        light, dark = (text.replace(f"var(--{name})", value)
                       for text, value in zip((light, dark), both, strict=True))  # fmt: skip
    inside = picture.removeprefix("<svg").removesuffix("</svg>")
    style = f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg"{inside}{style}</svg>\n'


def asset(name: str) -> Markup:
    """A style or a script that lies beside this module, as it is."""
    return Markup((resources.files(__package__) / name).read_text(encoding="utf-8"))


_NODE, _MIDDLE, _EDGE = (0, 114, 178), (176, 176, 176), (213, 94, 0)


def gate_colour(gate: float) -> str:
    """From node (blue) over undecided (grey) to edge (orange); reads on light and dark alike."""
    gate = min(max(gate, 0.0), 1.0)
    one, other, share = (_NODE, _MIDDLE, gate * 2) if gate < 0.5 else (_MIDDLE, _EDGE, gate * 2 - 1)
    mixed = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
