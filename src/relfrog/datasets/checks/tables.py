"""Check tables: primary and foreign keys, times and splits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.datasets.checks.findings import CheckReport
from relfrog.datasets.dataset import TableFile, arrow_kind
from relfrog.datasets.known_from import inherited_keys
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.table_rules import (
    counts_rows,
    foreign_key_problem,
    points_inside,
    primary_key_problem,
    times_in_order,
)
from relfrog.errors import DatasetError
from relfrog.store.file_table import FileTable
from relfrog.support.duckdb import path_literal, quoted, silence
from relfrog.support.text import is_identifier
from relfrog.support.times import MISSING, between, odd_time

__all__ = ["check_splits", "check_tables"]


def check_tables(opened: Dataset, tables: list[TableFile], report: CheckReport) -> None:
    """Check the primary and foreign keys and the times of every table."""
    sizes = {t.name: t.rows for t in tables}
    for table in tables:
        try:
            if table.pkey is not None:
                _check_pkey(table, report)
            for column, parent in table.fkeys.items():
                _check_fkey(table, column, parent, sizes[parent], report)
            if table.time_col is not None:
                _check_time(table, report)
        except (OSError, pa.ArrowException, NotImplementedError) as error:
            text = f"db/{table.name}.parquet is damaged: {(str(error).splitlines() or [''])[0]}"
            report.error(table.name, text, "Restore the file.")
    if report.ok:
        _check_visible(opened, tables, report)
        _check_order_of_times(tables, report)


def _check_visible(opened: Dataset, tables: list[TableFile], report: CheckReport) -> None:
    """Look for rows that are always visible although they name rows that are not."""
    heirs = inherited_keys(opened)
    timed = {t.name for t in tables if t.time_col is not None or heirs.get(t.name)}
    for table in tables:
        later = sorted({p for p in table.fkeys.values() if p in timed})
        if table.name not in timed and later and table.rows:
            report.warning(
                table.name,
                f"has no time, neither of its own nor inherited, but refers to "
                f"{', '.join(later)}, which has: its {table.rows:,} rows are always visible, "
                "which may leak",
                "Give it a time column, or make sure that its rows never change.",
            )


def _is_seen(rule: Callable[..., bool], table: TableFile, *given: Any, **more: Any) -> bool:
    """Whether a rule is seen to hold piece by piece, as it mostly does.

    What is wrong, with the column or with the file, is said by whoever reads the column whole.
    """
    with contextlib.suppress(DatasetError, OSError, pa.ArrowException, ValueError):
        file = FileTable(table.path, dict(table.fkeys), table.pkey, table.time_col)
        return rule(file, *given, **more)
    return False


def _has_values(file: FileTable, column: str) -> bool:
    return any(chunk.null_count < len(chunk) for chunk in file.chunks(column))


def _column(table: TableFile, column: str) -> Any:
    return pq.read_table(table.path, columns=[column]).column(0).combine_chunks()


#: Share of rows that may precede their parents, since clocks differ.
_CLOCKS = 0.001
_REIMPORT = "Import the database again, or renumber the rows."


def _check_pkey(table: TableFile, report: CheckReport) -> None:
    place = f"{table.name}.{table.pkey}"
    if _is_seen(counts_rows, table):
        return
    values = _column(table, str(table.pkey))
    if arrow_kind(values.type) != "integer":
        report.error(place, f"a primary key must be integer (got {values.type})", _REIMPORT)
        return
    if values.null_count:
        report.error(place, f"{values.null_count:,} keys are NULL", _REIMPORT)
        return
    if wrong := primary_key_problem(np.asarray(values)):
        report.error(place, wrong, _REIMPORT)


def _check_fkey(table: TableFile, column: str, parent: str, size: int, report: CheckReport) -> None:
    place = f"{table.name}.{column}"
    if _is_seen(points_inside, table, column, size) and _is_seen(_has_values, table, column):
        return
    values = _column(table, column)
    if arrow_kind(values.type) not in ("integer", "number") and values.null_count < len(values):
        report.error(place, f"a foreign key must be integer (got {values.type})", _REIMPORT)
        return
    numbers = np.asarray(values.drop_null(), dtype=np.float64)
    if wrong := foreign_key_problem(numbers, parent, size):
        report.error(place, wrong, "Make dangling keys NULL.")
    elif len(values) and values.null_count == len(values):
        report.warning(place, f"all {len(values):,} values are NULL", "Drop the key.")


def _check_time(table: TableFile, report: CheckReport) -> None:
    column = str(table.time_col)
    place = f"{table.name}.{column}"
    if not is_identifier(column):
        report.error(place, "RelBench cannot filter by a time column of this name", "Rename it.")
    if _is_seen(times_in_order, table, always=True):
        return
    values = _column(table, column)
    if not pa.types.is_timestamp(values.type):
        report.error(place, f"a time must be a timestamp (got {values.type})", "Convert it.")
        return
    if values.type.tz is not None:
        report.error(
            place, f"times must be in UTC without a zone (got {values.type})", "Convert it."
        )
        return
    if values.null_count:
        text = f"{values.null_count:,} of {len(values):,} rows have no time; RelBench drops them"
        report.warning(place, text, "Give them a time, such as the earliest of all.")
    if values.null_count == len(values) and len(values):
        report.error(place, "no row has a time", "Set its time_col to null.")
        return
    if not len(values):
        text = "an empty table with a time column breaks RelBench's own splits"
        report.warning(place, text, "Set its time_col to null.")
        return
    ticks = np.asarray(values.cast(pa.int64()).fill_null(MISSING))
    if (odd := odd_time(ticks, values.type.unit)) is not None:
        text = f"the time {odd} lies outside the years 1 to 9999"
        report.error(place, text, "Write NULL for open ends.")
        return
    missing = np.asarray(values.is_null())
    numbers = np.asarray(values.cast(pa.int64()).fill_null(np.iinfo(np.int64).max))
    back = np.flatnonzero(numbers[1:] < numbers[:-1])
    if len(back):
        row = int(back[0]) + 1
        where = "a row without a time comes first" if missing[row - 1] else f"row {row:,}"
        text = f"rows are not sorted by time: {len(back):,} steps back, the first at {where}"
        if table.pkey is not None:
            report.error(
                place, text + ", so keys change when the database is cut at a time", _REIMPORT
            )
        else:
            report.warning(place, text, "Sort the table by time.")


def _check_order_of_times(tables: list[TableFile], report: CheckReport) -> None:
    """Look for rows that refer to a parent that did not exist yet."""
    by_name = {t.name: t for t in tables}
    connection = duckdb.connect()
    silence(connection)
    try:
        for table in tables:
            for column, parent_name in table.fkeys.items():
                parent = by_name[parent_name]
                if table.time_col is None or parent.time_col is None:
                    continue
                child_time, parent_time = quoted(table.time_col), quoted(parent.time_col)
                key, pkey = quoted(column), quoted(str(parent.pkey))
                child_rows = f"read_parquet({path_literal(table.path)})"
                parent_rows = f"read_parquet({path_literal(parent.path)})"
                row = connection.execute(
                    f"SELECT count(*), min(c.{key}), count(*) FILTER (c.{child_time} = "
                    f"date_trunc('day', p.{parent_time})) FROM {child_rows} c JOIN {parent_rows} p "
                    f"ON c.{key} = p.{pkey} WHERE c.{child_time} < p.{parent_time}"
                ).fetchone()
                early, example, days = row or (0, None, 0)
                if early <= _CLOCKS * table.rows:
                    continue
                text = (
                    f"{early:,} of {table.rows:,} rows are older than their {parent_name} row, "
                    f"such as those of {example}; between the two times they have no parent"
                )
                remedy = "Check which time column says when the row was created."
                if 2 * days > early:
                    text += (
                        f". {days:,} of them lie at the midnight before it: {table.time_col} holds "
                        "dates without a time of day, so rows are visible before they happen"
                    )
                    remedy = "Use a time with hours, or the end of the day."
                report.warning(f"{table.name}.{column}", text, remedy)
    finally:
        connection.close()


def check_splits(opened: Dataset, tables: list[TableFile], report: CheckReport) -> None:
    """Check that the split times are in order and lie within the data."""
    val, test = opened.val_timestamp, opened.test_timestamp
    if not val < test:
        text = f"the validation time {val} must lie before the test time {test}"
        report.error("manifest.yaml", text, "Choose other split times.")
    low, high = None, None
    for table in tables:
        if table.time_col is None or not table.rows:
            continue
        values = _column(table, table.time_col).drop_null()
        if pa.types.is_timestamp(values.type) and len(values):
            numbers = np.asarray(values.cast(pa.timestamp("us"), safe=False).cast(pa.int64()))
            low = numbers.min() if low is None else min(low, numbers.min())
            high = numbers.max() if high is None else max(high, numbers.max())
    if low is None or high is None:
        text = "no table has a time column: nothing can be predicted ahead of time"
        report.warning("manifest.yaml", text, "Import again with --time TABLE.COLUMN.")
        return
    first, last = pd.Timestamp(low, unit="us"), pd.Timestamp(high, unit="us")
    if between(first, last) < pd.Timedelta("2s"):
        text = f"all rows lie within seconds of {first}: there is no before and after to split"
        report.warning("manifest.yaml", text, "Choose another time column.")
        return
    for name, time in (("val_timestamp", val), ("test_timestamp", test)):
        if not first < time < last:
            text = f"{name} {time} lies outside the data, which range from {first} to {last}"
            report.error("manifest.yaml", text, "Choose a time in between.")
