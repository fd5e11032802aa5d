"""The folder of a new task: where it goes, and how it is written, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup

from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.labels import LabelStats, label_stats
from relfrog.datasets.late_columns import find_late_columns, hidden_note
from relfrog.datasets.opened_dataset import OpenedDataset
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.task_file import LABELS_FILE, TaskFile
from relfrog.errors import DatasetError, TaskError, UsageError, unknown
from relfrog.kinds import TASK_KINDS
from relfrog.support.files import atomic_folder
from relfrog.support.notebook import Bar, bars, html_table
from relfrog.support.relbench import Database
from relfrog.support.text import percent, split_place

__all__ = ["TYPES", "AddedTask", "TaskRequest", "entity_end", "useful_stats", "write_task"]

#: RelBench's task types by their short names.
TYPES = {kind.word: name for name, kind in TASK_KINDS.items()}


@dataclass(frozen=True, repr=False)
class AddedTask:
    """A task that was added to a dataset.

    Attributes:
        manifest: Its manifest.
        folder: Its folder.
        stats: Statistics of its labels per split.
        notes: What the user should know, such as what was chosen for them.
        warnings: What is wrong with the labels, and what to do.
    """

    manifest: TaskFile
    folder: Path
    stats: dict[str, LabelStats]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = ", ".join(f"{stats.rows:,} {split}" for split, stats in self.stats.items())
        ahead = f", {self.manifest.timedelta} ahead" if self.manifest.timedelta else ""
        return (
            f"AddedTask({self.manifest.name}: {self.manifest.task_type}{ahead}, labels: {counts})"
        )

    def _repr_html_(self) -> str:
        """Labels per split, as a table and a picture."""
        head = Markup("<p><b>{}</b> {}</p>").format(self.manifest.name, self.manifest.task_type)
        if self.manifest.query or self.manifest.description:
            words = self.manifest.query or self.manifest.description
            head += Markup("<p><code>{}</code></p>").format(words)
        names = sorted({name for stats in self.stats.values() for name in stats.label})
        rows = [
            [split, f"{stats.rows:,}", f"{stats.seed_times:,}", f"{stats.entities:,}",
             *(f"{stats.label.get(name, float('nan')):.4g}" for name in names)]
            for split, stats in self.stats.items()
        ]  # fmt: skip
        table = html_table(["split", "rows", "seed times", "entities", *names], rows)
        shown = [Bar(split, stats.rows, f"{stats.rows:,}") for split, stats in self.stats.items()]
        what = "Labels"
        if all("positive" in stats.label for stats in self.stats.values()):
            what = "Positive labels"
            shown = [
                Bar(split, stats.label["positive"], percent(stats.label["positive"]), "first")
                for split, stats in self.stats.items()
            ]
        return str(head + table + Markup("<p>{}:</p>{}").format(what, bars(shown)))


@dataclass(frozen=True)
class TaskRequest:
    """What is asked of a task that is to be added, wherever its labels come from.

    Attributes:
        dataset: A dataset folder.
        name: The task's name.
        type: The type of task, by its short name; None where the labels tell.
        description: The task in words.
        hide: Columns the model must not see, as ``table.column``.
        show: Columns later than their rows that it may see all the same, likewise.
        val: The task's own validation time; None for the dataset's, or one that suits the labels.
        test: The task's own test time, likewise.
        overwrite: Whether to replace a task of this name.
    """

    dataset: str | Path
    name: str
    type: str | None = None
    description: str | None = None
    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    val: str | None = None
    test: str | None = None
    overwrite: bool = False

    @property
    def chooses_splits(self) -> bool:
        """Whether a split time is given."""
        return self.val is not None or self.test is not None

    def open(self) -> tuple[OpenedDataset, Path]:
        """Open the dataset, and find the folder of the task.

        Raises:
            DatasetError: Nothing can be added to the dataset.
            UsageError: The name cannot be a task's, or there is no such type of task.
            TaskError: There is a task of this name already.
        """
        opened, name = open_dataset(self.dataset), self.name
        if not opened.is_local:
            raise DatasetError(
                f"{self.dataset} is hosted elsewhere; a task can be added to a folder only"
            )
        folder = Path(opened.dataset_dir) / "tasks" / name
        if not name or Path(name).name != name or name.startswith(".") or len(name) > 100:
            raise UsageError(f"{name!r} cannot be a task's name: it becomes the name of a folder")
        if folder.exists() and not self.overwrite:
            raise TaskError(f"the dataset has a task {name} already. Replace it with --overwrite.")
        if self.type is not None and self.type not in TYPES:
            raise UsageError(f"unknown task type {self.type!r}. Types are {', '.join(TYPES)}")
        return opened, folder

    def hidden_columns(
        self, dataset: Dataset, full: Database, label: tuple[str, str] | None = None
    ) -> tuple[list[list[str]], tuple[str, ...]]:
        """Columns the model must not see: those that are named, and those later than their rows.

        Args:
            dataset: The dataset.
            full: Its database.
            label: The label's own column, if it is one of them.

        Returns:
            The columns as RelBench lists them, and what to tell the user.
        """
        named = _columns_named(dataset, "--hide", self.hide)
        shown = _columns_named(dataset, "--show", self.show)
        for pair in named:
            if pair in shown:
                raise UsageError(f"{'.'.join(pair)} is both to be hidden and to be shown")
        kept = [*named, *shown, [] if label is None else [*label]]
        late = [c for c in find_late_columns(full) if [c.table, c.column] not in kept]
        notes = (hidden_note(late),) if late else ()
        return [*named, *([c.table, c.column] for c in late)], notes


def entity_end(dataset: Dataset, text: str) -> tuple[str, str]:
    """The table and the labels' column for one end of a task, given as ``TABLE[.COLUMN]``."""
    tables = dataset.manifest.tables
    table, column = text, None
    if text not in tables:
        table, column = split_place(text, tables)
    if table not in tables:
        raise TaskError(str(unknown("table", text if not table else table, tables)))
    pkey = tables[table].pkey
    if pkey is None:
        raise TaskError(
            f"table {table} has no primary key, so nothing can be predicted for its rows. "
            f"Import it with --pk {table}.COLUMN"
        )
    return table, column or pkey


