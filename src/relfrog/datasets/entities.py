"""Find rows of a table by the keys they have in the source."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.dataset import source_keys
from relfrog.datasets.key_lookup import find_keys, is_missing, is_text, parse_time
from relfrog.errors import DatasetError, TaskError, UsageError
from relfrog.support.files import user_path
from relfrog.support.lines import bounded_lines, most_rows

__all__ = ["Entities", "Keys", "key_frame", "read_entities"]

#: Keys of rows: a CSV or Parquet file, a data frame, or a list.
Keys: TypeAlias = str | Path | pd.DataFrame | Sequence[Any]

#: The column of row numbers, where a table has no primary key.
ROW = "row"


@dataclass(frozen=True, eq=False)
class Entities:
    """Rows of a table, in the order asked for; rows may repeat.

    Attributes:
        rows: Row numbers of the table. Shape [asked].
        keys: The source's keys of these rows, as `key_frame` gives them.
        times: The time of each row, in UTC without a zone; None if no times were given.
    """

    rows: NDArray[np.int64]
    keys: pd.DataFrame
    times: pd.Series | None = None

    def __len__(self) -> int:
        return len(self.rows)


def key_frame(
    dataset_dir: str | Path,
    table: str,
    primary_key: str | None,
    rows: NDArray[np.int64] | Sequence[int],
) -> pd.DataFrame:
    """The keys that rows of a table have in the source.

    Args:
        dataset_dir: A dataset folder.
        table: A table of it.
        primary_key: The table's primary key in the dataset; None if it has none.
        rows: Row numbers; they may repeat.

    Returns:
        The source's key columns; or the dataset's primary key, which holds row numbers, if the
        folder has no keys of the source; or else the row numbers as `row`.
    """
    numbers = np.asarray(rows, dtype=np.int64)
    keys = source_keys(dataset_dir, table)
    if keys is None:
        return pd.DataFrame({primary_key or ROW: numbers})
    return keys.iloc[numbers].reset_index(drop=True)


def read_entities(
    dataset_dir: str | Path,
    table: str,
    primary_key: str | None,
    num_rows: int,
    asked: Keys,
    *,
    time_names: Sequence[str] = ("time", "at"),
) -> Entities:
    """Find the rows with the given keys.

    Args:
        dataset_dir: A dataset folder.
        table: The table of the rows.
        primary_key: The table's primary key in the dataset; None if it has none.
        num_rows: The table's number of rows.
        asked: A CSV or Parquet file or a frame with the key columns, named as in the source (a
            single column may have any name); or a list of keys, as tuples if a key has several
            columns.
        time_names: Possible names of a column with a time for each row; the first one found is
            used.

    Raises:
        TaskError: A key is not in the table, or a column is missing.
        DatasetError: The folder's keys do not fit the table.
    """
    keys = source_keys(dataset_dir, table)
    if keys is None:
        keys = pd.DataFrame({primary_key or ROW: np.arange(num_rows)})
    elif len(keys) != num_rows:
        raise DatasetError(
            f"{Path(dataset_dir) / 'keys' / table}.parquet holds {len(keys):,} keys, but {table} "
            f"has {num_rows:,} rows. Import the database again."
        )
    where, columns, is_csv = _columns(asked, list(keys.columns))
    if not columns:  # an empty file, not even with a header
        return Entities(np.zeros(0, np.int64), keys.iloc[:0].copy())
    found, time = _match_columns(where, list(columns), list(keys.columns), table, time_names)
    values = [columns[name] for name in found]
    if is_csv and len(found) == 1 and found[0].casefold() != keys.columns[0].casefold():
        _check_header(where, found[0], keys)
    rows = _rows(where, table, keys, values)
    times = None if time is None else _times(where, time, columns[time])
    return Entities(rows, keys.iloc[rows].reset_index(drop=True), times)


def _columns(asked: Keys, names: list[str]) -> tuple[str, dict[str, list[Any]], bool]:
    """A name for messages, the columns asked for, and whether they come from CSV text."""
    if isinstance(asked, str | Path):
        path = user_path(asked)
        lower = path.name.lower()
        if not path.is_file():
            raise UsageError(f"there is no file {path}. Check the path.")
        if lower.endswith((".parquet", ".pq")):
            return path.name, _frame_columns(_read_parquet(path)), False
        if lower.endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
            return path.name, _read_csv(path), True
        raise UsageError(f"{path} is neither .csv nor .parquet. Save the keys as one of them.")
    if isinstance(asked, pd.DataFrame):
        return "the frame", _frame_columns(asked), False
    listed = list(asked)
    if len(names) == 1:
        return "the list", {names[0]: listed}, False
    for key in listed:
        if not isinstance(key, tuple | list) or len(key) != len(names):
            raise TaskError(
                f"a key has {len(names)} columns ({', '.join(names)}), but the list holds {key!r}. "
                "Give tuples, or a frame with these columns."
            )
    return "the list", {n: [k[i] for k in listed] for i, n in enumerate(names)}, False


def _frame_columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    return {str(n): frame.iloc[:, i].astype(object).tolist() for i, n in enumerate(frame.columns)}


def _read_parquet(path: Path) -> pd.DataFrame:
    from relfrog.support.parquet import UNREADABLE, read_parquet

    try:
        return read_parquet(path)
    except UNREADABLE as error:
        text = " ".join(str(error).split())[:300]
        raise TaskError(f"{path} cannot be read: {text}. Is it a Parquet file?") from None


def _read_csv(path: Path) -> dict[str, list[Any]]:
    """Read the columns of a CSV file as text, unchanged: ``007``, ``NA``."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    rows: list[list[str]] = []
    most = most_rows()
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            first = next(bounded_lines(text), "")
            delimiter = max(",;\t|", key=lambda d: (first.count(d), d == ","))
            text.seek(0)
            reader = csv.reader(bounded_lines(text), delimiter=delimiter)
            for row in reader:
                if not row:
                    continue
                if rows and len(row) != len(rows[0]):
                    raise TaskError(
                        f"{path.name}, line {reader.line_num}: {len(row)} values, but the header "
                        f"has {len(rows[0])} columns. Fix the line."
                    )
                if len(rows) > most:
                    raise TaskError(
                        f"{path.name} has more than {most:,} rows, which do not fit into memory. "
                        "Split it."
                    )
                rows.append(row)
    except UnicodeDecodeError:
        raise TaskError(f"{path} is not UTF-8. Save it as UTF-8.") from None
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise TaskError(f"{path} cannot be read: {error}. Check the file.") from None
    if not rows:
        return {}
    header = [name.strip() for name in rows[0]]
    columns: dict[str, list[Any]] = {}
    for i, name in enumerate(header):
        if name in columns:
            raise TaskError(f"{path.name} has two columns {name!r}. Remove or rename one.")
        columns[name] = [row[i] for row in rows[1:]]
    return columns


