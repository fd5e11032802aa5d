"""Tasks that fill in a column of the entity table: its labels, and the rows without a value.

The labels are RelBench's: every row with a value is labelled, at its own time, and belongs to the
split in which that time lies. No SQL makes them, so no name from the data becomes SQL. As in
RelBench, models do not see the column at all, neither in the row itself nor in earlier ones; what
earlier rows held can be seen in the table of earlier labels only.

RelBench has no such task for a table without times. There all rows are labelled at the newest time
of the database, and the hash of its key decides to which split a row belongs: a row that stays in
the database stays in its split.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from relbench.base.table import is_time_sorted

from relfrog.datasets.dataset import source_keys
from relfrog.datasets.labels import timed_first
from relfrog.datasets.protocols import Dataset, Task
from relfrog.errors import TaskError, unknown
from relfrog.store.file_table import column_names, read_column
from relfrog.support.relbench import Database, Table, TaskType

__all__ = [
    "NO_KEY", "NO_TIME", "check_column", "completed_labels", "label_type", "row_times",
    "rows_to_fill",
]  # fmt: skip

#: The labels' column of row numbers where the table has no primary key: RelBench's name for it.
NO_KEY = "primary_key"
#: The labels' column of times where the table has none.
NO_TIME = "timestamp"

#: Of a table without times, 3 of 20 rows are for validation, and as many for test.
_PARTS, _HELD_OUT = 20, 3

#: More distinct texts than this are no classes.
_MOST_CLASSES = 100


def check_column(db: Database, table: str, column: str) -> None:
    """Check that a column can be filled in.

    Raises:
        TaskError: There is no such column, or it is a key or the time.
    """
    if table not in db.table_dict:
        raise TaskError(str(unknown("table", table, db.table_dict)))
    found = db.table_dict[table]
    if column not in column_names(found):
        raise TaskError(str(unknown(f"column in table {table}", column, column_names(found))))
    for what, columns in (
        ("the primary key", [found.pkey_col]),
        ("the time column", [found.time_col]),
        ("a foreign key", found.fkey_col_to_pkey_table),
    ):
        if column in columns:
            raise TaskError(
                f"{table}.{column} is {what} of its table, which cannot be filled in. Choose a "
                "column with values."
            )
    if found.pkey_col is None and found.time_col is not None:
        if not is_time_sorted(read_column(found, found.time_col)):
            raise TaskError(
                f"table {table} has no primary key, and its rows are not in order of "
                f"{found.time_col}, so they cannot be told apart. Give it a key: relfrog import "
                f"... --pk {table}.COLUMN"
            )


def label_type(values: pd.Series) -> str:
    """The type of task that suits a column: `binary`, `multiclass` or `regression`.

    Raises:
        TaskError: Its values can be no label.
    """
    present = values.dropna()
    kinds = pd.api.types
    if not len(present):
        raise TaskError(f"{values.name} has no value in any row, so there is nothing to learn")
    if kinds.is_bool_dtype(present.infer_objects().dtype):
        return "binary"
    if kinds.is_datetime64_any_dtype(present.dtype):
        raise TaskError(f"{values.name} holds times. Only numbers and classes can be filled in.")
    if kinds.is_numeric_dtype(present.dtype):
        return "binary" if set(present.unique()) <= {0, 1} else "regression"
    if present.map(lambda v: isinstance(v, list | np.ndarray)).any():
        raise TaskError(f"{values.name} holds lists. Only numbers and classes can be filled in.")
    distinct = present.nunique()
    if distinct > _MOST_CLASSES:
        raise TaskError(
            f"{values.name} holds {distinct:,} different texts in {len(present):,} rows, too many "
            f"to be classes (at most {_MOST_CLASSES}). Fill in a column of numbers or classes."
        )
    return "multiclass"


def completed_labels(dataset: Dataset, task: Task, db: Database, split: str) -> pd.DataFrame:
    """The labels of a split: rows with a value, in order of time and row.

    Args:
        dataset: RelBench's dataset.
        task: The task.
        db: The whole database, with the column.
        split: "train", "val" or "test".
    """
    check_column(db, task.entity_table, task.target_col)
    table = db.table_dict[task.entity_table]
    if table.time_col is None:
        inside = _split_of(dataset, task, len(table)) == split
    else:
        times = pd.to_datetime(read_column(table, table.time_col))
        val, test = dataset.val_timestamp, dataset.test_timestamp
        inside = {
            "train": times <= val,
            "val": (times > val) & (times <= test),
            "test": times > test,
        }[split].to_numpy(bool)
    frame = _seeds(dataset, task, db)[inside]
    frame = frame[frame[task.target_col].notna()]
    binary = task.task_type is TaskType.BINARY_CLASSIFICATION
    if binary and frame[task.target_col].isin([0, 1]).all():
        frame = frame.astype({task.target_col: "int64"})
    elif len(frame) and frame[task.target_col].map(type).eq(str).all():
        frame = frame.astype({task.target_col: "str"})  # as a query of DuckDB gives it
    by = [task.time_col, task.entity_col]
    return frame.sort_values(by, kind="stable", ignore_index=True)


def rows_to_fill(dataset: Dataset, task: Task, db: Database) -> pd.DataFrame:
    """Rows without a value, each with the time at which to fill it in; in order of the table."""
    frame = _seeds(dataset, task, db)
    return frame[frame[task.target_col].isna()].reset_index(drop=True)


def row_times(dataset: Dataset, task: Task, db: Database) -> pd.Series:
    """The time at which each row of the entity table is filled in: its own."""
    return _seeds(dataset, task, db)[task.time_col]


def _seeds(dataset: Dataset, task: Task, db: Database) -> pd.DataFrame:
    """All rows of the entity table: time, row number and value."""
    table: Table = db.table_dict[task.entity_table]
    if table.time_col is not None:
        times = pd.to_datetime(read_column(table, table.time_col)).to_numpy()
    else:
        timed = [t for t in db.table_dict.values() if t.time_col is not None]
        newest = timed_first(db).max_timestamp if timed else pd.NaT
        moment = dataset.test_timestamp if newest is pd.NaT else newest
        times = np.repeat(moment.as_unit("us").to_datetime64(), len(table))
    rows = (
        np.arange(len(table))
        if table.pkey_col is None
        else read_column(table, table.pkey_col).to_numpy()
    )
    return pd.DataFrame(
        {
            task.time_col: times,
            task.entity_col: rows,
            task.target_col: read_column(table, task.target_col).reset_index(drop=True),
        }
    )


def _split_of(dataset: Dataset, task: Task, count: int) -> NDArray[np.str_]:
    """The split of each row of a table without times, by the hash of its key in the source."""
    keys = source_keys(dataset.dataset_dir, task.entity_table) if dataset.is_local else None
    if keys is None or len(keys) != count:
        keys = pd.DataFrame({"row": np.arange(count)})
    # Equal keys have equal hashes, however their column is stored.
    hashes = pd.util.hash_pandas_object(keys.astype("string").astype(object), index=False)
    part = hashes.to_numpy(np.uint64) % _PARTS
    return np.select([part < _HELD_OUT, part < 2 * _HELD_OUT], ["test", "val"], "train")
