"""What a network computes for rows of one table at one hop, given what their parents send.

The past is unrolled, see `relfrog.graph.unrolled`. A child has one parent per foreign key, so what
it sends is used once, and is computed on the spot; a parent has many children, so what it sends is
computed beforehand, once, and looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from relfrog.graph import _kernels
from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Completion, CompletionAgainst, CoOccurrence, Route
from relfrog.graph.unrolled import Occurrences, UnrolledPast, concatenated
from relfrog.nn.batch_plan import LayerPlan, Links, RouteLinks

__all__ = ["Level", "Tree", "TreePlan", "can_unroll", "plan_tree"]

Ints = NDArray[np.int64]


class Level(NamedTuple):
    """Rows of a table at a distance from the seed."""

    table: str
    hop: int


def can_unroll(routes: Iterable[Route]) -> bool:
    """Whether it is known where these routes lead: those of a new paradigm are not."""
    known = (CoOccurrence, Completion, CompletionAgainst)
    return all(type(route.paradigm) in known for route in routes)


@dataclass(frozen=True)
class Tree:
    """Which rows are needed to compute those of a level, by schema.

    Attributes:
        root: the level whose rows are computed.
        depth: the highest layer that is computed of each level of the tree: the root and what is
            reached from it through children.
        looked_up: the highest layer that is read of each level of parents.
        children: foreign keys by which each level of the tree takes its children.
        parents: foreign keys by which each level of the tree reads its parents.
        grandparents: foreign keys by which each level of parents reads its parents in turn.
    """

    root: Level
    depth: dict[Level, int]
    looked_up: dict[Level, int] = field(default_factory=dict)
    children: dict[Level, set[ForeignKey]] = field(default_factory=dict)
    parents: dict[Level, set[ForeignKey]] = field(default_factory=dict)
    grandparents: dict[Level, set[ForeignKey]] = field(default_factory=dict)


def plan_tree(
    root: Level,
    layers: int,
    keys: Sequence[ForeignKey],
    routes: Sequence[Route],
    fanout: Callable[[int], int],
) -> Tree:
    """Find out what computing the first `layers` layers of a level takes.

    Args:
        root: the level.
        layers: how many layers are computed.
        keys: foreign keys whose messages are computed.
        routes: routes whose messages are computed.
        fanout: the most children per row at each hop.
    """
    tree = Tree(root, {root: layers})

    def need(levels: dict[Level, int], level: Level, layer: int) -> None:
        levels[level] = max(levels.get(level, 0), layer)

    def note(where: dict[Level, set[ForeignKey]], level: Level, key: ForeignKey) -> None:
        where.setdefault(level, set()).add(key)

    hop = root.hop
    while any(level.hop >= hop for level in tree.depth):
        # Levels at this hop are complete: only levels closer to the seed add to them.
        for level in [level for level in tree.depth if level.hop == hop]:
            below = tree.depth[level] - 1
            if below < 0:
                continue
            for key in keys:
                if key.parent == level.table and fanout(hop):
                    need(tree.depth, Level(key.table, hop + 1), below)
                    note(tree.children, level, key)
                if key.table == level.table:
                    need(tree.looked_up, Level(key.parent, hop + 1), below)
                    note(tree.parents, level, key)
            for route in routes:
                first, second = (arrow.forward for arrow in route.paradigm.arrows)
                if route.tables[2] != level.table or (second and not fanout(hop)):
                    continue
                middle = Level(route.tables[1], hop + 1)
                far = Level(route.tables[0], hop + 2)
                if second and first:
                    if fanout(hop + 1):
                        need(tree.depth, far, below)
                        note(tree.children, middle, route.first)
                else:
                    need(tree.looked_up, far, below)
                    note(tree.parents if second else tree.grandparents, middle, route.first)
        hop += 1
    return tree


@dataclass(frozen=True, eq=False)
class TreePlan:
    """The rows of a tree, and what each layer computes of them.

    Attributes:
        tree: the levels.
        rows: the rows of each level of the tree.
        looked_up: the distinct rows of each level of parents.
        layers: one plan per layer. In the embeddings that a layer reads, each table has the rows
            of `order` that have reached the layer before, then those of `order_looked_up`.
    """

    tree: Tree
    rows: dict[Level, Occurrences]
    looked_up: dict[Level, Occurrences]
    layers: tuple[LayerPlan, ...]

    def computed(self, table: str, layer: int) -> list[Level]:
        """The levels of a table whose rows are computed by a layer; by 0, encoded. In order."""
        return _at_least(self.tree.depth, table, layer)

    def read(self, table: str, layer: int) -> list[Level]:
        """The levels of parents whose embeddings after a layer are read. In order."""
        return _at_least(self.tree.looked_up, table, layer)

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))


def _at_least(levels: Mapping[Level, int], table: str, layer: int) -> list[Level]:
    """The levels of a table with this layer or a higher one, those with the highest first."""
    found = [level for level, top in levels.items() if level.table == table and top >= layer]
    return sorted(found, key=lambda level: (-levels[level], level.hop))


class _Branches(NamedTuple):
    """Children of the rows of a level by one key: where each row's begin, among its level's."""

    begin: Ints
    first: int


def make_tree_plan(
    tree: Tree,
    past: UnrolledPast,
    rows: Occurrences,
    keys: Sequence[ForeignKey],
    routes: Sequence[Route],
    *,
    hidden: NDArray[np.bool_] | None = None,
) -> TreePlan:
    """Find the rows that some rows of the root depend on, and plan the layers.

    Args:
        tree: which levels are needed.
        past: where rows are looked up.
        rows: the rows of the root.
        keys: foreign keys whose messages are computed.
        routes: routes whose messages are computed.
        hidden: rows of the root that do not exist yet: what they refer to is not looked at.
    """
    found = find_rows(tree, past, rows, hidden)
    linker = _Linker(tree, found, list(past.graph.num_rows), keys, routes)
    return TreePlan(tree, found.rows, found.looked_up, linker.plans())


@dataclass(frozen=True, eq=False)
class TreeRows:
    """The rows of a tree and of its parents.

    Attributes:
        rows: the rows of each level of the tree.
        looked_up: the distinct rows of each level of parents.
        branches: children by level and key.
        pointers: by level and key, for each row the position of its parent in `looked_up`, or -1.
        upwards: the same for the rows of `looked_up`.
    """

    rows: dict[Level, Occurrences]
    looked_up: dict[Level, Occurrences]
    branches: dict[tuple[Level, ForeignKey], _Branches]
    pointers: dict[tuple[Level, ForeignKey], Ints]
    upwards: dict[tuple[Level, ForeignKey], Ints]


def find_rows(
    tree: Tree, past: UnrolledPast, rows: Occurrences, hidden: NDArray[np.bool_] | None = None
) -> TreeRows:
    """Find the rows that some rows of the root depend on; see `make_tree_plan`."""
    parts: dict[Level, list[Occurrences]] = {tree.root: [rows]}
    found = TreeRows({}, {}, {}, {}, {})
    # By level of parents: where each list of pointers is kept, and whose groups it has.
    asked: dict[Level, list[tuple[Ints, Ints]]] = {level: [] for level in tree.looked_up}
    for level in sorted(tree.depth, key=lambda level: level.hop):
        own = found.rows[level] = concatenated(parts.get(level, []))
        for key in sorted(tree.children.get(level, ())):
            begin, children = past.children(key, level.hop, own)
            below = parts.setdefault(Level(key.table, level.hop + 1), [])
            found.branches[level, key] = _Branches(begin, sum(map(len, below)))
            below.append(children)
        for key in sorted(tree.parents.get(level, ())):
            pointers = past.parents(key, own)
            if hidden is not None and level == tree.root:
                pointers[hidden] = -1
            found.pointers[level, key] = pointers
            asked[Level(key.parent, level.hop + 1)].append((pointers, own.groups))
    for level in sorted(tree.looked_up, key=lambda level: level.hop):
        above = found.looked_up[level] = _number(asked[level], past, level.table)
        for key in sorted(tree.grandparents.get(level, ())):
            pointers = found.upwards[level, key] = past.parents(key, above)
            asked[Level(key.parent, level.hop + 1)].append((pointers, above.groups))
    return found


def _number(asked: Sequence[tuple[Ints, Ints]], past: UnrolledPast, table: str) -> Occurrences:
    """Replace rows by positions among the distinct ones, in place; return the distinct ones."""
    known = [pointers >= 0 for pointers, _ in asked]
    count, groups = past.graph.num_rows[table], len(past.moments)
    flat = np.concatenate(
        [np.empty(0, np.int64)]
        + [
            (pointers if groups == 1 else of * count + pointers)[there]
            for (pointers, of), there in zip(asked, known, strict=True)
        ]
    )
    if groups == 1:
        distinct = np.empty(len(flat), np.int64)
        distinct = distinct[: _kernels.number_distinct(flat, count, distinct)]
    else:
        distinct, flat = np.unique(flat, return_inverse=True)
    at = 0
    for (pointers, _), there in zip(asked, known, strict=True):
        number = int(there.sum())
        pointers[there] = flat[at : at + number]
        at += number
    return Occurrences(distinct % max(count, 1), distinct // max(count, 1))


class _Linker:
    """Turns the rows of a tree into the links of each layer."""

    def __init__(
        self,
        tree: Tree,
        found: TreeRows,
        tables: Sequence[str],
        keys: Sequence[ForeignKey],
        routes: Sequence[Route],
    ) -> None:
        self.tree, self.found = tree, found
        self.tables, self.keys, self.routes = tables, keys, routes
        # Where the rows of each level begin among those of its table; of looked-up levels, among
        # the looked-up rows, which follow the computed ones.
        self.first: dict[Level, int] = {}
        self.first_looked_up: dict[Level, int] = {}
        for table in self.tables:
            for levels, sizes, first in (
                (_at_least(tree.depth, table, 0), found.rows, self.first),
                (_at_least(tree.looked_up, table, 0), found.looked_up, self.first_looked_up),
            ):
                at = 0
                for level in levels:
                    first[level] = at
                    at += len(sizes[level])

    def plans(self) -> tuple[LayerPlan, ...]:
        """The plans of all layers."""
        return tuple(self._plan(layer) for layer in range(1, self.tree.depth[self.tree.root] + 1))

    def _plan(self, layer: int) -> LayerPlan:
        tree, found = self.tree, self.found
        computed = {table: _at_least(tree.depth, table, layer) for table in self.tables}
        targets = {
            table: sum(len(found.rows[level]) for level in levels)
            for table, levels in computed.items()
        }
        self._base = {
            table: sum(len(found.rows[level]) for level in _at_least(tree.depth, table, layer - 1))
            for table in self.tables
        }
        self._sources = {
            table: self._base[table]
            + sum(len(found.looked_up[at]) for at in _at_least(tree.looked_up, table, layer - 1))
            for table in self.tables
        }
        up, down = {}, {}
        for key in self.keys:
            parts = [self._up(level, key) for level in computed[key.parent]]
            up[key] = self._links(parts, key.table)
            parts = [self._down(level, key) for level in computed[key.table]]
            down[key] = self._links(parts, key.parent)
        linked = {}
        for route in self.routes:
            names = route.tables
            matches = [self._matches(level, route) for level in computed[names[2]]]
            v = self._links([(v, counts) for _, v, counts in matches], names[1])
            along = (up if route.paradigm.arrows[1].forward else down)[route.second]
            if len(v) == len(along):  # every link has one match: the same links, to be shared
                same = torch.equal(v.source, along.source) and torch.equal(v.begin, along.begin)
                v = along if same else v
            u = self._links([(u, counts) for u, _, counts in matches], names[0])
            linked[route] = RouteLinks(u, v)
        return LayerPlan(targets, up, down, linked)

    def _links(self, parts: Sequence[tuple[Ints, Ints]], table: str) -> Links:
        """Links from rows of a table, given sources and counts of target after target."""
        nothing = np.empty(0, np.int64)
        source = np.concatenate([nothing, *(part[0] for part in parts)])
        counts = np.concatenate([nothing, *(part[1] for part in parts)])
        begin = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=begin[1:])
        # The other order serves gradients alone; its length says how many sources there are.
        empty = torch.empty(0, dtype=torch.long)
        back = torch.zeros(1, dtype=torch.long).expand(self._sources[table] + 1)
        return Links(torch.from_numpy(source), torch.from_numpy(begin), empty, back, empty)

    def _up(self, level: Level, key: ForeignKey) -> tuple[Ints, Ints]:
        """Positions of the children of each row of a level, and how many each row has."""
        branches = self.found.branches.get((level, key))
        if branches is None:
            return np.empty(0, np.int64), np.zeros(len(self.found.rows[level]), np.int64)
        first = self.first[Level(key.table, level.hop + 1)] + branches.first
        return first + np.arange(branches.begin[-1]), np.diff(branches.begin)

    def _down(self, level: Level, key: ForeignKey) -> tuple[Ints, Ints]:
        """Positions of the parent of each row of a level, and how many (0 or 1) each row has."""
        positions = self._above(level, key)
        known = positions >= 0
        return positions[known], known.astype(np.int64)

    def _above(self, level: Level, key: ForeignKey) -> Ints:
        """Position of the parent of each row of a level, or -1."""
        return self._place(self.found.pointers[level, key], Level(key.parent, level.hop + 1))

    def _place(self, pointers: Ints, level: Level) -> Ints:
        """Positions of looked-up rows among the rows of their table."""
        first = self._base[level.table] + self.first_looked_up[level]
        return np.where(pointers >= 0, pointers + first, -1)

    def _matches(self, level: Level, route: Route) -> tuple[Ints, Ints, Ints]:
        """Positions u and v of the matches of each row w of a level, and how many each has."""
        found = self.found
        first, second = (arrow.forward for arrow in route.paradigm.arrows)
        middle = Level(route.tables[1], level.hop + 1)
        far = Level(route.tables[0], level.hop + 2)
        if not second:  # u <- v <- w
            v = found.pointers[level, route.second]
            u = np.full(len(v), -1, np.int64)
            known = v >= 0
            u[known] = found.upwards[middle, route.first][v[known]]
            known = u >= 0
            return (
                self._place(u[known], far), self._place(v[known], middle), known.astype(np.int64)
            )  # fmt: skip
        branches = found.branches.get((level, route.second))
        if branches is None or (first and (middle, route.first) not in found.branches):
            nothing = np.empty(0, np.int64)
            return nothing, nothing, np.zeros(len(found.rows[level]), np.int64)
        own = slice(branches.first, branches.first + int(branches.begin[-1]))
        each = np.arange(own.start, own.stop)
        if not first:  # u <- v -> w
            u = found.pointers[middle, route.first][own]
            known = u >= 0
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(known)])[branches.begin]
            v = self.first[middle] + each[known]
            return self._place(u[known], far), v, np.diff(ends)
        # u -> v -> w
        twigs = found.branches[middle, route.first]
        counts = np.diff(twigs.begin)[own]
        u = self.first[far] + twigs.first + np.arange(twigs.begin[own.start], twigs.begin[own.stop])
        v = self.first[middle] + np.repeat(each, counts)
        ends = twigs.begin[branches.begin + own.start]
        return u, v, np.diff(ends)
