"""Encode columns as tensors, with types and statistics from rows before a cutoff.

`fit_columns` infers the type and the statistics of each column from rows known at the cutoff;
`Columns.encode` turns any rows of that schema, earlier or later, into tensors. Rows after the
cutoff change no type, statistic, vocabulary or text model, and the encoding of a row does not
depend on other rows.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import DatasetError, RelFrogWarning, SchemaError, UsageError
from relfrog.features.coded import Coded, code_file, holds_text
from relfrog.features.column_fit import TYPES, fit_column
from relfrog.features.column_kinds import Column, column_from
from relfrog.features.streamed import Moments, Numbers, read_moment_rows, read_number_rows
from relfrog.features.table import Features, TableColumns
from relfrog.features.text import text_model
from relfrog.store.file_table import column_names, is_whole, read_column
from relfrog.store.streams import holds_moments, holds_numbers, read_ticks
from relfrog.support.forms import read_json
from relfrog.support.tensors import read_arrays, save_arrays
from relfrog.support.times import as_ticks, common_unit, convert_ticks

if TYPE_CHECKING:
    from relbench.base import Database, Table

__all__ = ["Columns", "Features", "NewColumnWarning", "TableColumns", "fit_columns"]

FORMAT = 1
NO_TYPES: Mapping[str, Mapping[str, str]] = {}


class NewColumnWarning(RelFrogWarning):
    """A table, column or category is new since the columns were fitted, and is ignored."""


class _Table(msgspec.Struct):
    """A table of `columns.json`; what a column's entry must be depends on its kind."""

    time_col: str | None
    known: list[str]
    skipped: dict[str, str]
    columns: list[dict[str, Any]]


class _File(msgspec.Struct):
    """`columns.json`."""

    format: int
    before: str
    text: str
    tables: dict[str, _Table]


