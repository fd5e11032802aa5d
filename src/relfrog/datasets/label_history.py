"""Label history: the labels of earlier windows as an additional table of the database.

A label is known when its window has closed, so that is the time of its row: a seed sees the labels
of its entity for all windows that ended by then. Whether later rows exist must make no difference
to a seed. So windows that are still open at the newest time are in the table as well, for later
seeds, and windows after the test time in which no table has a row are not.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from relfrog.datasets.label_checks import NoLabels, in_order
from relfrog.datasets.labels import SPLITS, seed_times, timed_first
from relfrog.datasets.protocols import Dataset, Task
from relfrog.kinds import TASK_KINDS
from relfrog.store.file_table import column_parts
from relfrog.support.lists import flatten
from relfrog.support.relbench import Database, Table

__all__ = ["add_label_history", "known_labels", "label_history_name"]


def label_history_name(db: Database) -> str:
    """A name for the table, different from those of all other tables.

    It does not contain the task's name, so that learned roles fit another task of the database.
    """
    name = "labels of the task"
    while name in db.table_dict:
        name += " again"
    return name


def known_labels(
    dataset: Dataset,
    task: Task,
    db: Database,
    *,
    still_open: bool = False,
    closed_by: pd.Timestamp | None = None,
) -> pd.DataFrame:
    """All labels whose windows closed by the newest time of the database, ordered by time.

    A database that ends at the test time, as RelBench cuts it, is complete up to there even if its
    last row is a little older. Seed times are those of training, validation and test, continued at
    the same interval. A task with label files instead of SQL has those of training and validation.

    Args:
        dataset: RelBench's dataset.
        task: RelBench's task.
        db: the database.
        still_open: whether to add labels of windows that have begun but not closed, and to leave
            out windows after the test time in which the database has no row.
        closed_by: only labels of windows closed by this time, each computed from a database that
            ends with its window. The result is the same unless the SQL uses other times than those
            of the rows it reads. Slow.

    Returns:
        The task's entity, time and label columns; times are those of the seeds.
    """
    if task.sql is None:
        frames = [task.get_table(split, mask_input_cols=False).df for split in SPLITS[:2]]
        return _in_order(task, pd.concat(frames))
    last = max(timed_first(db).max_timestamp, dataset.test_timestamp) - task.timedelta
    times = seed_times(dataset, task, "train", db)
    for first, end in (
        (dataset.val_timestamp, dataset.test_timestamp - task.timedelta),
        (dataset.test_timestamp, last),
    ):
        times = times.append(pd.date_range(first, min(end, last), freq=task.timedelta))
    times = times[times <= last]
    if still_open:
        times = times[times + task.timedelta <= dataset.test_timestamp]
        times = times.append(_windows_with_rows(db, dataset.test_timestamp, task.timedelta))
    times = times.unique().sort_values()
    nothing = pd.DataFrame({task.entity_col: [], task.time_col: [], task.target_col: []})
    parts = [(db, times)]
    if closed_by is not None:
        ends = [(time, time + task.timedelta) for time in times]
        parts = [(db.upto(end), times[times == time]) for time, end in ends if end <= closed_by]
    frames = []
    for part, some in parts:
        try:
            frames.append(task.make_table(part, some).df)
        except NoLabels:
            continue
    if not frames:
        return nothing
    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    inside = frame[task.entity_col] < len(db.table_dict[task.entity_table])
    return _in_order(task, frame if inside.all() else frame[inside])


def _windows_with_rows(db: Database, start: pd.Timestamp, step: pd.Timedelta) -> pd.DatetimeIndex:
    """The beginnings of consecutive windows from a time on in which any table has a row."""
    begins = []
    for table in db.table_dict.values():
        for part in [] if table.time_col is None else column_parts(table, table.time_col):
            moments = pd.to_datetime(part).dropna()
            passed = (moments[moments > start] - start).to_numpy().astype("timedelta64[us]")
            begins.append(np.unique(-(-passed.view("int64") // _microseconds(step)) - 1))
    numbers = np.unique(np.concatenate([np.zeros(0, np.int64), *begins]))
    ticks = start.as_unit("us").to_datetime64() + (numbers * _microseconds(step)).astype(
        "timedelta64[us]"
    )
    return pd.DatetimeIndex(ticks)


def _microseconds(step: pd.Timedelta) -> int:
    return max(1, int(step.as_unit("us").to_timedelta64().view("int64")))


def _in_order(task: Task, frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by time, then entity: the order of SQL results varies."""
    by = [task.time_col, task.entity_col]
    if in_order(frame, by):
        return frame.reset_index(drop=True)
    return frame.sort_values(by, kind="stable").reset_index(drop=True)


def add_label_history(
    dataset: Dataset, task: Task, db: Database, name: str, closed_by: pd.Timestamp | None = None
) -> Database:
    """Add the label history to a database: a table of entity, end of the window and label.

    Args:
        dataset: RelBench's dataset.
        task: RelBench's task.
        db: the database.
        name: the name of the table.
        closed_by: see `known_labels`.
    """
    columns = [task.entity_col, task.time_col, task.target_col]
    frame = known_labels(dataset, task, db, still_open=True, closed_by=closed_by)[columns]
    closed = pd.to_datetime(frame[task.time_col]) + task.timedelta
    entity, time, label = "entity", "window_end", "label"
    keys = {entity: task.entity_table}
    table = pd.DataFrame(
        {
            entity: frame[task.entity_col].astype("int64"),
            time: closed,
            label: frame[task.target_col],
        }
    )
    if TASK_KINDS[task.task_type.value].ranks:
        # One row per target of a list, so that an earlier label joins the two like any row.
        lengths, flat = flatten(table[label])
        rows = np.repeat(np.arange(len(lengths)), lengths)
        table = table.take(rows).assign(**{label: flat.astype(np.int64)})
        table = table[flat < len(db.table_dict[task.dst_entity_table])]
        table = table.sort_values([time, entity, label], kind="stable", ignore_index=True)
        keys[label] = task.dst_entity_table
    return Database({**db.table_dict, name: Table(table, keys, None, time)})
