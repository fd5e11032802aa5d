"""Pictures of schemas: nothing overlaps, nothing runs under a box, whatever the schema."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from relfrog.reporting.schema_layout import Box, Join, Placement, place
from report_cases import business


def schema(seed: int, tables: int) -> tuple[dict[str, tuple[float, float]], list[Join]]:
    """A random schema with stars, chains, parallel keys, cycles and keys to the own table."""
    rng = random.Random(seed)
    names = [f"table_{i}" for i in range(tables)]
    sizes = {name: (rng.uniform(92, 180), rng.uniform(40, 76)) for name in names}
    joins = []
    for i, name in enumerate(names[1:], 1):
        for _ in range(rng.choice([0, 1, 1, 2, 2, 3])):
            parent = rng.choice(names[: min(i, 8)] if rng.random() < 0.6 else names[:i])
            joins.append(Join(name, parent, rng.choice([2.0, 7.0, 18.0])))
    for _ in range(tables // 8):
        joins.append(Join(rng.choice(names), rng.choice(names), 3.0))
    return sizes, joins


def apart(a: Box, b: Box) -> bool:
    return (
        a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
    )  # fmt: skip


def along(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """Points on the curve that is drawn through the points of a line."""
    found = []
    for (x0, y0), (x1, y1) in pairwise(points):
        for step in range(21):
            t = step / 20
            bend = 3 * t * t - 2 * t * t * t  # level at both ends
            middle = (x0 + x1) / 2
            x = (1 - t) ** 3 * x0 + 3 * (1 - t) * t * middle + t**3 * x1
            found.append((x, y0 + (y1 - y0) * bend))
    return found


CASES = [
    *(schema(seed, tables) for seed in range(6) for tables in (5, 12, 40)),
    # A star: one table that refers to 39 others; and a chain.
    (
        {f"t{i}": (120.0, 50.0) for i in range(40)},
        [Join("t0", f"t{i}", 18.0) for i in range(1, 40)],
    ),
    ({f"t{i}": (120.0, 50.0) for i in range(9)}, [Join(f"t{i}", f"t{i + 1}") for i in range(8)]),
    ({"alone": (100.0, 40.0)}, [Join("alone", "alone")]),
    ({}, []),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case[0])} tables")
def test_boxes_do_not_overlap_and_lines_pass_between_them(
    case: tuple[dict[str, tuple[float, float]], list[Join]],
) -> None:
    sizes, joins = case
    found: Placement = place(sizes, joins)
    assert set(found.boxes) == set(sizes)
    boxes = list(found.boxes.items())
    for i, (_, a) in enumerate(boxes):
        assert a.x >= 0
        assert a.y >= 0
        assert a.x + a.width <= found.width
        assert a.y + a.height <= found.height
        for _, b in boxes[i + 1 :]:
            assert apart(a, b)
    for join, line in zip(joins, found.lines):
        assert all(0 <= x <= found.width and 0 <= y <= found.height for x, y in line.points)
        for x, y in along(line.points):
            for name, box in boxes:
                if name in (join.child, join.parent):
                    continue
                inside = box.x < x < box.x + box.width and box.y < y < box.y + box.height
                assert not inside, (join, name)


@pytest.mark.parametrize("seed", range(4))
def test_a_line_begins_at_its_child_and_ends_at_its_parent(seed: int) -> None:
    sizes, joins = schema(seed, 20)
    found = place(sizes, joins)
    for join, line in zip(joins, found.lines):
        for name, (x, y) in ((join.child, line.points[0]), (join.parent, line.points[-1])):
            box = found.boxes[name]
            assert x in (box.x, box.x + box.width)
            assert box.y <= y <= box.y + box.height


def test_without_cycles_children_stand_left_of_parents() -> None:
    sizes, joins = schema(1, 30)
    joins = [j for j in joins if int(j.child.split("_")[1]) > int(j.parent.split("_")[1])]
    found = place(sizes, joins)
    for join in joins:
        assert found.boxes[join.child].x < found.boxes[join.parent].x


@pytest.mark.parametrize("seed", range(5))
def test_forty_tables_fit_a_page(seed: int) -> None:
    found = place(*business(seed))
    # On a page of 1,060 pixels, names of 13 pixels are then drawn with 9 or more.
    assert found.width < 1500, found.width
    assert found.height < 2000, found.height
