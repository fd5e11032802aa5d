"""RelBench's dataset, with errors that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relbench.load import RelBenchDataset

from relfrog.datasets.known_from import KnownFrom, find_known_from, recorded_keys
from relfrog.datasets.manifest_forms import read_dataset_manifest
from relfrog.datasets.table_rules import check_database
from relfrog.errors import DatasetError, SchemaError
from relfrog.support.folder_check import check_inside
from relfrog.support.parquet import UNREADABLE
from relfrog.support.relbench import Database

__all__ = ["OpenedDataset"]


class OpenedDataset(RelBenchDataset):
    """A dataset folder, or one that RelBench hosts; see `relfrog.datasets.dataset.open_dataset`.

    Raises:
        DatasetError: Its manifest is wrong, or something in it leads outside the folder.
    """

    def __init__(self, name_or_path: str | Path) -> None:
        if Path(name_or_path).is_dir():  # before RelBench reads it
            read_dataset_manifest(Path(name_or_path) / "manifest.yaml")
        super().__init__(name_or_path)
        read_dataset_manifest(Path(self.dataset_dir) / "manifest.yaml")
        if self.is_local:
            check_inside(Path(self.dataset_dir))

    def get_task_names(self) -> list[str]:
        """The names of all tasks, except those being written."""
        return [name for name in super().get_task_names() if not name.startswith(".")]

    def get_db(self, upto_test_timestamp: bool = True) -> Database:
        """Read all tables, by default up to the test time.

        Rows without a time of their own are known from the latest of the rows that they name: see
        `relfrog.datasets.known_from`.
        """
        db = self.make_db()
        found = self._known_from(db)
        db = found.add_columns(db)
        if upto_test_timestamp:
            db = db.upto(self.test_timestamp)
        self.validate_and_correct_db(db)
        return found.name_columns(db)

    def _known_from(self, db: Database) -> KnownFrom:
        if recorded_keys(self.dataset_dir) is not None:  # the files say it
            return KnownFrom()
        try:
            return find_known_from(db)
        except (SchemaError, LookupError, TypeError, ValueError) as error:
            text = " ".join(str(error).split())[:300]
            raise DatasetError(
                f"{self.dataset_dir}: {text} See all findings: relfrog check {self.dataset_dir}"
            ) from None

    def load_task(self, task_name: str | Path, *, regenerate: bool = False) -> Any:
        """A task of this dataset alone: RelBench's own would look in the current folder first."""
        from relfrog.datasets.tasks import load_task

        return load_task(self, str(task_name), regenerate=regenerate)

    def make_db(self) -> Database:
        """Read all tables."""
        try:
            db = super().make_db()
        except UNREADABLE as error:
            text = " ".join(str(error).split())[:300]
            raise DatasetError(
                f"{self.dataset_dir}: its tables cannot be read ({text}). Restore the files, or "
                "import the database again."
            ) from None
        check_database(db, str(self.dataset_dir))
        return db

    def validate_and_correct_db(self, db: Database) -> None:
        """Check primary keys; clear dangling foreign keys."""
        try:
            super().validate_and_correct_db(db)  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError, LookupError, TypeError, ValueError) as error:
            text = " ".join(str(error).split()).split(" Hosted datasets")[0]
            raise DatasetError(
                f"{self.dataset_dir}: {text} See all findings: relfrog check {self.dataset_dir}"
            ) from None
