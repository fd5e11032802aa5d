"""Labels: what label SQL gives, seed times, statistics, and checks of label windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from relfrog.datasets.label_digests import differing, label_digests
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.protocols import Dataset, Task
from relfrog.errors import TaskError
from relfrog.store.file_table import moved_back, read_column
from relfrog.store.overlay import Changes, OverlayTable
from relfrog.support.lists import flatten
from relfrog.support.relbench import BaseTask, Database
from relfrog.support.times import between

__all__ = [
    "SPLITS", "LabelStats", "check_seed_times", "fitting_times", "label_rows", "label_stats",
    "seed_times", "split_times", "timed_first", "times_between", "window_problems",
]  # fmt: skip

SPLITS = ("train", "val", "test")


def label_rows(task: Task, db: Database, timestamps: Sequence[pd.Timestamp]) -> pd.DataFrame:
    """What a task's SQL gives at some times, entities and targets as row numbers.

    Raises:
        TaskError: See `run_sql`; or a key that it gives is not in its table.
    """
    sql = task.sql or ""
    if task.source_keys is None:
        order = (task.time_col, task.entity_col)
        return run_sql(sql, db, timestamps, task.timedelta, arrow_lists=True, order=order)
    view = task.source_keys.view(db, sql)
    frame = run_sql(sql, view, timestamps, task.timedelta, arrow_lists=True)
    return task.source_keys.to_rows(frame, task.ends)


def timed_first(db: Database, upto: pd.Timestamp | None = None) -> Database:
    """The same database, with tables that have times first.

    RelBench's first and last time of a database are NaT if those of its first table are.

    Args:
        db: The database.
        upto: A time at which it may be cut: tables with rows up to then come first.
    """
    tables = db.table_dict

    def without(name: str) -> tuple[bool, bool]:
        table = tables[name]
        if table.time_col is None:
            return True, True
        first = table.min_timestamp
        return upto is not None and not first <= upto, bool(pd.isna(first))

    return Database({name: tables[name] for name in sorted(tables, key=without)})


#: The most seed times of a task: more are a mistake, and more than memory can hold.
MOST_TIMES = 1_000_000


def check_seed_times(db: Database, step: pd.Timedelta) -> None:
    """Refuse a horizon of which too many fit into the database.

    Raises:
        TaskError: There would be too many seed times.
    """
    known = [t for t in db.table_dict.values() if t.time_col is not None and len(t)]
    if not known:
        return
    first, last = min(t.min_timestamp for t in known), max(t.max_timestamp for t in known)
    if pd.notna(first) and pd.notna(last) and between(first, last) / step > MOST_TIMES:
        raise TaskError(
            f"a horizon of {step} fits more than {MOST_TIMES:,} times between {first} and {last}. "
            "Take a longer horizon."
        )


def seed_times(dataset: Dataset, task: Task, split: str, db: Database) -> pd.DatetimeIndex:
    """The seed times of a split, as in RelBench."""
    check_seed_times(db, task.timedelta)
    db = timed_first(db)
    step = task.timedelta
    if split == "train":
        first = (
            db.min_timestamp if task.train_from is None else max(db.min_timestamp, task.train_from)
        )
        return pd.date_range(dataset.val_timestamp - step, first, freq=-step)
    first = dataset.val_timestamp if split == "val" else dataset.test_timestamp
    last = dataset.test_timestamp if split == "val" else db.max_timestamp
    end = min(first + step * (task.num_eval_timestamps - 1), last - step)
    return pd.date_range(first, end, freq=step)


class TooFewTimes(TaskError, RuntimeError):
    """There is no room for the seed times of a split; RelBench raises RuntimeError."""


def split_times(task: BaseTask, split: str, db: Database) -> pd.DatetimeIndex:
    """The seed times of a split's labels, as RelBench makes them.

    Raises:
        TooFewTimes: The rows do not reach as far as the windows.
    """
    val, test, step = task.dataset.val_timestamp, task.dataset.test_timestamp, task.timedelta
    if split == "train":
        times = pd.date_range(start=val - step, end=db.min_timestamp, freq=-step)
        if len(times) < 3:
            raise TooFewTimes(
                f"The number of training time frames is too few. ({len(times)} given)"
            )
        return times
    last = db.max_timestamp
    start = val if split == "val" else test
    if start + step > last:
        raise TooFewTimes(
            f"{split} timestamp + timedelta is larger than max timestamp! This would cause "
            f"{split} labels to be generated with insufficient aggregation time."
        )
    end = (test if split == "val" else last) - step
    end = min(start + step * (task.num_eval_timestamps - 1), end)
    return pd.date_range(start=start, end=end, freq=step)


def fitting_times(dataset: Dataset, task: Task, db: Database) -> int:
    """How many seed times validation and test have room for, each with a window of its own."""
    last, step = timed_first(db).max_timestamp, task.timedelta
    spans = (dataset.test_timestamp - dataset.val_timestamp, last - dataset.test_timestamp)
    return int(min(spans) // step)


def times_between(first: pd.Timestamp, last: pd.Timestamp, step: pd.Timedelta) -> pd.DatetimeIndex:
    """Times from one to another, both included, in equal steps; backwards if the step is."""
    return pd.date_range(first, last, freq=step)


@dataclass(frozen=True)
class LabelStats:
    """Statistics of the labels of one split.

    Attributes:
        rows: Number of labelled seeds.
        seed_times: Number of distinct times.
        entities: Number of distinct entities.
        label: Statistics of the values: ``positive`` (share), or ``mean``, ``median``, ``std``,
            ``min``, ``max``, or ``classes``, or ``targets`` (mean per list).
        constant: Whether all labels are the same.
        missing: Number of labels that are NULL.
    """

    rows: int
    seed_times: int
    entities: int
    label: dict[str, float]
    constant: bool
    missing: int


def label_stats(task: Task, frame: pd.DataFrame) -> LabelStats:
    """Compute the statistics of a split's labels."""
    kind = task.task_type.value
    values = frame[task.target_col]
    label: dict[str, float] = {}
    constant, missing = False, int(values.isna().sum())
    if kind == "recommendation":
        label["targets"] = float(flatten(values)[0].mean()) if len(frame) else 0.0
    elif kind == "multilabel_classification":
        label["classes"] = float(len(values.iloc[0])) if len(frame) else 0.0
    else:
        present = values.dropna()
        constant = present.nunique() < 2
        if kind == "binary_classification":
            label["positive"] = float(present.astype(float).mean()) if len(present) else 0.0
        elif kind == "multiclass_classification":
            label["classes"] = float(present.nunique())
        elif len(present):
            number = present.astype(float)
            for name in ("mean", "median", "std", "min", "max"):
                label[name] = float(getattr(number, name)())
    return LabelStats(
        rows=len(frame),
        seed_times=int(frame[task.time_col].nunique()) if task.time_col in frame else 0,
        entities=_different(frame[task.entity_col]),
        label=label,
        constant=constant,
        missing=missing,
    )


