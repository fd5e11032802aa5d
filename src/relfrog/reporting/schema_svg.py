"""Drawing a schema: tables as cards in columns, foreign keys as lines from child to parent."""

from __future__ import annotations

from html import escape
from typing import Any

__all__ = ["schema_svg"]

_WIDTH, _ROW, _HEAD, _GAP_X, _GAP_Y, _PAD = 210, 20, 28, 110, 28, 20
#: Colours that the colour-blind can tell apart; each also has a word.
_ROLES = {"pk": "#b0791a", "fk": "#2b6cb0", "time": "#2f855a", "": "#718096"}


def schema_svg(inspected: dict[str, Any], *, most_columns: int = 14) -> str:
    """The schema as a self-contained SVG that reads on light and dark pages.

    Args:
        inspected: What `inspect` gives.
        most_columns: Columns shown per table; keys and times always are.
    """
    tables = {t["name"]: t for t in inspected["tables"]}
    keys = [(k["table"], k["column"], k["parent"]) for k in inspected["foreign_keys"]]
    cards = {name: _lines(table, keys, most_columns) for name, table in tables.items()}
    columns = _arrange(list(tables), keys)
    place: dict[str, tuple[float, float]] = {}
    heights = {name: _HEAD + _ROW * len(lines) + 6 for name, lines in cards.items()}
    tallest = max((sum(heights[n] for n in c) + _GAP_Y * (len(c) - 1) for c in columns), default=0)
    for x, names in enumerate(columns):
        own = sum(heights[n] for n in names) + _GAP_Y * (len(names) - 1)
        y = _PAD + (tallest - own) / 2
        for name in names:
            place[name] = (_PAD + x * (_WIDTH + _GAP_X), y)
            y += heights[name] + _GAP_Y
    width = 2 * _PAD + len(columns) * _WIDTH + max(0, len(columns) - 1) * _GAP_X + 40
    height = 2 * _PAD + tallest
    parts = [_line(key, place, cards, tables) for key in keys]
    parts += [_card(name, tables[name], cards[name], place[name], heights[name]) for name in tables]
    title = f"Schema of {inspected['name']}: {len(tables)} tables, {len(keys)} foreign keys"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-labelledby="title" '
        'font-family="system-ui, sans-serif" font-size="12">'
        f'<title id="title">{escape(title)}</title>'
        "<style>.card{fill:#fff;stroke:#a0aec0}.name{fill:#1a202c}.text{fill:#2d3748}"
        ".muted{fill:#718096}.line{fill:none;stroke:#718096;stroke-width:1.5}"
        "@media (prefers-color-scheme:dark){.card{fill:#1a202c;stroke:#4a5568}"
        ".name{fill:#f7fafc}.text{fill:#e2e8f0}.muted{fill:#a0aec0}.line{stroke:#a0aec0}}</style>"
        f"{''.join(parts)}</svg>\n"
    )


def _lines(
    table: dict[str, Any], keys: list[tuple[str, str, str]], most: int
) -> list[tuple[str, str, str]]:
    """The rows of a card: (column, word at the right, role)."""
    foreign = {column for name, column, _ in keys if name == table["name"]}
    lines: list[tuple[str, str, str]] = []
    plain: list[tuple[str, str, str]] = []
    for column, kind in table["columns"].items():
        if column == table["primary_key"]:
            lines.insert(0, (column, "key", "pk"))
        elif column in foreign:
            lines.append((column, "foreign key", "fk"))
        elif column == table["time_column"]:
            lines.append((column, "time", "time"))
        else:
            plain.append((column, kind, ""))
    room = max(0, most - len(lines))
    if len(plain) > room:
        hidden = len(plain) - max(0, room - 1)
        plain = [*plain[: max(0, room - 1)], (f"and {hidden} more columns", "", "")]
    return lines + plain


