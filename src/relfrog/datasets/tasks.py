"""Tasks: RelBench's tasks with sandboxed label SQL, stored labels and clear errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import relbench.base
from relbench import metrics
from relbench.load import DEFAULT_METRICS
from relbench.manifest import KIND_AUTOCOMPLETE, KIND_FORECAST, TaskManifest

from relfrog.datasets import autocomplete
from relfrog.datasets.external import read_labels
from relfrog.datasets.files import database_in_files
from relfrog.datasets.key_views import SourceKeys, find_source_keys
from relfrog.datasets.label_checks import (
    NoLabels,
    check_entities,
    check_labels,
    check_stored,
    in_order,
    need_column,
)
from relfrog.datasets.labels import check_seed_times, label_rows, split_times, timed_first
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.task_file import (
    BegunDatabase,
    TaskFile,
    read_task_manifest,
    splits_of,
    task_names,
    with_own_splits,
)
from relfrog.errors import TaskError
from relfrog.support.lists import (
    as_objects,
    flatten,
    holds_lists,
    read_frame,
    sort_lists,
    unflatten,
)
from relfrog.support.parquet import UNREADABLE
from relfrog.support.relbench import (
    BaseTask,
    Database,
    EntityTask,
    RecommendationTask,
    Table,
    TaskType,
)

__all__ = [
    "asked_entities",
    "labels_of",
    "load_task",
    "read_task_manifest",
    "task_from",
    "task_names",
]


class _StoredLabels(BaseTask):
    """What RelFrog adds to RelBench's tasks.

    The labels of a split are read from files next to the manifest, or else computed by the SQL. The
    table that is predicted for is the entity table, also for recommendations. Problems with files
    and columns raise a TaskError.
    """

    dataset: Any  # ours, which RelBench's classes take for theirs
    sql: str | None = None
    train_from: pd.Timestamp | None = None
    source_keys: SourceKeys | None = None
    completes: bool = False
    dst_entity_table: str = ""
    eval_k: int = 0
    evaluator: str | None = None
    classes: tuple[str, ...] = ()
    entity_table: str
    entity_col: str
    time_col: str
    target_col: str

    def _describe(
        self, dataset: Dataset, manifest: TaskFile, folder: Path | None, regenerate: bool
    ) -> None:
        """Set the attributes that RelBench's constructor does not take; called before it."""
        self.name, self.kind, self.evaluator = manifest.name, manifest.kind, manifest.evaluator
        self.task_type = TaskType(manifest.task_type)
        self._manifest, self._home = manifest, folder
        self._folder = None if regenerate else folder
        self.classes = tuple(map(str, manifest.classes or ()))
        first = manifest.train_from
        self.train_from = None if first is None else pd.Timestamp(first)
        self._labels_file = None if folder is None else manifest.labels_file(folder)
        if manifest.kind == KIND_AUTOCOMPLETE:
            return
        ranks = self.task_type is TaskType.RECOMMENDATION
        self.entity_table = _needed(manifest, "src_entity_table" if ranks else "entity_table")
        self.entity_col = _needed(manifest, "src_entity_col" if ranks else "entity_col")
        self.target_col = _needed(manifest, "dst_entity_col" if ranks else "target_col")
        self.time_col = _needed(manifest, "time_col")
        self.timedelta = pd.Timedelta(manifest.timedelta or "1 day")
        self.num_eval_timestamps = manifest.num_eval_timestamps
        if manifest.kind == KIND_FORECAST:
            self.sql = _needed(manifest, "sql")
            if manifest.keys == "source":
                self.source_keys = find_source_keys(dataset)
                if self.source_keys is None:
                    raise ValueError(
                        "its SQL is written in the keys of the source, but the dataset has none: "
                        "import.json is missing or damaged. Import the database again."
                    )
        elif regenerate and self._labels_file is None:
            raise ValueError(f"{manifest.kind} labels are files, and no SQL makes them anew")

    def get_table(
        self, split: str, mask_input_cols: bool | None = None, db: Database | None = None
    ) -> Table:
        """The labels of a split; by default the label column is masked in the test split.

        Raises:
            TaskError: A file, a column or the SQL is wrong.
        """
        masked = split == "test" if mask_input_cols is None else mask_input_cols
        frame = self.get_labels(split, db, masked)
        if masked:
            keys = {self.entity_col: self.entity_table}
            return Table(frame[[self.time_col, self.entity_col]], keys, None, self.time_col)
        if holds_lists(frame[self.target_col]):
            frame = frame.assign(**{self.target_col: as_objects(frame[self.target_col])})
        return Table(frame, self._label_keys(), None, self.time_col)

    def get_labels(
        self, split: str, db: Database | None = None, masked: bool = False
    ) -> pd.DataFrame:
        """The labels of a split as a frame, lists as Arrow's; see `get_table`.

        Args:
            split: The split.
            db: The whole database, if it is open. Columns that the task hides are hidden from
                models, not from its SQL: labels are often made of them.
            masked: Whether it does not matter that there are labels.
        """
        path = None if self._folder is None else self._folder / f"{split}.parquet"
        try:
            if path is not None and path.exists():
                table = self._read(path)
                check_stored(self, table.df, path.name, db, masked)
            elif self._labels_file is not None:
                frame = read_labels(self._labels_file, _as_ours(self.dataset), self, split)
                table = Table(frame, self._label_keys(), None, self.time_col)
            else:
                table = self._get_table(split, self._timed_first(split, db))
        except UNREADABLE as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise TaskError(f"{split} split: labels cannot be read ({text})") from None
        for name in [self.time_col, self.entity_col, *([] if masked else [self.target_col])]:
            need_column(table.df, name)
        return table.df

    def content(self, hashed: Callable[[Path], str]) -> dict[str, Any]:
        """What the labels depend on besides the database, for the names of parts.

        Args:
            hashed: gives a hash of the bytes of a file.
        """
        files = [] if self._home is None else sorted(self._home.glob("*.parquet"))
        if self.source_keys is not None or self._labels_file is not None:
            base = Path(self.dataset.dataset_dir)
            files += [base / "import.json", *sorted((base / "keys").glob("*.parquet"))]
        return {
            "manifest": {name: str(value) for name, value in vars(self._manifest).items()},
            "stored": self._folder is not None,
            "files": [[file.name, hashed(file)] for file in files if file.is_file()],
            "splits": [str(self.dataset.val_timestamp), str(self.dataset.test_timestamp)],
        }

    def _timed_first(self, split: str, db: Database | None) -> Database | None:
        """The database for the label SQL, in an order in which RelBench finds its time span."""
        if self.sql is None:
            return db
        if db is None:
            db = database_in_files(_as_ours(self.dataset))
        check_seed_times(db, self.timedelta)
        return timed_first(db, self.dataset.test_timestamp)

    def _split_db(self, split: str, db: Database | None = None) -> Database:
        db = super()._split_db(split, db)
        begins = split == "train" and self.train_from is not None
        return BegunDatabase(db.table_dict, self.train_from) if begins else db

    def _get_table(self, split: str, db: Database | None = None) -> Table:
        """RelBench's labels of a split, in RelBench's order, without a loop over rows."""
        db = self._split_db(split, db)
        table = self.make_table(db, split_times(self, split, db))
        known = db if split != "test" else db.upto(self.dataset.test_timestamp)
        return self.filter_dangling_entities(table, known)

    def filter_dangling_entities(self, table: Table, db: Database) -> Table:
        """The labels of rows that are there, in order of time and entity."""
        there = table.df[self.entity_col] < len(db.table_dict[self.entity_table])
        frame = table.df if there.all() else table.df[there]
        by = [self.time_col, self.entity_col]
        if not in_order(frame, by):
            frame = frame.sort_values(by, kind="stable")
        frame = frame.reset_index(drop=True)
        return Table(frame, table.fkey_col_to_pkey_table, None, self.time_col)

    def _read(self, path: Path) -> Table:
        return Table(read_frame(path), self._label_keys(), None, self.time_col)

    def _label_keys(self) -> dict[str, str]:
        return {self.entity_col: self.entity_table}

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The columns of the labels that hold rows, and the table of each."""
        return list(self._label_keys().items())

    def evaluate(
        self, pred: Any, target_table: Table | None = None, metrics: list[Any] | None = None
    ) -> Any:
        """Compute RelBench's metrics, unless the task needs an evaluator that RelBench lacks."""
        if self.evaluator and metrics is None:
            raise TaskError(
                f"task {self.name} is scored by {self.evaluator}, which RelBench cannot do. Pass "
                "metrics=[...]"
            )
        return super().evaluate(pred, target_table, metrics)


