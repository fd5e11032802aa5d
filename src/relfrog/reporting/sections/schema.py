"""The schema with the learned roles, and a comparison with the roles of another run."""

from __future__ import annotations

import re
from typing import Any

from relfrog.nn.roles import UNDECIDED
from relfrog.reporting.html import (
    Markup,
    amount,
    figure,
    gate_colour,
    join,
    missing,
    note,
    sheet,
    signed,
    tag,
)
from relfrog.reporting.material import Material
from relfrog.reporting.schema_drawing import LEGIBLE, Schema, draw_schema, legend

__all__ = ["schema"]

#: Gates that differ by more than this between two runs are marked.
MARKED = 0.1


def schema(m: Material, other: Material | None = None) -> Markup:
    """The section."""
    if m.schema is None:
        return missing(m.why["schema"])
    marked = _differing(m.schema, other.schema) if other is not None and other.schema else {}
    words = _words(m.schema)
    parts: list[Any] = [_introduction(m, m.schema)]
    if m.schema.gates and m.member_note:
        parts.append(note(m.member_note))
    title = f"Schema of {_run_name(m)}: {words}"
    picture = draw_schema(m.schema, title=title, marked=marked)
    parts += [legend() if m.schema.gates else None, _beside(picture, _caption(m), 0)]
    if other is not None:
        parts += _comparison(m, other, marked)
    if m.schema.gates:
        parts.append(_roles(m.schema, other.schema if other else None, m, other))
    return join(parts)


#: The width of the place for a picture, in pixels.
PLACE = 1020


def _beside(picture: Markup, caption: Any, number: int) -> Markup:
    """A picture with a side panel that shows the numbers of the selected table or route."""
    found = re.search(r'viewBox="0 0 (\d+)', picture)
    width = int(found[1]) if found else 560
    enlarge = tag("button", "Larger", type="button", class_="enlarge")
    crowded = " crowded" if LEGIBLE * width > PLACE else ""
    hint = tag("p", "Click a table or a strand to see its numbers here.", class_="faint")
    return tag(
        "div", figure(picture, join([enlarge, caption]), wide=True, class_=f"graph{crowded}"),
        tag("div", hint, class_="panel", id=f"panel-{number}", aria_live="polite"), class_="beside",
        style=f"--wide:{min(width, PLACE)}px",
    )  # fmt: skip


def _run_name(m: Material) -> str:
    return f"{m.run.about['task']} ({m.run.folder.name})"


def _words(schema: Schema) -> str:
    roles = [schema.role(route) for route in schema.gates]
    return (
        f"{len(schema.tables)} tables, {len(schema.keys)} foreign keys, {len(roles)} routes: "
        f"{roles.count('edge')} edges, {roles.count('node')} nodes, "
        f"{roles.count('undecided')} undecided"
    )


def _introduction(m: Material, schema: Schema) -> Markup:
    if not schema.gates:
        reason = (
            "every table acts as a node" if m.network else f"model {m.run.config.model} has none"
        )
        return note(f"There are no routes in this run: {reason}. Lines are foreign keys.")
    top = max(schema.gates, key=lambda r: schema.gates[r])
    low = min(schema.gates, key=lambda r: schema.gates[r])
    return tag(
        "p", f"{_words(schema).capitalize()}. A route joins two tables through a third; its gate "
        "says how much the middle table acts as an edge between the other two (1) rather than as a "
        f"node of its own (0); from {UNDECIDED[0]} to {UNDECIDED[1]} it is undecided, as is one "
        "that did nothing but follow the clock of its running average. Closest to "
        "an edge: ", tag("code", top),
        f" ({amount(schema.gates[top], 2)}); closest to a node: ", tag("code", low),
        f" ({amount(schema.gates[low], 2)}).",
    )  # fmt: skip


def _caption(m: Material) -> Markup:
    text = (
        "Lines run from a table to the table it refers to. Boxes are larger the more rows a table "
        "has (by orders of magnitude)."
    )
    if m.schema is not None and m.schema.gates:
        text += (
            " Each coloured strand is a route; it runs along both of its foreign keys. Point at a "
            "strand or a table for its numbers, click to hold it."
        )
    return join([text])


def _differing(one: Schema, other: Schema) -> dict[str, str]:
    """The routes whose roles, or gates by more than `MARKED`, differ between two runs, and how."""
    found = {}
    for route in one.gates.keys() & other.gates.keys():
        a, b = one.gates[route], other.gates[route]
        if one.role(route) != other.role(route):
            found[route] = f"{one.role(route)} here, {other.role(route)} there"
        elif abs(a - b) > MARKED:
            found[route] = f"{signed(a - b, 2)}"
    return found


def _comparison(m: Material, other: Material, marked: dict[str, str]) -> list[Any]:
    if m.schema is None or other.schema is None:
        return [missing("The other run's schema is not known, so the two cannot be compared.")]
    both = m.schema.gates.keys() & other.schema.gates.keys()
    if not both:
        return [missing(f"{_run_name(m)} and {_run_name(other)} have no route in common.")]
    swapped = sum("here" in words for words in marked.values())
    only = len(m.schema.gates.keys() ^ other.schema.gates.keys())
    title = f"Schema of {_run_name(other)}: {_words(other.schema)}"
    return [
        tag("h3", f"The same for {_run_name(other)}"),
        tag("p", f"Of {len(both)} routes that both runs have, {swapped} changed sides between node "
            f"and edge, and {len(marked) - swapped} more differ by over {MARKED}. They are marked "
            "by dark dots in both pictures."
            + (f" {only} routes are in one of the runs only." if only else "")),
        _beside(draw_schema(other.schema, title=title, number=1, marked=marked),
                f"The gates of {_run_name(other)}.", 1),
    ]  # fmt: skip


def _roles(
    one: Schema, other: Schema | None, m: Material, second: Material | None
) -> Markup:  # fmt: skip
    order = {name: i for i, name in enumerate(one.gates)}
    rows, keys = [], []
    for entry in sorted(m.roles, key=lambda r: -float(r["gate"])):
        route, gate = str(entry["route"]), float(entry["gate"])
        row: list[Any] = [
            route, entry.get("paradigm", ""), entry.get("v", ""),
            (tag("span", tag("i", style=f"width:{100 * gate:.0f}%;background:{gate_colour(gate)}"),
                 tag("b", amount(gate, 3)), class_="meter"), gate),
            one.role(route),
        ]  # fmt: skip
        if other is not None:
            there = other.gates.get(route)
            row.append((amount(there, 3), -1 if there is None else there))
            difference = None if there is None else gate - there
            changed = there is not None and one.role(route) != other.role(route)
            text = signed(difference, 3)
            row.append((tag("strong", f"{text} ⇄") if changed else text, difference or 0.0))
        rows.append(row)
        keys.append({"data_route": order[route], "tabindex": "0"})
    headers = ["route", "paradigm", "acts as edge", "gate", "role"]
    if other is not None and second is not None:
        headers += ["gate there", "difference"]
    return tag(
        "div",
        tag("h3", "Roles"),
        tag("label", "Show routes with ", tag("input", type="search", class_="filter",
            placeholder="a table, a paradigm, node, edge, undecided", data_for="roles"),
            class_="filterline"),
        tag("div", sheet(headers, rows, numbers=[3, 5, 6] if other else [3], label="Roles of all "
            "routes", sorts=True, keys=keys), id="roles"),
    )  # fmt: skip
