"""Adding a task to a dataset folder, after its SQL was tried on all splits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from relbench.base import Database, TaskType
from relbench.manifest import KIND_FORECAST

from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.labels import LabelStats, label_stats, run_sql, window_problems
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.task_splits import fit_splits, need_times
from relfrog.datasets.tasks import NoLabels, need_column
from relfrog.errors import DatasetError, TaskError, UsageError, unknown
from relfrog.support.files import atomic_folder

__all__ = ["TYPES", "AddedTask", "add_task", "split_labels"]

#: Short names of RelBench's task types.
TYPES = {
    "binary": "binary_classification",
    "multiclass": "multiclass_classification",
    "multilabel": "multilabel_classification",
    "regression": "regression",
    "recommendation": "recommendation",
}


@dataclass(frozen=True)
class AddedTask:
    """A task that was added.

    Attributes:
        manifest: As written.
        folder: Where.
        stats: Per split.
        notes: What was chosen for the user: splits of its own, where training begins.
        warnings: What is wrong with the labels, and what to do.
    """

    manifest: TaskFile
    folder: Path
    stats: dict[str, LabelStats]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


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
    val: str | None = None,
    test: str | None = None,
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
        val: The task's own validation time. By default it is the dataset's, or where events lie
            if the dataset's splits do not suit the task: no labels in a split, too few, or label
            rates that are far apart.
        test: The task's own test time, likewise.
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
    need_times(opened)
    _check_horizon(horizon)
    manifest = TaskFile(
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
    fitted = fit_splits(opened, manifest, full, split_labels, val, test)
    task, manifest, frames = fitted.task, fitted.manifest, fitted.frames
    stats = {split: label_stats(task, frame) for split, frame in frames.items()}
    _refuse_useless(name, stats)
    for is_error, text, remedy in window_problems(task.dataset, task, full):
        if is_error:
            raise TaskError(f"{text}. {remedy}")
    with atomic_folder(folder, overwrite, lambda _: "") as partial:
        for split, frame in frames.items():
            frame.to_parquet(partial / f"{split}.parquet", index=False)
        manifest.save(partial / "manifest.yaml")
    warnings = tuple(f"{p.text}. {p.remedy}" for p in fitted.problems)
    return AddedTask(manifest, folder, stats, fitted.notes, warnings)


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


def _check_horizon(horizon: str) -> None:
    try:
        # A bare number would count nanoseconds.
        delta = pd.Timedelta(horizon) if re.search("[a-zA-Z:]", horizon) else pd.NaT
    except ValueError:
        delta = pd.NaT
    if pd.isna(delta):
        raise UsageError(f"horizon {horizon!r}: write it as '30 days' or '12 hours'")
    if delta <= pd.Timedelta(0):
        raise UsageError(f"horizon {horizon!r} must be longer than nothing")


def _end(dataset: Dataset, text: str) -> tuple[str, str]:
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


def _hidden(dataset: Dataset, hide: tuple[str, ...]) -> list[list[str]]:
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


def _complete(dataset: Dataset, manifest: TaskFile, full: Database) -> None:
    """Run the SQL at one seed time, see that its columns are there, and find the label."""
    frame = run_sql(
        manifest.sql or "", full, [dataset.val_timestamp], pd.Timedelta(manifest.timedelta)
    )
    keys = [manifest.time_col, manifest.entity_col or manifest.src_entity_col]
    keys += [manifest.dst_entity_col] if manifest.dst_entity_col else []
    for column in keys:
        need_column(frame, str(column))
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
    need_column(frame, str(manifest.target_col))


def split_labels(task: Task, split: str, full: Database) -> pd.DataFrame:
    """The labels of a split."""
    try:
        frame: pd.DataFrame = task.get_table(split, mask_input_cols=False, db=full).df
    except NoLabels:
        raise
    except TaskError as error:
        raise TaskError(f"{split} split: {error}") from None
    except RuntimeError as error:
        raise TaskError(f"{split} split: {_horizon_help(str(error))}") from None
    frame[task.entity_col] = frame[task.entity_col].astype("int64")
    if task.task_type is TaskType.BINARY_CLASSIFICATION:
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
        if found.constant and split == "train":
            raise TaskError(f"task {name}: all {found.rows:,} labels of the train split are equal")
