"""Run label SQL in a sandbox process: it reads tables where they lie, or as Arrow files."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from relfrog.datasets.sql_job import RESULT, TIMES, connect, read_arrow, show, write_arrow
from relfrog.errors import TaskError
from relfrog.store.file_table import FileTable
from relfrog.store.fingerprint import file_state
from relfrog.store.overlay import OverlayTable
from relfrog.support.duckdb import quoted
from relfrog.support.relbench import Database
from relfrog.support.sandbox import Ended, Failed, Limits, run_job, work_folder
from relfrog.support.text import size, text_digest

__all__ = ["run_sql"]

Shown: TypeAlias = pd.DataFrame | FileTable | OverlayTable

#: What a process needs beside DuckDB's own memory: it reserves more than it counts.
_BESIDE = 256 << 20
#: Bytes of tables that are kept from one statement to the next: tasks are checked by a dozen.
_KEPT = 8 << 30
#: The most ranges of rows that are excluded one by one; times are in order, so it is mostly one.
_FEW = 8
#: Rows from which on seed times are labelled some at a time, and in how many statements at most.
_MANY, _STATEMENTS = 1_000_000, 64
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
    order: Sequence[str] = (),
) -> pd.DataFrame:
    """Run label SQL as RelBench does, in a process that reaches its tables alone, and no network.

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
        order: Columns by which rows are to be in order, if the SQL gives them all.

    Raises:
        TaskError: The SQL is wrong, with DuckDB's message and position; or it exceeds a limit.
    """
    if not isinstance(sql, str):
        raise TaskError(f"label SQL must be text (got {sql!r})")
    frames: dict[str, Shown] = {TIMES: pd.DataFrame({"timestamp": timestamps})}
    for name, table in db.table_dict.items():
        frames[name] = table if isinstance(table, FileTable | OverlayTable) else table.df
    filled = sql.replace("{timedelta}", str(timedelta))
    named = {name: frame for name, frame in frames.items() if _is_named(name, filled)}
    limits = Limits(seconds, memory, disk)
    try:
        try:
            return _run(filled, named, limits, arrow_lists, order)
        except Failed as error:
            if error.kind != "CatalogException" or len(named) == len(frames):
                raise
            # A name may be put together by the SQL.
            return _run(filled, frames, limits, arrow_lists, order)
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
    sql: str,
    frames: dict[str, Shown],
    limits: Limits,
    arrow_lists: bool,
    order: Sequence[str],
) -> pd.DataFrame:
    with work_folder() as folder:
        tables: dict[str, str] = {}
        views: dict[str, tuple[str, str]] = {}
        for number, (name, frame) in enumerate(frames.items()):
            if isinstance(frame, FileTable) and (view := _linked(folder, number, frame)):
                views[name] = view
            else:
                tables[name] = f"{number}.arrow"
                _put(folder / tables[name], frame)
        shown = sum((folder / file).stat().st_size for file in tables.values())
        outer = Limits(limits.seconds, shown + limits.memory * 3 // 2 + _BESIDE, limits.disk)
        run_job(
            "relfrog.datasets.sql_job", folder, outer,
            tables=tables, views=views, sql=sql, memory=limits.memory, disk=limits.disk,
            most=limits.memory // _RESULT, order=list(order),
            at_once=_times_at_once(sql, frames, views) if order else 0,
        )  # fmt: skip
        return _frame(folder / RESULT, arrow_lists)


def _times_at_once(sql: str, frames: dict[str, Shown], views: Collection[str]) -> int:
    """How many seed times a statement is given at a time; 0 for all.

    Few, if tables are large, their rows can be read in part, and it makes no difference.
    """
    inside = sum(t.file_rows for n, t in frames.items() if n in views and isinstance(t, FileTable))
    outside = sum(len(table) for name, table in frames.items() if name not in views)
    if inside < _MANY or inside < outside or TIMES not in frames:
        return 0
    from relfrog.datasets.label_independence import is_independent

    return -(-len(frames[TIMES]) // _STATEMENTS) if is_independent(sql) else 0


def _linked(folder: Path, number: int, table: FileTable) -> tuple[str, str] | None:
    """Let a statement read a table where it lies: the one file, and a SELECT from it.

    None where that would be slow, as rows are joined, or where there are no links to files.
    """
    if not table.is_one_file:
        return None
    link = folder / f"{number}.parquet"
    try:
        link.symlink_to(table.layout.path.resolve())
    except (OSError, NotImplementedError):
        return None
    return str(link), table.located(link).sql()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """For types alone: no SQL but ours runs here."""
    return connect()


def _put(path: Path, frame: Shown) -> None:
    """Put a table where the process finds it; one that was written before is linked."""
    if not isinstance(frame, FileTable):
        _write(path, frame)
        return
    states = [file_state(file) for file in frame.files]
    known = _kept() / f"{text_digest(frame.sql(), str(states))}.arrow"
    if not known.exists():
        _write(path, frame)
        with contextlib.suppress(OSError):
            _make_room(path.stat().st_size)
            os.link(path, known)
        return
    try:
        os.link(known, path)
        os.utime(known)
    except OSError:  # the file system cannot
        _write(path, frame)


@cache
def _kept() -> Path:
    """A folder with tables that were written, for as long as this process lives."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(work_folder())


