"""Drawing of the schema: tables, foreign keys, and a coloured strand for every route of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Completion, CompletionAgainst, CoOccurrence, Route, find_routes
from relfrog.nn.roles import role_of
from relfrog.reporting.html import Markup, amount, asset, gate_colour, join, standalone, tag
from relfrog.reporting.schema_layout import Box, Join, Line, Placement, place
from relfrog.support.text import counted

__all__ = ["LEGIBLE", "Schema", "draw_schema", "read_schema", "schema_svg"]

#: Width of a strand, and the most that all strands of a foreign key take: in a small schema, and in
#: one with more than FEW foreign keys.
STRAND, BUNDLE, THIN, FEW = 3.5, 18.0, 9.0, 20
#: At this share of its size a picture can still be read.
LEGIBLE = 0.72
#: Height of a listed column.
LINE = 18.0


@dataclass(frozen=True, eq=False)
class Schema:
    """Tables and keys of a run with the gates of its routes.

    Attributes:
        tables: the entry of each table in `database.json`.
        keys: the foreign keys.
        routes: the routes of the run, by name.
        gates: the gates of the routes, by name.
        entity: the entity table of the task.
        target: the target table of a recommendation.
        columns: columns to list in each table, with their kinds.
        bounds: the lowest that learned gates could be by now, by name.
    """

    tables: dict[str, dict[str, Any]]
    keys: tuple[ForeignKey, ...]
    routes: dict[str, Route]
    gates: dict[str, float]
    entity: str
    target: str | None = None
    columns: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)

    def role(self, route: str) -> str:
        """The role that the gate of a route stands for."""
        return role_of(self.gates[route], self.bounds.get(route, 0.0))


def read_schema(
    database: Mapping[str, Any], roles: Sequence[Mapping[str, Any]], *, history: bool = True
) -> Schema:
    """The schema of a run, from its `database.json` and `roles.json`.

    Args:
        database: the content of `database.json`.
        roles: the content of `roles.json`.
        history: whether the run uses the label history.
    """
    tables = {t["name"]: t for t in database["tables"] if history or not t.get("history")}
    keys = tuple(
        ForeignKey(k["table"], k["column"], k["parent"])
        for k in database["foreign_keys"]
        if k["table"] in tables and k["parent"] in tables
    )
    every = {
        str(r): r for r in find_routes(keys, (CoOccurrence(), Completion(), CompletionAgainst()))
    }
    gates = {str(r["route"]): float(r["gate"]) for r in roles}
    task = database["task"]
    return Schema(
        tables, keys, {name: every[name] for name in gates if name in every}, gates,
        task["entity_table"], task.get("target_table"),
        bounds={str(r["route"]): float(r.get("bound", 0.0)) for r in roles},
    )  # fmt: skip


def schema_svg(inspected: Mapping[str, Any], *, most_columns: int = 14) -> str:
    """The schema of a dataset as an SVG file.

    Args:
        inspected: the result of :func:`~relfrog.datasets.overview.inspect`.
        most_columns: the most columns to list per table; keys and times are always listed.
    """
    keys = tuple(
        ForeignKey(k["table"], k["column"], k["parent"]) for k in inspected["foreign_keys"]
    )
    tables = {t["name"]: t | {"columns": len(t["columns"])} for t in inspected["tables"]}
    columns = {t["name"]: _listed(t, keys, most_columns) for t in inspected["tables"]}
    title = f"Schema of {inspected['name']}: {len(tables)} tables, {len(keys)} foreign keys"
    drawn = draw_schema(Schema(tables, keys, {}, {}, "", None, columns), title=title, static=True)
    return standalone(drawn, asset("schema.css"))


def _listed(
    table: Mapping[str, Any], keys: Sequence[ForeignKey], most: int
) -> list[tuple[str, str]]:
    """Columns with their kinds: primary key, foreign keys, time column, then the others."""
    inherited = table.get("time_inherited_from")
    words = {table["time_column"]: "inherited time" if inherited else "time"}
    words |= {key.column: "foreign key" for key in keys if key.table == table["name"]}
    words |= {table["primary_key"]: "key"}
    order = ["key", "foreign key", "time", "inherited time", ""]
    names = sorted(table["columns"], key=lambda name: order.index(words.get(name, "")))
    found = [(name, words.get(name, table["columns"][name])) for name in names]
    room = max(most, sum(name in words for name in names) + 1)
    hidden = len(found) - room + 1
    return found if hidden < 2 else [*found[: room - 1], (f"and {hidden} more columns", "")]


def _sizes(schema: Schema) -> dict[str, tuple[float, float]]:
    """Sizes of the boxes: wide enough for the name, and larger for more rows."""
    most = math.log10(max([10, *(t["rows"] for t in schema.tables.values())]))
    found = {}
    for name, table in schema.tables.items():
        share = math.log10(max(table["rows"], 1)) / most
        if name in schema.columns:
            found[name] = (210.0, 48.0 + LINE * len(schema.columns[name]))
            continue
        text = 7.6 * min(len(name), 22) + 26
        found[name] = (max(text, 92.0) + 36 * share, 40.0 + 36 * share)
    return found


def placement(schema: Schema) -> Placement:
    """The layout of a schema."""
    used = _strands(schema)
    joins = [
        Join(key.table, key.parent, max(2.0, _thickness(schema, len(used[key])) * len(used[key])))
        for key in schema.keys
    ]
    return place(_sizes(schema), joins)


def _strands(schema: Schema) -> dict[ForeignKey, list[str]]:
    """The routes along each foreign key, sorted by gate."""
    used: dict[ForeignKey, list[str]] = {key: [] for key in schema.keys}
    for name, route in sorted(schema.routes.items(), key=lambda r: (schema.gates[r[0]], r[0])):
        for key in dict.fromkeys((route.first, route.second)):
            used[key].append(name)
    return used


def _thickness(schema: Schema, count: int) -> float:
    most = BUNDLE if len(schema.keys) <= FEW else THIN
    return min(STRAND, most / max(count, 1))


def draw_schema(
    schema: Schema,
    *,
    title: str,
    number: int = 0,
    marked: Mapping[str, str] | None = None,
    static: bool = False,
) -> Markup:
    """Draw a schema as SVG, interactive with the script of the page.

    Args:
        schema: what to draw.
        title: the text alternative.
        number: number of the picture on the page.
        marked: routes to mark, and why.
        static: whether the picture is used without the script: fixed size, no buttons.
    """
    placed = placement(schema)
    used = _strands(schema)
    order = {name: i for i, name in enumerate(schema.gates)}
    marked = marked or {}
    keys = [
        _key(key, _to_columns(key, line, placed, schema), used[key], schema, order, marked)
        for key, line in zip(schema.keys, placed.lines, strict=True)
    ]
    tables = [_table(name, placed.boxes[name], schema, static) for name in schema.tables]
    width, height = math.ceil(placed.width), math.ceil(placed.height)
    fluid = f"min-width:{min(width, round(width * LEGIBLE))}px;max-width:{round(width * 1.25)}px"
    size = {"width": width, "height": height} if static else {"style": fluid}
    return tag(
        "svg", tag("title", title), *keys, *tables,
        class_="schema", role="img" if static else "group", aria_label=title,
        id=f"schema-{number}", viewBox=f"0 0 {width} {height}", **size,
    )  # fmt: skip


def _to_columns(key: ForeignKey, line: Line, placed: Placement, schema: Schema) -> Line:
    """Let a line end at the foreign-key and primary-key columns, if these are listed."""
    points = list(line.points)
    primary = schema.tables[key.parent].get("primary_key")
    # It stays horizontal up to the end of the layer, unless the table refers to itself.
    for ends, table, column in (((0, 1), key.table, key.column), ((-1, -2), key.parent, primary)):
        names = [name for name, _ in schema.columns.get(table, ())]
        if column in names:
            y = placed.boxes[table].y + 51 + LINE * names.index(column)
            for end in ends[:1] if key.table == key.parent else ends:
                points[end] = (points[end][0], y)
    return Line(tuple(points))


def _path(line: Line, shift: float) -> str:
    """An SVG path through the points, horizontal at each of them, moved down by `shift`."""
    (x, y), *rest = line.points
    parts = [f"M{x:.1f},{y + shift:.1f}"]
    if len(line.points) == 3:  # a table that refers to itself
        (far, _), (_, end) = rest
        reach = far + 8
        parts.append(f"C{reach:.1f},{y - 6 + shift:.1f} {reach:.1f},{end + 6 + shift:.1f} "
                     f"{x:.1f},{end + shift:.1f}")  # fmt: skip
        return "".join(parts)
    for nx, ny in rest:
        if abs(ny - y) < 0.05:
            parts.append(f"L{nx:.1f},{ny + shift:.1f}")
        else:
            middle = (x + nx) / 2
            parts.append(f"C{middle:.1f},{y + shift:.1f} {middle:.1f},{ny + shift:.1f} "
                         f"{nx:.1f},{ny + shift:.1f}")  # fmt: skip
        x, y = nx, ny
    return "".join(parts)


def _key(
    key: ForeignKey,
    line: Line,
    names: list[str],
    schema: Schema,
    order: Mapping[str, int],
    marked: Mapping[str, str],
) -> Markup:
    step = _thickness(schema, len(names))
    whole = max(2.0, step * len(names))
    words = f"{key.table}.{key.column} refers to {key.parent}"
    strands = [
        tag(
            "path", tag("title", f"{name}: gate {amount(schema.gates[name], 3)}, "
                        f"{schema.role(name)}"),
            d=_path(line, (i + 0.5) * step - whole / 2), class_="strand",
            stroke=gate_colour(schema.gates[name]),
            stroke_width=f"{max(step - min(0.4, step / 5), 0.4):.2f}", data_route=order[name],
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    marks = [
        tag("path", d=_path(line, (i + 0.5) * step - whole / 2), class_="mark",
            data_route=order[name])
        for i, name in enumerate(names) if name in marked
    ]  # fmt: skip
    (x0, _), (x1, y1) = line.points[-2], line.points[-1]
    back = 1 if x1 < x0 else -1
    half = whole / 2 + 2.5
    head = f"M{x1:.1f},{y1:.1f} l{back * 7},{-half:.1f} v{2 * half:.1f} z"
    return tag(
        "g", tag("title", words),
        tag("path", d=_path(line, 0), class_="casing", stroke_width=f"{whole + 3:.1f}"),
        tag("path", d=_path(line, 0), class_="thread") if not names else None, *strands, *marks,
        tag("path", d=head, class_="head"),
        class_="key", data_key=words, data_child=key.table, data_parent=key.parent,
    )  # fmt: skip


def _table(name: str, box: Box, schema: Schema, static: bool) -> Markup:
    table = schema.tables[name]
    rows = f"{table['rows']:,} row{'' if table['rows'] == 1 else 's'}"
    shown = name if len(name) <= 22 else name[:21] + "…"
    kind, words = "table", ""
    if table.get("history"):
        kind, words = "table history", "earlier labels"
    elif name == schema.entity:
        kind, words = "table entity", "predicted for"
    elif name == schema.target:
        kind, words = "table entity", "recommended"
    middle = box.x + box.width / 2
    centre = box.y + (20 if name in schema.columns else box.height / 2)
    times = ""
    if table.get("first_time"):
        times = f", {table['first_time'][:10]} to {table['last_time'][:10]}"
    elif not table.get("time_column"):
        times = ", no time column"
    if parents := sorted({key["parent"] for key in table.get("time_inherited_from") or ()}):
        times += f", inherited from {', '.join(parents)}"
    count = table.get("columns")  # not known of models that encode none
    columns = "" if count is None else f", {counted(count, 'column')}"
    text = f"{name}: {rows}{columns}{times}"
    lines = [
        tag("text", shown, x=f"{middle:.1f}", y=f"{centre - 3:.1f}", class_="name"),
        tag("text", rows, x=f"{middle:.1f}", y=f"{centre + 13:.1f}", class_="rows"),
    ]
    for number, (column, word) in enumerate(schema.columns.get(name, ())):
        y = f"{centre + 35 + LINE * number:.1f}"
        short = column if len(column) <= 20 else column[:19] + "…"
        lines.append(tag("text", short, x=f"{box.x + 10:.1f}", y=y, class_="column"))
        lines.append(tag("text", word, x=f"{box.x + box.width - 10:.1f}", y=y, class_="kind"))
    if words:
        lines.append(tag("text", words, x=f"{middle:.1f}", y=f"{box.y - 4:.1f}", class_="word"))
    return tag(
        "g", tag("title", text),
        tag("rect", x=f"{box.x:.1f}", y=f"{box.y:.1f}", width=f"{box.width:.1f}",
            height=f"{box.height:.1f}", rx=8),
        *lines, class_=kind, data_table=name, data_words=text,
        **({} if static else {"tabindex": "0", "role": "button", "aria_label": text}),
    )  # fmt: skip


def legend() -> Markup:
    """The legend of the gate colours."""
    stops = [tag("i", style=f"background:{gate_colour(i / 20)}") for i in range(21)]
    return tag(
        "div", tag("span", "0 · node"), tag("span", join(stops), class_="ramp"),
        tag("span", "edge · 1"), tag("span", "the learned gate of a route", class_="faint"),
        class_="legend", role="img",
        aria_label="Colours: blue is node, gate 0; grey is undecided, 0.45 to 0.55; orange is "
        "edge, gate 1",
    )  # fmt: skip