def _columns_named(dataset: Dataset, flag: str, places: tuple[str, ...]) -> list[list[str]]:
    """Columns given as ``TABLE.COLUMN``, as pairs."""
    tables = dataset.manifest.tables
    pairs = []
    for text in places:
        table, column = split_place(text, tables)
        if table not in tables or not column:
            raise UsageError(f"{flag} {text}: write it as TABLE.COLUMN")
        path = Path(dataset.db_dir) / f"{table}.parquet"
        known = pq.read_schema(path).names
        if column not in known:
            raise TaskError(str(unknown(f"column in table {table}", column, known)))
        pairs.append([table, column])
    return pairs


def useful_stats(task: Task, name: str, frames: dict[str, pd.DataFrame]) -> dict[str, LabelStats]:
    """Statistics of the labels of each split.

    Raises:
        TaskError: There is nothing to learn from them.
    """
    stats = {split: label_stats(task, frame) for split, frame in frames.items()}
    if stats["train"].constant:
        rows = stats["train"].rows
        raise TaskError(f"task {name}: all {rows:,} labels of the train split are equal")
    return stats


def write_task(
    folder: Path,
    manifest: TaskFile,
    frames: dict[str, pd.DataFrame],
    overwrite: bool,
    given: pd.DataFrame | None = None,
) -> None:
    """Write a task's folder.

    Args:
        folder: Where.
        manifest: The task.
        frames: The labels of each split, entities as row numbers.
        overwrite: Whether to replace a task.
        given: The user's own labels, in the source's keys, where the task is made of them.
    """
    with atomic_folder(folder, overwrite, lambda _: "") as partial:
        for split, frame in frames.items():
            frame.to_parquet(partial / f"{split}.parquet", index=False)
        if given is not None:
            given.to_parquet(partial / LABELS_FILE, index=False)
        manifest.save(partial / "manifest.yaml")