def _make_room(size: int) -> None:
    """Remove the files that were used longest ago until one of some size fits in."""
    files = sorted(_kept().glob("*.arrow"), key=lambda file: file.stat().st_mtime)
    total = sum(file.stat().st_size for file in files)
    for file in files:
        if total + size <= _KEPT:
            break
        total -= file.stat().st_size
        file.unlink()


def _write(path: Path, frame: Shown) -> None:
    """Write a table with the types that DuckDB sees in it; from a file in pieces."""
    with _connection().cursor() as connection:
        if isinstance(frame, OverlayTable):
            try:
                parts = _overlaid(connection, frame)
                write_arrow(path, next(parts), then=parts)
                return
            except duckdb.Error:  # values that DuckDB cannot tell, as below
                frame = frame.df
        if isinstance(frame, FileTable):
            try:
                write_arrow(path, connection.sql(frame.sql()))
                return
            except duckdb.Error:  # likewise; a damaged file is refused
                frame = frame.df
        connection.register("t", frame)
        try:
            write_arrow(path, connection.sql("SELECT * FROM t"))
        except duckdb.Error:
            # A column with values that DuckDB cannot tell: it is there for no SQL.
            columns = _readable(connection, frame.columns)
            write_arrow(path, connection.sql(f"SELECT {', '.join(columns) or 'NULL'} FROM t"))


def _overlaid(connection: duckdb.DuckDBPyConnection, table: OverlayTable) -> Iterator[Any]:
    """The rows that stay, then the others, all with the types of the first."""
    base, cut, others = table.base, table.cut, table.others()
    if cut is not None:
        base = base.upto(cut)
    if isinstance(base, FileTable):
        where = [f"t.file_row_number NOT BETWEEN {a} AND {b}" for a, b in _ranges(others)]
        if len(where) > _FEW:
            connection.register("others", pd.DataFrame({"r": others}))
            where = ["t.file_row_number NOT IN (SELECT r FROM others)"]
        stays = connection.sql(base.sql(" AND ".join(where)))
    else:
        frame = table.base.df.iloc[np.delete(np.arange(len(table.base)), others)]
        connection.register("t", frame if cut is None else frame[frame[table.time_col] <= cut])
        stays = connection.sql("SELECT * FROM t")
    columns = ", ".join(
        f"TRY_CAST({quoted(name)} AS {kind}) AS {quoted(name)}"
        for name, kind in zip(stays.columns, stays.types, strict=True)
    )
    yield stays
    for number, piece in enumerate(table.changes.pieces()):
        some = piece if cut is None else piece[piece[table.time_col] <= cut]
        connection.register(f"piece{number}", some)
        yield connection.sql(f"SELECT {columns} FROM piece{number}")
        connection.unregister(f"piece{number}")


def _ranges(rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Sorted numbers as the first and the last of those that follow each other."""
    breaks = np.flatnonzero(np.diff(rows) != 1)
    starts = rows[np.concatenate([np.zeros(1, np.int64), breaks + 1])] if len(rows) else rows
    ends = rows[np.concatenate([breaks, [len(rows) - 1]])] if len(rows) else rows
    return list(zip(starts[: _FEW + 1].tolist(), ends[: _FEW + 1].tolist(), strict=True))


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
