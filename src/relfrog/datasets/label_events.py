"""The events that labels are made of: which tables' later rows decide them, and their times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from relfrog.datasets.label_checks import NoLabels
from relfrog.datasets.label_digests import differing, label_digests
from relfrog.datasets.protocols import Task
from relfrog.importing.split_proposal import main_part
from relfrog.store.file_table import read_column
from relfrog.support.relbench import Database, Table

__all__ = ["LabelEvents", "label_events"]

_Times = np.ndarray[Any, np.dtype[np.int64]]
#: Microseconds.
_SECOND, _HOUR, _DAYS = 1_000_000, 3_600_000_000, 20 * 86_400_000_000


@dataclass(frozen=True)
class LabelEvents:
    """The rows whose times decide labels.

    Attributes:
        tables: The tables they are of.
        times: Different times in order, in microseconds since 1970.
        counts: Rows at each.
        unit: To which times are rounded up.
    """

    tables: tuple[str, ...]
    times: _Times
    counts: _Times
    unit: int = _SECOND

    @property
    def first(self) -> pd.Timestamp | None:
        """Where events begin, not counting a few far from the rest; None if there are none."""
        if not len(self.times):
            return None
        return pd.Timestamp(int(self.times[main_part(self.times, self.counts)][0]), unit="us")

    def within(self, starts: pd.DatetimeIndex, length: pd.Timedelta) -> _Times:
        """The number of events in each window after a start, and not after its end."""
        passed = np.concatenate(([0], np.cumsum(self.counts)))
        begin = starts.to_numpy().astype("datetime64[us]").astype(np.int64)
        end = begin + int(length / pd.Timedelta(microseconds=1))
        places = [np.searchsorted(self.times, t, side="right") for t in (begin, end)]
        return np.asarray(passed[places[1]] - passed[places[0]], np.int64)


def label_events(task: Task, full: Database) -> LabelEvents:
    """Find the tables whose later rows decide labels, by leaving them out.

    For each table with a time that the SQL names, labels are made at the middle of its rows, with
    and without its later rows. If none makes a difference, all of those
    tables count but the one asked about.

    Args:
        task: The task; its splits do not matter.
        full: The whole database.
    """
    sql = (task.sql or "").lower()
    timed = {
        name: times
        for name, table in full.table_dict.items()
        if len(times := _times(table))
        and re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", sql)
    }
    deciding = [name for name, times in timed.items() if _decides(task, full, name, times)]
    others = [name for name in timed if name != task.entity_table]
    chosen = deciding or others or list(timed)
    return _counted(tuple(chosen), [timed[name] for name in chosen])


def _times(table: Table) -> _Times:
    """The times of a table's rows, in order, in microseconds."""
    if table.time_col is None:
        return np.zeros(0, np.int64)
    times = pd.to_datetime(read_column(table, table.time_col)).dropna().to_numpy()
    return np.sort(times.astype("datetime64[us]").astype(np.int64))


def _counted(tables: tuple[str, ...], times: Sequence[_Times]) -> LabelEvents:
    joined, unit = np.concatenate([np.zeros(0, np.int64), *times]), _SECOND
    if len(joined):
        low, high = np.quantile(joined, (0.05, 0.95))
        unit = _HOUR if high - low >= _DAYS else _SECOND
        # Rounded up: an event counts in the window that ends with its hour, not before.
        joined = -(-joined // unit) * unit
    found, counts = np.unique(joined, return_counts=True)
    return LabelEvents(tables, found, counts, unit)


def _decides(task: Task, full: Database, name: str, times: _Times) -> bool:
    """Whether the rows of a table after a time make a difference to the labels of that time."""
    half = int(task.timedelta / pd.Timedelta(microseconds=1)) // 2
    start = pd.Timestamp(int(times[len(times) // 2]) - half, unit="us")
    cut = full.table_dict[name].upto(start)
    whole = _labels(task, full, start)
    part = _labels(task, Database({**full.table_dict, name: cut}), start)
    if name == task.entity_table:  # who comes later is not asked about yet
        return bool(len(differing(whole, part)))
    return len(whole) != len(part) or bool(len(differing(whole, part, missing=True)))


def _labels(task: Task, db: Database, time: pd.Timestamp) -> pd.Series:
    try:
        frame = task.make_table(db, [time]).df
    except NoLabels:
        return pd.Series([], dtype=np.uint64)
    return label_digests(frame[task.entity_col], frame[task.target_col])