def _arrange(names: list[str], keys: list[tuple[str, str, str]]) -> list[list[str]]:
    """Columns of tables, children to the left of their parents as far as cycles allow."""
    parents: dict[str, set[str]] = {n: set() for n in names}
    for child, _, parent in keys:
        if child != parent and parent in parents:
            parents[child].add(parent)
    level: dict[str, int] = {}

    def depth(name: str, path: frozenset[str]) -> int:
        if name not in level:
            above = [depth(p, path | {name}) for p in sorted(parents[name] - path)]
            level[name] = 1 + max(above, default=-1)
        return level[name]

    for name in names:
        depth(name, frozenset({name}))
    highest = max(level.values(), default=0)
    columns = [[n for n in names if level[n] == highest - x] for x in range(highest + 1)]
    columns = [c for c in columns if c]
    for _ in range(4):  # each table moves to the middle of those it is joined to
        spot = {n: i - len(c) / 2 for c in columns for i, n in enumerate(c)}
        joined: dict[str, list[float]] = {n: [] for n in names}
        for child, _, parent in keys:
            joined[child].append(spot[parent])
            joined[parent].append(spot[child])
        for column in columns:
            column.sort(key=lambda n: sum(joined[n]) / len(joined[n]) if joined[n] else spot[n])
    return columns


def _line(
    key: tuple[str, str, str],
    place: dict[str, tuple[float, float]],
    cards: dict[str, list[tuple[str, str, str]]],
    tables: dict[str, dict[str, Any]],
) -> str:
    child, column, parent = key
    (x0, y0), (x1, y1) = place[child], place[parent]
    y0 += _spot(cards[child], column)
    y1 += _spot(cards[parent], tables[parent]["primary_key"])
    label = f"{child}.{column} refers to {parent}"
    if x0 < x1:  # from the child's right side to the parent's left
        start, end = x0 + _WIDTH, x1
        path = f"M{start:.0f},{y0:.0f} C{start + 50:.0f},{y0:.0f} {end - 50:.0f},{y1:.0f} "
        path += f"{end - 7:.0f},{y1:.0f}"
        head = f"M{end:.0f},{y1:.0f} l-8,-4 v8 z"
    else:  # the same column or back: around the right side
        start, end = x0 + _WIDTH, x1 + _WIDTH
        reach = max(start, end) + 40
        path = f"M{start:.0f},{y0:.0f} C{reach:.0f},{y0:.0f} {reach:.0f},{y1:.0f} "
        path += f"{end + 7:.0f},{y1:.0f}"
        head = f"M{end:.0f},{y1:.0f} l8,-4 v8 z"
    return (
        f'<g><title>{escape(label)}</title><path class="line" d="{path}"/>'
        f'<path class="muted" d="{head}"/></g>'
    )


def _spot(lines: list[tuple[str, str, str]], column: str | None) -> float:
    for index, (name, _, _) in enumerate(lines):
        if name == column:
            return _HEAD + _ROW * index + _ROW / 2
    return _HEAD / 2


def _card(
    name: str,
    table: dict[str, Any],
    lines: list[tuple[str, str, str]],
    corner: tuple[float, float],
    height: float,
) -> str:
    x, y = corner
    rows = f"{table['rows']:,} rows"
    parts = [
        f'<rect class="card" x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{height}" rx="6"/>',
        f'<text class="name" x="{x + 10:.0f}" y="{y + 19:.0f}" font-weight="600">'
        f"{escape(_cut(name, 18))}</text>",
        f'<text class="muted" x="{x + _WIDTH - 10:.0f}" y="{y + 19:.0f}" text-anchor="end" '
        f'font-size="11">{rows}</text>',
    ]
    for index, (column, word, role) in enumerate(lines):
        base = y + _HEAD + _ROW * index + 14
        parts.append(
            f'<text class="text" x="{x + 10:.0f}" y="{base:.0f}">{escape(_cut(column, 20))}</text>'
            f'<text x="{x + _WIDTH - 10:.0f}" y="{base:.0f}" text-anchor="end" font-size="11" '
            f'fill="{_ROLES[role]}">{escape(word)}</text>'
        )
    return f"<g><title>{escape(name)}: {rows}</title>{''.join(parts)}</g>"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
