"""From when on rows are known, row by row: slow and plain."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from relfrog.support.inherited_times import Link
from relfrog.support.times import MISSING


def slow_known(
    own: dict[str, list[int]], links: Iterable[Link], pointers: dict[Link, list[int]]
) -> dict[str, list[int]]:
    """The latest time of all rows with one that are reached through rows without."""
    links = list(links)

    def reached(table: str, row: int, seen: set[tuple[str, int]]) -> int:
        if own[table][row] != MISSING or (table, row) in seen:
            return own[table][row]
        seen.add((table, row))
        named = [(k.parent, pointers[k][row]) for k in links if k.child == table]
        return max((reached(p, r, seen) for p, r in named if r >= 0), default=MISSING)

    return {name: [reached(name, r, set()) for r in range(len(t))] for name, t in own.items()}


def as_lists(arrays: dict[str, np.ndarray]) -> dict[str, list[int]]:
    """Arrays as lists of Python's integers."""
    return {name: array.tolist() for name, array in arrays.items()}
