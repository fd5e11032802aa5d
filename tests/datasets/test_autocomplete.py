"""Tasks that fill in a column: RelBench's labels, made without its SQL."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import relbench
import yaml

import relfrog
from helpers import inside, sqlite
from relfrog import add_task, check, import_database, open_dataset
from relfrog.datasets.entities import key_frame
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogError, TaskError, UsageError
from relfrog.training.opened_task import open_task
from small_store import QUICK

SPLITS = ("train", "val", "test")
SCHEMA = """
CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT, sort TEXT);
CREATE TABLE people (code TEXT PRIMARY KEY, city INTEGER REFERENCES cities, age REAL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, person TEXT REFERENCES people (code), at TIMESTAMP,
    amount REAL, channel TEXT, gift BOOLEAN);
"""


def make_town(folder: Path) -> Path:
    """Orders, some of which lack an amount; cities without a time, some of which lack a sort."""
    rng = random.Random(0)
    address = sqlite(folder / "town.db", SCHEMA)
    with sqlite3.connect(folder / "town.db") as source:
        source.executemany(
            "INSERT INTO cities VALUES (?, ?, ?)",
            [(i * 3 + 1, f"city {i}", rng.choice(["big", "small"]) if i % 9 else None) for i in range(80)],
        )  # fmt: skip
        source.executemany(
            "INSERT INTO people VALUES (?, ?, ?)",
            [(f"P{i}", rng.randrange(80) * 3 + 1, rng.randrange(18, 80)) for i in range(60)],
        )
        for i in range(600):
            known = i % 11 > 0
            person = rng.randrange(60)
            values = (person % 5 * 10 + rng.random(), rng.choice("abc"), rng.random() < 0.4)
            source.execute(
                "INSERT INTO orders VALUES (?, ?, datetime('2020-01-01', ? || ' hours'), ?, ?, ?)",
                (i * 2 + 7, f"P{person}", i * 12, *(values if known else (None, None, None))),
            )
    import_database(address, folder / "ds", time=["orders.at"], val="2020-07-01", test="2020-09-01")
    return folder / "ds"


@pytest.fixture
def town(once: Any, tmp_path: Path) -> Path:
    made = once("town", make_town)
    return Path(shutil.copytree(made, tmp_path / "town")) / "ds"


def labels(folder: Path, name: str, split: str, **options: Any) -> pd.DataFrame:
    task = load_task(open_dataset(folder), name, **options)
    return task.get_table(split, mask_input_cols=False).df


@pytest.mark.parametrize(
    ("column", "kind"),
    [("amount", "regression"), ("channel", "multiclass_classification"), ("gift", "binary_classification")],
)  # fmt: skip
def test_labels_are_relbenchs(column: str, kind: str, town: Path) -> None:
    added = add_task(town, column, autocomplete=f"orders.{column}")
    assert added.manifest.task_type == kind
    for regenerate in (False, True):
        theirs = relbench.load_dataset(town).load_task(column, regenerate=regenerate)
        for split in SPLITS:
            mine = labels(town, column, split, regenerate=regenerate)
            other = theirs.get_table(split, mask_input_cols=False).df
            other[column] = other[column].astype(mine[column].dtype)
            pd.testing.assert_frame_equal(mine, other, check_dtype=False)
            assert added.stats[split].rows == len(mine)
    found = check(town, column)
    assert found.ok, found
    assert relfrog.inspect(town)["tasks"][0]["kind"] == "autocomplete"


def test_a_row_of_a_table_without_times_stays_in_its_split(town: Path) -> None:
    add_task(town, "sort", autocomplete="cities.sort")

    def split_of() -> dict[int, str]:
        found = {}
        for split in SPLITS:
            rows = labels(town, "sort", split)["id"].to_numpy()
            found |= dict.fromkeys(key_frame(town, "cities", "id", rows)["id"].tolist(), split)
        return found

    before = split_of()
    assert set(before.values()) == set(SPLITS)
    with sqlite3.connect(town.parent / "town.db") as source:
        source.execute("INSERT INTO cities VALUES (-4, 'new', 'big'), (0, 'newer', 'small')")
        source.execute("DELETE FROM cities WHERE id = 7")
    import_database(
        f"sqlite:///{town.parent / 'town.db'}", town, time=["orders.at"], val="2020-07-01",
        test="2020-09-01", overwrite=True,
    )  # fmt: skip
    after = split_of()
    assert after.keys() - before.keys() == {-4, 0}
    del before[7]
    assert all(after[key] == split for key, split in before.items())
    # To RelBench, which has no such tasks, these are external labels.
    add_task(town, "sort", autocomplete="cities.sort", overwrite=True)
    theirs = relbench.load_dataset(town).load_task("sort")
    assert theirs.remove_columns == [("cities", "sort")]
    for split in SPLITS:
        other = theirs.get_table(split, mask_input_cols=False).df
        pd.testing.assert_frame_equal(labels(town, "sort", split), other, check_dtype=False)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "frog", "auto"])
@pytest.mark.parametrize(("table", "column"), [("orders", "amount"), ("cities", "sort")])
def test_what_is_missing_is_filled_in(
    table: str, column: str, model: str, town: Path, tmp_path: Path
) -> None:
    add_task(town, "fill", autocomplete=f"{table}.{column}")
    settings = QUICK if model != "lightgbm" else None
    run = relfrog.train(
        town, "fill", tmp_path / "run", model=model, settings=settings, baselines=False
    )
    assert column not in run.prepared.db.table_dict[table].df
    assert run.evaluate("test")
    with sqlite3.connect(town.parent / "town.db") as source:
        time = "at" if table == "orders" else "NULL"
        missing = list(source.execute(f"SELECT id, {time} FROM {table} WHERE {column} IS NULL"))
    found = run.predict()
    assert set(found["id"]) == {key for key, _ in missing}
    if table == "orders":  # each at its own time
        assert dict(zip(found["id"], found["time"].astype(str))) == dict(missing)
        early = run.predict(at="2020-03-01")
        assert set(early["id"]) == {key for key, at in missing if at <= "2020-03-01"}
    else:
        early = run.predict(at="2020-03-01")
        assert set(early["id"]) == set(found["id"])
        assert set(early["time"]) == {pd.Timestamp("2020-03-01")}
    asked = run.predict(entities=[missing[0][0], 7 if table == "orders" else 4])
    assert len(asked) == 2
    assert run.predict().equals(found)
    assert set(run.predict(stamped=True)["horizon"]) == {""}  # nothing lies ahead
    page = run.report().read_text(encoding="utf-8")
    assert f"What is {column} of {table} where it is missing?" in page


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_what_ends_in_9999_is_not_known_yet(unit: Any, town: Path, tmp_path: Path) -> None:
    with sqlite3.connect(town.parent / "town.db") as source:
        source.execute("INSERT INTO orders VALUES (9999, 'P3', '9999-12-31', NULL, NULL, NULL)")
    address, place = f"sqlite:///{town.parent / 'town.db'}", tmp_path / "open-ended"
    import_database(address, place, time=["orders.at"], val="2020-07-01", test="2020-09-01")
    add_task(place, "fill", autocomplete="orders.amount")
    opened = open_task(place, "fill")
    everyone, early = (
        opened.seeds_to_fill(time) for time in (None, pd.Timestamp("2020-03-01").as_unit(unit))
    )
    assert everyone is not None
    assert early is not None
    known = everyone.times <= np.datetime64("2020-03-01")
    assert early.rows.tolist() == everyone.rows[known].tolist()


def test_nothing_missing_is_said(town: Path, tmp_path: Path) -> None:
    add_task(town, "age", autocomplete="people.age", type="regression")
    run = relfrog.train(town, "age", tmp_path / "run", model="median", baselines=False)
    with pytest.raises(UsageError, match="every row of people has a age"):
        run.predict()
    assert len(run.predict(entities=["P3"])) == 1


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("orders.id", {}, "is the primary key"),
        ("orders.at", {}, "is the time column"),
        ("orders.person", {}, "is a foreign key"),
        ("orders.amout", {}, "did you mean 'amount'"),
        ("order.amount", {}, "did you mean 'orders'"),
        ("orders", {}, "write it as TABLE.COLUMN"),
        ("orders.amount", {"type": "recommendation"}, "one value per row"),
        ("orders.amount", {"type": "binary"}, "must be 0 and 1"),
        ("orders.amount", {"horizon": "3 days"}, "takes no --horizon"),
        ("orders.amount", {"sql": "SELECT 1"}, "one of --sql"),
        ("cities.name", {"type": "binary"}, "must be a number"),
        ("people.age", {"type": "binary"}, "must be 0 and 1"),
    ],
)
def test_what_cannot_be_filled_in(
    text: str, options: dict[str, Any], words: str, town: Path
) -> None:
    with pytest.raises(RelFrogError, match=words):
        add_task(town, "wrong", autocomplete=text, **options)
    assert not (town / "tasks" / "wrong").exists()


# A stranger's folder.

TRAP = "x\" FROM entity_table) TO 'owned.csv'; COPY (SELECT 1 AS \"y"
NAMES = ["a b", 'quo"te', "it's", "1; DROP TABLE t", "x, (COPY (SELECT 1) TO 'owned.csv')", TRAP]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_strangers_folder_is_only_a_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ds"
    (folder / "db").mkdir(parents=True)
    times = pd.date_range("2020-01-01", periods=300, freq="D")
    frame = pd.DataFrame({"id": range(300), "at": times, name: [i % 7 / 3 for i in range(300)], "n": [i % 7 for i in range(300)]})  # fmt: skip
    frame.to_parquet(folder / "db" / "t.parquet")
    table = {"pkey": "id", "time_col": "at", "fkeys": {}}
    manifest = {"name": "ds", "val_timestamp": "2020-07-01", "test_timestamp": "2020-08-15", "tables": {"t": table}}  # fmt: skip
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    task = {"name": "fill", "kind": "autocomplete", "task_type": "regression", "entity_table": "t", "target_col": name}  # fmt: skip
    (folder / "tasks" / "fill").mkdir(parents=True)
    (folder / "tasks" / "fill" / "manifest.yaml").write_text(yaml.safe_dump(task))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = {p for p in tmp_path.rglob("*") if "run" not in p.parts}
    for command in (
        ["inspect", str(folder)],
        ["check", str(folder)],
        ["task", str(folder), "again", "--autocomplete", f"t.{name}"],
        ["train", str(folder), "fill", "--model", "lightgbm", "--out", "run", "--no-baselines"],
        ["evaluate", "run"],
        ["predict", "run", "--entities", str(_csv(here / "who.csv")), "--out", "run/p.csv"],
    ):
        code, out, err = inside(capfd, *command)
        assert code == 0, (command, out, err)
        assert "Traceback" not in out + err
    new = {p for p in tmp_path.rglob("*") if "run" not in p.parts} - before
    expected = [here / "who.csv", folder / "tasks" / "again"]
    assert [p for p in new if not any(p.is_relative_to(e) for e in expected)] == []


def _csv(path: Path) -> Path:
    path.write_text("id\n3\n299\n")
    return path


@pytest.mark.slow
def test_relbench_itself_is_not_asked_for_labels(
    town: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever RelBench runs on our behalf is seen: none of its SQL is."""
    import duckdb
    import relbench.load
    from relbench.base import AutoCompleteTask

    def refuse(*args: Any, **named: Any) -> None:
        raise AssertionError("RelBench ran SQL")

    add_task(town, "fill", autocomplete="orders.amount")
    sql = "SELECT t.timestamp, p.code, CAST(count(*) > 3 AS INTEGER) AS y FROM timestamps t JOIN orders o ON o.at > t.timestamp AND o.at <= t.timestamp + INTERVAL '{timedelta}' JOIN people p ON p.code = o.person GROUP BY ALL"  # fmt: skip
    add_task(town, "buys", sql, type="binary", entity="people", horizon="20 days")
    monkeypatch.setattr(relbench.load, "_run_task_sql", refuse)
    monkeypatch.setattr(AutoCompleteTask, "make_table", refuse)
    monkeypatch.setattr(duckdb, "sql", refuse)
    for name in ("fill", "buys"):
        for regenerate in (False, True):
            for split in SPLITS:
                assert len(labels(town, name, split, regenerate=regenerate))
    assert check(town).ok
    relfrog.inspect(town)
    with pytest.raises(TaskError):
        load_task(open_dataset(town), "none")