def _different(rows: pd.Series) -> int:
    """How many different rows of a table there are among some."""
    if not pd.api.types.is_integer_dtype(rows.dtype) or not len(rows) or rows.min() < 0:
        return int(rows.nunique())
    seen = np.zeros(int(rows.max()) + 1, bool)
    seen[rows.to_numpy(np.int64)] = True
    return int(np.count_nonzero(seen))


def window_problems(
    dataset: Dataset, task: Task, full: Database, errors_only: bool = False
) -> list[tuple[bool, str, str]]:
    """Check that labels only depend on their window: after the seed time, up to its end.

    The SQL is run at the first validation time on the whole database, and on databases without the
    rows before or after the window.

    Args:
        dataset: The dataset, with the splits of the task.
        task: The task.
        full: The whole database.
        errors_only: Whether to leave out what can only warn.

    Returns:
        Problems, as (whether it is an error, what is wrong, what to do).
    """
    start = seed_times(dataset, task, "val", full.upto(dataset.test_timestamp))[0]

    def answers(db: Database) -> pd.Series:
        frame = label_rows(task, db, [start])
        if (frame[task.time_col] != start).any():
            odd = frame[task.time_col][frame[task.time_col] != start]
            raise TaskError(
                f"{len(odd):,} labels carry a time that is no seed time, such as {odd.iloc[0]} for "
                f"the seed {start}. Give t.timestamp as it is"
            )
        return label_digests(frame[task.entity_col], frame[task.target_col])

    everything = answers(full)
    if not len(everything):
        return []
    problems = []
    day = f"{start:%Y-%m-%d}"
    before = answers(full.upto(start))
    if len(before) == len(everything) and not differing(everything, before, missing=True):
        text = f"the labels of seed {day} are the same without anything after that time"
        problems.append((True, text, "Labels must look ahead: rows with time > t.timestamp."))
    window = answers(full.upto(start + task.timedelta))
    changed = differing(everything, window, missing=True)
    if changed:
        text = (
            f"{len(changed):,} labels of seed {day} depend on rows after their window of "
            f"{task.timedelta}, such as that of {changed[0]}"
        )
        remedy = "End the window in the SQL: time <= t.timestamp + INTERVAL '{timedelta}'."
        many = len(changed) >= 0.01 * len(everything)
        if not many:
            # So few are caused by rows that are older than their parents, not by the SQL.
            remedy = "So few seem to be caused by rows older than the rows they refer to."
        problems.append((many, text, remedy))
    if errors_only:
        return problems
    later = answers(_without_past_events(full, start))
    changed = differing(later, everything)
    if len(changed) >= 0.01 * len(everything):
        text = (
            f"{len(changed):,} labels of seed {day} change when events up to the seed time are "
            f"removed, such as that of {changed[0]}: they seem to look back, too"
        )
        remedy = "Begin the window in the SQL: time > t.timestamp."
        problems.append((False, text, remedy))
    return problems


def _without_past_events(db: Database, time: pd.Timestamp) -> Database:
    """The database without events up to a time.

    Rows that others refer to are kept, so that joins still work, but moved back half a century.
    """
    referred = {p for t in db.table_dict.values() for p in t.fkey_col_to_pkey_table.values()}
    tables = {}
    for name, table in db.table_dict.items():
        if table.time_col is not None and name not in referred:
            past = np.flatnonzero(~(read_column(table, table.time_col) > time).to_numpy())
            table = OverlayTable(table, Changes.removal(past))
        elif table.time_col is not None and table.fkey_col_to_pkey_table:
            table = moved_back(table, time, pd.Timedelta(days=18_262))
        tables[name] = table
    return Database(tables)
