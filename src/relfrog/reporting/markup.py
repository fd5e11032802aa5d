"""HTML that cannot be injected into: text is escaped unless it was made here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from relfrog.console import duration

__all__ = [
    "Html", "amount", "bytes_", "columns", "duration", "figure", "join", "missing", "note",
    "sheet", "signed", "tag",
]  # fmt: skip

_EMPTY = {"input", "br", "hr", "meta"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. Children that are no `Html` are text; ``class_`` is class, ``_`` becomes ``-``.

    Attributes that are None or False are left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(str(value), quote=True)}"')
    if name in _EMPTY:
        return Html(f"<{' '.join(words)}>")
    return Html(f"<{' '.join(words)}>{join(children)}</{name}>")


def join(children: Sequence[Any]) -> Html:
    """Children one after the other; None is nothing."""
    return Html(
        "".join(c if isinstance(c, Html) else escape(str(c)) for c in children if c is not None)
    )


def figure(picture: Html, caption: Any, *, wide: bool = False, class_: str = "") -> Html:
    """A picture with a caption."""
    return tag(
        "figure", tag("div", picture, class_="frame"), tag("figcaption", caption),
        class_=f"{'wide ' if wide else ''}{class_}".strip() or None,
    )  # fmt: skip


def note(*text: Any) -> Html:
    """A remark."""
    return tag("p", *text, class_="note")


def missing(text: str) -> Html:
    """What is not here, and why."""
    return tag("p", text, class_="missing")


def columns(*figures: Html | None) -> Html:
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
) -> Html:
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
            short = isinstance(shown, str) and not isinstance(shown, Html) and len(shown) <= 24
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
