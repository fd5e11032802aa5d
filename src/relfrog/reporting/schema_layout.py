"""Layered layout of a schema (Sugiyama): children on the left, parents on the right.

The usual steps: break cycles, assign tables to layers of bounded size, add dummy nodes where a line
crosses a layer, order the nodes of each layer to reduce crossings, and align each node vertically
with its neighbours. No two boxes overlap, and no line runs under a box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Box", "Join", "Line", "Placement", "place"]

#: Vertical gaps between two boxes, between a box and a line, and between two lines.
GAPS = (16.0, 10.0, 5.0)
MARGIN = 14.0
#: The least and the most horizontal gap between layers; it grows with the number of lines there.
GAP_X = (64.0, 170.0)


@dataclass(frozen=True)
class Join:
    """A line to draw, from a child table to a parent table, which may be the same table."""

    child: str
    parent: str
    thickness: float = 2.0


@dataclass(frozen=True)
class Box:
    """A table in the picture; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A join in the picture: the points of a line from child to parent, horizontal at each."""

    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Placement:
    """A layout: boxes by table, lines in the order of the joins, and the total size."""

    boxes: dict[str, Box]
    lines: tuple[Line, ...]
    width: float
    height: float


@dataclass(eq=False)
class _Spot:
    """A node of the layout: a table, or a dummy node (without a name) of a line."""

    name: str | None
    height: float
    width: float = 0.0
    layer: int = 0
    y: float = 0.0  # of its middle
    left: list[_Spot] = field(default_factory=list)
    right: list[_Spot] = field(default_factory=list)


def place(sizes: Mapping[str, tuple[float, float]], joins: Sequence[Join]) -> Placement:
    """Lay out a schema.

    Args:
        sizes: width and height of each table; heights grow if many lines end there.
        joins: the lines.
    """
    layer = _layers(list(sizes), joins)
    spots = {name: _Spot(name, h, w, layer[name]) for name, (w, h) in sizes.items()}
    _make_room(spots, joins)
    chains: list[list[_Spot]] = []
    passing: list[_Spot] = []
    for join in joins:
        ends = sorted((spots[join.child], spots[join.parent]), key=lambda s: -s.layer)
        chain = [ends[0]]
        for number in range(ends[0].layer - 1, ends[1].layer, -1):
            chain.append(_Spot(None, join.thickness + 4.0, 0.0, number))
            passing.append(chain[-1])
        chain.append(ends[1])
        if join.child != join.parent:
            for one, other in pairwise(chain):
                one.right.append(other)
                other.left.append(one)
        chains.append(chain)
    columns = _columns([*spots.values(), *passing])
    _order(columns)
    _set_heights(columns)
    lefts, widths = _set_columns(columns)
    boxes = {
        name: Box(lefts[s.layer] + (widths[s.layer] - s.width) / 2, s.y - s.height / 2, s.width,
                  s.height)
        for name, s in spots.items()
    }  # fmt: skip
    lines = _lines(joins, chains, boxes, lefts, widths)
    right = max((lefts[k] + widths[k] for k in lefts), default=0.0)
    bottom = max((box.y + box.height for box in boxes.values()), default=0.0)
    low = max((y for line in lines for _, y in line.points), default=0.0)
    far = max((x for line in lines for x, _ in line.points), default=0.0)
    return Placement(boxes, lines, max(right, far) + MARGIN, max(bottom, low) + MARGIN)


def _layers(names: list[str], joins: Sequence[Join]) -> dict[str, int]:
    """Assign layers, 0 at the right; children are left of parents, except in cycles."""
    above: dict[str, list[str]] = {name: [] for name in names}
    for join in joins:
        if join.child != join.parent and join.parent not in above[join.child]:
            above[join.child].append(join.parent)
    kept: dict[str, list[str]] = {}  # parents, without those that would close a cycle
    finished: list[str] = []

    for start in names:
        stack: list[tuple[str, int]] = [(start, 0)] if start not in kept else []
        path = {start}
        while stack:
            name, at = stack.pop()
            kept.setdefault(name, [])
            if at < len(above[name]):
                stack.append((name, at + 1))
                parent = above[name][at]
                if parent not in path:
                    kept[name].append(parent)
                    if parent not in kept:
                        path.add(parent)
                        stack.append((parent, 0))
            else:
                path.discard(name)
                finished.append(name)
    children: dict[str, list[str]] = {name: [] for name in names}
    for name, parents in kept.items():
        for parent in parents:
            children[parent].append(name)
    most = max(5, math.ceil(1.5 * math.sqrt(len(names))))
    layer: dict[str, int] = {}
    filled: dict[int, int] = {}
    # Parents come before their children in `finished`. Of the tables without parents, those with
    # the most children come first and get the outermost layer.
    loose = [name for name in finished if not kept[name]]
    loose.sort(key=lambda name: -len(children[name]))
    for name in [*loose, *(n for n in finished if kept[n])]:
        number = 1 + max((layer[parent] for parent in kept[name]), default=-1)
        while filled.get(number, 0) >= most:
            number += 1
        layer[name] = number
        filled[number] = filled.get(number, 0) + 1
    for name in reversed(finished):  # closer to the children, where there is room
        if children[name]:
            wanted = min(layer[child] for child in children[name]) - 1
            while wanted > layer[name] and filled.get(wanted, 0) >= most:
                wanted -= 1
            if wanted > layer[name]:
                filled[layer[name]] -= 1
                layer[name] = wanted
                filled[wanted] = filled.get(wanted, 0) + 1
    used = {number: place for place, number in enumerate(sorted(set(layer.values())))}
    return {name: used[number] for name, number in layer.items()}


def _make_room(spots: Mapping[str, _Spot], joins: Sequence[Join]) -> None:
    """Make boxes tall enough for all lines that end at one of their sides."""
    needed: dict[tuple[str, bool], float] = {}
    for join in joins:
        if join.child == join.parent:
            needed[join.child, True] = needed.get((join.child, True), 0.0) + 2 * join.thickness + 12
            continue
        rightward = spots[join.child].layer > spots[join.parent].layer
        for name, side in ((join.child, rightward), (join.parent, not rightward)):
            needed[name, side] = needed.get((name, side), 6.0) + join.thickness + 5.0
    for (name, _), height in needed.items():
        spots[name].height = max(spots[name].height, height)


def _columns(spots: Sequence[_Spot]) -> list[list[_Spot]]:
    """Layers from left to right."""
    highest = max((spot.layer for spot in spots), default=-1)
    return [[s for s in spots if s.layer == number] for number in range(highest, -1, -1)]


def _order(columns: list[list[_Spot]]) -> None:
    """Reduce crossings: sort layers by the barycentre of neighbours, in both directions."""
    best, fewest = [list(c) for c in columns], math.inf
    for sweep in range(24):
        forward = sweep % 2 == 0
        for column in columns[1:] if forward else columns[-2::-1]:
            other = columns[columns.index(column) + (-1 if forward else 1)]
            rank = {id(spot): place for place, spot in enumerate(other)}
            own = {id(spot): place for place, spot in enumerate(column)}

            def middle(spot: _Spot, rank: dict[int, int] = rank, own: dict[int, int] = own,
                       forward: bool = forward) -> float:  # fmt: skip
                near = [rank[id(s)] for s in (spot.left if forward else spot.right)]
                return sum(near) / len(near) if near else float(own[id(spot)])

            column.sort(key=middle)
        crossed = sum(_crossings(a, b) for a, b in pairwise(columns))
        if crossed < fewest:
            best, fewest = [list(c) for c in columns], crossed
    for column, order in zip(columns, best, strict=True):
        column[:] = order


def _crossings(left: list[_Spot], right: list[_Spot]) -> int:
    rank = {id(spot): place for place, spot in enumerate(right)}
    ends = [(i, rank[id(s)]) for i, spot in enumerate(left) for s in spot.right]
    return sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for i, a in enumerate(ends) for b in ends[i + 1 :])


def _set_heights(columns: list[list[_Spot]]) -> None:
    """Move every node towards the mean height of its neighbours, keeping order and gaps."""
    for column in columns:
        y = 0.0
        for spot in column:
            spot.y = y + spot.height / 2
            y += spot.height + GAPS[0]
    for sweep in range(40):
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            wanted = []
            for spot in column:
                near = [s.y for s in (*spot.left, *spot.right)]
                wanted.append(sum(near) / len(near) if near else spot.y)
            for spot, y in zip(column, _apart(column, wanted), strict=True):
                spot.y = y
    top = min((s.y - s.height / 2 for c in columns for s in c), default=0.0)
    for column in columns:
        for spot in column:
            spot.y += MARGIN - top


def _apart(column: list[_Spot], wanted: list[float]) -> list[float]:
    """The heights nearest to the wanted ones that keep order and gaps: pool adjacent violators."""
    offsets = [0.0]
    for one, other in pairwise(column):
        gap = GAPS[(one.name is None) + (other.name is None)]
        offsets.append(offsets[-1] + (one.height + other.height) / 2 + gap)
    blocks: list[list[float]] = []  # sum of the wanted starts, how many
    for y, offset in zip(wanted, offsets, strict=True):
        blocks.append([y - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    starts = [total / count for total, count in blocks for _ in range(int(count))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _set_columns(columns: list[list[_Spot]]) -> tuple[dict[int, float], dict[int, float]]:
    """The left side and the width of each layer."""
    lefts, widths = {}, {}
    x, last = MARGIN, len(columns) - 1
    for place_, column in enumerate(columns):
        number = last - place_
        lefts[number], widths[number] = x, max((s.width for s in column), default=0.0)
        bends = sum(len(spot.right) for spot in column)
        room = GAP_X[1] if len(columns) < 4 else GAP_X[0] + 3.0 * bends
        x += widths[number] + min(max(GAP_X[1] - 14.0 * (len(columns) - 3), GAP_X[0]), room)
    return lefts, widths


def _lines(
    joins: Sequence[Join],
    chains: list[list[_Spot]],
    boxes: Mapping[str, Box],
    lefts: Mapping[int, float],
    widths: Mapping[int, float],
) -> tuple[Line, ...]:
    """The points of every line: start, dummy nodes, end."""
    sides: dict[tuple[str, bool], list[tuple[float, int, bool]]] = {}
    for number, (join, chain) in enumerate(zip(joins, chains, strict=True)):
        if join.child != join.parent:
            sides.setdefault((chain[0].name or "", True), []).append((chain[1].y, number, True))
            sides.setdefault((chain[-1].name or "", False), []).append((chain[-2].y, number, False))
    ports: dict[tuple[int, bool], float] = {}
    for (name, _), arriving in sides.items():
        box = boxes[name]
        total = sum(joins[n].thickness + 5.0 for _, n, _ in arriving) - 5.0
        y = box.y + (box.height - total) / 2
        for _, number, leaves in sorted(arriving):
            thickness = joins[number].thickness
            ports[number, leaves] = y + thickness / 2
            y += thickness + 5.0
    lines = []
    loops: dict[str, int] = {}
    for number, (join, chain) in enumerate(zip(joins, chains, strict=True)):
        first, last = boxes[chain[0].name or ""], boxes[chain[-1].name or ""]
        if join.child == join.parent:
            # A self-reference is a loop at the right side, below the other lines.
            loops[join.child] = loops.get(join.child, 0) + 1
            reach = 12.0 + 6.0 * loops[join.child] + join.thickness
            low, right = first.y + first.height - 8.0, first.x + first.width
            points = [(right, low - 10.0), (right + reach, low - 5.0), (right, low)]
        else:
            out, back = ports[number, True], ports[number, False]
            points = [(first.x + first.width, out)]
            points.append((lefts[chain[0].layer] + widths[chain[0].layer], out))
            for spot in chain[1:-1]:
                left = lefts[spot.layer]
                points += [(left, spot.y), (left + widths[spot.layer], spot.y)]
            points += [(lefts[chain[-1].layer], back), (last.x, back)]
            if chain[0].name != join.child:
                points.reverse()
        lines.append(Line(tuple(points)))
    return tuple(lines)
