"""The unrolled past of rows: at every hop the latest children of a row, and all of its parents.

A subgraph holds a row once, so what the row receives there depends on how else it was reached, and
on which other seeds share the subgraph. Unrolled, a row at hop h has the latest `fanouts[h]` of its
children and all of its parents at hop h + 1, whoever asks: what it computes depends on nothing but
the row, the hop and the cut-off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relfrog.graph import _kernels
from relfrog.graph.relational import ForeignKey, RelationalGraph
from relfrog.graph.sampler import STRATEGIES, Strategy

__all__ = ["Occurrences", "UnrolledPast"]

Ints = NDArray[np.int64]


class Occurrences(NamedTuple):
    """Rows of a table, each seen at one of the cut-offs. Shapes: [occurrences] each."""

    rows: Ints
    groups: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: NDArray[np.int64] | slice) -> Occurrences:
        """Some of them."""
        return Occurrences(self.rows[which], self.groups[which])


def concatenated(parts: Sequence[Occurrences]) -> Occurrences:
    """One list after the other."""
    if len(parts) == 1:
        return parts[0]
    nothing = np.empty(0, np.int64)
    return Occurrences(
        np.concatenate([nothing, *(part.rows for part in parts)]),
        np.concatenate([nothing, *(part.groups for part in parts)]),
    )


@dataclass(frozen=True, eq=False)
class UnrolledPast:
    """Parents and latest children of rows, at several cut-offs.

    Attributes:
        graph: the graph.
        fanouts: the most children per row and foreign key at each hop; -1 for all, 0 for none,
            as after the last hop.
        strategy: "last" or "events"; see `Strategy`.
        moments: the cut-offs, in ticks of the graph. Shape [groups].
    """

    graph: RelationalGraph
    fanouts: tuple[int, ...]
    strategy: Strategy
    moments: Ints

    @cached_property
    def _cutoffs(self) -> Ints:
        """Visible rows per cut-off and table, -1 where rows are not sorted by time."""
        return _kernels.count_visible(self.graph.tables, self.graph.times, self.moments)

    def fanout(self, hop: int) -> int:
        """The most children per row and foreign key of rows at a hop."""
        return self.fanouts[hop] if hop < len(self.fanouts) else 0

    def children(self, key: ForeignKey, hop: int, of: Occurrences) -> tuple[Ints, Occurrences]:
        """The children that rows at a hop take by a foreign key, from the earliest to the latest.

        Returns:
            Where the children of each row begin, of shape [rows + 1], and the children.
        """
        graph = self.graph
        begin, found = _kernels.latest_children(
            graph.tables, graph.keys, graph.parents, graph.children, graph.blocks, graph.times,
            self._cutoffs, self.moments, graph.key_number[key], of.rows, of.groups,
            self.fanout(hop), STRATEGIES.index(self.strategy),
        )  # fmt: skip
        return begin, Occurrences(found, np.repeat(of.groups, np.diff(begin)))

    def parents(self, key: ForeignKey, of: Occurrences) -> Ints:
        """The parent of each row by a foreign key; -1 for none. Shape [rows]."""
        graph = self.graph
        return _kernels.visible_parents(
            graph.tables, graph.keys, graph.parents, graph.times, self._cutoffs, self.moments,
            graph.key_number[key], of.rows, of.groups,
        )  # fmt: skip

    def is_visible(self, table: str, of: Occurrences) -> NDArray[np.bool_]:
        """Which rows exist at their cut-offs. Shape [rows]."""
        known = self.graph.time(table)
        if known is None:
            return np.ones(len(of), bool)
        return np.asarray(known[of.rows] <= self.moments[of.groups])

    def all_visible(self, table: str) -> NDArray[np.bool_]:
        """Which of all rows of a table exist at the only cut-off. Shape [rows of the table]."""
        assert len(self.moments) == 1
        known = self.graph.time(table)
        if known is None:
            return np.ones(self.graph.num_rows[table], bool)
        return np.asarray(known <= self.moments[0])
