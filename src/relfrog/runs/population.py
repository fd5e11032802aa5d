"""Whom a task asks about at a time: the entities that predictions are made for.

The label SQL says who is asked at a seed time. It is run on rows up to the prediction time alone,
and whether that gives the right entities is tried at earlier times, whose windows have closed:
there the same SQL is run with and without the rows of its window. If both give the same entities,
the SQL decides by the past, and its answer is taken. If not, it asks only those to whom something
happens in the window, and nobody can know them in advance; then several simple rules are tried at
the same earlier times, and the one is taken that came closest to who had a label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.labels import SPLITS
from relfrog.datasets.protocols import Task
from relfrog.datasets.tasks import asked_entities
from relfrog.errors import TaskError
from relfrog.support.relbench import Database
from relfrog.support.text import percent
from relfrog.training.prepared import Prepared

__all__ = ["Population", "find_population"]

#: Earlier windows whose labels are looked at, and the newest of them at which rules are tried.
WINDOWS, TRIED = 8, 3

Rows: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Population:
    """Whom predictions are for.

    Attributes:
        rows: rows of the entity table, in its order. Shape [population].
        others: entities that exist at that time, too, but are not asked about.
        rule: how they were found: "sql", "last window", "last 3 windows", "any window" or "all".
        words: the rule in a sentence for people, with the evidence.
    """

    rows: Rows
    others: int
    rule: str
    words: str

    def __repr__(self) -> str:
        return f"Population({len(self.rows):,} rows and {self.others:,} others: {self.words})"


@dataclass(frozen=True, eq=False)
class _Past:
    """Labels whose windows had closed, by the time at which they did."""

    closed: NDArray[np.datetime64]
    rows: Rows
    step: np.timedelta64

    def within(self, time: pd.Timestamp, windows: int | None) -> Rows:
        """Whoever had a label in the last windows before a time; None for all windows."""
        now = time.to_datetime64()
        inside = self.closed <= now
        if windows is not None:
            inside &= self.closed > now - windows * self.step
        return np.unique(self.rows[inside])

    def labelled(self, time: pd.Timestamp) -> Rows:
        """Whoever has a label at a seed time."""
        return np.unique(self.rows[self.closed == time.to_datetime64() + self.step])


def find_population(prepared: Prepared, time: pd.Timestamp) -> Population:
    """Find whom the task asks about at a time, from rows up to that time.

    Args:
        prepared: the task and its database.
        time: when the predictions are made.
    """
    task, table = prepared.task, prepared.task.entity_table

    def visible(at: pd.Timestamp) -> Rows:
        return np.flatnonzero(prepared.graph.visible(table, at))

    everyone = visible(time)
    past, tried = _labels(prepared, time)
    tried = [at for at in tried if len(np.intersect1d(past.labelled(at), visible(at)))]
    if not tried:
        words = f"all rows of {table} that exist then, as no label window had closed by that time"
        return Population(everyone, 0, "all", words)

    def by_sql(at: pd.Timestamp) -> Rows:
        return _asked(task, prepared.opened.db, at, [at])[0]

    rules: dict[str, Callable[[pd.Timestamp], Rows]] = {}
    if task.sql is not None:
        rules["sql"] = by_sql
    rules |= {
        "last window": lambda at: past.within(at, 1),
        "last 3 windows": lambda at: past.within(at, 3),
        "any window": lambda at: past.within(at, None),
        "all": visible,
    }
    best, found = "all", (0.0, 0.0, 0.0)
    for name, rule in rules.items():
        score = np.mean([_overlap(np.intersect1d(rule(at), visible(at)),
                                  np.intersect1d(past.labelled(at), visible(at)))
                         for at in tried], axis=0)  # fmt: skip
        if name == "sql" and score[0] == 1:
            best, found = name, (1.0, 1.0, 1.0)
            break
        if round(score[0], 2) >= round(found[0], 2):  # of two alike the wider one
            best, found = name, tuple(score.tolist())
    rows = np.intersect1d(rules[best](time), everyone)
    return Population(rows, len(everyone) - len(rows), best, _words(task, best, found, len(tried)))


def _words(task: Task, rule: str, found: tuple[float, ...], times: int) -> str:
    """The rule in a sentence."""
    table = task.entity_table
    if rule == "sql":
        return f"the rows of {table} that the label SQL asks about then"
    windows = "window" if rule == "last window" else rule.removeprefix("last ")
    chosen = {
        "all": f"all rows of {table} that exist then",
        "any window": f"the rows of {table} with a label in any earlier window",
    }.get(rule, f"the rows of {table} with a label in the last {windows}")
    why = "Who has a label depends on what happens in the window, which cannot be known yet"
    if task.sql is None:
        why = "Labels come from a file, which does not say who is asked about next"
    if found[0] == 1:
        return f"{chosen}, as at earlier times"
    return (
        f"{chosen}. {why}. At {times} earlier time{'' if times == 1 else 's'} this rule found "
        f"{percent(found[1])} of those with a label, and {percent(found[2])} of those it found had "
        "one"
    )


def _overlap(chosen: Rows, wanted: Rows) -> tuple[float, float, float]:
    """F1, recall and precision of a set of rows."""
    both = len(np.intersect1d(chosen, wanted))
    if not both:
        return 0.0, 0.0, 0.0
    return 2 * both / (len(chosen) + len(wanted)), both / len(wanted), both / len(chosen)


def _labels(prepared: Prepared, time: pd.Timestamp) -> tuple[_Past, list[pd.Timestamp]]:
    """Labels known at a time, and the newest seed times among them."""
    task, opened = prepared.task, prepared.opened
    step = task.timedelta
    parts: list[tuple[Rows, NDArray[np.datetime64]]] = []
    for split in SPLITS:
        try:
            seeds = opened.seeds(split)
        except (TaskError, RuntimeError, AssertionError, ValueError, LookupError):
            continue  # a split without labels, or one that only its owner can read
        parts.append((np.asarray(seeds.rows), seeds.times.astype("datetime64[us]")))
    times = [time - number * step for number in range(1, WINDOWS + 1)] if step else []
    if task.sql is not None and times:
        for at, rows in zip(times, _asked(task, opened.db, time, times), strict=True):
            parts.append((rows, np.full(len(rows), at.as_unit("us").to_datetime64())))
    rows = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    nothing = np.zeros(0, "datetime64[us]")  # as wide as times may be
    closed = np.concatenate([nothing, *(part[1] for part in parts)]) + step.to_timedelta64()
    known = closed <= time.to_datetime64()
    past = _Past(closed[known], rows[known], step.to_timedelta64())
    if task.sql is None:
        found = np.unique(past.closed)[-TRIED:]
        times = [pd.Timestamp(at) - step for at in found]
    return past, times[:TRIED] if task.sql is not None else times


def _asked(task: Task, db: Database, time: pd.Timestamp, seeds: list[pd.Timestamp]) -> list[Rows]:
    """Whom the label SQL asks about at seed times, given rows up to a time."""
    assert task.sql is not None
    lower = task.sql.lower()
    tables = {
        name: table if name == task.entity_table else table.upto(time)
        for name, table in db.table_dict.items()
        if name.lower() in lower or name == task.entity_table
    }
    try:
        frame = asked_entities(task, Database(tables), seeds)
    except TaskError:  # SQL may not bear a table without rows: then it says nothing
        return [np.zeros(0, np.int64) for _ in seeds]
    rows, times = frame[task.entity_col], pd.to_datetime(frame[task.time_col])
    count = len(db.table_dict[task.entity_table])
    inside = rows < count  # as everywhere: a row that is not in the table is not asked about
    return [rows[inside & (times == at)].to_numpy(np.int64) for at in seeds]
