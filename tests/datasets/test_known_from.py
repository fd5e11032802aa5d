"""Datasets made by others: rows without a time are known from the rows that they name."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import relbench
import yaml
from hypothesis import HealthCheck, given
from relbench.base import Database

import relfrog
from helpers import examples
from oracles.relational_databases import DATA, DAY, START, databases, table
from oracles.slow_times import as_lists, slow_known
from relfrog.datasets import files
from relfrog.datasets.files import inherited_in_files
from relfrog.datasets.known_from import find_known_from, inherited_keys
from relfrog.graph.relational import build_graph
from relfrog.graph.sampler import TemporalSampler
from relfrog.support.inherited_times import Link
from relfrog.support.times import MISSING, as_ticks, convert_ticks


def slow_times(db: Database) -> dict[str, list[int]]:
    """From when on rows are known, by a plain loop, along keys that nothing contradicts."""
    refused = {c.link for c in find_known_from(db).contradictions}
    own, pointers = {}, {}
    for name, part in db.table_dict.items():
        own[name] = np.full(len(part.df), MISSING)
        if part.time_col is not None:
            own[name] = convert_ticks(*as_ticks(part.df[part.time_col]), "us")
        for column, parent in part.fkey_col_to_pkey_table.items():
            size = len(db.table_dict[parent].df)
            rows = part.df[column].fillna(-1).astype(int)
            pointers[Link(name, (column,), parent)] = np.where(rows < size, rows, -1)
    links = [link for link in pointers if link not in refused]
    return slow_known(as_lists(own), links, as_lists(pointers))


def dated(db: Database) -> Database:
    found = find_known_from(db)
    return found.name_columns(found.add_columns(db))


@examples(60, suppress_health_check=list(HealthCheck))
@given(databases(), st.data())
def test_no_row_is_sampled_before_it_is_known(db: Database, data: st.DataObject) -> None:
    """Headers, details, details of details; NULLs, dangling keys, circles, self references."""
    known, graph = slow_times(db), build_graph(dated(db))
    filled = [n for n, part in db.table_dict.items() if len(part.df)]
    if not filled:
        return
    seeds = data.draw(st.sampled_from(filled))
    rows = np.arange(len(db.table_dict[seeds].df))
    days = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    times = pd.Series([START + day * DAY for day in days])
    sampler = TemporalSampler(graph, seeds, [-1, -1, -1], mode="separate")
    batch = sampler.sample(rows, times)
    for name, part in batch.tables.items():
        for position, row in enumerate(part.rows[part.index].tolist()):
            limit = int(batch.group_times[part.group[position]])
            if int(part.hop[position]) > 0:  # a seed may be asked about before it is known
                assert known[name][row] <= limit


@examples(60)
@given(databases())
def test_every_row_has_the_time_of_a_plain_loop(db: Database) -> None:
    found, slow = find_known_from(db), slow_times(db)
    every = [t for part in db.table_dict.values() if part.time_col for t in part.df[part.time_col]]
    earliest = pd.Series(every, dtype="datetime64[us]").min()
    for name, times in found.times.items():
        ticks = times.astype("datetime64[us]").view(np.int64)
        for at, known in zip(ticks.tolist(), slow[name], strict=True):
            assert at == (earliest.value // 1000 if known == MISSING else known)
    for name, part in db.table_dict.items():
        if name not in found.times and part.time_col is None:
            assert set(slow[name]) <= {MISSING}


@pytest.fixture
def folder(tmp_path):
    """A folder as another tool may write it: orders with times, lines and parts without."""
    days = pd.date_range("2020-01-01", periods=40)
    tables = {
        "orders": (table({"at": days}, {}, "at"), 40),
        "lines": (table({"order": np.arange(79, -1, -1) // 2, "n": np.arange(80)}, {"order": "orders"}), 80),
        "parts": (table({"line": [*range(10, 50), None]}, {"line": "lines"}), 41),
        "things": (table({"x": [1, 2]}), 2),
    }  # fmt: skip
    (tmp_path / "db").mkdir()
    specs = {}
    for name, (part, _) in tables.items():
        part.df.to_parquet(tmp_path / "db" / f"{name}.parquet", index=False)
        specs[name] = {
            "pkey": "id", "time_col": part.time_col, "fkeys": dict(part.fkey_col_to_pkey_table),
        }  # fmt: skip
    manifest = {
        "name": "theirs", "val_timestamp": "2020-01-20", "test_timestamp": "2020-01-30",
        "tables": specs,
    }  # fmt: skip
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    return tmp_path


def test_a_folder_of_others_is_dated_when_it_is_opened(folder) -> None:
    db = relfrog.open_dataset(folder).get_db(upto_test_timestamp=False)
    lines, parts = db.table_dict["lines"], db.table_dict["parts"]
    assert lines.time_col == parts.time_col == "known_from"
    first = pd.Timestamp("2020-01-01")
    assert lines.df["known_from"].iloc[0] == first + 39 * DAY
    assert parts.df["known_from"].tolist()[:2] == [first + 34 * DAY] * 2
    assert parts.df["known_from"].iloc[-1] == first  # names nothing: always visible
    assert db.table_dict["things"].time_col is None
    # Cut at the test time, tables are what RelBench makes of them, and keys stay row numbers.
    theirs = relbench.load_dataset(folder).get_db()
    ours = relfrog.open_dataset(folder).get_db()
    for name, part in theirs.table_dict.items():
        pd.testing.assert_frame_equal(ours.table_dict[name].df[list(part.df)], part.df)


def test_along_which_keys_is_found_once_and_kept(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = relfrog.open_dataset(folder)
    expected = inherited_keys(dataset)
    assert expected == {"lines": ["order"], "parts": ["line"]}
    assert inherited_in_files(dataset) == expected

    def again(*_: object) -> None:
        raise AssertionError("it was looked for twice")

    monkeypatch.setattr(files, "find_known_from", again)
    assert inherited_in_files(relfrog.open_dataset(folder)) == expected


def test_what_is_said_of_it(folder) -> None:
    found = {t["name"]: t for t in relfrog.inspect(folder)["tables"]}
    assert found["lines"]["time_column"] == "known_from"
    assert found["lines"]["time_inherited_from"] == [{"column": "order", "parent": "orders"}]
    assert found["lines"]["last_time"] == "2020-02-09 00:00:00"
    assert found["things"]["time_inherited_from"] == []
    report = relfrog.check(folder)
    assert report.ok
    assert not [f for f in report.findings if "always visible" in f.text]


@pytest.mark.parametrize("name", ["rel-f1", "flights", "olist-sample", "travel-exchange"])
def test_where_every_event_has_a_time_nothing_changes(name: str) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"needs the database {name} in ../shared/data")
    theirs = relbench.load_dataset(str(DATA / name)).get_db(upto_test_timestamp=False)
    ours = relfrog.open_dataset(DATA / name).get_db(upto_test_timestamp=False)
    for table_name, part in theirs.table_dict.items():
        same = ours.table_dict[table_name]
        assert same.time_col == part.time_col
        pd.testing.assert_frame_equal(same.df, part.df)
