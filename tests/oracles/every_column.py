"""Databases with columns of every kind, and with the dirt that columns come with."""

from __future__ import annotations

import decimal
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from relbench.base import Database, Table

from relfrog import import_database, open_dataset
from relfrog.testing import random_database

CUT = pd.Timestamp("2020-03-01")
WORDS = "red green blue fast slow train plane ticket visa hotel cheap late".split()


def everything(size: int = 200, seed: int = 0) -> Database:
    """A table with columns of every kind and dirt, one with a key only, and one without rows."""
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 120, size), unit="D")
    holes = rng.random(size) < 0.2

    def holed(values: object) -> pd.Series:
        return pd.Series(values, dtype=object).mask(holes, None)

    tags = [list(rng.choice(["x", "y", "z"], rng.integers(0, 5))) for _ in range(size)]
    frame = pd.DataFrame(
        {
            "id": np.arange(size),
            "when": pd.Series(when).mask(rng.random(size) < 0.05),
            "far": np.where(holes, np.inf, rng.normal(5, 3, size) ** 3),
            "plain": rng.normal(size=size),
            "rank": rng.integers(1, 9, size),
            "year": pd.array(rng.integers(1900, 2020, size), "Int64"),
            "huge": rng.integers(2**60, 2**62, size),
            "flag": rng.random(size) < 0.5,
            "maybe": holed(list(rng.random(size) < 0.5)),
            "price": holed([decimal.Decimal(int(x)) / 8 for x in rng.integers(0, 99, size)]),
            "colour": holed(rng.choice(["red", "green", "", "🐸"], size)),
            "sort": pd.Categorical(rng.choice(["u", "v"], size)),
            "note": holed([" ".join(rng.choice(WORDS, 4)) + str(i) for i in range(size)]),
            "mixed": [f"n{i}" if i % 2 else i for i in range(size)],
            "tags": holed(tags),
            "place": holed([rng.normal(size=3) for _ in range(size)]),
            "due": pd.Series(when + pd.to_timedelta(rng.integers(0, 9**6, size), "s")).mask(holes),
            "span": pd.to_timedelta(rng.integers(0, 99, size), unit="h"),
            "nothing": [None] * size,
            "one": ["same"] * size,
            "raw": [bytes([i % 7]) for i in range(size)],
            "object": [{"a": i} for i in range(size)],
            "bare_id": pd.array(rng.integers(0, 5, size), "Int64"),
        }
    )
    return Database(
        {
            "t": Table(frame, {"bare_id": "bare"}, "id", "when"),
            "bare": Table(pd.DataFrame({"id": np.arange(5)}), {}, "id", None),
            "empty": Table(frame[["id", "when", "note", "rank"]][:0], {}, "id", "when"),
        }
    )


@cache
def imported(seed: int) -> Database:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        import_database(random_database(seed, size=60).to_sqlite(folder / "a.db"), folder / "out")
        return open_dataset(folder / "out").get_db(upto_test_timestamp=False)


def cut_of(db: Database) -> pd.Timestamp:
    times = [t.df[t.time_col] for t in db.table_dict.values() if t.time_col and len(t.df)]
    return pd.concat(times).quantile(0.6)