def _match_columns(
    where: str, present: list[str], keys: list[str], table: str, time_names: Sequence[str]
) -> tuple[list[str], str | None]:
    """Find the key columns, and the time column."""
    found = [_match(where, name, present) for name in keys]
    others = [name for name in present if name not in found]
    times = (_match(where, name, others) for name in time_names) if len(present) > 1 else iter(())
    time = next((name for name in times if name is not None), None)
    left = [name for name in others if name != time]
    if len(keys) == 1 and found == [None] and len(left) == 1:
        return left, time
    missing = [key for key, name in zip(keys, found, strict=True) if name is None]
    if missing:
        raise TaskError(
            f"{where} has no column {', '.join(map(repr, missing))}; there are: "
            f"{', '.join(present[:12])}. The key of {table} is {', '.join(keys)}: add the column, "
            "or rename the one that holds it."
        )
    return [name for name in found if name is not None], time


def _match(where: str, name: str, present: list[str]) -> str | None:
    if name in present:
        return name
    alike = [other for other in present if other.casefold() == name.casefold()]
    if len(alike) > 1:
        raise TaskError(
            f"{where}: both {' and '.join(alike)} could be column {name!r}. Rename one of them."
        )
    return alike[0] if alike else None


def _check_header(where: str, name: str, keys: pd.DataFrame) -> None:
    """Raise TaskError if a CSV file has no header: its first key would be lost."""
    if find_keys(keys, [[name]])[0] >= 0:
        raise TaskError(
            f"{where} begins with {name!r}, which is a key and not a column name. "
            f"Add a first line with {keys.columns[0]}."
        )


def _rows(where: str, table: str, keys: pd.DataFrame, asked: list[list[Any]]) -> NDArray[np.int64]:
    """The row number of each key asked for."""
    total = len(asked[0])
    for name, values in zip(keys.columns, asked, strict=True):
        blank = not is_text(keys[name])
        absent = sum(is_missing(v, blank) for v in values)
        if absent:
            raise TaskError(
                f"{where}: {absent:,} of {total:,} rows have no value for {name}. Fill in the "
                "keys, or remove these rows."
            )
    rows = find_keys(keys, asked)
    lost = np.flatnonzero(rows < 0)
    if not lost.size:
        return rows
    example = ", ".join(f"{n}={v[lost[0]]}" for n, v in zip(keys.columns, asked, strict=True))
    known = keys.dropna()
    there = ", ".join(f"{n}={known[n].iloc[0]}" for n in keys.columns) if len(known) else ""
    hint = f" (one that is: {there})" if there else ""
    if total == 1:
        raise TaskError(
            f"{example} is not in table {table}{hint}. Check the key; if it is new, import the "
            "database again."
        )
    raise TaskError(
        f"{where}: {lost.size:,} of {total:,} keys are not in table {table}, such as {example}"
        f"{hint}. Remove them; if they are new, import the database again."
    )


def _times(where: str, name: str, values: list[Any]) -> pd.Series:
    """The times of a column, in microseconds, or in nanoseconds if needed."""
    moments, wrong = [], []
    for value in values:
        try:
            moments.append(parse_time(value))
        except (ValueError, TypeError, ArithmeticError):
            wrong.append(value)
    if wrong:
        shown = "an empty one" if is_missing(wrong[0], blank=True) else repr(wrong[0])
        raise TaskError(
            f"{where}: {len(wrong):,} of {len(values):,} values of {name} are not times, such as "
            f"{shown}. Write them as 2024-01-31 or 2024-01-31T12:00:00."
        )
    unit = "ns" if any(m.nanosecond for m in moments) else "us"
    exact = [m.to_datetime64().astype(f"datetime64[{unit}]") for m in moments]
    return pd.Series(np.array(exact, f"datetime64[{unit}]"), name=name)
