"""Dataset folders in RelBench's format: opening them, and what their files say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfrog.errors import DatasetError
from relfrog.support.files import recover

if TYPE_CHECKING:
    import pandas as pd

    from relfrog.datasets.opened import OpenedDataset
    from relfrog.datasets.protocols import Dataset

__all__ = ["TableFile", "arrow_kind", "open_dataset", "read_tables", "source_keys"]


def open_dataset(name: str | Path) -> OpenedDataset:
    """Open a dataset folder, or a dataset that RelBench hosts, by its name.

    Returns:
        RelBench's dataset.

    Raises:
        DatasetError: There is none, its manifest cannot be read, or it cannot be reached.
    """
    import yaml

    from relfrog.datasets.opened import OpenedDataset

    path = Path(name).expanduser()
    if not path.exists():
        recover(path.resolve().parent, path.resolve().name)
    recover(path / "tasks")
    if path.is_dir() and not (path / "manifest.yaml").is_file():
        raise DatasetError(
            f"{path} is no dataset folder: manifest.yaml is missing. "
            f"Make one from a database: relfrog import SOURCE {path}-dataset"
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
        raise DatasetError(f"{path / 'manifest.yaml'} is no YAML: {text}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if path.is_dir():
            raise DatasetError(
                f"{path / 'manifest.yaml'} is not a RelBench manifest: {_plain(error)}. "
                f"See all findings: relfrog check {path}"
            ) from None
        raise _unreachable(name, error) from None
    except Exception as error:
        # Whatever the hub's client raises when there is no network or no such dataset.
        raise _unreachable(name, error) from None


def _unreachable(name: str | Path, error: Exception) -> DatasetError:
    return DatasetError(
        f"there is no folder {name}, and RelBench has no dataset of that name within reach "
        f"({type(error).__name__}). Check the path or the network."
    )


def _plain(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


@dataclass(frozen=True)
class TableFile:
    """A table of a dataset folder, as its file and the manifest describe it.

    Attributes:
        name: Its name.
        path: Its Parquet file.
        rows: How many there are.
        columns: Per column its kind: integer, number, boolean, time, text, list or other.
        pkey: The primary key, if it has one.
        time_col: The time column, if it has one.
        fkeys: Per foreign-key column the table it points into.
    """

    name: str
    path: Path
    rows: int
    columns: dict[str, str]
    pkey: str | None
    time_col: str | None
    fkeys: dict[str, str] = field(default_factory=dict)


def arrow_kind(arrow_type: Any) -> str:
    """The kind of an Arrow type, in the words of the mapping file."""
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


def read_tables(dataset: Dataset) -> list[TableFile]:
    """The tables of an opened dataset, from the files' headers: no row is read.

    Raises:
        DatasetError: A file is missing or is no Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for name, spec in dataset.manifest.tables.items():
        path = Path(dataset.db_dir) / f"{name}.parquet"
        try:
            file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
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


def source_keys(dataset: str | Path, table: str) -> pd.DataFrame | None:
    """The source's own key values of a table, one row per row of the table.

    Args:
        dataset: A dataset folder.
        table: A table of it.

    Returns:
        One column per column of the source's primary key, named as there; None if the folder was
        not made by ``relfrog import`` or the table has no key.

    Raises:
        DatasetError: The file with the keys cannot be read.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(dataset).expanduser()
    path = folder / "keys" / f"{table}.parquet"
    try:
        record = json.loads((folder / "import.json").read_text(encoding="utf-8"))
        known = table in record["tables"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not known or not path.is_file():
        return None
    try:
        schema = pq.read_schema(path)
        keys = pd.read_parquet(path)
        # Beside a NULL, pandas would round whole numbers of more than 53 bits.
        whole = [f.name for f in schema if pa.types.is_integer(f.type) or f.type == pa.bool_()]
        loose = [name for name in whole if keys[name].dtype.kind in "fO"]
        if loose:
            keys[loose] = pd.read_parquet(path, columns=loose, dtype_backend="numpy_nullable")
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(
            f"{path} cannot be read: {str(error).splitlines()[0]}. Import the database again."
        ) from None
    return keys
