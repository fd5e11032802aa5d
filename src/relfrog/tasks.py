"""Tasks: what is predicted, for whom, and at which times."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from relbench.base import Table
from relbench.load import _ForecastEntityTask, _ForecastRecommendationTask, build_task
from relbench.manifest import KIND_FORECAST, TaskManifest

from relfrog.dataset import open_dataset
from relfrog.errors import DatasetError, TaskError, UsageError
from relfrog.labels import SPLITS, LabelStats, label_stats, run_sql, window_problems
from relfrog.mapping import unknown

__all__ = [
    "TYPES",
    "AddedTask",
    "NoLabels",
    "add_task",
    "load_task",
    "read_task_manifest",
    "task_from",
    "task_names",
]

#: Seed times in training beyond which something is wrong.
_MOST_SEEDS = 20_000

#: Short names of RelBench's task types.
TYPES = {
    "binary": "binary_classification",
    "multiclass": "multiclass_classification",
    "multilabel": "multilabel_classification",
    "regression": "regression",
    "recommendation": "recommendation",
}


class NoLabels(TaskError):
    """The SQL gives no row; RelBench itself would end in a traceback."""


class _EntityTask(_ForecastEntityTask):  # type: ignore[misc]
    """RelBench's entity task, with its SQL in the locked room."""

    def make_table(self, db: Any, timestamps: Any) -> Any:
        frame = _label_frame(self, db, timestamps)
        return Table(frame, {self.entity_col: self.entity_table}, None, self.time_col)

    @cached_property
    def nmae_std(self) -> float:
        """What turns MAE into NMAE; RelBench takes it at once, which runs the label SQL."""
        return float(self.get_table("train").df[self.target_col].std(ddof=1))


class _RecommendationTask(_ForecastRecommendationTask):  # type: ignore[misc]
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
        _need(frame, column)
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
        if values.map(lambda v: any(pd.isna(i) for i in v)).any():
            raise TaskError(f"{label} holds lists with NULL in them. Filter it in the SQL.")
        lengths = values.map(len)
        if kind == "multilabel_classification" and lengths.nunique() > 1:
            raise TaskError(f"{label}: lists of 0 and 1 must all have one length")
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


