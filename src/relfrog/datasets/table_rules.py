"""What every table of a database must be: keys that are row numbers, times in order.

`relfrog check` lists all that is wrong; whatever reads a database refuses the first of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from relfrog.errors import DatasetError
from relfrog.store.file_table import FileTable, column_names, read_column
from relfrog.store.streams import holds_integers, holds_moments, pieces, ticks_of
from relfrog.support.relbench import Database, Table
from relfrog.support.times import MISSING, between, odd_time

__all__ = [
    "check_database", "check_split_times", "counts_rows", "foreign_key_problem", "points_inside",
    "primary_key_problem", "times_in_order",
]  # fmt: skip


def check_database(db: Database, where: str) -> None:
    """Refuse tables that `relfrog check` would call wrong.

    Args:
        db: All rows.
        where: The dataset, for the error.

    Raises:
        DatasetError: A column is missing or of another type, a key is no row, or times are not in
            order.
    """
    _refuse(next(_problems(db), None), where)


def check_split_times(db: Database, val: pd.Timestamp, test: pd.Timestamp, where: str) -> None:
    """Refuse to learn where the validation or test time lies outside the data.

    Raises:
        DatasetError: It does.
    """
    _refuse(_split_problem(db, val, test), where)


def _refuse(problem: str | None, where: str) -> None:
    if problem is not None:
        raise DatasetError(f"{where}: {problem}. See all findings: relfrog check {where}")


def primary_key_problem(keys: NDArray[np.int64]) -> str | None:
    """What is wrong with a primary key, if anything."""
    wrong = np.flatnonzero(keys != np.arange(len(keys)))
    if not len(wrong):
        return None
    return (
        f"keys must be 0..n-1 in the order of rows: {len(wrong):,} are not, such as "
        f"{keys[wrong[0]]} in row {int(wrong[0]):,}"
    )


def foreign_key_problem(values: NDArray[np.float64], parent: str, size: int) -> str | None:
    """What is wrong with a foreign key's values, NULL left out, if anything."""
    wrong = values[(values < 0) | (values >= size) | (values != np.floor(values))]
    if not len(wrong):
        return None
    return (
        f"{len(wrong):,} of {len(values):,} values are not rows of {parent} (0 to {size - 1:,}), "
        f"such as {wrong[0]:g}"
    )


def _problems(db: Database) -> Iterator[str]:
    """What is wrong with the tables, one after the other."""
    kinds = pd.api.types
    for name, table in db.table_dict.items():
        names = column_names(table)
        if len({*names}) < len(names):
            yield f"{name} has two columns of one name"
            return
        for column in filter(None, [table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table]):
            if column not in names:
                yield f"{name} has no column {column}"
                return
        if table.pkey_col is not None and not counts_rows(table):
            keys = read_column(table, table.pkey_col)
            if not kinds.is_integer_dtype(keys.dtype) or keys.isna().any():
                yield f"{name}.{table.pkey_col}: a primary key must be integer (got {keys.dtype})"
            elif wrong := primary_key_problem(keys.to_numpy(np.int64)):
                yield f"{name}.{table.pkey_col}: {wrong}"
        for column, parent in table.fkey_col_to_pkey_table.items():
            there = db.table_dict.get(parent)
            if there is None or there.pkey_col is None:
                yield f"{name}.{column} refers to {parent}, which is no table with a primary key"
                continue
            if points_inside(table, column, len(there)):
                continue
            values = read_column(table, column).dropna()
            if not len(values):
                continue
            if not kinds.is_numeric_dtype(values.dtype) or kinds.is_bool_dtype(values.dtype):
                yield f"{name}.{column}: a foreign key must be integer (got {values.dtype})"
            elif wrong := foreign_key_problem(values.to_numpy(float), parent, len(there)):
                yield f"{name}.{column}: {wrong}"
        if (
            table.time_col is not None
            and not times_in_order(table)
            and (wrong := _time_problem(table))
        ):
            yield f"{name}.{table.time_col}: {wrong}"


# Most columns are as they should be, and that is seen piece by piece; what is wrong with the others
# is said by whoever reads them whole.


def counts_rows(table: Table) -> bool:
    """Whether the primary key of a file is seen to hold row numbers."""
    key = str(table.pkey_col)
    return holds_integers(table, key) and all(
        not chunk.null_count
        and np.array_equal(chunk.to_numpy(), np.arange(first, first + len(chunk)))
        for first, chunk in pieces(cast("FileTable", table), key)
    )


def points_inside(table: Table, column: str, size: int) -> bool:
    """Whether a foreign key of a file is seen to hold rows of its parent, or NULL."""
    if not holds_integers(table, column):
        return False
    for _, chunk in pieces(cast("FileTable", table), column):
        ends = pc.min_max(chunk)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and not 0 <= low <= high < size:
            return False
    return True


def times_in_order(table: Table, *, always: bool = False) -> bool:
    """Whether the time column of a file is seen to hold times, in order if that matters.

    Args:
        table: The table.
        always: Whether it matters for a table without a primary key, too.
    """
    name = str(table.time_col)
    if not holds_moments(table, name):
        return False
    table = cast("FileTable", table)
    if cast("Any", table.arrow_type(name)).tz is not None:
        return False
    last, some = MISSING, False
    for _, chunk in pieces(table, name):
        if chunk.null_count:
            return False
        some |= bool(len(chunk))
        ticks = ticks_of(chunk)
        if odd_time(ticks, chunk.type.unit) is not None:
            return False
        if (always or table.pkey_col is not None) and len(chunk):
            if ticks[0] < last or (ticks[1:] < ticks[:-1]).any():
                return False
            last = ticks[-1]
    return some


def _time_problem(table: Table) -> str | None:
    assert table.time_col is not None
    values = read_column(table, table.time_col)
    if not isinstance(values.dtype, np.dtype) or values.dtype.kind != "M":
        return f"a time must be a timestamp in UTC without a zone (got {values.dtype})"
    if not len(values):
        return None
    known = values.notna().to_numpy()
    if not known.any():
        return "no row has a time"
    ticks = values.to_numpy().view(np.int64)[known]
    if (odd := odd_time(ticks, np.datetime_data(values.dtype)[0])) is not None:
        return f"the time {odd} lies outside the years 1 to 9999. Write NULL for open ends"
    if table.pkey_col is None:
        return None
    if not known[: len(ticks)].all() or (ticks[1:] < ticks[:-1]).any():
        return "rows are not sorted by time, so keys would change when the database is cut"
    return None


def _split_problem(db: Database, val: pd.Timestamp, test: pd.Timestamp) -> str | None:
    if not val < test:
        return f"the validation time {val} must lie before the test time {test}"
    timed = [t for t in db.table_dict.values() if t.time_col is not None and len(t)]
    if not timed:
        return None
    first, last = min(t.min_timestamp for t in timed), max(t.max_timestamp for t in timed)
    if between(first, last) < pd.Timedelta("2s"):
        return None
    for name, time in (("validation", val), ("test", test)):
        if not first < time < last:
            return f"the {name} time {time} lies outside the data, from {first} to {last}"
    return None