class _EntityTask(_StoredLabels, EntityTask):
    """Predict a value for each entity."""

    def __init__(
        self, dataset: Dataset, manifest: TaskFile, folder: Path | None, regenerate: bool
    ) -> None:
        self._describe(dataset, manifest, folder, regenerate)
        self.metrics = [
            metrics.make_nmae(lambda: self.nmae_std) if name == "nmae" else getattr(metrics, name)
            for name in DEFAULT_METRICS.get(self.task_type, ())
        ]
        super().__init__(_as_relbench(dataset), remove_columns=manifest.remove_columns)

    @cached_property
    def nmae_std(self) -> float:
        """The divisor of NMAE; computed lazily, as it may run the label SQL."""
        return float(self.get_table("train").df[self.target_col].std(ddof=1))

    def make_table(self, db: Database, timestamps: Sequence[pd.Timestamp]) -> Table:
        frame = _label_frame(self, db, timestamps)
        if self.task_type is TaskType.MULTILABEL_CLASSIFICATION:
            # RelBench sorts lists, as they may be sets; here the position identifies the label.
            lists = as_objects(frame[self.target_col])
            frame[self.target_col] = pd.Series(list(map(tuple, lists)), frame.index, object)
        return Table(frame, self._label_keys(), None, self.time_col)


