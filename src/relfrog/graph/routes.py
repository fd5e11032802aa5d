"""Routes: the pairs of foreign keys along which a table can act as an edge.

A route joins three rows u, v, w, of which w is updated. How two foreign keys make a route is a
paradigm: one class that lists its routes and finds their matches. The paper has two; a third is
a third class, passed to `routes`.

This module needs neither torch nor a graph: a schema is enough to count routes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, ClassVar, NamedTuple

from relfrog.graph.relational import ForeignKey

__all__ = [
    "PAPER",
    "CoOccurrence",
    "Completion",
    "CompletionAgainst",
    "Matches",
    "Paradigm",
    "Route",
    "find_routes",
]


class Matches(NamedTuple):
    """Rows joined by a route, one entry per match. Shapes: [matches] each."""

    u: Any
    v: Any
    w: Any


@dataclass(frozen=True)
class Route:
    """Two foreign keys and the paradigm that joins them.

    Attributes:
        paradigm: how the keys are joined.
        first: the key between u and v.
        second: the key between v and w.
        parallel: which of the two keys share both their tables with another key; these are
            shown with their column.
    """

    paradigm: Paradigm
    first: ForeignKey
    second: ForeignKey
    parallel: tuple[bool, bool] = field(default=(False, False), compare=False, repr=False)

    @property
    def tables(self) -> tuple[str, str, str]:
        """The tables of u, v and w."""
        u, v = self.paradigm.arrows[0].ends(self.first)
        return u, v, self.paradigm.arrows[1].ends(self.second)[1]

    def match(self, parents: Mapping[ForeignKey, Any]) -> Matches:
        """Every match among rows, given the parent of each row (-1 for none), none twice.

        Arrays may be of NumPy or of torch; the result is of the same kind.
        """
        return self.paradigm.match(self, parents)

    def __str__(self) -> str:
        u, v, w = self.tables
        left = self.paradigm.arrows[0].text(self.first, self.parallel[0])
        right = self.paradigm.arrows[1].text(self.second, self.parallel[1])
        return f"{u} {left} {v} {right} {w}"


class Arrow(NamedTuple):
    """Which way a foreign key points when a route is read from u to w."""

    forward: bool

    def ends(self, key: ForeignKey) -> tuple[str, str]:
        """The tables on the left and on the right."""
        return (key.table, key.parent) if self.forward else (key.parent, key.table)

    def text(self, key: ForeignKey, parallel: bool) -> str:
        """``->``, ``<-``, or with the column in it."""
        label = f"-[{key.column}]-" if parallel else "-"
        return f"{label}>" if self.forward else f"<{label}"


ALONG = Arrow(True)
AGAINST = Arrow(False)


class Paradigm(ABC):
    """A way for two foreign keys to join u, v and w: lists routes, finds matches."""

    #: For files and tables.
    name: ClassVar[str]
    #: How the key between u and v points, and the key between v and w.
    arrows: ClassVar[tuple[Arrow, Arrow]]

    @abstractmethod
    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """The pairs of keys that make a route."""

    @abstractmethod
    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """Every match of a route among rows, none twice; see `Route.match`."""


@dataclass(frozen=True)
class CoOccurrence(Paradigm):
    """u <- v -> w: one row v names both. Ordered pairs of two different keys of v."""

    name = "co-occurrence"
    arrows = (AGAINST, ALONG)

    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """Both orders of every two keys of one table."""
        return (pair for pair in permutations(keys, 2) if pair[0].table == pair[1].table)

    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """One match per row v that has both parents."""
        u, w = parents[route.first], parents[route.second]
        v = positions((u >= 0) & (w >= 0))
        return Matches(u[v], v, w[v])


@dataclass(frozen=True)
class Completion(Paradigm):
    """u -> v -> w: v, named by u, names w in turn. A key that stays in its table may repeat."""

    name = "completion"
    arrows = (ALONG, ALONG)

    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """Every key, followed by every key of its parent."""
        return (pair for pair in product(keys, keys) if pair[0].parent == pair[1].table)

    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """One match per row u that has a grandparent."""
        first, second = parents[route.first], parents[route.second]
        u = positions(first >= 0)
        u = u[second[first[u]] >= 0]
        v = first[u]
        return Matches(u, v, second[v])


@dataclass(frozen=True)
class CompletionAgainst(Completion):
    """u <- v <- w: completion read the other way; the row w is completed by its grandparent u."""

    name = "completion-against"
    arrows = (AGAINST, AGAINST)

    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """The chains of completion, from their end."""
        return ((second, first) for first, second in super().pairs(keys))

    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """One match per row w that has a grandparent."""
        w, v, u = super().match(Route(self, route.second, route.first), parents)
        return Matches(u, v, w)


#: The paradigms of the paper, Eq. (9).
PAPER: tuple[Paradigm, ...] = (CoOccurrence(), Completion())


def find_routes(
    keys: Iterable[ForeignKey], paradigms: Iterable[Paradigm] = PAPER
) -> tuple[Route, ...]:
    """All routes, by paradigm and then by key, whatever the order of `keys`.

    `relfrog.graph.relational.foreign_keys` gives the keys of a schema.
    """
    ordered = sorted(set(keys))
    joined = Counter((key.table, key.parent) for key in ordered)
    return tuple(
        Route(
            paradigm,
            *pair,
            (joined[pair[0].table, pair[0].parent] > 1, joined[pair[1].table, pair[1].parent] > 1),
        )
        for paradigm in paradigms
        for pair in paradigm.pairs(ordered)
    )


def positions(mask: Any) -> Any:
    """Where a mask is true, for NumPy and torch alike. Shape [true entries]."""
    found = mask.nonzero()
    return found[0] if isinstance(found, tuple) else found[:, 0]
