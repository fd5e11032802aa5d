"""Random small databases with everything that real ones have, and the real ones."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from relbench.base import Database, Table

DATA = Path(__file__).parents[2].parent / "shared" / "data"
DAY = pd.Timedelta(days=1)
START = pd.Timestamp("2020-01-01")


def real(name: str, **kwargs: bool) -> Database:
    """A real database; skips the test where it is not there."""
    return dataset(name).get_db(upto_test_timestamp=False, **kwargs)


def dataset(name: str):
    """A real dataset folder; skips the test where it is not there."""
    relbench = pytest.importorskip("relbench")
    if not (DATA / name).is_dir():
        pytest.skip(f"needs the database {name} in ../shared/data")
    return relbench.load_dataset(str(DATA / name))


def table(columns: dict, keys: dict | None = None, time: str | None = None) -> Table:
    """A table whose primary key `id` counts its rows."""
    size = len(next(iter(columns.values()))) if columns else 0
    frame = pd.DataFrame({"id": np.arange(size), **columns})
    for column in keys or {}:
        frame[column] = frame[column].astype("Int64")
    return Table(frame, dict(keys or {}), "id", time)


@st.composite
def databases(draw, time_sorted: bool | None = None) -> Database:
    """Parallel keys, self-references, cycles, NULLs, values that name no row, ties in time,
    missing times, empty and one-row tables; rows in time order or not."""  # noqa: D205, D209
    names = [f"t{i}" for i in range(draw(st.integers(1, 4)))]
    sizes = {name: draw(st.sampled_from([0, 1, 2, 5, 9])) for name in names}
    tables = {}
    for name in names:
        size = sizes[name]
        keys = {f"k{i}": draw(st.sampled_from(names)) for i in range(draw(st.integers(0, 3)))}
        columns: dict = {"x": draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))}
        timed = draw(st.booleans())
        if timed:
            tick = st.one_of(st.none(), st.integers(0, 5), st.integers(0, 5))
            days = draw(st.lists(tick, min_size=size, max_size=size))
            in_order = draw(st.booleans()) if time_sorted is None else time_sorted
            if in_order:
                days.sort(key=lambda day: -1 if day is None else day)
            stamps = [pd.NaT if day is None else START + day * DAY for day in days]
            columns["when"] = pd.Series(stamps, dtype="datetime64[us]")
        for column, parent in keys.items():
            value = st.one_of(st.none(), st.integers(0, max(0, sizes[parent] - 1)), st.just(99))
            value = st.one_of(value, st.integers(0, max(0, sizes[parent] - 1)))
            columns[column] = pd.array(
                draw(st.lists(value, min_size=size, max_size=size)), dtype="Int64"
            )
        tables[name] = table(columns, keys, "when" if timed else None)
    return Database(tables)


@st.composite
def seeded(draw, time_sorted: bool | None = None):
    """A database, one of its tables that has rows, and seeds (rows, times) in it."""
    db = draw(databases(time_sorted).filter(lambda db: any(len(t) for t in db.table_dict.values())))
    name = draw(st.sampled_from([name for name, t in db.table_dict.items() if len(t)]))
    count = draw(st.integers(1, 5))
    rows = draw(
        st.lists(st.integers(0, len(db.table_dict[name]) - 1), min_size=count, max_size=count)
    )
    days = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    return db, name, np.array(rows), pd.Series([START + day * DAY for day in days])


def star(children: int, later: int = 0, parents: int = 1) -> Database:
    """Parents with so many visible children each (day 0) and so many later ones (day 2)."""
    days = np.repeat([0, 2], [children * parents, later * parents])
    return Database(
        {
            "hub": table({"x": np.zeros(parents)}),
            "spoke": table(
                {
                    "hub": np.tile(np.arange(parents), children + later),
                    "when": START + pd.to_timedelta(days, unit="D"),
                },
                {"hub": "hub"},
                "when",
            ),
        }
    )