@dataclass(frozen=True, eq=False)
class Columns:
    """The encoding of all columns of a database; see `fit_columns`.

    Attributes:
        tables: the columns of each table.
        before: the cutoff; later rows were not used.
        text: the text model.
    """

    tables: dict[str, TableColumns]
    before: pd.Timestamp
    text: str = "ngrams"

    def encode(self, db: Database, names: Collection[str] | None = None) -> dict[str, Features]:
        """Encode all rows of a database with the same schema, regardless of time.

        An unseen category is encoded as unknown; a value that cannot be read counts as missing.

        Args:
            db: the database.
            names: the tables to encode; by default all.

        Raises:
            SchemaError: a table or a column is missing, or none of its values can be read.

        Warns:
            NewColumnWarning: a table or a column is new; it is ignored.
        """
        self.check(db)
        found, unreadable = {}, []
        for name in self.tables if names is None else names:
            table = self.tables[name]
            wrong: list[str] = []
            found[name] = table.encode(db.table_dict[name].df, wrong)
            unreadable += [f"{name}.{column}" for column in dict.fromkeys(wrong)]
        self.refuse(unreadable)
        return found

    def refuse(self, unreadable: list[str]) -> None:
        """Refuse columns of which no value can be read any more.

        Raises:
            SchemaError: There is one.
        """
        if unreadable:
            raise SchemaError(
                f"no value has the type it had before {self.before} in "
                f"{_listed(unreadable, 'column')}. Undo the change of type, or fit the columns "
                "again and train again."
            )

    def check(self, db: Database) -> None:
        """Compare a database with the schema; raise and warn as `encode` does."""
        moved = [
            f"{name} (by {db.table_dict[name].time_col or 'no time'}, then by "
            f"{table.time_col or 'no time'})"
            for name, table in self.tables.items()
            if name in db.table_dict
            and len(db.table_dict[name])
            and db.table_dict[name].time_col != table.time_col
        ]
        if moved:  # rows would be visible at other times than those it was learned with
            raise SchemaError(
                f"dated otherwise than when the columns were fitted: {_listed(moved, 'table')}. "
                "Undo that (relfrog import --time), or fit the columns again and train again."
            )
        gone = [name for name in self.tables if name not in db.table_dict]
        lost = [
            f"{name}.{column}"
            for name, table in self.tables.items()
            if name in db.table_dict
            for column in dict.fromkeys(column.name for column in table.columns)
            if column not in column_names(db.table_dict[name])
        ]
        if gone or lost:
            parts = [_listed(gone, "table")] * bool(gone) + [_listed(lost, "column")] * bool(lost)
            raise SchemaError(
                f"not in the database: {', and '.join(parts)}. Restore them (a column of NULLs "
                "is enough), or fit the columns again and train again."
            )
        keys = [
            f"{name}.{column}"
            for name, table in self.tables.items()
            for column in db.table_dict[name].fkey_col_to_pkey_table
            if table.encodes(column)
        ]
        if keys:  # its values are row numbers now
            raise SchemaError(
                f"foreign keys now, but values when the columns were fitted: "
                f"{_listed(keys, 'column')}. Undo that, or fit the columns again and train again."
            )
        for name, table in db.table_dict.items():
            if name not in self.tables:
                text = f"table {name} is new since the columns were fitted and is ignored."
            else:
                fitted, keys_now = self.tables[name], table.fkey_col_to_pkey_table
                known = {table.pkey_col, *fitted.known} - (set(fitted.skipped) & set(keys_now))
                new = [column for column in column_names(table) if column not in known]
                if not new:
                    continue
                text = f"table {name}: new and ignored: {_listed(new, 'column')}."
            warnings.warn(f"{text} Fit the columns again to use it.", NewColumnWarning, 3)

    def frames(self, db: Database) -> dict[str, Any]:
        """The same columns as PyTorch Frame's `TensorFrame`, by table.

        Raises:
            SchemaError: a table or a column is missing.
        """
        from relfrog.features.tensor_frame import frame

        self.check(db)
        return {name: frame(t, db.table_dict[name].df) for name, t in self.tables.items()}

    def frame_stats(self, table: str) -> tuple[dict[Any, list[str]], dict[str, dict[Any, Any]]]:
        """Column names by type and statistics by column, for PyTorch Frame's encoders."""
        from relfrog.features.tensor_frame import frame_stats

        return frame_stats(self.tables[table])

    def save(self, folder: str | Path) -> None:
        """Write ``columns.json`` and ``columns.safetensors`` to a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, NDArray[Any]] = {}
        tables: dict[str, Any] = {}
        for name, table in self.tables.items():
            for number, column in enumerate(table.columns):
                for key, array in column.arrays().items():
                    # By number: names may hold any character, and two columns may share a name.
                    arrays[f"{len(tables)}.{number}.{key}"] = np.ascontiguousarray(array)
            tables[name] = {
                "time_col": table.time_col,
                "known": list(table.known),
                "skipped": table.skipped,
                "columns": [column.to_json() for column in table.columns],
            }
        about = {
            "format": FORMAT,
            "before": self.before.isoformat(),
            "text": self.text,
            "tables": tables,
        }
        save_arrays(folder / "columns.safetensors", arrays)
        text = json.dumps(about, indent=1, allow_nan=False)
        (folder / "columns.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Columns:
        """Read what `save` wrote.

        Raises:
            DatasetError: the files are missing, damaged, or of another version.
        """
        folder = Path(folder)
        try:
            about = read_json(folder / "columns.json", _File, DatasetError, "Fit them again.")
            if about["format"] != FORMAT:
                raise DatasetError(
                    f"{folder}: columns format {about['format']}, but this version reads {FORMAT}. "
                    "Fit them again."
                )
            arrays: dict[str, dict[str, NDArray[Any]]] = {}
            for key, array in read_arrays(folder / "columns.safetensors").items():
                place, _, name = key.rpartition(".")
                arrays.setdefault(place, {})[name] = array
            tables = {}
            for number, (name, record) in enumerate(about["tables"].items()):
                columns = [
                    column_from(column, arrays.get(f"{number}.{place}", {}))
                    for place, column in enumerate(record["columns"])
                ]
                known, skipped = tuple(record["known"]), dict(record["skipped"])
                tables[name] = TableColumns(tuple(columns), record["time_col"], known, skipped)
            return cls(tables, pd.Timestamp(about["before"]), str(about["text"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError,
                msgspec.ValidationError) as error:  # fmt: skip
            raise DatasetError(
                f"{folder}: no readable columns ({type(error).__name__}: {error}). Fit them again."
            ) from error


def fit_columns(
    db: Database,
    *,
    before: pd.Timestamp,
    text: str = "ngrams",
    text_channels: int = 32,
    types: Mapping[str, Mapping[str, str]] = NO_TYPES,
) -> Columns:
    """Infer the type and the statistics of each column from rows known at a cutoff.

    Keys are not features; time columns are.

    Args:
        db: a RelBench database.
        before: the cutoff. Rows with a later time are not used; rows without a time are. There is
            no default, so that the caller decides what may be known.
        text: the text model, see `relfrog.features.text.text_model`.
        text_channels: numbers per text.
        types: types of columns by table, to replace the inferred ones: numerical, categorical,
            multicategorical, timestamp, embedding, or skip.

    Raises:
        UsageError: `before` is not a time, a type is wrong, or there is no such text model.
        SchemaError: a time column is missing or holds no times.
    """
    before = pd.Timestamp(before)
    if before is pd.NaT:
        raise UsageError("before is not a time. Give the time up to which rows may be used.")
    text_model(text, text_channels)  # fail early
    _check_types(db, types)
    tables = {}
    for name in sorted(db.table_dict):
        table = db.table_dict[name]
        row_times, visible = _visible(name, table, before)
        keys = {table.pkey_col, *table.fkey_col_to_pkey_table}
        columns: list[Column] = []
        skipped: dict[str, str] = {}
        for column in column_names(table):
            wanted = types.get(name, {}).get(column)
            if column in keys:
                continue
            own = column == table.time_col
            try:
                fitted = fit_column(
                    column, _values(table, column, visible, wanted, own), wanted, text,
                    text_channels, own, row_times,
                )  # fmt: skip
            except UsageError as error:
                raise UsageError(f"types: {name}.{column} as {error}") from None
            if isinstance(fitted, str):
                skipped[column] = fitted
            else:
                columns += fitted
        tables[name] = TableColumns(
            tuple(columns), table.time_col, tuple(column_names(table)), skipped
        )
    return Columns(tables, before, text)


def _values(
    table: Table, column: str, visible: NDArray[np.bool_], wanted: str | None, own: bool
) -> pd.Series | Coded | Numbers | Moments:
    """The values of a column in some rows; those of a file are read in pieces where they may be."""
    every = bool(visible.all())
    if wanted is None and is_whole(table):
        if not own and holds_text(table.arrow_type(column)):
            found = code_file(table, column)
            return found if every else found.take(visible)
        if not own and holds_numbers(table, column):
            return read_number_rows(table, column, visible)
        if holds_moments(table, column):
            return read_moment_rows(table, column, visible)
    values = read_column(table, column)
    return values if every else values[visible]


def _check_types(db: Database, types: Mapping[str, Mapping[str, str]]) -> None:
    for name, columns in types.items():
        table = db.table_dict.get(name)
        if table is None:
            known = ", ".join(sorted(db.table_dict))
            raise UsageError(f"types: there is no table {name!r}. There are: {known}.")
        for column, wanted in columns.items():
            if column not in column_names(table):
                known = ", ".join(column_names(table))
                raise UsageError(f"types: {name} has no column {column!r}. It has: {known}.")
            if wanted not in TYPES:
                raise UsageError(
                    f"types: {name}.{column} cannot be {wanted!r}. Choose one of "
                    f"{', '.join(TYPES)}."
                )
            if column == table.pkey_col or column in table.fkey_col_to_pkey_table:
                raise UsageError(
                    f"types: {name}.{column} is a key, which has no type. Leave it out."
                )


def _visible(
    name: str, table: Table, before: pd.Timestamp
) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_]]:
    """The times of the rows known at the cutoff, and a mask of them, as in the graph."""
    if table.time_col is None:
        return None, np.ones(len(table), bool)
    if table.time_col not in column_names(table):
        raise SchemaError(f"{name}: there is no time column {table.time_col!r}.")
    try:
        known = read_ticks(table, table.time_col)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{name}.{table.time_col}: not a time ({error}).") from error
    unit = common_unit([known])
    cut = convert_ticks(*as_ticks([before]), unit, clip=True)[0]
    times = convert_ticks(*known, unit)
    visible = np.asarray(times <= cut)
    count = np.count_nonzero(visible)
    # Rows in the order of time are the first ones, which need no copy.
    return times[:count] if visible[:count].all() else times[visible], visible


def _listed(names: list[str], what: str) -> str:
    """Count and list names."""
    return f"{len(names)} {what}{'s' * (len(names) != 1)} ({', '.join(map(str, names))})"
