"""Where the columns of a table in files are, and what is left of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from relfrog.support.duckdb import literal

__all__ = ["Cut", "Layout", "Move"]


@dataclass(frozen=True)
class Cut:
    """Rows up to a time alone, by a column."""

    column: str
    time: pd.Timestamp


@dataclass(frozen=True)
class Move:
    """Times of a column up to a time are earlier than they are."""

    column: str
    time: pd.Timestamp
    by: pd.Timedelta

    def apply(self, values: pd.Series) -> pd.Series:
        """The times as they are then."""
        times = values.astype("datetime64[us]")
        return times.where(times > self.time, times - self.by)

    def sql(self, value: str) -> str:
        """The same in SQL, of an expression for the time."""
        micros = self.by // pd.Timedelta(microseconds=1)
        earlier = f"{value} - to_microseconds({micros})"
        until = f"TIMESTAMP {literal(str(self.time))}"
        return f"(CASE WHEN {value} > {until} THEN {value} ELSE {earlier} END)"


@dataclass(frozen=True)
class Layout:
    """Where a table's columns are, and what is left of them.

    Attributes:
        path: the file.
        hidden: columns of it that do not count.
        added: columns from other files with as many rows: of each the file, which has no other.
        limits: per foreign key the number of rows of its parent; larger values count as NULL.
        cuts: what rows have to be up to.
        move: times that are earlier.
        shown: for SQL alone, columns with values of another file in place of their own: the
            column that has the number of a row, the file, and its column.
    """

    path: Path
    hidden: frozenset[str] = frozenset()
    added: Mapping[str, Path] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    move: Move | None = None
    shown: Mapping[str, tuple[str, Path, str]] = field(default_factory=dict)

    def replaced(self, **changes: Any) -> Layout:
        """The same with some changes."""
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Layout(**(known | changes))
