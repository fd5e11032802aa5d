"""The border to RelBench: all that RelFrog uses of a dataset and of a task.

Functions take these protocols rather than RelBench's classes, so a type checker sees what crosses
the border, and anything of the same shape will do.
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
        is_local: whether it is a folder of the user's, not a download.
        revision: of the download, if one was asked for.
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
    """What is predicted, for whom and at which times.

    Attributes:
        task_type: such as binary classification.
        entity_table: whose rows are predicted for; of a recommendation, those who get a list.
        entity_col: the column of the labels that holds their row numbers.
        time_col: the column of the labels that holds the seed times.
        target_col: the column of the labels that holds the label.
        timedelta: the horizon: how far ahead a label looks.
        num_eval_timestamps: seed times in validation and in test.
        remove_columns: columns the model must not see, as pairs of table and column.
        sql: makes the labels; None where they come as files.
        completes: whether the label is a column of the entity table, to be filled in.
        source_keys: the source's keys, where the SQL is written in them; else None.
        dst_entity_table: of a recommendation, the table its targets are taken from; else empty.
        eval_k: of a recommendation, the length of a list; else 0.
    """

    task_type: TaskType
    entity_table: str
    entity_col: str
    time_col: str
    target_col: str
    timedelta: pd.Timedelta
    num_eval_timestamps: int
    remove_columns: list[tuple[str, str]]
    sql: str | None
    completes: bool
    source_keys: SourceKeys | None
    dst_entity_table: str
    eval_k: int

    def get_table(
        self, split: str, mask_input_cols: bool | None = None, db: Database | None = None
    ) -> Table:
        """The labels of a split; without the label itself if its column is masked."""
        ...

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The columns of the labels that hold rows, and the table of each."""
        ...

    def make_table(self, db: Database, timestamps: Sequence[pd.Timestamp]) -> Table:
        """The labels of any seed times."""
        ...

    def hidden_columns(self) -> list[tuple[str, str]]:
        """All columns the model must not see: `remove_columns`, and the label's own."""
        ...