class _RecommendationTask(_StoredLabels, RecommendationTask):
    """Predict a list of targets for each entity."""

    def __init__(
        self, dataset: Dataset, manifest: TaskFile, folder: Path | None, regenerate: bool
    ) -> None:
        self._describe(dataset, manifest, folder, regenerate)
        self.src_entity_table, self.src_entity_col = self.entity_table, self.entity_col
        self.dst_entity_table = _needed(manifest, "dst_entity_table")
        self.dst_entity_col = self.target_col
        self.eval_k = manifest.eval_k or 0
        self.metrics = [getattr(metrics, name) for name in DEFAULT_METRICS[self.task_type]]
        super().__init__(_as_relbench(dataset), remove_columns=manifest.remove_columns)

    def make_table(self, db: Database, timestamps: Sequence[pd.Timestamp]) -> Table:
        frame = _label_frame(self, db, timestamps)
        return Table(frame, self._label_keys(), None, self.time_col)

    def filter_dangling_entities(self, table: Table, db: Database) -> Table:
        """The same, each list in order, without targets that are not there."""
        frame = table.df
        lengths, flat = flatten(frame[self.target_col])
        there = flat < len(db.table_dict[self.dst_entity_table])
        if not there.all():
            rows = np.repeat(np.arange(len(lengths)), lengths)[there]
            lengths, flat = np.bincount(rows, minlength=len(lengths)), flat[there]
        frame = frame.assign(**{self.target_col: unflatten(lengths, sort_lists(lengths, flat))})
        frame = frame if lengths.all() else frame[lengths > 0]
        return super().filter_dangling_entities(Table(frame, self._label_keys(), None), db)

    def _label_keys(self) -> dict[str, str]:
        return {self.entity_col: self.entity_table, self.target_col: self.dst_entity_table}


class _AutoCompleteTask(_EntityTask):
    """Predict a column of the entity's own table; see `relfrog.datasets.autocomplete`."""

    completes = True
    timedelta = pd.Timedelta(seconds=1)

    def _describe(
        self, dataset: Dataset, manifest: TaskFile, folder: Path | None, regenerate: bool
    ) -> None:
        super()._describe(dataset, manifest, folder, regenerate)
        self.entity_table = _needed(manifest, "entity_table")
        self.target_col = _needed(manifest, "target_col")
        if self.entity_table not in dataset.manifest.tables:
            raise ValueError(f"there is no table {self.entity_table}")
        table = dataset.manifest.tables[self.entity_table]
        self.entity_col = table.pkey or autocomplete.NO_KEY
        self.time_col = table.time_col or autocomplete.NO_TIME

    def hidden_columns(self) -> list[tuple[str, str]]:
        """All columns the model must not see, the label's own among them."""
        label = (self.entity_table, self.target_col)
        return [*(pair for pair in self.remove_columns if pair != label), label]

    def _get_table(self, split: str, db: Database | None = None) -> Table:
        if db is None:
            db = database_in_files(_as_ours(self.dataset))
        frame = autocomplete.completed_labels(_as_ours(self.dataset), self, db, split)
        if not len(frame):
            raise NoLabels(f"no row of {self.entity_table} has a value there")
        check_labels(frame, self.target_col, self.task_type.value)
        return Table(frame, self._label_keys(), None, self.time_col)

    def make_table(self, db: Database, timestamps: Sequence[pd.Timestamp]) -> Table:
        """Not needed: no SQL makes these labels."""
        raise TaskError(f"the labels of task {self.name} are a column, not made at any time")


