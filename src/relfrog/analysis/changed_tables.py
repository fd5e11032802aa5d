"""A task with the rows of one table hidden, or their values shuffled, for any model to predict on.

Seeds and labels stay as they are, the table of earlier labels included: what is asked is what a
model would say if it could not see a table, not what the world would be without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from relfrog.features.blocks import Blocks
from relfrog.features.columns import Columns, Features, TableColumns
from relfrog.graph import _kernels
from relfrog.graph.relational import RelationalGraph
from relfrog.models.model import TableChange
from relfrog.runs.run import Run
from relfrog.store.column_table import ColumnTable
from relfrog.store.file_table import column_names, read_column, retimed, without_columns
from relfrog.support.relbench import Database, Table
from relfrog.training.opened_task import OpenedTask
from relfrog.training.seeds import Seeds

__all__ = [
    "ChangedTask", "run_on", "shuffle_features", "shuffle_table", "value_columns",
    "without_rows",
]  # fmt: skip


class ChangedTask(OpenedTask):
    """An opened task as a model sees it with one table changed.

    Args:
        opened: the task as it is; nothing of it is read or encoded again but the changed table.
        table: the table.
        order: the row whose values each row takes; None to hide all rows instead. Shape [rows].
        column: the only column to shuffle; None for all that are neither keys nor the time.
    """

    def __init__(
        self,
        opened: OpenedTask,
        table: str,
        order: NDArray[np.int64] | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(opened.dataset, opened.task)
        self.original, self.table, self.order, self.column = opened, table, order, column
        self.db, self.newest, self.history = opened.db, opened.newest, opened.history
        self.parts = None  # nothing of what changes here is kept

    def seeds(self, split: str) -> Seeds:
        """Those of the task as it is."""
        return self.original.seeds(split)

    def training_seeds(self, density: int = 1) -> Seeds:
        """Those of the task as it is."""
        return self.original.training_seeds(density)

    def shown(self, history: bool) -> Database:
        """The tables with the changed one; hidden rows are still there, but nothing sees them."""
        shown = self.original.shown(history)
        if self.order is None or self.table not in shown.table_dict:
            return shown
        changed = shuffle_table(shown.table_dict[self.table], self.order, self.column)
        return Database({**shown.table_dict, self.table: changed})

    def fit_columns(self, text: str, text_channels: int, history: bool) -> Columns:
        """Those of the task as it is."""
        return self.original.fit_columns(text, text_channels, history)

    def _shared(self, columns: Columns) -> Columns:
        return self.original._shared(columns)

    def encode(self, columns: Columns, history: bool) -> dict[str, Features]:
        """The features of the task as it is, with those of the table shuffled."""
        features = self.original.encode(columns, history)
        if self.order is None or self.table not in features:
            return features
        shuffled = shuffle_features(
            features[self.table], columns.tables[self.table], self.order, self.column
        )
        return {**features, self.table: shuffled}

    def _unseen_categories(self, columns: Columns) -> dict[str, list[str]]:
        return self.original._unseen_categories(columns)

    def graph(self, history: bool, columns: Columns | None = None) -> RelationalGraph:
        """The graph of the task as it is, without the rows of the table if they are hidden."""
        graph = self.original.graph(history, columns)
        if self.order is not None or self.table not in graph.num_rows:
            return graph
        # What is recommended may still be recommended: it is what the answers are made of.
        target = getattr(self.task, "dst_entity_table", None)
        return without_rows(graph, self.table, visible=self.table == target)


def run_on(run: Run, opened: ChangedTask) -> Run:
    """The same run on a changed task; what does not depend on the change is not made again."""
    if opened.original is not run.prepared.opened:
        return run.on(opened)  # changed more than once
    change = TableChange(opened, opened.table, opened.order, opened.column)
    model = run.model.with_change(change)
    return run.on(opened) if model is None else replace(run, opened=opened, fitted=model)


def without_rows(graph: RelationalGraph, table: str, *, visible: bool = True) -> RelationalGraph:
    """The same graph with no way to or from the rows of a table.

    Args:
        graph: the graph.
        table: the table.
        visible: whether its rows are still there; otherwise they never come to be, if the table
            has times.
    """
    number = graph.table_number[table]
    parents, keys, times = np.array(graph.parents), np.array(graph.keys), graph.times
    for key in keys:
        if number in (key[_kernels.CHILD], key[_kernels.PARENT]):
            above = graph.tables[key[_kernels.CHILD]]
            first, width = int(above[_kernels.POINTERS]), int(above[_kernels.WIDTH])
            count = int(above[_kernels.NUM_ROWS])
            own = parents[first : first + count * width].reshape(count, width)
            own[:, key[_kernels.COLUMN]] = -1
            key[_kernels.NUM_CHILDREN] = 0
    first = int(graph.tables[number, _kernels.TIMES])
    if first >= 0 and not visible:
        times = np.array(times)
        times[first : first + graph.num_rows[table]] = np.iinfo(np.int64).max
    return replace(graph, parents=parents, keys=keys, times=times)


def value_columns(table: Table) -> list[str]:
    """The columns of a table that are neither keys nor its time."""
    apart = {table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table}
    return [str(name) for name in column_names(table) if name not in apart]


def shuffle_table(table: Table, order: NDArray[np.int64], column: str | None) -> ShuffledTable:
    """A table with the values of one column, or of all, exchanged between rows."""
    return ShuffledTable(table, order, value_columns(table) if column is None else [column])


class ShuffledTable(ColumnTable):
    """A table with the values of some columns exchanged between rows.

    Args:
        base: the table as it is.
        order: the row whose values each row takes. Shape [rows].
        shuffled: the columns.
    """

    def __init__(self, base: Table, order: NDArray[np.int64], shuffled: list[str]) -> None:
        self.base, self.order, self.shuffled = base, order, shuffled
        self.fkey_col_to_pkey_table = base.fkey_col_to_pkey_table
        self.pkey_col, self.time_col = base.pkey_col, base.time_col

    def __len__(self) -> int:
        return len(self.base)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return column_names(self.base)

    def column(self, name: str) -> pd.Series:
        """The values of a column, as `df` has them."""
        values = read_column(self.base, name)
        return values.take(self.order).set_axis(values.index) if name in self.shuffled else values

    def without(self, columns: set[str]) -> ShuffledTable:
        """The same without some columns, and without the foreign keys among them."""
        pairs = [("", column) for column in columns]
        base = without_columns(Database({"": self.base}), pairs).table_dict[""]
        return ShuffledTable(base, self.order, [c for c in self.shuffled if c not in columns])

    def retimed(self, keys: dict[str, str], time: str | None) -> ShuffledTable:
        """The same rows with other foreign keys and another time column."""
        return ShuffledTable(retimed(self.base, keys, time), self.order, self.shuffled)


def shuffle_features(
    old: Features, columns: TableColumns, order: NDArray[np.int64], column: str | None
) -> Features:
    """What `shuffle_table` makes of a table's features, without encoding it again."""
    chosen_rows = torch.from_numpy(np.asarray(order))

    def moves(name: str | None) -> bool:
        return name != columns.time_col if column is None else name == column

    codes, moments = old.codes.clone(), old.moments.clone()
    places = [i for i, name in enumerate(columns.dense_columns) if moves(name)]
    coded = [i for i, c in enumerate(columns.categories) if moves(c.name)]
    timed = [i for i, name in enumerate(columns.moment_names) if moves(name)]
    if isinstance(old.dense, Blocks):
        dense: Any = old.dense.reordered(chosen_rows, places)
    else:
        dense = old.dense.clone()
        dense[:, places] = old.dense[chosen_rows][:, places]
    for tensor, chosen in ((codes, coded), (moments, timed)):
        if chosen:
            tensor[:, chosen] = tensor[chosen_rows][:, chosen]
    offsets, values = old.bag_offsets, old.bag_values
    lists = {c.name for c in columns.bags}
    if offsets is not None and values is not None and (column is None or lists == {column}):
        offsets, values = _shuffle_lists(offsets, values, chosen_rows)
    return Features(dense, codes, moments, offsets, values)


def _shuffle_lists(offsets: Any, values: Any, order: Any) -> tuple[Any, Any]:
    length = offsets.diff()[order]
    begin = torch.cat([length.new_zeros(1), length.cumsum(0)])
    within = torch.arange(int(begin[-1])) - begin[:-1].repeat_interleave(length)
    return begin, values[offsets[:-1][order].repeat_interleave(length) + within]