def _need(frame: pd.DataFrame, column: str) -> None:
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
    except yaml.YAMLError as error:
        text = " ".join(str(error).split())
        raise TaskError(f"task {name}: {folder / 'manifest.yaml'} is no YAML: {text}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TaskError(f"task {name}: the manifest is wrong: {error}") from None
    return manifest, folder


def task_from(
    dataset: Any, manifest: TaskManifest, folder: Path | None = None, regenerate: bool = False
) -> Any:
    """RelBench's task object for a manifest; forecast SQL runs by :func:`run_sql`.

    Raises:
        TaskError: The manifest does not fit the dataset.
    """
    try:
        manifest.validate()
        if manifest.kind != KIND_FORECAST:
            return build_task(dataset, manifest, task_dir=folder, regenerate=regenerate)
        kind = _RecommendationTask if manifest.task_type == "recommendation" else _EntityTask
        return kind(dataset, manifest, task_dir=folder, regenerate=regenerate)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TaskError(f"task {manifest.name}: {error}") from None
    except (NotImplementedError, RuntimeError) as error:
        raise TaskError(f"task {manifest.name}: {error}") from None


def load_task(dataset: Any, name: str, *, regenerate: bool = False) -> Any:
    """A task of an opened dataset, as RelBench's object.

    Args:
        dataset: As :func:`~relfrog.dataset.open_dataset` gives it.
        name: One of its tasks.
        regenerate: Whether to run the label SQL even if labels are stored.

    Raises:
        TaskError: There is no such task, or its manifest is wrong.
    """
    manifest, folder = read_task_manifest(dataset, name)
    return task_from(dataset, manifest, folder, regenerate)


@dataclass(frozen=True)
class AddedTask:
    """A task that was added.

    Attributes:
        manifest: As written.
        folder: Where.
        stats: Per split.
    """

    manifest: TaskManifest
    folder: Path
    stats: dict[str, LabelStats]


def add_task(
    dataset: str | Path,
    name: str,
    sql: str,
    *,
    type: str,
    horizon: str,
    entity: str | None = None,
    source: str | None = None,
    target: str | None = None,
    label: str | None = None,
    time: str = "timestamp",
    eval_times: int = 1,
    k: int | None = None,
    description: str | None = None,
    hide: tuple[str, ...] = (),
    overwrite: bool = False,
) -> AddedTask:
    """Add a prediction task to a dataset folder, after trying its SQL on all splits.

    Args:
        dataset: A dataset folder.
        name: The task's name.
        sql: DuckDB SQL: it sees every table, ``timestamps(timestamp)`` with the seed times, and
            ``{timedelta}``, and gives one row per seed time and entity with its label.
        type: ``binary``, ``multiclass``, ``multilabel``, ``regression`` or ``recommendation``.
        horizon: How far ahead a label looks, such as ``30 days``.
        entity: The table whose rows are predicted for, with the column the SQL gives for it if
            that is not named like the primary key: ``customers`` or ``customers.buyer_id``.
        source: For a recommendation: the table whose rows get a list, likewise.
        target: For a recommendation: the table the list is taken from, likewise.
        label: The SQL's column with the label; the only one left if None.
        time: The SQL's column with the seed time.
        eval_times: Seed times in validation and in test.
        k: For a recommendation: the length of the list.
        description: The task in words.
        hide: Columns the model must not see, as ``table.column``.
        overwrite: Whether to replace a task of this name.

    Raises:
        TaskError: The SQL is wrong, or its labels are unusable: none in a split, or all the same.
    """
    opened = open_dataset(dataset)
    if not opened.is_local:
        raise DatasetError(f"{dataset} is hosted elsewhere; a task can be added to a folder only")
    folder = Path(opened.dataset_dir) / "tasks" / name
    if not name or Path(name).name != name or name.startswith(".") or len(name) > 100:
        raise UsageError(f"{name!r} cannot be a task's name: it becomes the name of a folder")
    if folder.exists() and not overwrite:
        raise TaskError(f"the dataset has a task {name} already. Replace it with --overwrite.")
    if type not in TYPES:
        raise UsageError(f"unknown task type {type!r}. Types are {', '.join(TYPES)}")
    _check_options(type, entity, source, target, k)
    _check_horizon(opened, horizon)
    manifest = TaskManifest(
        name=name,
        kind=KIND_FORECAST,
        task_type=TYPES[type],
        description=description,
        time_col=time,
        timedelta=horizon,
        num_eval_timestamps=eval_times,
        remove_columns=_hidden(opened, hide),
        sql=sql,
    )
    if type == "recommendation":
        assert source is not None
        assert target is not None
        manifest.src_entity_table, manifest.src_entity_col = _end(opened, source)
        manifest.dst_entity_table, manifest.dst_entity_col = _end(opened, target)
        manifest.eval_k = k or 10
        manifest.target_col = label
    else:
        assert entity is not None
        manifest.entity_table, manifest.entity_col = _end(opened, entity)
        manifest.target_col = label or "?"
    full = opened.get_db(upto_test_timestamp=False)
    _complete(opened, manifest, full)
    task = task_from(opened, manifest)
    frames = {split: _labels(task, split, full) for split in SPLITS}
    stats = {split: label_stats(task, frame) for split, frame in frames.items()}
    _refuse_useless(name, stats)
    for is_error, text, remedy in window_problems(opened, task, full):
        if is_error:
            raise TaskError(f"{text}. {remedy}")
    partial = folder.with_name(f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for split, frame in frames.items():
            frame.to_parquet(partial / f"{split}.parquet", index=False)
        manifest.save(partial / "manifest.yaml")
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return AddedTask(manifest, folder, stats)


def _check_options(
    type: str, entity: str | None, source: str | None, target: str | None, k: int | None
) -> None:
    if type == "recommendation":
        if source is None or target is None or entity is not None:
            raise UsageError(
                "a recommendation needs --source TABLE and --target TABLE, no --entity"
            )
    elif entity is None or source is not None or target is not None or k is not None:
        raise UsageError(f"a {type} task needs --entity TABLE, and no --source, --target or --k")


def _check_horizon(dataset: Any, horizon: str) -> None:
    try:
        # A bare number would count nanoseconds.
        delta = pd.Timedelta(horizon) if re.search("[a-zA-Z:]", horizon) else pd.NaT
    except ValueError:
        delta = pd.NaT
    if pd.isna(delta):
        raise UsageError(f"horizon {horizon!r}: write it as '30 days' or '12 hours'")
    if delta <= pd.Timedelta(0):
        raise UsageError(f"horizon {horizon!r} must be longer than nothing")
    first = min(
        (
            t
            for t in (_first_time(dataset, name) for name in dataset.manifest.tables)
            if t is not None
        ),
        default=None,
    )
    if first is not None and (dataset.val_timestamp - first) / delta > _MOST_SEEDS:
        count = int((dataset.val_timestamp - first) / delta)
        raise UsageError(
            f"horizon {horizon!r} makes {count:,} seed times between {first} and validation; "
            f"more than {_MOST_SEEDS:,} make no sense. Take a longer one, or mend early outliers."
        )


def _first_time(dataset: Any, table: str) -> pd.Timestamp | None:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    column = dataset.manifest.tables[table].time_col
    if column is None:
        return None
    values = pq.read_table(Path(dataset.db_dir) / f"{table}.parquet", columns=[column]).column(0)
    low = pc.min(values).as_py()
    return None if low is None else pd.Timestamp(low)


def _end(dataset: Any, text: str) -> tuple[str, str]:
    """The table and the SQL's column for one end of a task."""
    tables = dataset.manifest.tables
    table, column = text, None
    if text not in tables:
        table, _, column = text.rpartition(".")
    if table not in tables:
        raise TaskError(str(unknown("table", text if not table else table, tables)))
    pkey = tables[table].pkey
    if pkey is None:
        raise TaskError(
            f"table {table} has no primary key, so nothing can be predicted for its rows. "
            f"Import it with --pk {table}.COLUMN"
        )
    return table, column or pkey


def _hidden(dataset: Any, hide: tuple[str, ...]) -> list[list[str]]:
    import pyarrow.parquet as pq

    tables = dataset.manifest.tables
    pairs = []
    for text in hide:
        table, _, column = text.rpartition(".")
        if table not in tables or not column:
            raise UsageError(f"--hide {text}: write it as TABLE.COLUMN")
        path = Path(dataset.db_dir) / f"{table}.parquet"
        known = pq.read_schema(path).names
        if column not in known:
            raise TaskError(str(unknown(f"column in table {table}", column, known)))
        pairs.append([table, column])
    return pairs


def _complete(dataset: Any, manifest: TaskManifest, full: Any) -> None:
    """Run the SQL at one seed time, see that its columns are there, and find the label."""
    frame = run_sql(
        manifest.sql or "", full, [dataset.val_timestamp], pd.Timedelta(manifest.timedelta)
    )
    keys = [manifest.time_col, manifest.entity_col or manifest.src_entity_col]
    keys += [manifest.dst_entity_col] if manifest.dst_entity_col else []
    for column in keys:
        _need(frame, str(column))
    if manifest.task_type == "recommendation":
        return
    if manifest.target_col == "?":
        left = [c for c in frame.columns if c not in keys]
        if len(left) != 1:
            raise TaskError(
                f"which column is the label? The SQL gives {', '.join(map(repr, left)) or 'none'} "
                "besides time and entity. Name it: --label COLUMN"
            )
        manifest.target_col = str(left[0])
    _need(frame, str(manifest.target_col))


def _labels(task: Any, split: str, full: Any) -> pd.DataFrame:
    """The labels of a split."""
    try:
        frame: pd.DataFrame = task.get_table(split, mask_input_cols=False, db=full).df
    except NoLabels:
        raise TaskError(f"the SQL gives no label in the {split} split") from None
    except TaskError as error:
        raise TaskError(f"{split} split: {error}") from None
    except RuntimeError as error:
        raise TaskError(f"{split} split: {_horizon_help(str(error))}") from None
    kind = task.task_type.value
    entity = task.src_entity_col if kind == "recommendation" else task.entity_col
    frame[entity] = frame[entity].astype("int64")
    if kind == "binary_classification":
        frame[task.target_col] = frame[task.target_col].astype("int64")
    return frame


def _horizon_help(text: str) -> str:
    if "larger than max timestamp" in text:
        return "the horizon reaches beyond the last row. Take a shorter horizon, or earlier splits."
    if "training time frames" in text:
        return "fewer than three horizons fit before the validation time. Take a shorter horizon."
    return text


def _refuse_useless(name: str, stats: dict[str, LabelStats]) -> None:
    for split, found in stats.items():
        if not found.rows:
            raise TaskError(f"the SQL gives no label in the {split} split")
        if found.constant and split == "train":
            raise TaskError(f"task {name}: all {found.rows:,} labels of the train split are equal")
