"""Add a task to a dataset folder, after running its SQL on all splits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from relbench.manifest import KIND_FORECAST

from relfrog.datasets.checks.refusal import remember_sound
from relfrog.datasets.dataset import read_tables
from relfrog.datasets.files import database_in_files
from relfrog.datasets.key_views import find_source_keys
from relfrog.datasets.known_from import read_known_from, recorded_keys
from relfrog.datasets.label_checks import NoLabels, need_column
from relfrog.datasets.labels import label_rows, window_problems
from relfrog.datasets.new_label_task import add_column_task, add_file_task
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.task_folder import (
    TYPES,
    AddedTask,
    TaskRequest,
    entity_end,
    useful_stats,
    write_task,
)
from relfrog.datasets.task_splits import fit_splits, need_times
from relfrog.datasets.tasks import task_from
from relfrog.errors import TaskError, UsageError
from relfrog.kinds import TASK_KINDS
from relfrog.support.relbench import Database, TaskType

__all__ = ["TYPES", "AddedTask", "add_task", "split_labels"]


def add_task(
    dataset: str | Path,
    name: str,
    sql: str | None = None,
    *,
    type: str | None = None,
    horizon: str | None = None,
    autocomplete: str | None = None,
    labels: str | Path | pd.DataFrame | None = None,
    entity: str | None = None,
    source: str | None = None,
    target: str | None = None,
    label: str | None = None,
    time: str = "timestamp",
    eval_times: int = 1,
    k: int | None = None,
    description: str | None = None,
    hide: tuple[str, ...] = (),
    show: tuple[str, ...] = (),
    val: str | None = None,
    test: str | None = None,
    overwrite: bool = False,
    query: str | None = None,
    classes: list[str] | None = None,
) -> AddedTask:
    """Add a prediction task to a dataset folder, after trying it on all splits.

    Its labels come from SQL, from a column that is to be filled in, or from a file.

    Args:
        dataset: A dataset folder.
        name: The task's name.
        sql: DuckDB SQL: it sees every table, ``timestamps(timestamp)`` with the seed times, and
            ``{timedelta}``, and gives one row per seed time and entity with its label. In a
            dataset that `relfrog import` made, keys have the values of the source.
        type: ``binary``, ``multiclass``, ``multilabel``, ``regression`` or ``recommendation``; of
            a column, by default the one that suits it.
        horizon: How far ahead a label looks, such as ``30 days``.
        autocomplete: A column to fill in, as ``table.column``; instead of SQL.
        labels: A CSV or Parquet file, or a frame, with the entity's key, the time and the label;
            instead of SQL.
        entity: The table whose rows are predicted for, with the SQL's column for it if that
            is not named like the primary key: ``customers`` or ``customers.buyer_id``.
        source: For a recommendation: the table whose rows get a list, likewise.
        target: For a recommendation: the table the list is taken from, likewise.
        label: The SQL's column with the label; the only one left if None.
        time: The SQL's column with the seed time.
        eval_times: Seed times in validation and in test.
        k: For a recommendation: the length of the list.
        description: A description of the task.
        hide: Columns the model must not see, as ``table.column``. Columns of times later than
            their rows, such as a date of leaving, are hidden by themselves, unless their names say
            that they were planned.
        show: Columns the model may see all the same, likewise.
        val: The task's own validation time. By default it is the dataset's, or where events lie
            if the dataset's splits do not suit the task: no labels in a split, too few, or label
            rates that are far apart.
        test: The task's own test time, likewise.
        overwrite: Whether to replace a task of this name.
        query: The question in words that the SQL was made from, to be kept beside it.
        classes: Of several labels, what each of them is: names for columns of predictions.

    Raises:
        TaskError: The SQL is wrong, or its labels are unusable: none in a split, or all the same.
    """
    request = TaskRequest(
        dataset, name, type, description, hide, show, val, test, overwrite=overwrite
    )
    if sum(given is not None for given in (sql, autocomplete, labels)) != 1:
        raise UsageError(
            "labels come from one of --sql FILE, --autocomplete TABLE.COLUMN, --labels"
        )
    if autocomplete is not None:
        _refuse_options(
            "--autocomplete", entity=entity, source=source, target=target, k=k, label=label,
            horizon=horizon, eval_times=_unless(eval_times, 1),
        )  # fmt: skip
        return add_column_task(request, autocomplete)
    if horizon is not None:
        _check_horizon(horizon)
    if labels is not None:
        _refuse_options("--labels", source=source, target=target, k=k,
                        eval_times=_unless(eval_times, 1))  # fmt: skip
        return add_file_task(
            request, labels, entity=entity, horizon=horizon, label=label, time=time
        )
    if type is None or horizon is None:
        raise UsageError("a task from SQL needs --type and --horizon")
    opened, folder = request.open()
    _check_options(type, entity, source, target, k)
    need_times(opened)
    full = database_in_files(opened)
    hidden, notes = request.hidden_columns(opened, full)
    manifest = TaskFile(
        name=name,
        kind=KIND_FORECAST,
        task_type=TYPES[type],
        description=description,
        time_col=time,
        timedelta=horizon,
        num_eval_timestamps=eval_times,
        remove_columns=hidden,
        sql=sql,
        keys="source" if find_source_keys(opened) is not None else None,
        query=query,
        classes=classes,
    )
    if TASK_KINDS[TYPES[type]].ranks:
        assert source is not None
        assert target is not None
        manifest.src_entity_table, manifest.src_entity_col = entity_end(opened, source)
        manifest.dst_entity_table, manifest.dst_entity_col = entity_end(opened, target)
        manifest.eval_k = k or 10
        manifest.target_col = label
    else:
        assert entity is not None
        manifest.entity_table, manifest.entity_col = entity_end(opened, entity)
        manifest.target_col = label or "?"
    _complete(opened, manifest, full)
    fitted = fit_splits(opened, manifest, full, split_labels, val, test)
    task, manifest, frames = fitted.task, fitted.manifest, fitted.frames
    stats = useful_stats(task, name, frames)
    for is_error, text, remedy in window_problems(task.dataset, task, full):
        if is_error:
            raise TaskError(f"{text}. {remedy}")
    manifest.relbench_agrees = (
        not _names_added_times(opened, str(sql))
        if manifest.keys is None
        else _relbench_agrees(opened, manifest, frames, full)
    )
    write_task(folder, manifest, frames, overwrite)
    remember_sound(opened, name)
    warnings = tuple(f"{p.text}. {p.remedy}" for p in fitted.problems)
    return AddedTask(manifest, folder, stats, fitted.notes + notes, warnings)


def _refuse_options(of: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{of} takes no --{name.replace('_', '-')}")


def _unless(value: int, default: int) -> int | None:
    return None if value == default else value


def _check_options(
    type: str, entity: str | None, source: str | None, target: str | None, k: int | None
) -> None:
    if TASK_KINDS[TYPES[type]].ranks:
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


def _complete(dataset: Dataset, manifest: TaskFile, full: Database) -> None:
    """Run the SQL at one seed time, check its columns, and find the label column."""
    # In any splits: the dataset's may be too close for the horizon.
    begin, horizon = dataset.val_timestamp, pd.Timedelta(manifest.timedelta)
    later = str(begin + 2 * horizon)
    task = task_from(dataset, replace(manifest, val_timestamp=str(begin), test_timestamp=later))
    frame = label_rows(task, full, [begin])
    keys = [manifest.time_col, manifest.entity_col or manifest.src_entity_col]
    keys += [manifest.dst_entity_col] if manifest.dst_entity_col else []
    for column in keys:
        need_column(frame, str(column))
    if TASK_KINDS[manifest.task_type].ranks:
        return
    if manifest.target_col == "?":
        left = [c for c in frame.columns if c not in keys]
        if len(left) != 1:
            some = ", ".join(map(repr, left[:9])) or "none"
            more = f" and {len(left) - 9:,} more" if len(left) > 9 else ""
            raise TaskError(
                f"which column is the label? The SQL gives {some}{more} besides time and entity. "
                "Name it: --label COLUMN"
            )
        manifest.target_col = str(left[0])
    need_column(frame, str(manifest.target_col))


def split_labels(task: Task, split: str, full: Database) -> pd.DataFrame:
    """The labels of a split."""
    try:
        frame: pd.DataFrame = task.get_table(split, mask_input_cols=False, db=full).df
    except NoLabels:
        raise
    except RuntimeError as error:
        raise TaskError(f"{split} split: {_horizon_help(str(error))}") from None
    except TaskError as error:
        raise TaskError(f"{split} split: {error}") from None
    frame[task.entity_col] = frame[task.entity_col].astype("int64")
    if task.task_type is TaskType.BINARY_CLASSIFICATION:
        frame[task.target_col] = frame[task.target_col].astype("int64")
    return frame


def _names_added_times(dataset: Dataset, sql: str) -> bool:
    """Whether the SQL names a time column that the files do not have; RelBench could not run it."""
    if recorded_keys(dataset.dataset_dir) is not None or "known_from" not in sql:
        return False
    return any(name in sql for name in read_known_from(read_tables(dataset)).columns.values())


def _relbench_agrees(
    dataset: Dataset, manifest: TaskFile, frames: dict[str, pd.DataFrame], full: Database
) -> bool:
    """Whether the SQL gives these labels with row numbers for keys, too.

    It does unless it looks at the value of a key: RelBench, which knows row numbers only, can then
    run it as it is.
    """
    task = task_from(dataset, replace(manifest, keys=None))
    try:
        return all(
            _equal(frame, split_labels(task, split, full)) for split, frame in frames.items()
        )
    except TaskError:
        return False


def _equal(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    if len(one) != len(other) or list(one.columns) != list(other.columns):
        return False
    for name in one:
        if pd.api.types.is_float_dtype(one[name]) and pd.api.types.is_float_dtype(other[name]):
            if not np.allclose(one[name], other[name], rtol=1e-9, atol=0, equal_nan=True):
                return False
        elif pa.array(one[name]) != pa.array(other[name]):
            return False
    return True


def _horizon_help(text: str) -> str:
    if "larger than max timestamp" in text:
        return "the horizon reaches beyond the last row. Take a shorter horizon, or earlier splits."
    if "training time frames" in text:
        return "fewer than three horizons fit before the validation time. Take a shorter horizon."
    return text
