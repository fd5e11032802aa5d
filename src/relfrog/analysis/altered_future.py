"""Alter the future of a database: change, remove or invent the rows after a time.

A prediction that stays bit-for-bit identical on all altered databases does not use future rows.
With a row go all rows that name it: if they inherit its time, they are later, too; and if they are
always visible (`relfrog import --time TABLE=none`), they are treated like it all the same. Other
rows without a time, and rows up to the time, are unchanged: altered tables are overlays, which hold
the rows that differ and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.known_from import find_known_from
from relfrog.store.file_table import FileTable, read_column
from relfrog.store.overlay import Changes, OverlayTable, nullable, read_rows
from relfrog.support.relbench import Database, Table
from relfrog.support.times import MISSING, PER_SECOND, as_ticks, convert_ticks

__all__ = ["WAYS", "Readings", "Tampering"]

Ints = NDArray[np.int64]

#: The ways to alter the future.
WAYS = ("altered", "removed", "invented")
#: The least and the most rows to invent for a table; in between, a tenth of its rows.
FEWEST, MOST = 50, 5_000
#: The most different rows that altered ones are made of.
PATTERNS = 5_000
#: Pieces of a table that these are drawn from.
PLACES = 8
NONE: Ints = np.zeros(0, np.int64)


class Readings:
    """What is read of a database to alter it, once for all ways and times.

    Args:
        unit: the unit of the ticks; see `relfrog.support.times`.
        known: times of tables in this unit, where somebody has them.
    """

    def __init__(self, unit: str, known: Mapping[str, Ints] | None = None) -> None:
        self.unit = unit
        self._known = dict(known or {})
        self._times: dict[int, tuple[Database, dict[str, Ints], dict[str, list[str]]]] = {}
        self._patterns: dict[int, tuple[Table, pd.DataFrame]] = {}

    def times(self, db: Database) -> tuple[dict[str, Ints], dict[str, list[str]]]:
        """Times of the rows of tables that have or inherit some; and along which keys."""
        if id(db) not in self._times:
            ticks = {n: self._ticks(n, t) for n, t in db.table_dict.items() if t.time_col}
            along: dict[str, list[str]] = {}
            if any(
                t.fkey_col_to_pkey_table and (n not in ticks or (ticks[n] == MISSING).any())
                for n, t in db.table_dict.items()
            ):
                undated = find_known_from(db)
                along = undated.keys
                ticks |= {n: self._convert(pd.Series(t)) for n, t in undated.times.items()}
            self._times[id(db)] = db, ticks, along
        return self._times[id(db)][1:]

    def _ticks(self, name: str, table: Table) -> Ints:
        known = self._known.get(name)
        if known is not None and len(known) == len(table):
            return known
        return self._convert(read_column(table, str(table.time_col)))

    def _convert(self, times: pd.Series) -> Ints:
        return convert_ticks(*as_ticks(times), self.unit, clip=True)

    def patterns(self, table: Table, random: np.random.Generator) -> pd.DataFrame:
        """Some rows of a table."""
        if id(table) not in self._patterns:
            count = min(len(table), PATTERNS)
            # From a few places of a file, so that not all of it has to be read.
            starts = random.integers(max(len(table) - count // PLACES, 0) + 1, size=PLACES)
            near = (starts[:, None] + np.arange(-(-count // PLACES))).ravel()
            rows = near if isinstance(table, FileTable) else random.integers(len(table), size=count)
            if count == len(table):
                rows = np.arange(count)
            frame = read_rows(table, np.unique(rows[rows < len(table)]))
            for name in frame:
                if isinstance(frame[name].dtype, pd.CategoricalDtype):
                    frame[name] = frame[name].astype(object)
            self._patterns[id(table)] = table, frame
        return self._patterns[id(table)][1]


@dataclass(eq=False)
class Tampering:
    """A function that alters the rows of a database after a time.

    Attributes:
        way: "altered": other values, keys and later times; "removed": the rows are removed;
            "invented": the rows are replaced by new ones, from the next tick on.
        tick: the time, in ticks.
        readings: what was read of the database.
        asked: rows that are predicted for, per table. They stay even if they are later, but
            without their contents.
        seed: random seed.
        gentle: whether to only exchange values within a column, as label SQL may fail on values
            that do not occur.
        rows: number of rows altered, removed or invented so far, per table.
    """

    way: str
    tick: int
    readings: Readings
    asked: Mapping[str, Ints] = field(default_factory=dict)
    seed: int = 0
    gentle: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def __call__(self, db: Database) -> Database:
        """The database, with overlays where it differs, which is only after the time."""
        ticks, along = self.readings.times(db)
        later = {name: np.flatnonzero(known > self.tick) for name, known in ticks.items()}
        tables = dict(db.table_dict)
        if all(len(rows) == len(tables[name]) for name, rows in later.items()):
            # At least one time must remain, to tell where the data begin.
            everything = {name: np.arange(len(table)) for name, table in tables.items()}
            self.asked = everything if self.way == "removed" else self.asked
        # What is altered on its own, such as earlier labels, refers to what was altered before.
        before = {name: len(table) for name, table in tables.items()}
        self._sizes = {**self._sizes, **before}
        if self.way == "altered":
            for name, rows in later.items():
                if len(rows):
                    tables[name] = self._alter(name, tables[name], rows)
                    self.rows[name] = len(rows)
            return Database(tables)
        removed = {name: self._remove(name, tables[name], rows) for name, rows in later.items()}
        self._sizes |= {name: _length(tables[name], one) for name, one in removed.items()}
        for name, rows in later.items():
            table, changes = tables[name], removed[name]
            if self.way == "invented" and len(table):
                changes = self._invent(name, table, changes, along.get(name, []))
            elif len(rows):
                self.rows[name] = len(rows)
            if len(changes) or len(changes.gone):
                tables[name] = OverlayTable(table, changes)
        return Database(tables)

    def _random(self, name: str, what: str) -> np.random.Generator:
        words = [self.seed, self.tick & 0xFFFFFFFF, *f"{name}/{what}".encode()]
        return np.random.default_rng(words)

    def _patterns(self, name: str, table: Table) -> pd.DataFrame:
        return self.readings.patterns(table, np.random.default_rng([self.seed, *name.encode()]))

    # The ways to alter a table.

    def _alter(self, name: str, table: Table, later: Ints) -> OverlayTable:
        patterns, pattern, own = self._others(name, table, len(later), "", [])
        if table.pkey_col is not None:
            own[table.pkey_col] = _numbers(later, patterns[table.pkey_col])
        if table.time_col is not None:
            times = self._times(name, table, len(later), None)
            own[table.time_col] = pd.Series(times)
        return OverlayTable(table, Changes(NONE, later, patterns, pattern, own))

    def _remove(self, name: str, table: Table, later: Ints) -> Changes:
        """Remove rows; blank them instead where row numbers must not change."""
        asked = np.asarray(self.asked.get(name, NONE))
        if not len(later) or (table.pkey_col is None and not len(asked)):
            return Changes(later, NONE, pd.DataFrame(), NONE)
        kept = np.ones(len(table), bool)
        kept[later] = False
        last = int(np.flatnonzero(kept)[-1]) if kept.any() else -1
        last = max([last, *asked[asked < len(table)].tolist()])
        blank = later[later <= last]
        gone = np.arange(last + 1, len(table))
        if not len(blank):
            return Changes(gone, NONE, pd.DataFrame(), NONE)
        patterns = self._patterns(name, table).iloc[:1]
        patterns = pd.DataFrame({c: nullable(v).mask([True]) for c, v in patterns.items()})
        own = {}
        if table.pkey_col is not None:
            own[table.pkey_col] = pd.Series(blank)
        if table.time_col is not None:
            times = read_column(table, table.time_col)
            own[table.time_col] = times.iloc[blank].reset_index(drop=True)
        return Changes(gone, blank, patterns, np.zeros(len(blank), np.int32), own)

    def _invent(self, name: str, table: Table, left: Changes, along: list[str]) -> Changes:
        """Append rows of other values, with times right after the time.

        Args:
            name: the table's name.
            table: the table.
            left: what `_remove` leaves of it.
            along: foreign keys that name only invented rows, of a table without times: nothing
                else says that its new rows are later.
        """
        count = int(np.clip(len(table) // 10, FEWEST, MOST))
        self.rows[name] = count
        patterns, pattern, own = self._others(name, table, count, "new ", along)
        at = self._sizes[name] + np.arange(count)
        if table.pkey_col is not None:
            own[table.pkey_col] = _numbers(at, patterns[table.pkey_col])
        if table.time_col is not None:
            own[table.time_col] = pd.Series(self._times(name, table, count, 60))
        if not len(left):
            return Changes(left.gone, at, patterns, pattern, own)
        # The row without any value comes last.
        both = {c: pd.concat([nullable(v), left.patterns[c]]) for c, v in patterns.items()}
        pattern = np.concatenate([np.full(len(left), len(patterns)), pattern])
        blank = left.frame()
        joined = {
            column: pd.concat([blank[column].astype(nullable(values).dtype), nullable(values)])
            for column, values in own.items()
        }
        patterns = pd.DataFrame(both).reset_index(drop=True)
        own = {column: values.reset_index(drop=True) for column, values in joined.items()}
        return Changes(left.gone, np.concatenate([left.at, at]), patterns, pattern, own)

    # Values.

    def _others(
        self, name: str, table: Table, count: int, what: str, along: list[str]
    ) -> tuple[pd.DataFrame, NDArray[np.int32], dict[str, pd.Series]]:
        """Rows with other values: patterns, which each row has, and foreign keys of their own."""
        known = self._patterns(name, table)
        keys = table.fkey_col_to_pkey_table
        patterns = {}
        for column, values in known.items():
            if column in (table.pkey_col, table.time_col) or column in keys:
                patterns[column] = values
            else:
                patterns[column] = self._other(values, self._random(name, f"{what}{column}"))
        pattern = self._random(name, f"{what}rows").integers(len(known), size=count)
        own = {}
        for column, parent in keys.items():
            random, size = self._random(name, f"{what}{column}"), self._sizes.get(parent)
            if column in along:
                # No parent has fewer than this many new rows.
                assert size is not None
                own[column] = pd.Series(size + random.integers(FEWEST, size=count))
            else:
                drawn = random.integers(len(known), size=count)
                own[column] = self._parents(known[column].take(drawn), random, size)
        return pd.DataFrame(patterns), pattern.astype(np.int32), own

    def _parents(
        self, values: pd.Series, random: np.random.Generator, size: int | None
    ) -> pd.Series:
        """Foreign keys, most of them replaced by any row of the parent."""
        values = values.reset_index(drop=True)
        if self.gentle or not size or not pd.api.types.is_numeric_dtype(values.dtype):
            return values
        chosen = np.flatnonzero((random.random(len(values)) < 0.7) & values.notna().to_numpy())
        return _put(values, chosen, random.integers(size, size=len(chosen)))

    def _times(self, name: str, table: Table, count: int, days: int | None) -> NDArray[Any]:
        """Random sorted times after the time: from the next tick to the end of the data."""
        column = self._patterns(name, table)[str(table.time_col)]
        newest = as_ticks(pd.Series([table.max_timestamp]).astype(column.dtype))
        unit = newest[1]
        per_second = PER_SECOND[self.readings.unit]
        low = self.tick + 1
        high = max(low, int(convert_ticks(*newest, self.readings.unit, clip=True)[0]))
        if days is not None:
            high = min(max(high, low + days * 86_400 * per_second), np.iinfo(np.int64).max // 2)
        random = self._random(name, "times")
        drawn = np.sort(random.integers(low, high + 1, size=count))
        drawn[:1] = low
        factor = max(1, per_second // PER_SECOND[unit])  # round up, so as not to precede the time
        stamps = convert_ticks(-(-drawn // factor) * factor, self.readings.unit, unit, clip=True)
        if not pd.api.types.is_datetime64_any_dtype(column.dtype):
            return np.asarray(stamps).astype(column.dtype)
        return np.asarray(stamps).view(f"datetime64[{unit}]")

    def _other(self, values: pd.Series, random: np.random.Generator) -> pd.Series:
        """Exchange values between rows, and replace most of them by others of the same type."""
        found = values.take(random.integers(len(values), size=len(values))).reset_index(drop=True)
        chosen = np.flatnonzero(random.random(len(values)) < 0.7)
        dtype = found.dtype
        if self.gentle or pd.api.types.is_bool_dtype(dtype) or not len(chosen):
            return found
        if pd.api.types.is_numeric_dtype(dtype):
            known = chosen[found.iloc[chosen].notna().to_numpy()]
            fresh = found.iloc[known].to_numpy(float) * random.uniform(0.5, 3.0, len(known)) + 1
            if pd.api.types.is_integer_dtype(dtype):
                kind = np.iinfo(str(dtype).lower())
                fresh = np.clip(np.rint(fresh), kind.min // 2, kind.max // 2)
            return _put(found, known, fresh.astype(str(dtype).lower()))
        if found.iloc[chosen].map(lambda value: isinstance(value, str)).all():
            return _put(found, chosen, (found.iloc[chosen] + " of another future").to_numpy(object))
        return found


def _length(table: Table, changes: Changes) -> int:
    return len(table) - len(changes.gone)


def _numbers(rows: Ints, like: pd.Series) -> pd.Series:
    """Row numbers as the primary keys that they are."""
    return pd.Series(rows).astype(like.dtype)


def _put(values: pd.Series, where: Ints, fresh: NDArray[Any]) -> pd.Series:
    """A copy of the column with new values in some rows."""
    found = values.copy()
    found.iloc[where] = fresh
    return found
