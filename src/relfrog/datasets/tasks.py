"""Tasks: what is predicted, for whom, and at which times; RelBench's, with safer label SQL."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml
from relbench.base import Table
from relbench.load import _ForecastEntityTask, _ForecastRecommendationTask, build_task
from relbench.manifest import KIND_FORECAST, TaskManifest

from relfrog.datasets.labels import run_sql, timed_first
from relfrog.errors import TaskError, unknown

__all__ = [
    "NoLabels",
    "load_task",
    "need_column",
    "read_task_manifest",
    "task_from",
    "task_names",
]


class NoLabels(TaskError):
    """The SQL gives no row; RelBench itself would end in a traceback."""


class _TimedFirst:
    """Labels also where the first table is empty, or is in a split."""

    def _split_db(self, split: str, db: Any = None) -> Any:
        return timed_first(super()._split_db(split, db))  # type: ignore[misc]


class _EntityTask(_TimedFirst, _ForecastEntityTask):  # type: ignore[misc]
    """RelBench's entity task, with its SQL in the locked room."""

    def make_table(self, db: Any, timestamps: Any) -> Any:
        frame = _label_frame(self, db, timestamps)
        if self.task_type.value == "multilabel_classification":
            # RelBench sorts lists, as of sets; here the place in the list says which label it is.
            frame[self.target_col] = frame[self.target_col].map(tuple)
        return Table(frame, {self.entity_col: self.entity_table}, None, self.time_col)

    @cached_property
    def nmae_std(self) -> float:
        """What turns MAE into NMAE; RelBench takes it at once, which runs the label SQL."""
        return float(self.get_table("train").df[self.target_col].std(ddof=1))


class _RecommendationTask(_TimedFirst, _ForecastRecommendationTask):  # type: ignore[misc]
    """RelBench's recommendation task, with its SQL in the locked room."""

    def make_table(self, db: Any, timestamps: Any) -> Any:
        frame = _label_frame(self, db, timestamps)
        fkeys = {
            self.src_entity_col: self.src_entity_table,
            self.dst_entity_col: self.dst_entity_table,
        }
        return Table(frame, fkeys, None, self.time_col)


def _label_frame(task: Any, db: Any, timestamps: Any) -> pd.DataFrame:
    """What the SQL gives, refused in words where RelBench would end in a traceback."""
    frame = run_sql(task._sql, db, timestamps, task.timedelta)
    if not len(frame):
        raise NoLabels("the SQL gives no label")
    is_list = task.task_type.value == "recommendation"
    entity = task.src_entity_col if is_list else task.entity_col
    label = task.dst_entity_col if is_list else task.target_col
    for column in (task.time_col, entity, label):
        need_column(frame, column)
    _check_entities(frame, entity, task.time_col)
    table = task.src_entity_table if is_list else task.entity_table
    if not (frame[entity] < len(db.table_dict[table])).any():
        raise NoLabels("the SQL gives no label")
    _check_labels(frame, label, task.task_type.value)
    if is_list:
        size = len(db.table_dict[task.dst_entity_table])
        if not frame[label].map(lambda v: any(i < size for i in v)).any():
            raise NoLabels("the SQL gives no label")
    return frame


def _check_entities(frame: pd.DataFrame, entity: str, time: str) -> None:
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


