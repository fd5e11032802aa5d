"""Checks of labels, wherever they come from: SQL, files or a column."""

from __future__ import annotations

import numpy as np
import pandas as pd

from relfrog.datasets.protocols import Task
from relfrog.errors import TaskError
from relfrog.support.lists import flatten, holds_lists

__all__ = ["NoLabels", "check_entities", "check_label_frame", "check_labels", "need_column"]


class NoLabels(TaskError):
    """The label SQL returns no usable row."""


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
    if not pd.api.types.is_numeric_dtype(values) or (values.astype(float) % 1 != 0).any():
        raise TaskError(
            f"{entity} must hold row numbers of its table (got {values.iloc[0]!r}). "
            "Keys in a dataset are numbers from 0; join the table and take its primary key."
        )
    if (values < 0).any():
        raise TaskError(f"{entity} must hold row numbers of its table (got {values.min()})")
    repeated = frame.duplicated([time, entity])
    if repeated.any():
        row = frame[repeated].iloc[0]
        raise TaskError(
            f"{int(repeated.sum()):,} labels repeat a seed time and {entity}, such as {row[time]} "
            f"and {row[entity]}. Give one row for each: GROUP BY timestamp, {entity}"
        )


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
            rows = np.repeat(np.arange(len(lengths)), lengths)
            if pd.DataFrame({"row": rows, "target": flat}).duplicated().any():
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


def need_column(frame: pd.DataFrame, column: str) -> None:
    """Raise TaskError if the SQL does not return a column."""
    if column not in frame.columns:
        raise TaskError(
            f"label SQL gives no column {column!r}; it gives {', '.join(map(repr, frame.columns))}"
        )
