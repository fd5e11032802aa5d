"""Labels in the store: whoever asks first computes them, `inspect`, a check or a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.datasets.protocols import Task
from relfrog.store.file_table import FileTable, is_whole
from relfrog.store.parts import Store
from relfrog.support.lists import read_arrow
from relfrog.support.relbench import Database

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["content", "is_stored", "kept_labels", "write_rows"]

Read = TypeVar("Read")

#: Of what this module writes; another one, other parts.
FORMAT = 1
ROWS = "rows.parquet"


def is_stored(db: Database) -> bool:
    """Whether all rows of a database are in files."""
    return all(is_whole(table) for table in db.table_dict.values())


def content(db: Database, store: Store) -> dict[str, Any]:
    """What is in the tables of a database that is all files."""
    return {
        name: cast("FileTable", table).content(store.fingerprint)
        for name, table in db.table_dict.items()
    }


def kept_labels(
    store: Store,
    task: Task,
    db: Database,
    what: list[Any],
    make: Callable[[], pd.DataFrame],
    about: str,
    load: Callable[[Path], Read] = read_arrow,
) -> Read:
    """Labels that were made from a database that is all files.

    Args:
        store: where they are kept.
        task: the task.
        db: the database.
        what: which labels: a split, and how it differs from the task's own if it does.
        make: makes them.
        about: the dataset and the task, for people.
        load: reads them.
    """
    made_of = {
        "format": FORMAT, "tables": content(db, store), "what": what,
        "task": cast("Any", task).content(store.fingerprint),
    }  # fmt: skip
    return store.use(
        "labels", made_of, lambda folder: write_rows(make(), folder / ROWS),
        lambda folder: load(folder / ROWS), f"{about}: {what[0]}",
    )  # fmt: skip


def write_rows(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as Parquet."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    # Without what pandas would note of its own types, which it cannot always read again.
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd")
