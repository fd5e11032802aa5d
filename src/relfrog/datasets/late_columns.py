"""Columns of times that are later than their rows: written when something had happened since.

A row is visible from its time on, with all of its cells. A date of leaving, of shipping or of death
was not known then, so that a model which sees it sees the future. Dates that were planned when the
row was written (due, expected, required ...) are recognised by their names and may stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from relfrog.importing.time_proposals import is_foreseen
from relfrog.store.file_table import column_names, holds_times, read_column
from relfrog.support.relbench import Database, Table
from relfrog.support.times import MISSING, as_ticks, convert_ticks

__all__ = ["LateColumn", "find_late_columns", "hidden_note", "other_times"]

#: The least share of values that must be late, and the fewest values to judge by.
MANY, FEWEST = 0.05, 5
#: Dates further ahead stand for "not yet", such as the year 9999.
_NEVER = pd.Timedelta(days=36525)
_NONE, _DAY = pd.Timedelta(0), pd.Timedelta(days=1)
_FAR = 1 << 61


@dataclass(frozen=True)
class LateColumn:
    """A column of times that are later than the rows that hold them.

    Attributes:
        table: Its table.
        column: Its name.
        own: The table's time column; None if its rows are always visible.
        later: How many values are later: than the row's own time or, in a table that is always
            visible, than the first event of the database.
        values: How many there are.
        gap: By how much, at the median; None if there is no time to compare with.
    """

    table: str
    column: str
    own: str | None
    later: int
    values: int
    gap: pd.Timedelta | None

    @property
    def place(self) -> str:
        """Table and column."""
        return f"{self.table}.{self.column}"

    @property
    def evidence(self) -> str:
        """Why it is taken for one."""
        counts = f"{self.later:,} of {self.values:,} rows"
        if self.own is None:
            return f"lies after the first events in {counts}, but is always visible"
        by = "" if self.gap is None else f", by {_shown(self.gap)} at the median"
        return f"lies after {self.own} in {counts}{by}, but is visible from {self.own} on"


def other_times(full: Database) -> Iterator[tuple[str, str | None, str, pd.Series]]:
    """Each column of times that is not its table's time.

    Yields:
        (table, its time column, the other column, differences of the two; or the times themselves
        where the table has no time)
    """
    for name, table in full.table_dict.items():
        keys = {table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table}
        for column in column_names(table):
            if column in keys or not holds_times(table, column):
                continue
            values = _times(table, column)
            if table.time_col is not None:
                values = values - _times(table, table.time_col)
            yield name, table.time_col, column, values.dropna()


def find_late_columns(full: Database) -> list[LateColumn]:
    """The columns of times later than their rows, but for those that were planned by their name."""
    begin, whole = _first_event(full), {}
    found = []
    for name, own, column, values in other_times(full):
        if len(values) < FEWEST or is_foreseen(column):
            continue
        if own is None:
            late, gap = int((values > begin).sum()) if begin is not None else 0, None
        else:
            if name not in whole:
                whole[name] = _holds_dates(full.table_dict[name])
            # A date is the beginning of its day, on which the row was written.
            later = values[values >= _DAY] if whole[name] else values[values > _NONE]
            known = later[later < _NEVER]
            late, gap = len(later), known.median() if len(known) else None
        if late and late >= MANY * len(values):
            found.append(LateColumn(name, column, own, late, len(values), gap))
    return found


def hidden_note(columns: Sequence[LateColumn]) -> str:
    """What a user is told about columns that a task hides by itself."""
    shown = ", ".join(f"{c.place} ({c.later:,} of {c.values:,} rows)" for c in columns)
    return (
        f"hidden from the model, as they are later than the rows that hold them: {shown}. Show "
        f"what was planned: --show {columns[0].place}"
    )


def _times(table: Table, column: str) -> pd.Series:
    """A column of times without a zone, in microseconds.

    Those of all units can be subtracted: none is more than 73,000 years away from 1970.
    """
    values = read_column(table, column)
    ticks, unit = as_ticks(values)
    micros = convert_ticks(ticks, unit, "us", clip=True)
    near = np.where(micros == MISSING, MISSING, np.clip(micros, -_FAR, _FAR))
    return pd.Series(near.view("datetime64[us]"), values.index)


def _first_event(full: Database) -> pd.Timestamp | None:
    """When rows of tables with a time begin, but for a few that are older."""
    firsts = []
    for table in full.table_dict.values():
        if table.time_col is None or not table.fkey_col_to_pkey_table:
            continue
        times = _times(table, table.time_col).dropna()
        if len(times):
            firsts.append(np.quantile(times.to_numpy().view(np.int64), 0.01))
    return pd.Timestamp(int(min(firsts)), unit="us") if firsts else None


def _holds_dates(table: Table) -> bool:
    """Whether a table's times have no time of day."""
    times = _times(table, str(table.time_col)).dropna()
    return bool((times.dt.normalize() == times).all())


def _shown(gap: pd.Timedelta) -> str:
    return f"{gap.days:,} days" if gap.days > 1 else str(gap.round("s")).removeprefix("0 days ")
