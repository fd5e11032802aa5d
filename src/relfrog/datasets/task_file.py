"""A task's manifest: RelBench's, with what RelFrog adds to it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from relbench.base import Database, Table
from relbench.manifest import KIND_EXTERNAL, KIND_FORECAST, TaskManifest

from relfrog.datasets.protocols import Dataset

__all__ = ["BegunDatabase", "TaskFile", "with_own_splits"]


@dataclass
class TaskFile(TaskManifest):
    """RelBench's manifest of a task, and entries that RelBench passes over.

    What RelBench would make otherwise is "external" to it: it takes the labels that are stored
    beside the manifest, and refuses to make them anew.

    Attributes:
        val_timestamp: The task's own validation time; None for the dataset's.
        test_timestamp: The task's own test time; None for the dataset's.
        train_from: The time before which there are no training times; None for the first row's.
        split_reason: Where the task's own times come from.
        source_sql: The SQL, in a file only, where RelBench would make other labels of it.
        horizon: The horizon, in a file only, where RelBench would find it longer than validation.
        longest_in_relbench: The longest horizon that RelBench takes; not in the file.
    """

    val_timestamp: str | None = None
    test_timestamp: str | None = None
    train_from: str | None = None
    split_reason: str | None = None
    source_sql: str | None = None
    horizon: str | None = None
    longest_in_relbench: str | None = None

    @property
    def same_in_relbench(self) -> bool:
        """Whether RelBench makes the same labels of the SQL, but for earlier training times."""
        return self.val_timestamp is None

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> TaskFile:
        """From the file, in the form that RelFrog works with."""
        found = super().from_dict({k: v for k, v in d.items() if k != _NOT_IN_FILE})
        assert isinstance(found, TaskFile)
        if found.source_sql is not None:
            found.kind, found.sql, found.source_sql = KIND_FORECAST, found.source_sql, None
        if found.horizon is not None:
            found.longest_in_relbench = found.timedelta
            found.timedelta, found.horizon = found.horizon, None
        for key in ("val_timestamp", "test_timestamp", "train_from"):
            if getattr(found, key) is not None:  # YAML may have read a date
                setattr(found, key, str(pd.Timestamp(getattr(found, key))))
        return found

    def to_dict(self) -> dict[str, Any]:
        """For the file, in a form that RelBench reads rightly, too."""
        shown = self
        if not self.same_in_relbench and self.kind == KIND_FORECAST:
            shown = replace(self, kind=KIND_EXTERNAL, sql=None, source_sql=self.sql)
            longest = self.longest_in_relbench
            if longest is not None and pd.Timedelta(self.timedelta) > pd.Timedelta(longest):
                shown = replace(shown, timedelta=longest, horizon=self.timedelta)
        out: dict[str, Any] = super(TaskFile, shown).to_dict()
        for key in (
            "val_timestamp", "test_timestamp", "train_from", "split_reason", "horizon",
            "source_sql",
        ):  # fmt: skip
            if getattr(shown, key) is not None:
                out[key] = getattr(shown, key)
        return out


_NOT_IN_FILE = "longest_in_relbench"


def with_own_splits(dataset: Dataset, manifest: TaskManifest) -> Dataset:
    """The dataset with the splits of a task, where these are its own.

    Everything that depends on splits asks the dataset of its task for them: training and the
    statistics of columns, frozen scores, label history, checks, reports.
    """
    own = [getattr(manifest, key, None) for key in ("val_timestamp", "test_timestamp")]
    if own == [None, None]:
        return dataset
    other = copy.copy(dataset)
    if own[0] is not None:
        other.val_timestamp = pd.Timestamp(own[0])
    if own[1] is not None:
        other.test_timestamp = pd.Timestamp(own[1])
    if not other.val_timestamp < other.test_timestamp:
        raise ValueError(
            f"its validation time {other.val_timestamp} must lie before its test time "
            f"{other.test_timestamp}"
        )
    return other


class BegunDatabase(Database):
    """A database that counts as beginning at a time; older rows stay in it."""

    def __init__(self, tables: dict[str, Table], first: pd.Timestamp | None) -> None:
        super().__init__(tables)
        self._first = first

    @property
    def min_timestamp(self) -> pd.Timestamp:
        """The first time, but not before the one given."""
        own = super().min_timestamp
        return own if self._first is None else max(own, self._first)
