"""Label SQL in a DuckDB that reaches no files but its tables, and no network; in a sandbox process.

Imports DuckDB and Arrow alone, so that the process starts quickly; see `relfrog.support.sandbox`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc

from relfrog.support.duckdb import literal, quoted, silence

__all__ = ["RESULT", "TIMES", "connect", "prepare", "read_arrow", "run", "show", "write_arrow"]

#: The table of seed times.
TIMES = "timestamps"
#: The file of the result, in the job's folder.
RESULT = "result.arrow"
_SPILLED = "spilled"


@cache
def prepare() -> duckdb.DuckDBPyConnection:
    """A database for one statement: every process that is forked has its own copy."""
    return connect()


def run(
    tables: dict[str, str],
    views: dict[str, tuple[str, str]],
    sql: str,
    memory: int,
    disk: int,
    most: int,
    order: list[str],
    at_once: int,
) -> None:
    """Run one SELECT statement on tables, and write its result to a file.

    Args:
        tables: The Arrow file of each table, in the current folder.
        views: Other tables: of each the one file that may be read, and a SELECT from it.
        sql: The statement.
        memory: Bytes that DuckDB may use.
        disk: Bytes that DuckDB may spill to files.
        most: Bytes that the result may have.
        order: Columns by which its rows are to be in order, if it has them all.
        at_once: How many rows of the table of seed times the statement is given at a time, in their
            order; 0 for all.
    """
    connection = prepare()
    for name, file in tables.items():
        show(connection, name, read_arrow(Path(file)))
    for name, (_, select) in views.items():
        connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS {select}")
    # Lock down the database before running untrusted SQL.
    paths = ", ".join(literal(file) for file, _ in views.values())
    connection.execute(f"SET allowed_paths = [{paths}]")
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
    times = read_arrow(Path(tables[TIMES])) if at_once else None
    parts = _results(connection, sql, times, at_once, order)
    try:
        first = next(parts)
    except duckdb.Error:
        first = connection.execute(sql)  # its errors contain the position
    write_arrow(Path(RESULT), first, most, parts)


def _results(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    times: pa.Table | None,
    at_once: int,
    order: list[str],
) -> Iterator[Any]:
    """What a statement gives: once, or for some seed times after the other."""
    if times is None:
        yield _ordered(connection.sql(sql), order)
        return
    times = times.sort_by(times.column_names[0])
    for begin in range(0, len(times), at_once):
        show(connection, TIMES, times.slice(begin, at_once))
        yield _ordered(connection.sql(sql), order)


def _ordered(result: Any, order: list[str]) -> Any:
    if order and {*order} <= {*result.columns} and len({*result.columns}) == len(result.types):
        return result.order(", ".join(map(quoted, order)))
    return result


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