def _check_labels(frame: pd.DataFrame, label: str, kind: str) -> None:
    values = frame[label]
    if values.isna().any():
        raise TaskError(
            f"{int(values.isna().sum()):,} labels are NULL. "
            f"Filter them in the SQL: {label} IS NOT NULL"
        )
    if kind in ("recommendation", "multilabel_classification"):
        if not values.map(lambda v: isinstance(v, list | np.ndarray)).all():
            raise TaskError(f"{label} must be a list, as LIST(...) gives (got {values.iloc[0]!r})")
        if values.map(lambda v: any(i is np.ma.masked or pd.isna(i) for i in v)).any():
            raise TaskError(f"{label} holds lists with NULL in them. Filter it in the SQL.")
        if kind == "recommendation" and values.map(lambda v: len(set(v)) < len(v)).any():
            raise TaskError(f"{label} names a target twice. Give each once: LIST(DISTINCT ...)")
        lengths = values.map(len)
        if kind == "multilabel_classification" and lengths.nunique() > 1:
            raise TaskError(f"{label}: lists of 0 and 1 must all have one length")
        if kind == "multilabel_classification" and not values.map(lambda v: set(v) <= {0, 1}).all():
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
    """Say which column the SQL should have given."""
    if column not in frame.columns:
        raise TaskError(
            f"label SQL gives no column {column!r}; it gives {', '.join(map(repr, frame.columns))}"
        )


def task_names(dataset: Any) -> list[str]:
    """The tasks of an opened dataset."""
    return list(dataset.get_task_names())


def read_task_manifest(dataset: Any, name: str) -> tuple[TaskManifest, Path]:
    """A task's manifest and folder.

    Raises:
        TaskError: There is no such task, or its manifest cannot be read.
    """
    names = task_names(dataset)
    if name not in names:
        if not names:
            raise TaskError(
                "the dataset has no tasks. Add one: relfrog task DATASET NAME --sql FILE"
            )
        raise TaskError(str(unknown("task", name, names)))
    folder = Path(dataset._resolve_task_dir(name))
    try:
        manifest = TaskManifest.load(folder / "manifest.yaml")
        manifest.validate()
    except (yaml.YAMLError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise TaskError(f"task {name}: {folder / 'manifest.yaml'} is no YAML: {text}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TaskError(f"task {name}: the manifest is wrong: {error}") from None
    return manifest, folder


def task_from(
    dataset: Any, manifest: TaskManifest, folder: Path | None = None, regenerate: bool = False
) -> Any:
    """RelBench's task object for a manifest; forecast SQL runs by `run_sql`.

    Raises:
        TaskError: The manifest does not fit the dataset.
    """
    try:
        manifest.validate()
        if manifest.kind != KIND_FORECAST:
            return _named(build_task(dataset, manifest, task_dir=folder, regenerate=regenerate))
        kind = _RecommendationTask if manifest.task_type == "recommendation" else _EntityTask
        return _named(kind(dataset, manifest, task_dir=folder, regenerate=regenerate))
    except (
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # RuntimeError also covers what RelBench says of settings it does not have yet.
        raise TaskError(f"task {manifest.name}: {error}") from None


def _named(task: Any) -> Any:
    """The task; who gets a list is called as in all other tasks: the entity, and the label."""
    if task.task_type.value == "recommendation":
        task.entity_table, task.entity_col = task.src_entity_table, task.src_entity_col
        task.target_col = task.dst_entity_col
    read = task.get_table

    def get_table(split: str, mask_input_cols: bool | None = None, **options: Any) -> Any:
        """RelBench's own, with an error in words where a file or a column is wrong."""
        try:
            table = read(split, mask_input_cols=mask_input_cols, **options)
        except (OSError, LookupError, TypeError, pa.ArrowException) as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise TaskError(f"{split} split: labels cannot be read ({text})") from None
        names = [task.time_col, task.entity_col]
        for name in names if mask_input_cols is not False else [*names, task.target_col]:
            if name is not None:
                need_column(table.df, name)
        return table

    task.get_table = get_table
    return task


def load_task(dataset: Any, name: str, *, regenerate: bool = False) -> Any:
    """A task of an opened dataset, as RelBench's object.

    Args:
        dataset: As `open_dataset` gives it.
        name: One of its tasks.
        regenerate: Whether to run the label SQL even if labels are stored.

    Raises:
        TaskError: There is no such task, or its manifest is wrong.
    """
    manifest, folder = read_task_manifest(dataset, name)
    return task_from(dataset, manifest, folder, regenerate)
