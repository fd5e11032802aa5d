"""From when on rows are known: from their own time, or from that of the rows that they name.

A row without a time of its own (a line of an order, say) is known from the latest time among the
rows that it names along foreign keys, through any number of rows that have none either. A row
that names no row with a time is known from the beginning.

A foreign key is not inherited from if the data contradict it: `customers.last_order_id` names an
order, but most orders of the customer are older than that one, so the customer was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relfrog.support.times import MISSING, PER_SECOND

__all__ = ["Contradiction", "InheritedTimes", "Link", "inherit_times"]

Ints = NDArray[np.int64]

#: A foreign key is contradicted if more than this share of the rows that name a row are older than
#: the time that it would inherit. Where inheriting is right, only errors of clocks are older.
CONTRADICTED = 0.1
#: The fewest older rows that contradict anything.
FEWEST = 3
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, order=True)
class Link:
    """A foreign key: the child's rows name rows of the parent."""

    child: str
    columns: tuple[str, ...]
    parent: str

    def __str__(self) -> str:
        return f"{self.child}.{', '.join(self.columns)} -> {self.parent}"


@dataclass(frozen=True)
class Contradiction:
    """A foreign key that nothing is inherited from, and why.

    Attributes:
        link: The foreign key.
        rows: Rows that name a row which would inherit along it.
        older: How many of them are older than that row would be.
        table: The table of most of them.
        time: The time of one of them.
        inherited: What the row that it names would inherit.
    """

    link: Link
    rows: int
    older: int
    table: str
    time: int
    inherited: int


@dataclass
class InheritedTimes:
    """What `inherit_times` found.

    Attributes:
        known: Per table that inherits, from when on each row is known; MISSING for rows that are
            known from the beginning.
        links: Per table that inherits, the foreign keys that it inherits along.
        contradictions: Foreign keys that the data contradict.
    """

    known: dict[str, Ints] = field(default_factory=dict)
    links: dict[str, list[Link]] = field(default_factory=dict)
    contradictions: list[Contradiction] = field(default_factory=list)


def inherit_times(
    own: Mapping[str, Ints],
    links: Sequence[Link],
    pointers: Callable[[Link], NDArray[np.integer]],
    *,
    along: Mapping[str, Collection[Link]] | None = None,
    unit: str = "us",
) -> InheritedTimes:
    """Find out from when on the rows of each table are known.

    Args:
        own: Times of all tables; MISSING where a row has none. Shapes [rows].
        links: The foreign keys.
        pointers: Gives the row that each row of the child names, -1 for none. Shape [rows].
        along: For some tables, the foreign keys to inherit along, instead of all that nothing
            contradicts; none of them: the table inherits nothing.
        unit: What times count.
    """
    chosen = dict(along or {})
    without = _without(own) | {name for name in chosen if name in own}
    usable = [
        link
        for link in sorted(links)
        if link.child in without and (link.child not in chosen or link in chosen[link.child])
    ]
    found = InheritedTimes()
    while True:
        known, order = _propagate(own, usable, pointers)
        judged = [link for link in usable if link.child not in chosen]
        judged.sort(key=lambda link: (order[link.child], link))
        wrong = _first_contradiction(own, known, links, judged, pointers, unit)
        if wrong is None:
            break
        found.contradictions.append(wrong)
        usable.remove(wrong.link)
    for link in usable:
        gives = _named(known[link.parent], pointers(link)) != MISSING
        if link.child in chosen or (gives & (own[link.child] == MISSING)).any():
            found.links.setdefault(link.child, []).append(link)
            found.known[link.child] = known[link.child]
    return found


def _without(own: Mapping[str, Ints]) -> set[str]:
    """Tables with rows that have no time of their own."""
    return {name for name, times in own.items() if (times == MISSING).any()}


def _named(times: Ints, pointer: NDArray[np.integer]) -> Ints:
    """The times of the rows that are named; MISSING where none is."""
    found = np.full(len(pointer), MISSING)
    has = pointer >= 0
    found[has] = times[pointer[has]]
    return found


def _propagate(
    own: Mapping[str, Ints],
    links: Sequence[Link],
    pointers: Callable[[Link], NDArray[np.integer]],
) -> tuple[dict[str, Ints], dict[str, int]]:
    """The times of all rows, and the order in which tables get theirs."""
    known = dict(own)
    order = {name: 0 for name in own}
    waiting = sorted({link.child for link in links})
    step = 0
    while waiting:
        step += 1
        left = set(waiting)
        ready = [n for n in waiting if not any(k.child == n and k.parent in left for k in links)]
        # Tables that refer to each other, or to themselves, and those below them: all at once.
        circular = ready or waiting
        for name in circular:
            order[name] = step
            known[name] = own[name].copy()
        inner = [k for k in links if k.child in circular and k.parent in circular]
        for link in links:
            if link.child in circular and link not in inner:
                _gather(known[link.child], own[link.child], known[link.parent], pointers(link))
        if inner:
            _settle(known, own, inner, pointers)
        waiting = [name for name in waiting if name not in circular]
    return known, order


