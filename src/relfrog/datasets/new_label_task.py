"""Adding a task whose labels exist already: a column of a table, or a file of the user's."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from relbench.base import Database
from relbench.manifest import KIND_AUTOCOMPLETE, KIND_EXTERNAL

from relfrog.datasets.autocomplete import NO_KEY, NO_TIME, check_column, label_type, rows_to_fill
from relfrog.datasets.external import assign_splits, label_frame, read_label_table
from relfrog.datasets.label_checks import NoLabels, check_label_frame
from relfrog.datasets.labels import SPLITS, label_stats
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.task_folder import (
    TYPES,
    AddedTask,
    entity_end,
    hidden_columns,
    new_folder,
    write_task,
)
from relfrog.datasets.tasks import task_from
from relfrog.errors import TaskError, UsageError, unknown

__all__ = ["add_column_task", "add_file_task"]


def add_column_task(
    dataset: str | Path,
    name: str,
    column: str,
    *,
    type: str | None = None,
    description: str | None = None,
    hide: tuple[str, ...] = (),
    overwrite: bool = False,
) -> AddedTask:
    """Add a task that fills in a column; see `relfrog.datasets.autocomplete`.

    Args:
        dataset: A dataset folder.
        name: The task's name.
        column: The column, as ``table.column``.
        type: The type of task; by default the one that suits the column's values.
        description: The task in words.
        hide: Further columns the model must not see, as ``table.column``.
        overwrite: Whether to replace a task of this name.

    Raises:
        TaskError: The column cannot be filled in, or a split has no row with a value.
    """
    opened, folder = new_folder(dataset, name, type, overwrite)
    if type in ("multilabel", "recommendation"):
        raise UsageError(f"a column holds one value per row, which is no {type} label")
    table, target = _place(opened, column)
    full = opened.get_db(upto_test_timestamp=False)
    check_column(full, table, target)
    found = full.table_dict[table]
    suited = label_type(found.df[target]) if type is None else type
    spec = opened.manifest.tables[table]
    manifest = TaskFile(
        name=name,
        kind=KIND_AUTOCOMPLETE,
        task_type=TYPES[suited],
        description=description,
        entity_table=table,
        target_col=target,
        remove_columns=hidden_columns(opened, hide),
    )
    if spec.time_col is None:
        # Unknown to RelBench, which must then be told all of it.
        manifest.labels = "column"
        manifest.entity_col, manifest.time_col = spec.pkey or NO_KEY, NO_TIME
        manifest.timedelta = "1 second"
        manifest.remove_columns.append([table, target])
    task = task_from(opened, manifest)
    frames = {split: _split(task, split, full) for split in SPLITS}
    missing = len(rows_to_fill(opened, task, full))
    notes = [f"{missing:,} rows of {table} have no {target}: predict fills them in"]
    if not missing:
        notes = [f"every row of {table} has a {target}: predict needs to be told --entities"]
    if found.time_col is None:
        notes.append(
            f"{table} has no times: splits are by the hash of the key, and everything in the "
            "database may be used"
        )
    return _added(folder, manifest, task, frames, overwrite, tuple(notes))


def _place(dataset: Dataset, text: str) -> tuple[str, str]:
    """The table and column of ``table.column``; both may contain dots."""
    for table in sorted(dataset.manifest.tables, key=len, reverse=True):
        if text.startswith(f"{table}.") and len(text) > len(table) + 1:
            return table, text[len(table) + 1 :]
    table = text.split(".")[0]
    if table in dataset.manifest.tables:
        raise UsageError(f"--autocomplete {text}: write it as TABLE.COLUMN")
    raise TaskError(str(unknown("table", table, dataset.manifest.tables)))


def _split(task: Task, split: str, full: Database) -> pd.DataFrame:
    try:
        return task.get_table(split, mask_input_cols=False, db=full).df
    except NoLabels:
        raise TaskError(
            f"no row of {task.entity_table} with a {task.target_col} belongs to the {split} split. "
            "Choose a column with more values, or other splits: relfrog import ... --val --test"
        ) from None


def _added(
    folder: Path,
    manifest: TaskFile,
    task: Task,
    frames: dict[str, pd.DataFrame],
    overwrite: bool,
    notes: tuple[str, ...],
    given: pd.DataFrame | None = None,
) -> AddedTask:
    stats = {split: label_stats(task, frame) for split, frame in frames.items()}
    if stats["train"].constant:
        rows = stats["train"].rows
        raise TaskError(f"task {manifest.name}: all {rows:,} labels of the train split are equal")
    write_task(folder, manifest, frames, overwrite, given)
    return AddedTask(manifest, folder, stats, notes)


def add_file_task(
    dataset: str | Path,
    name: str,
    labels: str | Path | pd.DataFrame,
    *,
    entity: str | None,
    type: str | None,
    horizon: str | None,
    label: str | None = None,
    time: str = "timestamp",
    description: str | None = None,
    hide: tuple[str, ...] = (),
    overwrite: bool = False,
) -> AddedTask:
    """Add a task from the user's own labels: a table of entity, time and label.

    Args:
        dataset: A dataset folder.
        name: The task's name.
        labels: A CSV or Parquet file, or a frame: the key of the source, the time, the label.
        entity: The table whose rows are predicted for.
        type: ``binary``, ``multiclass``, ``multilabel`` or ``regression``.
        horizon: How far ahead a label looks: it is known so long after its time.
        label: The column with the label; the only one left if None.
        time: The column with the time.
        description: The task in words.
        hide: Columns the model must not see, as ``table.column``.
        overwrite: Whether to replace a task of this name.

    Raises:
        TaskError: A key is not in the table, a column is missing, or labels are unusable.
    """
    opened, folder = new_folder(dataset, name, type, overwrite)
    if type is None or entity is None or horizon is None:
        raise UsageError("a task from a file of labels needs --entity TABLE, --type and --horizon")
    if type == "recommendation":
        raise UsageError("lists cannot come from a file of labels. Write SQL: --sql FILE")
    table, pkey = entity_end(opened, entity)
    asked, values = read_label_table(opened, table, labels, time, label)
    target = str(values.name)
    manifest = TaskFile(
        name=name,
        kind=KIND_EXTERNAL,
        task_type=TYPES[type],
        description=description,
        entity_table=table,
        entity_col=pkey,
        time_col=time,
        target_col=target,
        timedelta=horizon,
        remove_columns=hidden_columns(opened, hide),
        keys="source",
        labels="file",
    )
    task = task_from(opened, manifest)
    frames = {}
    for split in SPLITS:
        frame = label_frame(opened, task, asked, values, split)
        if not len(frame):
            raise TaskError(_no_labels(opened, split, asked.times, task.timedelta))
        check_label_frame(task, frame)
        frames[split] = frame
    assert asked.times is not None
    outside = int((assign_splits(opened, asked.times, task.timedelta) == "").sum())
    notes = (
        (
            f"{outside:,} of {len(asked):,} labels belong to no split: their windows reach past "
            "the validation or test time",
        )
        if outside
        else ()
    )
    given = asked.keys.assign(**{time: asked.times.to_numpy(), target: values.to_numpy()})
    return _added(folder, manifest, task, frames, overwrite, notes, given)


def _no_labels(dataset: Dataset, split: str, times: pd.Series | None, horizon: pd.Timedelta) -> str:
    val, test = dataset.val_timestamp, dataset.test_timestamp
    wanted = {
        "train": f"at most {val - horizon} (the validation time less the horizon)",
        "val": f"between {val} and {test - horizon} (the test time less the horizon)",
        "test": f"{test} or later",
    }[split]
    span = "" if times is None or not len(times) else f"; times are {times.min()} to {times.max()}"
    return f"no label is in the {split} split: its times would be {wanted}{span}"
