"""The graph of a database with overlays, from that of the database without them.

Pointers and times of rows that stay are taken from the graph; nothing is read of the tables. What
is laid anew is the children of the foreign keys that an overlay touches: 4 bytes a row, sorted in
one pass.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from relfrog.graph.pointers import (
    NO_INTS,
    ForeignKey,
    group_children,
    parent_pointers,
    row_numbers,
)
from relfrog.graph.relational import RelationalGraph
from relfrog.store.file_table import read_column
from relfrog.store.overlay import OverlayTable
from relfrog.support.relbench import Database
from relfrog.support.times import as_ticks, convert_ticks

__all__ = ["overlay_graph"]


def overlay_graph(
    graph: RelationalGraph, db: Database, anew: Collection[str] = ()
) -> RelationalGraph:
    """The graph of a database in which some tables are overlays.

    Args:
        graph: the graph of their bases, and of all other tables.
        db: the tables, with the schema of the graph.
        anew: other tables of which the graph has another state.
    """
    new = _Overlaid(graph, db, set(anew))
    times, tables, orders = new.times()
    parents = np.empty(sum(new.num_rows[key.table] for key in graph.foreign_keys), np.int32)
    children, blocks, numbers = [], [], []
    first = first_child = first_block = 0
    for number, (name, count) in enumerate(new.num_rows.items()):
        own = [key for key in graph.foreign_keys if key.table == name]
        part = parents[first : first + count * len(own)].reshape(count, len(own))
        tables[number, 4:] = first, len(own)
        first += part.size
        for column, key in enumerate(own):
            part[:, column] = new.pointers(key)
            found, starts, shift = new.grouped(key, part[:, column], orders.get(name))
            ends = [number, graph.table_number[key.parent]]
            numbers.append([*ends, column, first_child, found.size, first_block, shift])
            first_child, first_block = first_child + found.size, first_block + starts.size
            children.append(found)
            blocks.append(starts)
    return RelationalGraph(
        new.num_rows, graph.foreign_keys, graph.unit, parents,
        np.concatenate([NO_INTS, *children]), np.concatenate([NO_INTS, *blocks]), times,
        np.array(numbers, np.int64).reshape(-1, 7), tables,
    )  # fmt: skip


class _Overlaid:
    """Pointers and times of rows, old and new."""

    def __init__(self, graph: RelationalGraph, db: Database, anew: set[str]) -> None:
        self.graph, self.db, self.anew = graph, db, anew
        self.num_rows = {name: len(db.table_dict[name]) for name in graph.num_rows}

    def _same(self, table: str) -> bool:
        """Whether nothing of a table has changed."""
        other = isinstance(self.db.table_dict[table], OverlayTable) or table in self.anew
        return not other

    def times(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, NDArray[np.int64]]]:
        """Times, numbers per table, and row orders where rows that changed are not sorted."""
        timed = [name for name in self.num_rows if self.graph.time(name) is not None]
        times = np.empty(sum(self.num_rows[name] for name in timed), np.int64)
        tables, orders = np.zeros((len(self.num_rows), 6), np.int64), {}
        at = first_row = 0
        for number, (name, count) in enumerate(self.num_rows.items()):
            ordered = True
            if name in timed:
                part = times[at : at + count]
                part[:] = self._ticks(name)
                ordered = bool((part[1:] >= part[:-1]).all())
                if not ordered:
                    orders[name] = np.argsort(part, kind="stable")
            tables[number, :4] = first_row, count, at if name in timed else -1, ordered
            at += count if name in timed else 0
            first_row += count
        return times, tables, orders

    def _ticks(self, name: str) -> NDArray[np.int64]:
        table, known = self.db.table_dict[name], self.graph.time(name)
        assert known is not None
        assert table.time_col is not None
        if self._same(name):
            return known
        if isinstance(table, OverlayTable) and name not in self.anew:
            fresh = convert_ticks(*as_ticks(table.changes.column(table.time_col)), self.graph.unit)
            return table.patched(known, fresh)
        return convert_ticks(*as_ticks(read_column(table, table.time_col)), self.graph.unit)

    def pointers(self, key: ForeignKey) -> NDArray[np.int32]:
        """Parent row of each child row, -1 for none."""
        table, size = self.db.table_dict[key.table], self.num_rows[key.parent]
        if key.table in self.anew:
            return parent_pointers(self.db, key)
        known = self.graph.parent(key)
        if isinstance(table, OverlayTable):
            known = table.patched(known, row_numbers(table.changes.column(key.column), size))
        if size < self.graph.num_rows[key.parent]:  # its last rows are gone
            known = np.where(known < size, known, np.int32(-1))
        return known

    def grouped(
        self, key: ForeignKey, pointers: NDArray[np.int32], order: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
        """Children by parent; see `group_children`."""
        size = self.num_rows[key.parent]
        if not self._same(key.table) or size != self.graph.num_rows[key.parent]:
            children = np.empty(np.count_nonzero(pointers >= 0), np.int32)
            return children, *group_children(np.ascontiguousarray(pointers), order, size, children)
        numbers = self.graph.keys[self.graph.key_number[key]]
        _, _, _, _, count, block, shift = map(int, numbers)
        length = ((size - 1) >> shift) + 2 if count else 0
        return self.graph.children_by_parent(key), self.graph.blocks[block : block + length], shift
