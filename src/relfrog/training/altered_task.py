"""An opened task on another state of its database, which shares all that stays the same.

Tables that differ are overlays (`relfrog.store.overlay`). Labels are computed again, from what the
database is then; columns, texts and pointers of rows that stay are those of the task as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from relfrog.features.columns import Columns, Features
from relfrog.features.overlay import overlay_features
from relfrog.graph.overlay import overlay_graph
from relfrog.graph.relational import RelationalGraph
from relfrog.store.file_table import column_names, concrete, read_column
from relfrog.store.overlay import Changes, OverlayTable
from relfrog.support.relbench import Database, Table
from relfrog.support.times import as_ticks, convert_ticks
from relfrog.training.opened_task import OpenedTask, allowed, known_schema

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AlteredTask"]


class AlteredTask(OpenedTask):
    """An opened task on an altered database.

    Args:
        opened: the task as it is.
        change: gives the altered database, with overlays for tables that differ. It is asked for
            the label history in a database of its own, after the rest.
        closed_by: see `relfrog.datasets.label_history.known_labels`.
    """

    def __init__(
        self,
        opened: OpenedTask,
        change: Callable[[Database], Database],
        closed_by: pd.Timestamp | None = None,
    ) -> None:
        super().__init__(opened.dataset, opened.task, db=change(opened.db))
        self.original, self._change, self._closed_by = opened, change, closed_by
        self.history = opened.history
        self.parts = None  # nothing of what changes here is kept

    @property
    def is_changed(self) -> bool:
        """Whether any row differs."""
        before = self.original.db.table_dict
        return any(table is not before[name] for name, table in self.db.table_dict.items())

    @cached_property
    def _with_history(self) -> Database:
        name = self.history
        before = self.original.shown(True).table_dict[name]
        same = not self.is_changed and self._closed_by is None
        made = before if same else self._make_history(self._closed_by)
        earlier = self._change(Database({name: made})).table_dict[name]
        tables = {**self.db.table_dict, name: _as_overlay(before, earlier)}
        return allowed(self.task, Database(tables))

    def _shared(self, columns: Columns) -> Columns:
        return self.original._shared(columns)

    def encode(self, columns: Columns, history: bool) -> dict[str, Features]:
        """The features of the task as it is, with overlays of rows that differ."""
        found = self.original.encode(columns, history)
        columns.check(self.shown(history))
        tables = self.shown(history).table_dict
        for name, fitted in columns.tables.items():
            table = tables[name]
            if isinstance(table, OverlayTable):
                found[name] = overlay_features(found[name], fitted, table)
            elif name in self._anew(history):
                found[name] = fitted.encode(table.df, [])
        return found

    def _unseen_categories(self, columns: Columns) -> dict[str, list[str]]:
        return self.original._unseen_categories(columns)

    def _anew(self, history: bool) -> set[str]:
        """Tables of which everything may differ."""
        before = self.original.db.table_dict
        shown = self.shown(history).table_dict
        return {
            name
            for name, table in shown.items()
            if not isinstance(table, OverlayTable)
            and (name == self.history or self.db.table_dict[name] is not before[name])
        }

    def graph(self, history: bool, columns: Columns | None = None) -> RelationalGraph:
        """The graph of the task as it is, with the rows that differ."""
        key = (history, () if columns is None else tuple(map(id, columns.tables.values())))
        if key not in self._graphs:
            shown = self.shown(history)
            if columns is not None:
                shown = known_schema(shown, columns)
            before = self.original.graph(history, columns)
            anew = self._anew(history)
            self._graphs[key] = overlay_graph(before, shown, anew & set(shown.table_dict))
        return self._graphs[key]


def _as_overlay(before: Table, after: Table) -> Table:
    """A table as an overlay of an earlier state of it, if the rows that stayed are the same.

    Labels are computed anew. Those of the past should be what they were, and then what was made of
    them is still good; if one of them is not, everything is made again.
    """
    if after is before or (isinstance(after, OverlayTable) and after.base is before):
        return after
    base, changes, first = after, None, len(after)
    if isinstance(after, OverlayTable):
        base, changes = after.base, after.changes
        others = after.others()
        first = len(base) - len(others)
        if len(others) and others[0] != first:  # not the last ones
            return concrete(after)
    if first > len(before) or not _same_rows(before, base, first):
        return concrete(after)
    gone = np.arange(first, len(before))
    if changes is None:
        return OverlayTable(before, Changes.removal(gone)) if len(gone) else before
    return OverlayTable(before, replace(changes, gone=gone))


def _same_rows(one: Table, other: Table, count: int) -> bool:
    """Whether two tables have the same first rows."""
    if one.time_col != other.time_col or column_names(one) != column_names(other):
        return False
    for name in column_names(one):
        sides = [read_column(table, name).iloc[:count] for table in (one, other)]
        if name == one.time_col:
            mine, theirs = (convert_ticks(*as_ticks(side), "us") for side in sides)
            if not np.array_equal(mine, theirs):
                return False
            continue
        try:
            if not sides[0].reset_index(drop=True).equals(sides[1].reset_index(drop=True)):
                return False
        except ValueError:  # lists
            return False
    return True
