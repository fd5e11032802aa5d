"""Checks of labels, wherever they come from: SQL, files or a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relfrog.datasets.protocols import Task
from relfrog.errors import TaskError
from relfrog.support.arrays import blocks
from relfrog.support.lists import flatten, holds_lists, numbered_pairs
from relfrog.support.relbench import Database

__all__ = [
    "NoLabels", "check_entities", "check_label_frame", "check_labels", "check_stored",
    "in_order", "need_column",
]  # fmt: skip


class NoLabels(TaskError):
    """The label SQL returns no usable row."""


def check_stored(
    task: Task, frame: pd.DataFrame, name: str, db: Database | None, masked: bool = False
) -> None:
    """Refuse stored labels that are not what the task says.

    Args:
        task: The task.
        frame: What the file holds.
        name: Its name.
        db: The database, if it has been read.
        masked: Whether the labels themselves are not asked for.

    Raises:
        TaskError: A column is missing or of another type, or an entity is no row of its table.
    """
    labelled = task.target_col in frame
    for column in (task.time_col, task.entity_col, task.target_col):
        if column not in frame and not (masked and column == task.target_col):
            raise TaskError(f"{name} has no column {column!r}. Restore it, or add the task again.")
    if not len(frame):
        raise NoLabels(f"{name} holds no label")
    times = frame[task.time_col]
    if getattr(times.dtype, "kind", "") != "M" or times.dt.tz is not None or times.isna().any():
        raise TaskError(
            f"{name}: {task.time_col} must hold a time in UTC, without a zone, in every row (got "
            f"{times.dtype}). Restore it, or add the task again."
        )
    check_entities(frame, task.entity_col, task.time_col)
    if labelled:
        check_labels(frame, task.target_col, task.task_type.value)
    for column, table in task.ends:
        if column not in frame:
            continue
        if db is not None:
            size = len(db.table_dict[table])
        else:
            path = Path(task.dataset.dataset_dir) / "db" / f"{table}.parquet"
            size = pq.read_metadata(path).num_rows
        rows = frame[column]
        if rows.dtype == object or holds_lists(rows):
            rows = pd.Series(flatten(rows)[1]).dropna()
        beyond = int(((rows < 0) | (rows >= size)).sum())
        if beyond:
            raise TaskError(
                f"{name}: {beyond:,} values of {column} are no rows of {table}, which has "
                f"{size:,}. Restore it, or add the task again."
            )


def check_label_frame(task: Task, frame: pd.DataFrame) -> None:
    """Refuse labels that are unusable, whatever they come from.

    Raises:
        TaskError: Labels repeat, are NULL, or are not of the task's type.
    """
    check_entities(frame, task.entity_col, task.time_col)
    check_labels(frame, task.target_col, task.task_type.value)


def check_entities(frame: pd.DataFrame, entity: str, time: str) -> None:
    """Refuse entities that are no rows of their table, or have two labels at one time."""
    values = frame[entity]
    if values.isna().any():
        raise TaskError(
            f"{int(values.isna().sum()):,} rows have no {entity}. "
            f"Add to the SQL: WHERE {entity} IS NOT NULL"
        )
    whole = pd.api.types.is_integer_dtype(values)
    if not whole and (
        not pd.api.types.is_numeric_dtype(values) or (values.astype(float) % 1 != 0).any()
    ):
        raise TaskError(
            f"{entity} must hold row numbers of its table (got {values.iloc[0]!r}). "
            "Keys in a dataset are numbers from 0; join the table and take its primary key."
        )
    if (values < 0).any():
        raise TaskError(f"{entity} must hold row numbers of its table (got {values.min()})")
    if in_order(frame, [time, entity], once=True):
        return
    repeated = frame.duplicated([time, entity])
    if repeated.any():
        row = frame[repeated].iloc[0]
        raise TaskError(
            f"{int(repeated.sum()):,} labels repeat a seed time and {entity}, such as {row[time]} "
            f"and {row[entity]}. Give one row for each: GROUP BY timestamp, {entity}"
        )


def in_order(frame: pd.DataFrame, by: list[str], once: bool = False) -> bool:
    """Whether rows are seen to be in order of two columns.

    Args:
        frame: The rows.
        by: The columns.
        once: Whether no two may be equal.
    """
    first, second = frame[by[0]], frame[by[1]]
    if any(part.dtype.kind not in "iuM" or part.isna().any() for part in (first, second)):
        return False
    for some in blocks(len(frame)):
        # From the last row of the block before.
        near = slice(max(some.start - 1, 0), some.stop)
        one, two = first.iloc[near].to_numpy(), second.iloc[near].to_numpy()
        after = two[1:] > two[:-1] if once else two[1:] >= two[:-1]
        if not ((one[1:] > one[:-1]) | ((one[1:] == one[:-1]) & after)).all():
            return False
    return True


def check_labels(frame: pd.DataFrame, label: str, kind: str) -> None:
    """Refuse labels that are NULL or not of the task's type."""
    values = frame[label]
    if values.isna().any():
        raise TaskError(
            f"{int(values.isna().sum()):,} labels are NULL. "
            f"Filter them in the SQL: {label} IS NOT NULL"
        )
    if kind in ("recommendation", "multilabel_classification"):
        types = {list} if holds_lists(values) else set(map(type, values))
        if not all(issubclass(one, list | np.ndarray) for one in types):
            raise TaskError(f"{label} must be a list, as LIST(...) gives (got {values.iloc[0]!r})")
        lengths, flat = flatten(values)
        # DuckDB gives lists with NULL as masked arrays.
        masked = any(issubclass(one, np.ma.MaskedArray) for one in types)
        if (masked and any(map(np.ma.is_masked, values))) or pd.isna(flat).any():
            raise TaskError(f"{label} holds lists with NULL in them. Filter it in the SQL.")
        if kind == "recommendation":
            if _name_twice(lengths, flat):
                raise TaskError(f"{label} names a target twice. Give each once: LIST(DISTINCT ...)")
            return
        if len(np.unique(lengths)) > 1:
            raise TaskError(f"{label}: lists of 0 and 1 must all have one length")
        if not np.isin(flat, [0, 1]).all():
            raise TaskError(f"{label}: lists must hold 0 and 1 (got {list(values.iloc[0])})")
        return
    if kind == "multiclass_classification":
        return
    if not pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        raise TaskError(f"{label} must be a number (got {values.iloc[0]!r})")
    if kind == "binary_classification" and not set(values.unique()) <= {0, 1}:
        odd = sorted(set(values.unique()), key=str)[:5]
        raise TaskError(f"binary labels must be 0 and 1 (got {', '.join(map(str, odd))})")
    if not np.isfinite(values.astype(float)).all():
        raise TaskError(f"{label} has infinite labels. Filter them in the SQL.")


def _name_twice(lengths: NDArray[np.int64], flat: NDArray[Any]) -> bool:
    """Whether a list has an entry twice."""
    if (pairs := numbered_pairs(lengths, flat)) is not None:
        pairs.sort()
        return bool((pairs[1:] == pairs[:-1]).any())
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return bool(pd.DataFrame({"row": rows, "target": flat}).duplicated().any())


def need_column(frame: pd.DataFrame, column: str) -> None:
    """Raise TaskError if the SQL does not return a column."""
    if column not in frame.columns:
        raise TaskError(
            f"label SQL gives no column {column!r}; it gives {', '.join(map(repr, frame.columns))}"
        )
