"""Label SQL in a DuckDB that can reach neither files nor the network; runs in a sandbox process.

Imports DuckDB and Arrow alone, so that the process starts quickly; see `relfrog.support.sandbox`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc

from relfrog.support.duckdb import literal, quoted, silence

__all__ = ["RESULT", "connect", "prepare", "read_arrow", "run", "show", "write_arrow"]

#: The file of the result, in the job's folder.
RESULT = "result.arrow"
_SPILLED = "spilled"


@cache
def prepare() -> duckdb.DuckDBPyConnection:
    """A database for one statement: every process that is forked has its own copy."""
    return connect()


def run(tables: dict[str, str], sql: str, memory: int, disk: int, most: int) -> None:
    """Run one SELECT statement on tables, and write its result to a file.

    Args:
        tables: The Arrow file of each table, in the current folder.
        sql: The statement.
        memory: Bytes that DuckDB may use.
        disk: Bytes that DuckDB may spill to files.
        most: Bytes that the result may have.
    """
    connection = prepare()
    for name, file in tables.items():
        show(connection, name, read_arrow(Path(file)))
    # Lock down the database before running untrusted SQL.
    for setting, value in {
        "memory_limit": literal(f"{memory}B"),
        "temp_directory": literal(str(Path.cwd() / _SPILLED)),
        "max_temp_directory_size": literal(f"{disk}B"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }.items():
        connection.execute(f"SET {setting} = {value}")
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise ValueError("label SQL must be one SELECT statement")
    try:
        result: Any = connection.sql(sql)
    except duckdb.Error:
        result = connection.execute(sql)  # its errors contain the position
    write_arrow(Path(RESULT), result, most)


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory that takes and gives every type as it is."""
    # One thread: with several, sums and the order of rows are not deterministic. And no others
    # that wait for files: a process with threads cannot be forked.
    try:
        connection = duckdb.connect(config={"threads": 1, "async_threads": 0})
    except duckdb.CatalogException:  # before version 2 there are none
        connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL arrow_lossless_conversion = true")
    silence(connection)
    return connection


def write_arrow(path: Path, result: Any, most: float = math.inf, then: Iterable[Any] = ()) -> None:
    """Write a result of DuckDB's to a file, batch by batch; then others of the same types."""
    reader = _batches(result)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, reader.schema) as writer:
        for part in itertools.chain([reader], map(_batches, then)):
            for batch in part:
                writer.write_batch(batch)
                if file.tell() > most:
                    raise OverflowError


def _batches(result: Any) -> Any:
    # DuckDB renamed this method in version 2.
    return (getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader)(100_000)


def read_arrow(path: Path) -> pa.Table:
    """The content of such a file; it stays on disk until it is needed."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


def show(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Make an Arrow table a table of this name.

    DuckDB gives an ENUM as a dictionary, but takes a dictionary as text, which has another order.
    """
    enums = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    if not enums:
        connection.register(name, table)
        return
    table = table.unify_dictionaries()
    raw = f"{name} (Arrow)"
    connection.register(raw, table)
    casts = []
    for column in enums:
        chunks = table.column(column).chunks
        values = chunks[0].dictionary.to_pylist() if chunks else []
        words = ", ".join(literal(value) for value in values)
        casts.append(f"CAST({quoted(column)} AS ENUM({words})) AS {quoted(column)}")
    connection.execute(
        f"CREATE TEMP VIEW {quoted(name)} AS "
        f"SELECT * REPLACE ({', '.join(casts)}) FROM {quoted(raw)}"
    )
