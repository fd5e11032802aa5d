"""Open dataset folders in RelBench's format, and read what their files declare."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfrog.errors import DatasetError
from relfrog.importing.record import read_record
from relfrog.support.files import recover, user_path

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from relfrog.datasets.opened_dataset import OpenedDataset
    from relfrog.datasets.protocols import Dataset

__all__ = ["TableFile", "arrow_kind", "is_at_hand", "open_dataset", "read_tables", "source_keys"]


def open_dataset(name: str | Path) -> OpenedDataset:
    """Open a dataset folder, or a dataset that RelBench hosts, by its name.

    Returns:
        RelBench's dataset.

    Raises:
        DatasetError: It does not exist, cannot be reached, or has no valid manifest.
    """
    import yaml

    from relfrog.datasets.opened_dataset import OpenedDataset

    if "://" in str(name):
        raise DatasetError(
            f"{name} is an address, not a dataset. Import it first: relfrog import ADDRESS FOLDER"
        )
    path = user_path(name, DatasetError)
    if not path.exists():
        recover(path.resolve().parent, path.resolve().name)
    if not (path / "tasks").is_symlink():  # what it leads to is checked below
        recover(path / "tasks")
    if path.is_dir() and not (path / "manifest.yaml").is_file():
        raise DatasetError(
            f"{path} is not a dataset folder: manifest.yaml is missing. "
            f"Import a database: relfrog import SOURCE {path}-dataset"
        )
    if path.is_file():
        raise DatasetError(f"{path} is a file. Import it first: relfrog import {path} DEST")
    looks_local = str(name).startswith((".", "/", "~")) or str(name).endswith("/")
    if not path.exists() and looks_local:
        raise DatasetError(f"{path} does not exist. Check the path.")
    try:
        return OpenedDataset(str(name) if not path.is_dir() else path)
    except DatasetError:
        raise
    except (yaml.YAMLError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise DatasetError(f"{path / 'manifest.yaml'} is not YAML: {text}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if path.is_dir():
            raise DatasetError(
                f"{path / 'manifest.yaml'} is not a RelBench manifest: {_text(error)}. "
                f"See all findings: relfrog check {path}"
            ) from None
        raise _unreachable(name, error) from None
    except Exception as error:
        # The hub's client raises anything if there is no network or no such dataset.
        raise _unreachable(name, error) from None


def _unreachable(name: str | Path, error: Exception) -> DatasetError:
    return DatasetError(
        f"there is no folder {name}, and no such dataset of RelBench can be reached "
        f"({type(error).__name__}). Check the path or the network."
    )


def _text(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


@dataclass(frozen=True)
class TableFile:
    """A table of a dataset folder, as described by its file and the manifest.

    Attributes:
        name: Its name.
        path: Its Parquet file.
        rows: Its number of rows.
        columns: The kind of each column: integer, number, boolean, time, text, list or other.
        pkey: The primary key, if it has one.
        time_col: The time column, if it has one.
        fkeys: The parent table of each foreign-key column.
    """

    name: str
    path: Path
    rows: int
    columns: dict[str, str]
    pkey: str | None
    time_col: str | None
    fkeys: dict[str, str] = field(default_factory=dict)


def arrow_kind(arrow_type: Any) -> str:
    """The kind of an Arrow type, named as in the mapping file."""
    import pyarrow as pa

    t = pa.types
    if t.is_dictionary(arrow_type):
        return arrow_kind(arrow_type.value_type)
    if t.is_boolean(arrow_type):
        return "boolean"
    if t.is_integer(arrow_type):
        return "integer"
    if t.is_floating(arrow_type) or t.is_decimal(arrow_type):
        return "number"
    if t.is_timestamp(arrow_type) or t.is_date(arrow_type):
        return "time"
    if t.is_string(arrow_type) or t.is_large_string(arrow_type) or t.is_string_view(arrow_type):
        return "text"
    if t.is_list(arrow_type) or t.is_large_list(arrow_type):
        return "list"
    return "other"


def is_at_hand(name: str) -> bool:
    """Whether a dataset, whose name a file gives, is opened without asking its author's host.

    Folders and RelBench's own datasets do not, nor do others that were downloaded before.
    """
    path, parts = user_path(name, DatasetError), [part for part in name.split("/") if part]
    if path.exists() or len(parts) < 2 or name.startswith((".", "/", "~")) or "\\" in name:
        return True
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        snapshot_download("/".join(parts[:2]), repo_type="dataset", local_files_only=True)
    except (HFValidationError, LocalEntryNotFoundError):
        return False
    return True


def read_tables(dataset: Dataset) -> list[TableFile]:
    """The tables of an opened dataset, from the Parquet metadata; no row is read.

    Raises:
        DatasetError: A file is missing or is not a Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for name, spec in dataset.manifest.tables.items():
        path = Path(dataset.db_dir) / f"{name}.parquet"
        try:
            file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException, NotImplementedError) as error:
            raise DatasetError(
                f"table {name}: {path} cannot be read ({str(error).splitlines()[0]}). "
                f"See all findings: relfrog check {dataset.dataset_dir}"
            ) from None
        with file:
            columns = {f.name: arrow_kind(f.type) for f in file.schema_arrow}
            rows = file.metadata.num_rows
        tables.append(
            TableFile(name, path, rows, columns, spec.pkey, spec.time_col, dict(spec.fkeys))
        )
    return tables


def _key_types() -> tuple[Callable[[Any], bool], ...]:
    """Types of keys, as an import writes them; that of a column without any value is null."""
    import pyarrow as pa

    t = pa.types
    return (t.is_integer, t.is_floating, t.is_boolean, t.is_string, t.is_large_string,
            t.is_timestamp, t.is_null)  # fmt: skip


def source_keys(dataset: str | Path, table: str) -> pd.DataFrame | None:
    """The key values that a table has in the source, one row per row of the table.

    Args:
        dataset: A dataset folder.
        table: A table of it.

    Returns:
        The columns of the source's primary key; None if the folder was not made by
        ``relfrog import`` or the table has no key.

    Raises:
        DatasetError: The file with the keys cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from relfrog.support.parquet import UNREADABLE, read_parquet

    folder = user_path(dataset)
    path = folder / "keys" / f"{table}.parquet"
    record = read_record(folder)
    if record is None or table not in record["tables"] or not path.is_file():
        return None
    try:
        schema = pq.read_schema(path)
        keys = read_parquet(path)
        # In a column with NULLs, pandas would round integers of more than 53 bits.
        exact = [f.name for f in schema if pa.types.is_integer(f.type) or f.type == pa.bool_()]
        loose = [name for name in exact if keys[name].dtype.kind in "fO"]
        if loose:
            keys[loose] = read_parquet(path, loose, nullable=True)
    except UNREADABLE as error:
        text = " ".join(str(error).split())[:300]
        raise DatasetError(f"{path} cannot be read: {text}. Import the database again.") from None
    for column in schema:
        if not any(fits(column.type) for fits in _key_types()):
            raise DatasetError(
                f"{path}: {column.name} has type {column.type}, which no key has. Import the "
                "database again."
            )
    return keys
