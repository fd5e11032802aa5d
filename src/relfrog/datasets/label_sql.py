"""Run label SQL: tables go to a sandbox process as Arrow files, and labels come back as one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
from relbench.base import Database

from relfrog.datasets.sql_job import RESULT, connect, read_arrow, show, write_arrow
from relfrog.errors import TaskError
from relfrog.store.file_table import FileTable
from relfrog.support.duckdb import quoted
from relfrog.support.sandbox import Ended, Failed, Limits, run_job, work_folder
from relfrog.support.text import size

__all__ = ["run_sql"]

#: What a process needs beside DuckDB's own memory: it reserves more than it counts.
_BESIDE = 256 << 20
#: The part of the memory that a result may have: it is also held by the process that asked.
_RESULT = 4


def run_sql(
    sql: str,
    db: Database,
    timestamps: Sequence[pd.Timestamp],
    timedelta: pd.Timedelta,
    *,
    seconds: float = 600,
    memory: int = 4 << 30,
    disk: int = 8 << 30,
    arrow_lists: bool = False,
) -> pd.DataFrame:
    """Run label SQL as RelBench does, in a process that can reach neither files nor the network.

    Args:
        sql: One SELECT statement; ``{timedelta}`` is replaced by the horizon.
        db: RelBench's database; its tables are views of the same names.
        timestamps: The seed times, the relation ``timestamps(timestamp)``.
        timedelta: The horizon.
        seconds: After how long the process is killed.
        memory: Bytes that DuckDB may use; a quarter of it may be the result.
        disk: Bytes that DuckDB may spill.
        arrow_lists: Whether lists of keys stay Arrow's. As one object each, which is what DuckDB
            gives, millions of them are slow and large.

    Raises:
        TaskError: The SQL is wrong, with DuckDB's message and position; or it exceeds a limit.
    """
    if not isinstance(sql, str):
        raise TaskError(f"label SQL must be text (got {sql!r})")
    frames: dict[str, pd.DataFrame | FileTable] = {
        "timestamps": pd.DataFrame({"timestamp": timestamps})
    }
    for name, table in db.table_dict.items():
        frames[name] = table if isinstance(table, FileTable) else table.df
    filled = sql.replace("{timedelta}", str(timedelta))
    named = {name: frame for name, frame in frames.items() if _is_named(name, filled)}
    limits = Limits(seconds, memory, disk)
    try:
        try:
            return _run(filled, named, limits, arrow_lists)
        except Failed as error:
            if error.kind != "CatalogException" or len(named) == len(frames):
                raise
            return _run(
                filled, frames, limits, arrow_lists
            )  # a name may be put together by the SQL
    except Failed as error:
        raise TaskError(_why_failed(error, limits)) from None
    except Ended as error:
        if error.late:
            raise TaskError(f"label SQL was stopped after {seconds:.0f} s. {_FILTER}") from None
        raise TaskError(
            f"label SQL was stopped: {error}. It may be nested too deeply, or need {_more(memory)}"
        ) from None
    except OSError as error:
        raise TaskError(
            f"label SQL cannot run: tables cannot be written to {tempfile.gettempdir()} "
            f"({error.strerror or error}). Make room, or set TMPDIR to another folder."
        ) from None


def _why_failed(error: Failed, limits: Limits) -> str:
    text = str(error).strip()
    if error.kind == "ValueError":  # ours
        return text
    if error.kind == "OSError":
        return f"label SQL was stopped: its result cannot be written ({text})"
    if error.kind == "OverflowError":
        return (
            f"label SQL was stopped: its result is larger than {size(limits.memory // _RESULT)}. "
            "Give one row for each entity and time."
        )
    if "max_temp_directory_size" in text:
        return f"label SQL was stopped: it spills more than {size(limits.disk)} to disk. {_FILTER}"
    if error.kind in ("MemoryError", "OutOfMemoryException", "ArrowMemoryError"):
        return f"label SQL was stopped: it needs {_more(limits.memory)}"
    # DuckDB's message draws a caret under the position itself.
    return f"label SQL failed: {text}"


_FILTER = "Filter rows before joining them."


def _more(memory: int) -> str:
    return f"more than {size(memory)} of memory. {_FILTER}"


def _is_named(table: str, sql: str) -> bool:
    """Whether a statement may refer to a table: its name is in it, as an identifier or a text."""
    text, name = sql.casefold(), table.casefold()
    return any(name.replace(mark, 2 * mark) in text for mark in ('"', "'"))


def _run(
    sql: str, frames: dict[str, pd.DataFrame | FileTable], limits: Limits, arrow_lists: bool
) -> pd.DataFrame:
    with work_folder() as folder:
        files = {name: f"{number}.arrow" for number, name in enumerate(frames)}
        for name, file in files.items():
            _write(folder / file, frames[name])
        shown = sum((folder / file).stat().st_size for file in files.values())
        outer = Limits(limits.seconds, shown + limits.memory * 3 // 2 + _BESIDE, limits.disk)
        run_job(
            "relfrog.datasets.sql_job", folder, outer,
            tables=files, sql=sql, memory=limits.memory, disk=limits.disk,
            most=limits.memory // _RESULT,
        )  # fmt: skip
        return _frame(folder / RESULT, arrow_lists)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """For types alone: no SQL but ours runs here."""
    return connect()


def _write(path: Path, frame: pd.DataFrame | FileTable) -> None:
    """Write a table with the types that DuckDB sees in it; from a file in pieces."""
    with _connection().cursor() as connection:
        if isinstance(frame, FileTable):
            write_arrow(path, connection.sql(frame.sql()))
            return
        connection.register("t", frame)
        try:
            write_arrow(path, connection.sql("SELECT * FROM t"))
        except duckdb.Error:
            # A column with values that DuckDB cannot tell: it is there for no SQL.
            columns = _readable(connection, frame.columns)
            write_arrow(path, connection.sql(f"SELECT {', '.join(columns) or 'NULL'} FROM t"))


def _readable(connection: duckdb.DuckDBPyConnection, names: Iterable[object]) -> list[str]:
    found = []
    for name in map(quoted, map(str, names)):
        try:
            for _ in iter(connection.execute(f"SELECT {name} FROM t").fetchone, None):
                pass
        except duckdb.Error:
            continue
        found.append(name)
    return found


def _frame(path: Path, arrow_lists: bool) -> pd.DataFrame:
    """The labels, in the types that DuckDB gives to pandas; lists of keys Arrow's, if asked."""
    try:
        table = read_arrow(path)
        table.validate(full=True)
        arrow_lists &= len(set(table.column_names)) == table.num_columns
        lists = [f.name for f in table.schema if arrow_lists and _is_list_of_keys(f.type)]
        rest = table.drop_columns(lists)
        frame = pd.DataFrame(index=pd.RangeIndex(len(table)))
        if rest.num_columns:
            with _connection().cursor() as connection:
                show(connection, "labels", rest)
                frame = connection.execute("SELECT * FROM labels").df()
    except (OSError, pa.ArrowException, duckdb.Error) as error:
        raise TaskError(f"label SQL failed: its result cannot be read ({error})") from None
    for name in lists:
        column = table.column(name)
        # Two or more are copied, not taken where they lie: the file is about to go.
        copied = pa.concat_arrays([*column.chunks, pa.array([], column.type)])
        frame[name] = pd.arrays.ArrowExtensionArray(copied)
    return frame[table.column_names] if lists else frame


def _is_list_of_keys(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    value = kind.value_type
    return bool(pa.types.is_integer(value) or pa.types.is_string(value))
