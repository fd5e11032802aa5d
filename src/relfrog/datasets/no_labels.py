"""Why label SQL gives nothing in a split."""

from __future__ import annotations

import pandas as pd

from relfrog.datasets.label_events import LabelEvents
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.labels import seed_times
from relfrog.datasets.protocols import Task
from relfrog.store.file_table import read_column
from relfrog.support.relbench import Database
from relfrog.support.text import counted

__all__ = ["has_events", "why_no_labels"]


def why_no_labels(
    task: Task,
    split: str,
    full: Database,
    events: LabelEvents,
    what: str = "the SQL gives no label",
) -> str:
    """Why a split has no label: no rows in its windows, no entities yet, or the SQL's conditions.

    Args:
        task: The task.
        split: The split.
        full: The whole database.
        events: The rows that decide labels.
        what: What is to be explained.
    """
    dataset, step = task.dataset, task.timedelta
    known, times = _times(task, split, full)
    start = f"{what} in the {split} split"
    if not len(times):
        return (
            f"{start}: no window of {step} fits into it. Take a shorter --horizon, or other splits"
        )
    span = f"{times.min():%Y-%m-%d} to {times.max() + step:%Y-%m-%d}"
    inside = int(events.within(times, step).sum())
    names = ", ".join(events.tables)
    if names and not inside:
        first, last = (pd.Timestamp(int(t), unit="us") for t in events.times[[0, -1]])
        return (
            f"{start}: no row of {names} lies in its windows ({span}); their rows range from "
            f"{first:%Y-%m-%d} to {last:%Y-%m-%d}. Choose splits among them: --val TIME --test TIME"
        )
    table = full.table_dict[task.entity_table]
    there = len(table)
    if table.time_col is not None:
        there = int((pd.to_datetime(read_column(table, table.time_col)) <= times.max()).sum())
    if not there:
        first = pd.to_datetime(read_column(table, str(table.time_col))).min()
        return (
            f"{start}: none of the {len(table):,} rows of {task.entity_table} is there yet at "
            f"its last seed time, {times.max():%Y-%m-%d}; the first comes at {first:%Y-%m-%d}. "
            "Choose later splits: --val TIME --test TIME"
        )
    given = _given(task, known, times)
    if given:
        return (
            f"{start}: it gives labels of {counted(given, 'row')} of {task.entity_table}, but "
            f"these rows come after the test time {dataset.test_timestamp:%Y-%m-%d}. Choose later "
            "splits, or ask about those who are there: WHERE their time <= t.timestamp"
        )
    rows = f"{counted(inside, 'row')} of {names} in its windows ({span}), and " if names else ""
    return (
        f"{start}, though there are {rows}{counted(there, 'row')} of {task.entity_table} by then: "
        "a condition of the SQL (WHERE, JOIN ... ON, HAVING) removes all of them"
    )


def has_events(task: Task, split: str, full: Database, events: LabelEvents) -> bool:
    """Whether the windows of a split hold rows that decide labels, as far as one knows which."""
    _, times = _times(task, split, full)
    return not events.tables or bool(events.within(times, task.timedelta).sum())


def _times(task: Task, split: str, full: Database) -> tuple[Database, pd.DatetimeIndex]:
    """The database that labels of a split are made from, and its seed times.

    A split has one seed time at least, whether the database goes on for long enough or not.
    """
    dataset = task.dataset
    known = full if split == "test" else full.upto(dataset.test_timestamp)
    times = seed_times(dataset, task, split, known)
    if not len(times) and split != "train":
        begin = dataset.val_timestamp if split == "val" else dataset.test_timestamp
        times = pd.DatetimeIndex([begin])
    return known, times


def _given(task: Task, known: Database, times: pd.DatetimeIndex) -> int:
    """The number of entities that the SQL gives though they are not there yet."""
    sql, keys = task.sql or "", task.source_keys
    shown = known if keys is None else keys.view(known, sql)
    frame = run_sql(sql, shown, list(times), task.timedelta)
    return int(frame[task.entity_col].nunique())