def _as_relbench(dataset: Dataset) -> relbench.base.Dataset:
    """Cast to RelBench's class, of which it only uses what is in the protocol."""
    return cast("relbench.base.Dataset", dataset)


def _as_ours(dataset: relbench.base.Dataset) -> Dataset:
    """The other way round: what a task was made with."""
    return cast("Dataset", dataset)


def _needed(manifest: TaskManifest, key: str) -> str:
    value = getattr(manifest, key)
    if not isinstance(value, str):
        raise ValueError(f"the manifest does not say its {key}")
    return value


def labels_of(task: Task, split: str, db: Database | None = None) -> pd.DataFrame:
    """The labels of a split; of our own tasks lists are Arrow's, and nothing is copied."""
    if isinstance(task, _StoredLabels):
        return task.get_labels(split, db)
    frame: pd.DataFrame = task.get_table(split, mask_input_cols=False, db=db).df
    return frame


def asked_entities(task: Task, db: Database, timestamps: Sequence[pd.Timestamp]) -> pd.DataFrame:
    """Whom the SQL asks about, whatever their labels: rows with an entity and a seed time.

    Without the rows of a window its labels mean nothing, and may be NULL.
    """
    if task.sql is None:
        raise TaskError("the labels are files, and one of them is missing")
    frame = label_rows(task, db, timestamps)
    for column in (task.time_col, task.entity_col, task.target_col):
        need_column(frame, column)
    if len(frame):
        check_entities(frame, task.entity_col, task.time_col)
    return frame


def _label_frame(task: Task, db: Database, timestamps: Sequence[pd.Timestamp]) -> pd.DataFrame:
    """What the SQL gives, refused in words where RelBench would end in a traceback."""
    frame = asked_entities(task, db, timestamps)
    if not len(frame):
        raise NoLabels("the SQL gives no label")
    if not (frame[task.entity_col] < len(db.table_dict[task.entity_table])).any():
        raise NoLabels("the SQL gives no label")
    check_labels(frame, task.target_col, task.task_type.value)
    if task.dst_entity_table:
        size = len(db.table_dict[task.dst_entity_table])
        if not (flatten(frame[task.target_col])[1] < size).any():
            raise NoLabels("the SQL gives no label")
    return frame


def task_from(
    dataset: Dataset, manifest: TaskManifest, folder: Path | None = None, regenerate: bool = False
) -> Task:
    """Create the task of a manifest; its SQL runs in the sandbox of :func:`run_sql`.

    Args:
        dataset: The dataset.
        manifest: The manifest of the task.
        folder: The folder of stored labels, if any.
        regenerate: Whether to run the label SQL even if labels are stored.

    Raises:
        TaskError: The manifest does not fit the dataset.
    """
    if not isinstance(manifest, TaskFile):
        manifest = TaskFile(**vars(manifest))
    try:
        manifest.validate()
        dataset = with_own_splits(dataset, manifest)
        ranks = manifest.task_type == TaskType.RECOMMENDATION.value
        kind = _RecommendationTask if ranks else _EntityTask
        if manifest.kind == KIND_AUTOCOMPLETE:
            if ranks:
                raise ValueError("a column cannot be filled in with lists of rows")
            kind = _AutoCompleteTask
        return kind(dataset, manifest, folder, regenerate)
    except (
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # RelBench raises RuntimeError for settings that it does not support yet.
        raise TaskError(f"task {manifest.name}: {error}") from None


def load_task(
    dataset: Dataset,
    name: str,
    *,
    regenerate: bool = False,
    splits: Mapping[str, str | None] | None = None,
) -> Task:
    """Load a task of an opened dataset.

    Args:
        dataset: The result of `open_dataset`.
        name: The name of the task.
        regenerate: Whether to run the label SQL even if labels are stored.
        splits: The task's split times as `splits_of` gave them once; they count where labels come
            from SQL, also if the task has others now.

    Raises:
        TaskError: There is no such task, or its manifest is wrong.
    """
    manifest, folder = read_task_manifest(dataset, name)
    task = task_from(dataset, manifest, folder, regenerate)
    if splits is None or task.sql is None or splits == splits_of(task):
        return task
    other = replace(
        TaskFile(**vars(manifest)), val_timestamp=splits["val_timestamp"],
        test_timestamp=splits["test_timestamp"], train_from=splits["train_from"],
    )  # fmt: skip
    return task_from(dataset, other, folder, True)
