"""A task's manifest: RelBench's, with what RelFrog adds to it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import yaml
from relbench import hf
from relbench.manifest import KIND_AUTOCOMPLETE, KIND_EXTERNAL, KIND_FORECAST, TaskManifest

from relfrog.datasets.manifest_forms import read_task_form
from relfrog.datasets.protocols import Dataset, Task
from relfrog.errors import TaskError, unknown
from relfrog.support.relbench import Database, Table

__all__ = [
    "LABELS_FILE", "BegunDatabase", "TaskFile", "read_task_manifest", "splits_of", "task_names",
    "with_own_splits",
]  # fmt: skip

#: The user's own labels, in the source's keys, beside the manifest.
LABELS_FILE = "labels.parquet"
#: Fields of `TaskFile` that are not in the file.
_NOT_IN_FILE = ("longest_in_relbench", "relbench_agrees")
#: Fields that RelBench does not have.
_ADDED = (
    "val_timestamp", "test_timestamp", "train_from", "split_reason", "horizon", "keys", "labels",
    "source_sql", "query", "classes",
)  # fmt: skip


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
        keys: "source" if the SQL is written in the source's keys; otherwise keys are row numbers.
        labels: "column" if a column of the entity table is the label, "file" if the labels are in
            `labels.parquet`; None if the kind of the task says it.
        source_sql: The SQL, in a file only, where RelBench would make other labels of it.
        query: The question in words that the SQL was made from.
        classes: Of several labels, what each of them is.
        horizon: The horizon, in a file only, where RelBench would find it longer than validation.
        longest_in_relbench: The longest horizon that RelBench takes; not in the file.
        relbench_agrees: Whether RelBench makes the same labels of the SQL, given the same splits;
            not in the file.
    """

    val_timestamp: str | None = None
    test_timestamp: str | None = None
    train_from: str | None = None
    split_reason: str | None = None
    keys: str | None = None
    labels: str | None = None
    source_sql: str | None = None
    query: str | None = None
    classes: list[str] | None = None
    horizon: str | None = None
    longest_in_relbench: str | None = None
    relbench_agrees: bool = True

    @property
    def same_in_relbench(self) -> bool:
        """Whether RelBench makes the same labels of the SQL, but for earlier training times."""
        return self.val_timestamp is None and self.relbench_agrees

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> TaskFile:
        """From the file, in the form that RelFrog works with."""
        found = cast(
            "TaskFile", super().from_dict({k: v for k, v in d.items() if k not in _NOT_IN_FILE})
        )
        if found.source_sql is not None:
            found.kind, found.sql, found.source_sql = KIND_FORECAST, found.source_sql, None
            found.relbench_agrees = False
        elif found.labels == "column":
            found.kind = KIND_AUTOCOMPLETE
        if found.horizon is not None:
            found.longest_in_relbench = found.timedelta
            found.timedelta, found.horizon = found.horizon, None
        for key in ("val_timestamp", "test_timestamp", "train_from"):
            if getattr(found, key) is not None:  # YAML may have read a date
                setattr(found, key, str(pd.Timestamp(getattr(found, key))))
        return found

    @classmethod
    def load(cls, path: str | Path) -> TaskFile:
        """Read a file."""
        return cast("TaskFile", super().load(path))

    def to_dict(self) -> dict[str, Any]:
        """For the file, in a form that RelBench reads rightly, too."""
        shown = self
        if self.labels == "column":
            shown = replace(self, kind=KIND_EXTERNAL)
        elif not self.same_in_relbench and self.kind == KIND_FORECAST:
            shown = replace(self, kind=KIND_EXTERNAL, sql=None, source_sql=self.sql)
            longest = self.longest_in_relbench
            if longest is not None and pd.Timedelta(self.timedelta) > pd.Timedelta(longest):
                shown = replace(shown, timedelta=longest, horizon=self.timedelta)
        out: dict[str, Any] = super(TaskFile, shown).to_dict()
        for key in _ADDED:
            if getattr(shown, key) is not None:
                out[key] = getattr(shown, key)
        return out

    def labels_file(self, folder: Path) -> Path | None:
        """Where the user's own labels are, if the task has any."""
        return folder / LABELS_FILE if self.labels == "file" else None


def task_names(dataset: Dataset) -> list[str]:
    """The tasks of an opened dataset."""
    return list(dataset.get_task_names())


def read_task_manifest(dataset: Dataset, name: str) -> tuple[TaskFile, Path]:
    """A task's manifest and folder.

    Raises:
        TaskError: There is no such task, or its manifest cannot be read.
    """
    names = task_names(dataset)
    if name not in names:
        if not names:
            raise TaskError(
                "the dataset has no tasks. Add one: relfrog task DATASET NAME --sql FILE"
            )
        raise TaskError(str(unknown("task", name, names)))
    folder = _task_folder(dataset, name)
    read_task_form(folder / "manifest.yaml", name)
    try:
        manifest = TaskFile.load(folder / "manifest.yaml")
        manifest.validate()
    except (yaml.YAMLError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise TaskError(f"task {name}: {folder / 'manifest.yaml'} is not YAML: {text}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TaskError(f"task {name}: the manifest is wrong: {error}") from None
    return manifest, folder


def _task_folder(dataset: Dataset, name: str) -> Path:
    """Beside the database, or where RelBench hosts tasks that came later than their database."""
    folder = Path(dataset.dataset_dir) / "tasks" / name
    if not dataset.is_local and not (folder / "manifest.yaml").exists():
        found = hf.find_task_dir(dataset.manifest.name, name, revision=dataset.revision)
        folder = folder if found is None else Path(found)
    return folder


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


def splits_of(task: Task) -> dict[str, str | None]:
    """The split times of a task, its own or the dataset's, in the words of its manifest."""
    times = {
        "val_timestamp": task.dataset.val_timestamp, "test_timestamp": task.dataset.test_timestamp,
        "train_from": task.train_from,
    }  # fmt: skip
    return {key: None if time is None else str(time) for key, time in times.items()}


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
