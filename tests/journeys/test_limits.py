"""Limits that are written down in docs/promises.md, at their edge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from relbench.base import Database, Table

import relfrog
from helpers import sqlite
from relfrog.datasets import source_keys
from relfrog.errors import SchemaError, UsageError
from relfrog.graph import build_graph
from relfrog.graph import relational as graph
from relfrog.graph.sampler import TemporalSampler


@pytest.mark.slow
def test_many_tables_foreign_keys_and_columns(tmp_path: Path) -> None:
    count = 40
    parts = ["CREATE TABLE t0 (id INTEGER PRIMARY KEY, at TIMESTAMP)"]
    for n in range(1, count):
        keys = ", ".join(
            f"k{i} INTEGER DEFAULT 1 REFERENCES t{i} (id)" for i in range(max(0, n - 4), n)
        )
        parts.append(f"CREATE TABLE t{n} (id INTEGER PRIMARY KEY, at TIMESTAMP, {keys})")
    wide = ", ".join(f"c{i} INTEGER DEFAULT {i}" for i in range(1_000))
    parts.append(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {wide})")
    rows = [
        f"INSERT INTO t{n} (id, at) VALUES (1, '2020-01-01'), (2, '2020-06-0{n % 9 + 1}')"
        for n in range(count)
    ]
    rows.append("INSERT INTO wide (id, c7) VALUES (1, 7)")
    relfrog.import_database(sqlite(tmp_path / "a.db", ";".join([*parts, *rows])), tmp_path / "ds")
    db = relfrog.open_dataset(tmp_path / "ds").get_db(upto_test_timestamp=False)
    assert len(db.table_dict) == count + 1
    assert len(db.table_dict["wide"].df.columns) == 1_002  # with known_from
    built = build_graph(db)
    declared = [key for key in built.foreign_keys if key.table != "wide"]
    assert len(declared) == sum(min(n, 4) for n in range(1, count)) == 150
    assert relfrog.check(tmp_path / "ds").ok


def test_long_keys_and_names(tmp_path: Path) -> None:
    keys = ["k" * 100_000, "k" * 99_999 + "x"]
    name = "n" * 180
    statements = (
        f"CREATE TABLE {name} (id TEXT PRIMARY KEY, at TIMESTAMP);"
        f"CREATE TABLE child (at TIMESTAMP, p TEXT REFERENCES {name} (id));"
        f"INSERT INTO {name} VALUES ('{keys[0]}', '2020-01-01'), ('{keys[1]}', '2020-02-01');"
        f"INSERT INTO child VALUES ('2020-03-01', '{keys[1]}'), ('2020-04-01', '{keys[0]}');"
    )
    relfrog.import_database(sqlite(tmp_path / "a.db", statements), tmp_path / "ds")
    found = source_keys(tmp_path / "ds", name)
    assert found is not None
    assert found["id"].tolist() == keys
    child = pd.read_parquet(tmp_path / "ds" / "db" / "child.parquet")
    assert child["p"].tolist() == [1, 0]


def test_a_table_with_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.iinfo(np.int32).max == graph.MOST_ROWS
    db = Database({"t": Table(pd.DataFrame({"id": np.arange(5)}), {}, "id", None)})
    monkeypatch.setattr(graph, "MOST_ROWS", 5)
    build_graph(db)
    monkeypatch.setattr(graph, "MOST_ROWS", 4)
    with pytest.raises(SchemaError, match="t: 5 rows, but a table can have 4"):
        build_graph(db)


def test_a_hundred_hops_and_no_more() -> None:
    frame = pd.DataFrame({"id": np.arange(300), "up": [-1, *range(299)]})
    built = build_graph(Database({"t": Table(frame, {"up": "t"}, "id", None)}))
    batch = TemporalSampler(built, "t", [-1] * 100).sample([0], [pd.Timestamp("2020-01-01")])
    assert len(batch.tables["t"].rows) >= 101
    with pytest.raises(UsageError, match="fan-outs"):
        TemporalSampler(built, "t", [-1] * 101)
