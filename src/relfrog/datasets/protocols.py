"""Protocols for RelBench's datasets and tasks: everything that RelFrog uses of them.

Functions take these protocols rather than RelBench's classes, so the interface is type-checked, and
any object with the same attributes works.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd
    from relbench.base import Database, Table, TaskType
    from relbench.manifest import DatasetManifest

    from relfrog.datasets.key_views import SourceKeys

__all__ = ["Dataset", "Task"]


@runtime_checkable
class Dataset(Protocol):
    """A database with its splits, and the names of its tasks.

    Attributes:
        manifest: name, tables, keys and time columns.
        dataset_dir: the dataset folder.
        db_dir: the folder of its tables, one Parquet file each.
        is_local: whether it is a local folder, not a download.
        revision: revision of the download, if one was requested.
        val_timestamp: where training ends and validation begins.
        test_timestamp: where validation ends and test begins.
    """

    manifest: DatasetManifest
    dataset_dir: Path
    db_dir: Path
    is_local: bool
    revision: str | None
    val_timestamp: pd.Timestamp
    test_timestamp: pd.Timestamp

    def get_db(self, upto_test_timestamp: bool = True) -> Database:
        """Read the database, by default without rows after the test time."""
        ...

    def get_task_names(self) -> list[str]:
        """Names of all tasks."""
        ...


@runtime_checkable
class Task(Protocol):
    """A prediction task: what is predicted, for which entities and at which times.

    Attributes:
        dataset: the dataset, with the task's own splits if it has any.
        train_from: no training times lie before this one; None if they begin with the rows.
        task_type: the task type, such as binary classification.
        entity_table: the table whose rows are predicted for.
        entity_col: the label table's column of row numbers of the entity table.
        time_col: the label table's column of seed times.
        target_col: the label table's column of labels.
        timedelta: the horizon: how far ahead a label looks.
        num_eval_timestamps: number of seed times in validation and in test.
        sql: the label SQL; None if labels come as files.
        completes: whether the label is a column of the entity table, to be filled in.
        source_keys: the source's keys, where the SQL is written in them; else None.
        dst_entity_table: the table of the targets, for a recommendation; else empty.
        eval_k: the length of a list, for a recommendation; else 0.
        classes: of several labels, what each of them is, where that is known.
    """

    dataset: Dataset
    train_from: pd.Timestamp | None
    task_type: TaskType
    entity_table: str
    entity_col: str
    time_col: str
    target_col: str
    timedelta: pd.Timedelta
    num_eval_timestamps: int
    sql: str | None
    completes: bool
    source_keys: SourceKeys | None
    dst_entity_table: str
    eval_k: int
    classes: tuple[str, ...]

    def get_table(
        self, split: str, mask_input_cols: bool | None = None, db: Database | None = None
    ) -> Table:
        """The label table of a split; without the label column if it is masked."""
        ...

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The columns of the labels that hold rows, and the table of each."""
        ...

    def make_table(self, db: Database, timestamps: Sequence[pd.Timestamp]) -> Table:
        """The label table of any seed times."""
        ...

    def hidden_columns(self) -> list[tuple[str, str]]:
        """All columns hidden from the model: `remove_columns`, and the label's own column."""
        ...
