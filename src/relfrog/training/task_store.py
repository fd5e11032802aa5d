"""What an opened task keeps in the store: its graph, columns, labels and label history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relfrog.datasets.kept_labels import ROWS, content, kept_labels, write_rows
from relfrog.datasets.protocols import Dataset, Task
from relfrog.errors import StoreError
from relfrog.features.columns import Columns, Features, TableColumns, fit_columns
from relfrog.features.stored import encode_file, open_encoded
from relfrog.graph.relational import RelationalGraph, build_graph, open_graph
from relfrog.store.file_table import FileTable
from relfrog.store.parts import Store, open_store
from relfrog.support.forms import read_json
from relfrog.support.relbench import Database, Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TaskStore", "digest"]

Made = TypeVar("Made")

#: Of what this module writes; another one, other parts.
FORMAT = 1
#: Of a table in a file: parents by foreign key, the primary key, the time column.
_History = tuple[dict[str, str], str | None, str | None]


class TaskStore:
    """Parts of one task.

    Args:
        dataset: the dataset, with the splits of the task.
        task: the task.
        store: where parts are kept; by default in the cache folder.
    """

    def __init__(self, dataset: Dataset, task: Task, store: Store | None = None) -> None:
        self.dataset, self.task = dataset, task
        self.store = open_store() if store is None else store
        self.name = f"{dataset.manifest.name} {getattr(task, 'name', '')}".strip()

    def content(self, db: Database) -> dict[str, Any]:
        """What is in the tables of a database that is all files."""
        return content(db, self.store)

    def graph(self, db: Database) -> RelationalGraph:
        """The graph of a database that is all files."""
        return self.store.use(
            "graph", {"format": FORMAT, "tables": self.content(db)},
            lambda folder: build_graph(db, folder), open_graph, self.name,
        )  # fmt: skip

    def fit(
        self, name: str, table: FileTable, before: pd.Timestamp, text: str, channels: int
    ) -> TableColumns:
        """The fitted columns of a table."""
        made_of = {
            "format": FORMAT, "table": table.content(self.store.fingerprint),
            "before": before.isoformat(), "text": text, "channels": channels,
        }  # fmt: skip

        def build(folder: Path) -> None:
            db = Database({name: table})
            fit_columns(db, before=before, text=text, text_channels=channels).save(folder)

        def load(folder: Path) -> TableColumns:
            return next(iter(Columns.load(folder).tables.values()))

        return self.store.use("columns", made_of, build, load, f"{self.name}: {name}")

    def encode(
        self, name: str, table: FileTable, columns: TableColumns
    ) -> tuple[Features, list[str], dict[str, list[str]]]:
        """The encoded rows of a table; see `open_encoded`."""
        made_of = {
            "format": FORMAT, "table": table.content(self.store.fingerprint),
            "columns": digest("", columns),
        }  # fmt: skip
        return self.store.use(
            "encoded", made_of, lambda folder: encode_file(table, columns, folder),
            lambda folder: open_encoded(folder, columns), f"{self.name}: {name}",
        )  # fmt: skip

    def labels(self, what: list[Any], db: Database, make: Callable[[], pd.DataFrame]) -> pa.Table:
        """Labels that were made from a database."""
        return kept_labels(self.store, self.task, db, what, make, self.name)

    def made(
        self,
        kind: str,
        about: dict[str, Any],
        db: Database,
        build: Callable[[Path], None],
        load: Callable[[Path], Made],
    ) -> Made:
        """Whatever a model makes of a database and its task.

        Args:
            kind: what it is.
            about: all else that it depends on.
            db: the database.
            build: writes it into a folder.
            load: reads it.
        """
        made_of = {
            "format": FORMAT, "tables": self.content(db), "about": about,
            "task": cast("Any", self.task).content(self.store.fingerprint),
        }  # fmt: skip
        return self.store.use(kind, made_of, build, load, self.name)

    def predictions(
        self, about: dict[str, Any], db: Database, make: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
        """What a model predicts for a split."""
        return self.made(
            "predictions", about, db,
            lambda folder: np.save(folder / "predicted.npy", make()),
            lambda folder: np.load(folder / "predicted.npy", allow_pickle=False),
        )  # fmt: skip

    def history(self, db: Database, make: Callable[[], Table]) -> FileTable:
        """The label history made from a database: a table in a file."""
        made_of = {
            "format": FORMAT, "tables": self.content(db),
            "task": cast("Any", self.task).content(self.store.fingerprint),
        }  # fmt: skip

        def build(folder: Path) -> None:
            table = make()
            write_rows(table.df, folder / ROWS)
            about = [table.fkey_col_to_pkey_table, table.pkey_col, table.time_col]
            (folder / "table.json").write_text(json.dumps(about), encoding="utf-8")

        def load(folder: Path) -> FileTable:
            keys, key, time = read_json(folder / "table.json", _History, StoreError)
            found = FileTable(folder / ROWS, keys, key, time)
            found.columns  # noqa: B018 (opens the file)
            return found

        return self.store.use("history", made_of, build, load, self.name)


def digest(name: str, table: TableColumns) -> str:
    """A hash of the fitted columns of a table."""
    about = [name, table.time_col, table.known, table.skipped]
    found = hashlib.sha256(json.dumps(about, default=str).encode())
    for column in table.columns:
        found.update(json.dumps(column.to_json(), sort_keys=True, default=str).encode())
        for key, array in sorted(column.arrays().items()):
            found.update(f"{key} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
