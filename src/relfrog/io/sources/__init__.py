"""Sources of data: SQL databases and folders of files, always opened read-only.

To add a source, subclass :class:`Source` and append the class to :data:`SOURCES`; nothing else in
RelFrog knows which sources exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from relfrog.errors import SourceError
from relfrog.io.secrets import hide_password, scrub
from relfrog.io.sources.base import ReadAgain, Source, SourceColumn, SourceKey, SourceTable
from relfrog.io.sources.duck import DuckDBFile
from relfrog.io.sources.files import CsvFolder, ParquetFolder
from relfrog.io.sources.mysql import MySQL
from relfrog.io.sources.postgresql import PostgreSQL
from relfrog.io.sources.sqlite import SQLite
from relfrog.support.files import maybe_path

__all__ = [
    "SOURCES",
    "ReadAgain",
    "Source",
    "SourceColumn",
    "SourceKey",
    "SourceTable",
    "hide_password",
    "local_path",
    "open_source",
    "same_source",
    "scrub",
]

#: Tried in this order: the first class that accepts an address opens it.
SOURCES: list[type[Source]] = [PostgreSQL, MySQL, SQLite, DuckDBFile, CsvFolder, ParquetFolder]


def open_source(address: str, schemas: Sequence[str] = ()) -> Source:
    """Open a database URL, a database file or a folder of files, read-only.

    Args:
        address: ``postgresql://``, ``mysql://``, ``mariadb://``, ``sqlite:///``, ``duckdb:///``,
            the path of a SQLite or DuckDB file, or a folder of CSV or of Parquet files.
        schemas: The schemas to read; if empty, the database's default schema or, if that has no
            tables, all others.

    Raises:
        SourceError: The address does not exist or cannot be opened.
    """
    for source in SOURCES:
        if source.accepts(address):
            return source(address, tuple(schemas))
    path = maybe_path(address)
    if path is not None:
        if path.suffix.lower() in (".csv", ".tsv", ".parquet", ".gz") and path.is_file():
            raise SourceError(
                f"{address} is a single file. Move it into a folder and give the folder."
            )
        if path.is_dir():
            raise SourceError(_no_tables(path))
    raise SourceError(
        f"{hide_password(address)} is neither a database nor a folder of CSV or Parquet files. "
        "Give postgresql://user@host/db, mysql://user@host/db, sqlite:///file.db, "
        "duckdb:///file.duckdb or the path of a folder that exists."
    )


def _no_tables(folder: Path) -> str:
    """What a folder holds that cannot be imported."""
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    if not names:
        return f"{folder} is empty. Give a folder with CSV or Parquet files, or a database."
    if (folder / "manifest.yaml").is_file():
        return f"{folder} is a dataset folder already. Look into it: relfrog inspect {folder}"
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return (
        f"{folder} holds no CSV or Parquet files to import (it holds {shown}). Give a folder that "
        "does, or a database."
    )


def local_path(address: str) -> Path | None:
    """The file or folder that an address names; None if there is none, as of a server."""
    stem = re.sub(r"^(sqlite|duckdb)(\+\w+)?:///?", "", address, flags=re.I)
    for text in (stem, unquote(stem)):
        path = maybe_path(text)
        if path is not None and path.exists():
            return path
    return None


def same_source(one: str, other: str) -> bool:
    """Whether two addresses name the same database: ``shop.db`` and ``sqlite:///shop.db`` do."""
    paths = local_path(one), local_path(other)
    if paths[0] is not None and paths[1] is not None:
        return paths[0].samefile(paths[1])
    return hide_password(one) == hide_password(other)
