"""Routes: the pairs of foreign keys along which a table can act as an edge.

A route joins three rows u, v, w and updates w. A paradigm says which pairs of foreign keys form a
route, and finds the matching rows. The paper has two paradigms; another one is another subclass of
`Paradigm`, passed to `find_routes`.

This module needs neither torch nor a graph: a schema is enough to list routes.
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
        parallel: for each key, whether another key joins the same two tables; then its column is
            part of the route's name.
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
        """All matches, each once, given the parent of each row (-1 for none).

        Arrays may be NumPy's or torch's; so is the result.
        """
        return self.paradigm.match(self, parents)

    def match_directed(
        self, up: Mapping[ForeignKey, Any], down: Mapping[ForeignKey, Any]
    ) -> Matches:
        """All matches, where children may send to another parent than the one they receive from.

        Args:
            up: the parent that each row sends to, -1 for none.
            down: the parent that each row receives from, -1 for none.
        """
        first, second = self.paradigm.arrows
        assert self.first != self.second or first == second, "a key both ways"
        return self.match(
            {
                **down,
                self.first: (up if first.forward else down)[self.first],
                self.second: (up if second.forward else down)[self.second],
            }
        )

    def __str__(self) -> str:
        u, v, w = self.tables
        left = self.paradigm.arrows[0].text(self.first, self.parallel[0])
        right = self.paradigm.arrows[1].text(self.second, self.parallel[1])
        return f"{u} {left} {v} {right} {w}"


class Arrow(NamedTuple):
    """The direction of a foreign key when a route is read from u to w."""

    forward: bool

    def ends(self, key: ForeignKey) -> tuple[str, str]:
        """The tables on the left and on the right."""
        return (key.table, key.parent) if self.forward else (key.parent, key.table)

    def text(self, key: ForeignKey, parallel: bool) -> str:
        """``->`` or ``<-``, with the column in it for parallel keys."""
        label = f"-[{key.column}]-" if parallel else "-"
        return f"{label}>" if self.forward else f"<{label}"


ALONG = Arrow(True)
AGAINST = Arrow(False)


class Paradigm(ABC):
    """A way for two foreign keys to join u, v and w."""

    #: Its name in files and tables.
    name: ClassVar[str]
    #: The directions of the key between u and v, and of the key between v and w.
    arrows: ClassVar[tuple[Arrow, Arrow]]

    @abstractmethod
    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """The pairs of keys that form a route."""

    @abstractmethod
    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """All matches of a route, each once; see `Route.match`."""


@dataclass(frozen=True)
class CoOccurrence(Paradigm):
    """u <- v -> w: v refers to both. Ordered pairs of two different keys of v."""

    name = "co-occurrence"
    arrows = (AGAINST, ALONG)

    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """All ordered pairs of two keys of one table."""
        return (pair for pair in permutations(keys, 2) if pair[0].table == pair[1].table)

    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """One match per row v that has both parents."""
        u, w = parents[route.first], parents[route.second]
        v = positions((u >= 0) & (w >= 0))
        return Matches(u[v], v, w[v])


@dataclass(frozen=True)
class Completion(Paradigm):
    """u -> v -> w: u refers to v, and v to w. A self-referencing key may follow itself."""

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
    """u <- v <- w: completion in reverse; w is completed by its grandparent u."""

    name = "completion-against"
    arrows = (AGAINST, AGAINST)

    def pairs(self, keys: Sequence[ForeignKey]) -> Iterator[tuple[ForeignKey, ForeignKey]]:
        """The pairs of completion, reversed."""
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
    """All routes, ordered by paradigm and then by keys, whatever the order of `keys`.

    `relfrog.graph.relational.foreign_keys` lists the keys of a schema.
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
    """The indices where a mask is true, for NumPy and torch alike. Shape [true entries]."""
    found = mask.nonzero()
    return found[0] if isinstance(found, tuple) else found[:, 0]
