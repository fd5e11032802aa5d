"""Adding a task whose labels exist already: a column of a table, or a file of the user's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
from relbench.manifest import KIND_AUTOCOMPLETE, KIND_EXTERNAL

from relfrog.datasets.autocomplete import NO_KEY, NO_TIME, check_column, label_type, rows_to_fill
from relfrog.datasets.entities import Entities
from relfrog.datasets.external import assign_splits, label_frame, read_label_table
from relfrog.datasets.files import database_in_files
from relfrog.datasets.label_checks import NoLabels, check_label_frame
from relfrog.datasets.label_splits import choose_splits, own_splits, place_labels
from relfrog.datasets.labels import SPLITS
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.split_check import few_labels
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.task_folder import (
    TYPES,
    AddedTask,
    TaskRequest,
    entity_end,
    useful_stats,
    write_task,
)
from relfrog.datasets.tasks import task_from
from relfrog.errors import TaskError, UsageError, unknown
from relfrog.store.file_table import read_column
from relfrog.support.relbench import Database, Table

__all__ = ["add_column_task", "add_file_task"]


def add_column_task(request: TaskRequest, column: str) -> AddedTask:
    """Add a task that fills in a column; see `relfrog.datasets.autocomplete`.

    Rows up to the validation time are for training, those up to the test time for validation.

    Args:
        request: What is asked of the task; its type is by default the one that suits the values.
        column: The column, as ``table.column``.

    Raises:
        TaskError: The column cannot be filled in, or a split has no row with a value.
    """
    opened, folder = request.open()
    if request.type in ("multilabel", "recommendation"):
        raise UsageError(f"a column holds one value per row, which is no {request.type} label")
    table, target = _place(opened, column)
    full = database_in_files(opened)
    check_column(full, table, target)
    found = full.table_dict[table]
    suited = request.type or label_type(read_column(found, target))
    spec = opened.manifest.tables[table]
    hidden, late = request.hidden_columns(opened, full, (table, target))
    manifest = TaskFile(
        name=request.name,
        kind=KIND_AUTOCOMPLETE,
        task_type=TYPES[suited],
        description=request.description,
        entity_table=table,
        target_col=target,
        remove_columns=hidden,
    )
    if spec.time_col is None:
        if request.chooses_splits:
            raise UsageError(
                f"{table} has no times, so its rows are split by the hash of their key: leave out "
                "--val and --test"
            )
        manifest = _told_relbench(manifest, spec.pkey, NO_TIME)
    elif request.chooses_splits:
        manifest = _told_relbench(manifest, spec.pkey, spec.time_col)
        manifest = choose_splits(opened, manifest, request.val, request.test)
    chosen: tuple[str, ...] = ()
    try:
        task, frames = _column_frames(opened, manifest, full)
    except TaskError as error:
        own = None if manifest.split_reason else _own_column_splits(found, target)
        if own is None:
            raise
        manifest = _told_relbench(manifest, spec.pkey, str(spec.time_col))
        manifest = own_splits(manifest, *own, "proposed: where rows with a value lie")
        task, frames = _column_frames(opened, manifest, full)
        chosen = (_instead(str(error).split(". ")[0], f"rows with a {target}", manifest),)
    missing = len(rows_to_fill(opened, task, full))
    notes = [f"{missing:,} rows of {table} have no {target}: predict fills them in"]
    if not missing:
        notes = [f"every row of {table} has a {target}: tell predict for whom, with --entities"]
    if found.time_col is None:
        notes.append(
            f"{table} has no times: splits are by the hash of the key, and everything in the "
            "database may be used"
        )
    return _added(folder, manifest, task, frames, request, (*chosen, *notes, *late))


def _told_relbench(manifest: TaskFile, pkey: str | None, time: str) -> TaskFile:
    """A task that is external to RelBench, which must then be told all of it."""
    hidden = [*manifest.remove_columns, [str(manifest.entity_table), str(manifest.target_col)]]
    return replace(
        manifest, labels="column", entity_col=pkey or NO_KEY, time_col=time, timedelta="1 second",
        remove_columns=hidden,
    )  # fmt: skip


def _column_frames(
    dataset: Dataset, manifest: TaskFile, full: Database
) -> tuple[Task, dict[str, pd.DataFrame]]:
    task = task_from(dataset, manifest)
    return task, {split: _split(task, split, full) for split in SPLITS}


def _own_column_splits(table: Table, target: str) -> tuple[pd.Timestamp, pd.Timestamp] | None:
    """Splits by the times of the rows that have a value; None if there is no room for three."""
    if table.time_col is None:
        return None
    times = pd.to_datetime(read_column(table, table.time_col))
    times = times[read_column(table, target).notna()]
    placed = place_labels(times, pd.Timedelta("1 us"))
    if placed is None:
        return None
    # Here a row at the validation time is for training, so the times are those just before.
    before = [times[times < time].max() for time in placed]
    return before[0], before[1]


def _instead(wrong: str, what: str, manifest: TaskFile) -> str:
    return (
        f"the dataset's splits do not suit this task ({wrong}). It has splits of its own, where "
        f"{what} lie: validation from {manifest.val_timestamp}, test from "
        f"{manifest.test_timestamp}. Choose others with --val and --test"
    )


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
            "Choose a column with more values, or other splits: --val TIME --test TIME"
        ) from None


def _added(
    folder: Path,
    manifest: TaskFile,
    task: Task,
    frames: dict[str, pd.DataFrame],
    request: TaskRequest,
    notes: tuple[str, ...],
    given: pd.DataFrame | None = None,
) -> AddedTask:
    stats = useful_stats(task, manifest.name, frames)
    write_task(folder, manifest, frames, request.overwrite, given)
    warnings = tuple(f"{p.text}. {p.remedy}" for p in few_labels(task, frames))
    return AddedTask(manifest, folder, stats, notes, warnings)


def add_file_task(
    request: TaskRequest,
    labels: str | Path | pd.DataFrame,
    *,
    entity: str | None,
    horizon: str | None,
    label: str | None = None,
    time: str = "timestamp",
) -> AddedTask:
    """Add a task from the user's own labels: a table of entity, time and label.

    Args:
        request: What is asked of the task: ``binary``, ``multiclass``, ``multilabel`` or
            ``regression``.
        labels: A CSV or Parquet file, or a frame: the key of the source, the time, the label.
        entity: The table whose rows are predicted for.
        horizon: How far ahead a label looks: it is known so long after its time.
        label: The column with the label; the only one left if None.
        time: The column with the time.

    Raises:
        TaskError: A key is not in the table, a column is missing, or labels are unusable.
    """
    opened, folder = request.open()
    if request.type is None or entity is None or horizon is None:
        raise UsageError("a task from a file of labels needs --entity TABLE, --type and --horizon")
    if request.type == "recommendation":
        raise UsageError("lists cannot come from a file of labels. Write SQL: --sql FILE")
    table, pkey = entity_end(opened, entity)
    asked, values = read_label_table(opened, table, labels, time, label)
    target = str(values.name)
    hidden, late = request.hidden_columns(opened, database_in_files(opened))
    manifest = TaskFile(
        name=request.name,
        kind=KIND_EXTERNAL,
        task_type=TYPES[request.type],
        description=request.description,
        entity_table=table,
        entity_col=pkey,
        time_col=time,
        target_col=target,
        timedelta=horizon,
        remove_columns=hidden,
        keys="source",
        labels="file",
    )
    assert asked.times is not None
    if request.chooses_splits:
        manifest = choose_splits(opened, manifest, request.val, request.test)
    notes: tuple[str, ...] = ()
    try:
        task, frames = _file_frames(opened, manifest, asked, values)
    except NoLabels as error:
        own = place_labels(asked.times, pd.Timedelta(horizon))
        if manifest.split_reason or own is None:
            raise TaskError(
                f"{error}. Choose other splits (--val TIME --test TIME), a shorter --horizon, or "
                "bring labels of more times."
            ) from None
        manifest = own_splits(manifest, *own, "proposed: where the labels lie")
        task, frames = _file_frames(opened, manifest, asked, values)
        notes = (_instead(str(error), "the labels", manifest),)
    outside = int((assign_splits(task.dataset, asked.times, task.timedelta) == "").sum())
    if outside:
        notes += (
            f"{outside:,} of {len(asked):,} labels belong to no split: their windows reach past "
            "the validation or test time",
        )
    given = asked.keys.assign(**{time: asked.times.to_numpy(), target: values.to_numpy()})
    return _added(folder, manifest, task, frames, request, notes + late, given)


def _file_frames(
    dataset: Dataset, manifest: TaskFile, asked: Entities, values: pd.Series
) -> tuple[Task, dict[str, pd.DataFrame]]:
    task, frames = task_from(dataset, manifest), {}
    for split in SPLITS:
        frame = label_frame(task.dataset, task, asked, values, split)
        if not len(frame):
            raise NoLabels(_no_labels(task.dataset, split, asked.times, task.timedelta))
        check_label_frame(task, frame)
        frames[split] = frame
    return task, frames


def _no_labels(dataset: Dataset, split: str, times: pd.Series | None, horizon: pd.Timedelta) -> str:
    val, test = dataset.val_timestamp, dataset.test_timestamp
    wanted = {
        "train": f"at most {val - horizon} (the validation time less the horizon)",
        "val": f"between {val} and {test - horizon} (the test time less the horizon)",
        "test": f"{test} or later",
    }[split]
    span = "" if times is None or not len(times) else f"; times are {times.min()} to {times.max()}"
    return f"no label is in the {split} split: its times would be {wanted}{span}"
