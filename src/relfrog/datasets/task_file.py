"""A task's manifest: RelBench's, with what RelFrog adds to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml
from relbench import hf
from relbench.manifest import KIND_AUTOCOMPLETE, KIND_EXTERNAL, KIND_FORECAST, TaskManifest

from relfrog.datasets.protocols import Dataset
from relfrog.errors import TaskError, unknown

__all__ = ["LABELS_FILE", "TaskFile", "read_task_manifest", "task_names"]

#: The user's own labels, in the source's keys, beside the manifest.
LABELS_FILE = "labels.parquet"


@dataclass
class TaskFile(TaskManifest):
    """RelBench's manifest of a task, and entries that RelBench passes over.

    What RelBench cannot make by itself is "external" to it: it takes the labels that are stored
    beside the manifest, and refuses to make them anew.

    Attributes:
        keys: "source" if the SQL is written in the source's keys; otherwise keys are row numbers.
        source_sql: The SQL, in a file only, where RelBench would make other labels of it.
        labels: "column" if a column of the entity table is the label, "file" if the labels are in
            `labels.parquet`; None if the kind of the task says it.
        relbench_agrees: Whether RelBench makes the same labels of the SQL; not in the file.
    """

    keys: str | None = None
    source_sql: str | None = None
    labels: str | None = None
    relbench_agrees: bool = True

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> TaskFile:
        """From the file, in the form that RelFrog works with."""
        known = {k: v for k, v in d.items() if k != "relbench_agrees"}
        found = cast("TaskFile", super().from_dict(known))
        if found.source_sql is not None:
            found.kind, found.sql, found.source_sql = KIND_FORECAST, found.source_sql, None
            found.relbench_agrees = False
        elif found.labels == "column":
            found.kind = KIND_AUTOCOMPLETE
        return found

    @classmethod
    def load(cls, path: str | Path) -> TaskFile:
        """Read a file."""
        return cast("TaskFile", super().load(path))

    def to_dict(self) -> dict[str, Any]:
        """For the file, in a form that RelBench reads rightly, too."""
        shown = self
        if not self.relbench_agrees:
            shown = replace(self, kind=KIND_EXTERNAL, sql=None, source_sql=self.sql)
        elif self.labels == "column":
            shown = replace(self, kind=KIND_EXTERNAL)
        out: dict[str, Any] = super(TaskFile, shown).to_dict()
        for key in ("keys", "source_sql", "labels"):
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
    try:
        manifest = TaskFile.load(folder / "manifest.yaml")
        manifest.validate()
    except (yaml.YAMLError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise TaskError(f"task {name}: {folder / 'manifest.yaml'} is no YAML: {text}") from None
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
