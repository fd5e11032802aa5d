"""Where the data comes from: SQL databases and folders of files, always opened read-only.

A source is one class with the few methods of `Source`. To add one, write the class and put
it into `SOURCES`; nothing else in RelFrog knows which sources there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relfrog.errors import SourceError
from relfrog.io.secrets import hide_password, scrub
from relfrog.io.sources.base import ReadAgain, Source, SourceColumn, SourceKey, SourceTable
from relfrog.io.sources.duck import DuckDBFile
from relfrog.io.sources.files import CsvFolder, ParquetFolder
from relfrog.io.sources.mysql import MySQL
from relfrog.io.sources.postgresql import PostgreSQL
from relfrog.io.sources.sqlite import SQLite

__all__ = [
    "SOURCES",
    "ReadAgain",
    "Source",
    "SourceColumn",
    "SourceKey",
    "SourceTable",
    "hide_password",
    "open_source",
    "scrub",
]

#: The classes asked, in this order, whether they can open an address.
SOURCES: list[type[Source]] = [PostgreSQL, MySQL, SQLite, DuckDBFile, CsvFolder, ParquetFolder]


def open_source(address: str, schemas: Sequence[str] = ()) -> Source:
    """Open a database URL, a database file or a folder of files, read-only.

    Args:
        address: ``postgresql://``, ``mysql://``, ``mariadb://``, ``sqlite:///``, ``duckdb:///``,
            the path of a SQLite or DuckDB file, or a folder of CSV or of Parquet files.
        schemas: The schemas to read; the database's default one if empty.

    Raises:
        SourceError: Nothing is there, or it cannot be opened.
    """
    for source in SOURCES:
        if source.accepts(address):
            return source(address, tuple(schemas))
    if (
        Path(address).suffix.lower() in (".csv", ".tsv", ".parquet", ".gz")
        and Path(address).is_file()
    ):
        raise SourceError(f"{address} is a single file. Put it into a folder and give the folder.")
    raise SourceError(
        f"{hide_password(address)} is neither a database nor a folder of CSV or Parquet files. "
        "Give postgresql://user@host/db, mysql://user@host/db, sqlite:///file.db, "
        "duckdb:///file.duckdb or the path of an existing folder."
    )