def _gather(known: Ints, own: Ints, parents: Ints, pointer: NDArray[np.integer]) -> None:
    """Raise the times of rows without one to those of the rows that they name."""
    rows = np.flatnonzero((own == MISSING) & (pointer >= 0))
    known[rows] = np.maximum(known[rows], parents[pointer[rows]])


def _settle(
    known: dict[str, Ints],
    own: Mapping[str, Ints],
    links: Sequence[Link],
    pointers: Callable[[Link], NDArray[np.integer]],
) -> None:
    """Raise times along foreign keys that lead in circles, until nothing changes.

    Each round looks only at rows that name a row whose time has just been raised.
    """
    below = {}
    for link in links:
        pointer = np.where(own[link.child] == MISSING, pointers(link), -1)
        order = np.argsort(pointer, kind="stable")
        begin = np.searchsorted(pointer[order], np.arange(len(own[link.parent]) + 1))
        below[link] = (order, begin)
    raised = {name: np.flatnonzero(times != MISSING) for name, times in known.items()}
    while any(len(rows) for rows in raised.values()):
        after: dict[str, list[Ints]] = {}
        for link, (order, begin) in below.items():
            rows = raised.get(link.parent, np.zeros(0, np.int64))
            counts = begin[rows + 1] - begin[rows]
            if not counts.any():
                continue
            offset = np.repeat(begin[rows] - np.cumsum(counts) + counts, counts)
            children = order[offset + np.arange(counts.sum())]
            times = np.repeat(known[link.parent][rows], counts)
            rising = times > known[link.child][children]
            np.maximum.at(known[link.child], children[rising], times[rising])
            after.setdefault(link.child, []).append(children[rising])
        raised = {name: np.unique(np.concatenate(parts)) for name, parts in after.items()}


def _first_contradiction(
    own: Mapping[str, Ints],
    known: Mapping[str, Ints],
    links: Sequence[Link],
    judged: Sequence[Link],
    pointers: Callable[[Link], NDArray[np.integer]],
    unit: str,
) -> Contradiction | None:
    """The first foreign key that the rows below its table contradict."""
    tables = {link.child for link in judged}
    if not any(link.parent in tables for link in links):
        return None
    traces = _traces(own, _leading_to(tables, links, _without(own)), pointers)
    day = 86_400 * PER_SECOND[unit]
    for link in judged:
        named = pointers(link)
        inherited = _named(known[link.parent], named)
        inherited[own[link.child] != MISSING] = MISSING
        rows = older = 0
        worst = (0, "", 0, 0)
        for below in links:
            if below.parent != link.child:
                continue
            pointer, trace = pointers(below), traces[below.child]
            at = np.flatnonzero((pointer >= 0) & (trace != _NEVER))
            at = at[inherited[pointer[at]] != MISSING]
            if below.child == link.parent:
                # The row that the time comes from says nothing about the row that inherits it.
                at = at[named[pointer[at]] != at]
            times, limits = trace[at], inherited[pointer[at]]
            if not (times % day).any():
                limits = limits - limits % day  # a day is not earlier than its hours
            early = np.flatnonzero(times < limits)
            rows, older = rows + len(at), older + len(early)
            if len(early) > worst[0]:
                example = int(early[0])
                worst = (len(early), below.child, int(times[example]), int(limits[example]))
        if older >= FEWEST and older > CONTRADICTED * rows:
            return Contradiction(link, rows, older, *worst[1:])
    return None


def _leading_to(tables: set[str], links: Sequence[Link], without: set[str]) -> list[Link]:
    """Foreign keys to tables whose rows name some tables, and have no times of their own."""
    found: list[Link] = []
    middle = {link.child for link in links if link.parent in tables} & without
    while more := [link for link in links if link.parent in middle and link not in found]:
        found += more
        middle |= {link.child for link in more} & without
    return found


def _traces(
    own: Mapping[str, Ints],
    links: Sequence[Link],
    pointers: Callable[[Link], NDArray[np.integer]],
) -> dict[str, Ints]:
    """By when each row was there at the latest: its own time, or that of the first to name it."""
    traces = {name: np.where(times == MISSING, _NEVER, times) for name, times in own.items()}
    for _ in own:
        changed = False
        for link in links:
            pointer, times = pointers(link), traces[link.child]
            at = np.flatnonzero((pointer >= 0) & (times != _NEVER))
            at = at[own[link.parent][pointer[at]] == MISSING]
            at = at[times[at] < traces[link.parent][pointer[at]]]
            if len(at):
                np.minimum.at(traces[link.parent], pointer[at], times[at])
                changed = True
        if not changed:
            break
    return traces
