"""Alter the future of a database: change, remove or invent the rows after a time.

A prediction that stays bit-for-bit identical on all altered databases does not use future rows.
With a row go all rows that name it: if they inherit its time, they are later, too; and if they are
always visible (`relfrog import --time TABLE=none`), they are treated like it all the same. Other
rows without a time, and rows up to the time, are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from relbench.base import Database, Table

from relfrog.datasets.known_from import find_known_from
from relfrog.store.file_table import read_column
from relfrog.support.times import PER_SECOND, as_ticks, convert_ticks

__all__ = ["WAYS", "Tampering"]

Mask = NDArray[np.bool_]

#: The ways to alter the future.
WAYS = ("altered", "removed", "invented")
#: The least and the most rows to invent for a table; in between, a tenth of its rows.
FEWEST, MOST = 50, 5_000


@dataclass(eq=False)
class Tampering:
    """A function that alters the rows of a database after a time.

    Attributes:
        way: "altered": other values, keys and later times; "removed": the rows are removed;
            "invented": the rows are replaced by new ones, from the next tick on.
        tick: the time, in ticks.
        unit: the unit of the ticks; see `relfrog.support.times`.
        asked: rows that are predicted for, per table. They stay even if they are later, but
            without their contents.
        seed: random seed.
        gentle: whether to only exchange values within a column, as label SQL may fail on values
            that do not occur.
        rows: number of rows altered, removed or invented so far, per table.
    """

    way: str
    tick: int
    unit: str
    asked: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    seed: int = 0
    gentle: bool = False
    rows: dict[str, int] = field(default_factory=dict)

    def __call__(self, db: Database) -> Database:
        """A copy of the database that differs only after the time."""
        undated = find_known_from(db)
        later = {name: self._later(table) for name, table in db.table_dict.items()}
        later |= {name: self._after(pd.Series(t)) for name, t in undated.times.items()}
        changed = {name: table for name, table in db.table_dict.items()}
        change: Callable[[str, Table, Mask, Database], pd.DataFrame]
        change = self._alter if self.way == "altered" else self._remove
        if all(mask is None or mask.all() for mask in later.values()):
            # At least one time must remain, to tell where the data begin.
            asked = {name: np.arange(len(table)) for name, table in db.table_dict.items()}
            self.asked = asked if self.way == "removed" else self.asked
        for name, mask in later.items():
            if mask is None or not mask.any():
                continue
            table = db.table_dict[name]
            changed[name] = _with(table, change(name, table, mask, db))
            if self.way != "invented":
                self.rows[name] = int(mask.sum())
        if self.way == "invented":
            sizes = {name: len(table) for name, table in changed.items()}
            for name, table in db.table_dict.items():
                if later[name] is not None and len(table):
                    kept, along = changed[name].df, undated.keys.get(name, [])
                    changed[name] = _with(table, self._invent(name, table, kept, sizes, along))
        return Database(changed)

    def _later(self, table: Table) -> Mask | None:
        """Rows after the time; None for a table without times."""
        return None if table.time_col is None else self._after(read_column(table, table.time_col))

    def _after(self, times: pd.Series) -> Mask:
        return np.asarray(convert_ticks(*as_ticks(times), self.unit, clip=True) > self.tick)

    def _random(self, name: str, what: str) -> np.random.Generator:
        words = [self.seed, self.tick & 0xFFFFFFFF, *f"{name}/{what}".encode()]
        return np.random.default_rng(words)

    # The ways to alter a table.

    def _alter(self, name: str, table: Table, later: Mask, db: Database) -> pd.DataFrame:
        frame = table.df.reset_index(drop=True)
        parts: dict[str, pd.Series] = {}
        sizes = {parent: len(other) for parent, other in db.table_dict.items()}
        for column in frame:
            if column == table.pkey_col:
                parts[column] = frame[column]
            elif column == table.time_col:
                times = self._times(name, frame[column], int(later.sum()), None)
                parts[column] = _put(frame[column], later, times)
            else:
                parent = table.fkey_col_to_pkey_table.get(column, "")
                random = self._random(name, str(column))
                parts[column] = self._other(frame[column], later, random, sizes.get(parent))
        return pd.DataFrame(parts, columns=frame.columns)

    def _remove(self, name: str, table: Table, later: Mask, db: Database) -> pd.DataFrame:
        """Remove rows; blank them instead where row numbers must not change."""
        frame = table.df.reset_index(drop=True)
        asked = np.asarray(self.asked.get(name, np.zeros(0, np.int64)))
        kept = ~later
        if table.pkey_col is None and not len(asked):
            return frame[kept].reset_index(drop=True)
        last = int(np.flatnonzero(kept)[-1]) if kept.any() else -1
        last = max([last, *asked[asked < len(frame)].tolist()])
        frame, blank = frame.iloc[: last + 1], later[: last + 1]
        if not blank.any():
            return frame
        parts = {}
        for column in frame:
            own = column in (table.pkey_col, table.time_col)
            parts[column] = frame[column] if own else _nullable(frame[column]).mask(blank)
        return pd.DataFrame(parts, columns=frame.columns)

    def _invent(
        self, name: str, table: Table, kept: Any, sizes: dict[str, int], along: list[str]
    ) -> pd.DataFrame:
        """Append copies of random rows, with other values and times right after the time.

        Args:
            name: the table's name.
            table: the table.
            kept: its rows up to the time.
            sizes: rows of all tables up to the time.
            along: foreign keys that name only invented rows, of a table without times: nothing
                else says that its new rows are later.
        """
        source = table.df.reset_index(drop=True)
        count = int(np.clip(len(source) // 10, FEWEST, MOST))
        self.rows[name] = count
        drawn = self._random(name, "rows").integers(len(source), size=count)
        fresh, every = source.iloc[drawn].reset_index(drop=True), np.ones(count, bool)
        parts: dict[str, pd.Series] = {}
        for column in fresh:
            values = fresh[column]
            random = self._random(name, f"new {column}")
            if column == table.pkey_col:
                values = pd.Series(len(kept) + np.arange(count)).astype(values.dtype)
            elif column == table.time_col:
                values = pd.Series(self._times(name, values, count, 60))
            else:
                parent = table.fkey_col_to_pkey_table.get(column, "")
                if column in along:
                    # No parent has fewer than this many new rows.
                    fresh_parents = sizes[parent] + random.integers(FEWEST, size=count)
                    values = pd.Series(fresh_parents).astype(values.dtype)
                else:
                    values = self._other(values, every, random, sizes.get(parent))
            old = kept[column]
            parts[column] = pd.concat([old, values.astype(old.dtype)], ignore_index=True)
        return pd.DataFrame(parts, columns=source.columns)

    # Values.

    def _times(self, name: str, column: pd.Series, count: int, days: int | None) -> NDArray[Any]:
        """Random sorted times after the time: from the next tick to the end of the data."""
        ticks, unit = as_ticks(column)
        known = convert_ticks(ticks, unit, self.unit, clip=True)
        per_second = PER_SECOND[self.unit]
        low = self.tick + 1
        high = int(known.max(initial=low))
        if days is not None:
            high = min(max(high, low + days * 86_400 * per_second), np.iinfo(np.int64).max // 2)
        random = self._random(name, "times")
        drawn = np.sort(random.integers(low, max(high, low) + 1, size=count))
        drawn[:1] = low
        factor = max(1, per_second // PER_SECOND[unit])  # round up, so as not to precede the time
        stamps = convert_ticks(-(-drawn // factor) * factor, self.unit, unit, clip=True)
        if not pd.api.types.is_datetime64_any_dtype(column.dtype):
            return np.asarray(stamps).astype(column.dtype)
        return np.asarray(stamps).view(f"datetime64[{unit}]")

    def _other(
        self, values: pd.Series, where: Mask, random: np.random.Generator, parents: int | None
    ) -> pd.Series:
        """Replace the values of some rows by others of the same type.

        Args:
            values: the column.
            where: mask of the rows.
            random: random number generator.
            parents: number of rows of the parent table, if the column is a foreign key.
        """
        at = np.arange(len(values))
        at[where] = random.integers(len(values), size=int(where.sum()))
        found = values.iloc[at].reset_index(drop=True)
        if self.gentle or (parents is not None and not parents):
            return found
        chosen = np.flatnonzero(where)[random.random(int(where.sum())) < 0.7]
        dtype = found.dtype
        if pd.api.types.is_bool_dtype(dtype) or not len(chosen):
            return found
        if pd.api.types.is_numeric_dtype(dtype):
            known = chosen[found.iloc[chosen].notna().to_numpy()]
            if parents is not None:
                fresh = random.integers(parents, size=len(known)).astype(float)
            else:
                fresh = found.iloc[known].to_numpy(float) * random.uniform(0.5, 3.0, len(known)) + 1
            if pd.api.types.is_integer_dtype(dtype):
                kind = np.iinfo(str(dtype).lower())
                fresh = np.clip(np.rint(fresh), kind.min // 2, kind.max // 2)
            return _put(found, known, fresh.astype(str(dtype).lower()))
        if found.iloc[chosen].map(lambda value: isinstance(value, str)).all():
            return _put(found, chosen, (found.iloc[chosen] + " of another future").to_numpy(object))
        return found


#: Types without a missing value.
_LOOSE = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def _nullable(values: pd.Series) -> pd.Series:
    """Convert to a nullable type, without rounding."""
    name = str(values.dtype)
    if name not in _LOOSE:
        return values
    names = {"bool": "boolean", "u": "UInt", "i": "Int"}
    if name == "bool":
        return values.astype(names[name])
    return values.astype(names[name[0]] + name.split("int")[1])


def _put(values: pd.Series, where: Any, fresh: NDArray[Any]) -> pd.Series:
    """A copy of the column with new values in some rows."""
    found = values.reset_index(drop=True).copy()
    found.iloc[np.flatnonzero(where) if np.asarray(where).dtype == bool else where] = fresh
    return found


def _with(table: Table, frame: pd.DataFrame) -> Table:
    return Table(frame, table.fkey_col_to_pkey_table, table.pkey_col, table.time_col)
