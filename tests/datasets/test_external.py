"""Tasks from the user's own table of entity, time and label."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import relbench

import relfrog
from helpers import inside, sqlite
from relfrog import add_task, check, import_database, open_dataset
from relfrog.datasets.entities import key_frame
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogError
from small_store import QUICK

SPLITS = ("train", "val", "test")
VAL, TEST = pd.Timestamp("2020-07-01"), pd.Timestamp("2020-09-01")
SCHEMA = """
CREATE TABLE people (code TEXT PRIMARY KEY, age INTEGER);
CREATE TABLE teams (year INTEGER, club TEXT, city TEXT, PRIMARY KEY (year, club));
CREATE TABLE visits (id INTEGER PRIMARY KEY, code TEXT REFERENCES people (code), year INTEGER,
    club TEXT, at TIMESTAMP, n INTEGER, FOREIGN KEY (year, club) REFERENCES teams (year, club));
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
INSERT INTO people SELECT 'P-' || (31 - i), 20 + i * 7 % 50 FROM n;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 11)
INSERT INTO teams SELECT 2018 + i % 3, 'c' || (i / 3), 'x' || i % 4 FROM n;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
INSERT INTO visits SELECT i, 'P-' || (i * i % 30 + 1), 2018 + i % 3, 'c' || (i % 4),
    datetime('2020-01-01', (i / 2) || ' days'), i % 9 FROM n;
"""


@pytest.fixture
def club(tmp_path: Path) -> Path:
    address = sqlite(tmp_path / "club.db", SCHEMA)
    import_database(
        address, tmp_path / "ds", time=["visits.at", "teams.none"], val=str(VAL), test=str(TEST)
    )
    return tmp_path / "ds"


def some_labels() -> pd.DataFrame:
    times = pd.date_range("2020-01-15", "2020-11-15", freq="15D")
    rows = [(f"P-{i}", t, (i * 7 + n) % 3 > 0) for n, t in enumerate(times) for i in range(1, 31)]
    return pd.DataFrame(rows, columns=["code", "timestamp", "returns"])


OPTIONS: dict[str, Any] = {"type": "binary", "entity": "people", "horizon": "20 days"}


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_labels_of_a_file(form: str, club: Path, tmp_path: Path) -> None:
    frame = some_labels()
    given: Any = frame
    if form == "csv":
        given = tmp_path / "labels.csv"
        frame.to_csv(given, index=False)
    elif form == "parquet":
        given = tmp_path / "labels.parquet"
        frame.to_parquet(given)
    added = add_task(club, "returns", labels=given, **OPTIONS)
    end = frame["timestamp"] + pd.Timedelta("20 days")
    expected = {
        "train": frame[end <= VAL],
        "val": frame[(frame["timestamp"] >= VAL) & (end <= TEST)],
        "test": frame[frame["timestamp"] >= TEST],
    }
    left_out = len(frame) - sum(map(len, expected.values()))
    assert left_out > 0
    assert f"{left_out:,} of {len(frame):,} labels belong to no split" in added.notes[0]
    theirs = relbench.load_dataset(club).load_task("returns")
    for split, wanted in expected.items():
        stored = theirs.get_table(split, mask_input_cols=False).df
        for regenerate in (False, True):
            task = load_task(open_dataset(club), "returns", regenerate=regenerate)
            found = task.get_table(split, mask_input_cols=False).df
            pd.testing.assert_frame_equal(found, stored, check_dtype=False)
        names = key_frame(club, "people", "code", found["code"].to_numpy())["code"]
        got = dict(zip(zip(names, found["timestamp"]), found["returns"], strict=True))
        assert got == dict(zip(zip(wanted["code"], wanted["timestamp"]), wanted["returns"].astype(int)))  # fmt: skip
    assert check(club, "returns").ok


def test_the_labels_survive_an_import(club: Path) -> None:
    add_task(club, "returns", labels=some_labels(), **OPTIONS)

    def by_key() -> dict[Any, int]:
        frame = load_task(open_dataset(club), "returns").get_table("val").df
        names = key_frame(club, "people", "code", frame["code"].to_numpy())["code"]
        return dict(zip(zip(names, frame["timestamp"]), frame["returns"], strict=True))

    before = by_key()
    with sqlite3.connect(club.parent / "club.db") as source:
        source.execute("INSERT INTO people VALUES ('A-0', 3)")
    import_database(
        f"sqlite:///{club.parent / 'club.db'}", club, time=["visits.at", "teams.none"],
        val=str(VAL), test=str(TEST), overwrite=True,
    )  # fmt: skip
    assert not (club / "tasks" / "returns" / "val.parquet").exists()
    assert by_key() == before
    with sqlite3.connect(club.parent / "club.db") as source:
        source.execute("UPDATE visits SET code = NULL WHERE code = 'P-3'")
        source.execute("DELETE FROM people WHERE code = 'P-3'")
    import_database(
        f"sqlite:///{club.parent / 'club.db'}", club, time=["visits.at", "teams.none"],
        val=str(VAL), test=str(TEST), overwrite=True,
    )  # fmt: skip
    found = check(club, "returns")
    assert not found.ok
    assert "keys are not in table people, such as code=P-3" in str(found.findings)


def test_a_composite_key(club: Path, tmp_path: Path) -> None:
    times = pd.date_range("2020-01-15", "2020-11-15", freq="15D")
    rows = [(y, f"c{c}", str(t.date()), y % 3 + c * n) for n, t in enumerate(times) for y in (2018, 2019, 2020) for c in range(4)]  # fmt: skip
    pd.DataFrame(rows, columns=["year", "club", "day", "points"]).to_csv(tmp_path / "l.csv", index=False)  # fmt: skip
    options = {"type": "regression", "entity": "teams", "horizon": "10 days", "time": "day"}
    add_task(club, "points", labels=tmp_path / "l.csv", **options)  # type: ignore[arg-type]
    frame = load_task(open_dataset(club), "points").get_table("test", mask_input_cols=False).df
    names = key_frame(club, "teams", "teams_id", frame["teams_id"].to_numpy())
    got = set(zip(names["year"], names["club"], frame["day"].astype(str), frame["points"]))
    assert got == {row for row in rows if row[2] >= str(TEST.date())}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "frog"])
def test_models_learn_from_it(model: str, club: Path, tmp_path: Path) -> None:
    add_task(club, "returns", labels=some_labels(), **OPTIONS)
    settings = QUICK if model == "frog" else None
    run = relfrog.train(club, "returns", tmp_path / "run", model=model, settings=settings, baselines=False)  # fmt: skip
    assert 0 <= run.evaluate("test")["roc_auc"] <= 1
    assert set(run.predict()["code"]) == {f"P-{i}" for i in range(1, 31)}


def changed(**columns: Any) -> pd.DataFrame:
    return some_labels().assign(**columns)


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (changed(code="X"), {}, r"keys are not in table people, such as code=X \(one that is"),
        (changed(returns="maybe"), {}, "630 of 630 labels are no numbers, such as 'maybe'"),
        (changed(returns=np.nan), {}, "630 of 630 rows have no label"),
        (changed(returns=1), {}, "labels of the train split are equal"),
        (changed(returns=[i % 3 for i in range(630)]), {}, "must be 0 and 1"),
        (changed(timestamp="soon"), {}, "values of timestamp are not times"),
        (changed(timestamp="2020-12-01"), {}, "no label is in the train split: its times would be"),
        (changed(more=1), {}, "which column is the label"),
        (changed(), {"label": "nothing"}, "no column 'nothing'"),
        (changed(), {"label": "code"}, "cannot be the label"),
        (changed(), {"time": "day"}, "no column 'day' with the time"),
        (changed().drop(columns="code"), {}, "no column with the key of people: add code"),
        (pd.concat([changed(), changed()]), {}, "repeat a seed time"),
        (changed(), {"entity": "persons"}, "did you mean|no table"),
        (changed(), {"entity": None}, "needs --entity"),
        (changed(), {"horizon": None}, "needs --entity TABLE, --type and --horizon"),
        (changed(), {"horizon": "20"}, "write it as"),
        (changed(), {"type": "recommendation"}, "cannot come from a file"),
        (changed(), {"sql": "SELECT 1"}, "one of --sql"),
    ],
)  # fmt: skip
def test_wrong_labels_are_refused(
    frame: pd.DataFrame, options: dict[str, Any], words: str, club: Path
) -> None:
    with pytest.raises(RelFrogError, match=words):
        add_task(club, "wrong", labels=frame, **{**OPTIONS, **options})
    assert not (club / "tasks" / "wrong").exists()


def test_the_command(club: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    some_labels().to_csv(tmp_path / "l.csv", index=False)
    arguments = ["task", str(club), "returns", "--labels", str(tmp_path / "l.csv"), "--type", "binary"]  # fmt: skip
    code, _, err = inside(capfd, *arguments)
    assert code == 2
    assert "--horizon" in err
    code, out, _ = inside(capfd, *arguments, "--entity", "people", "--horizon", "20 days")
    assert code == 0
    assert "Added task returns (binary_classification, 20 days ahead)" in out
    assert re.search("note: [0-9]+ of 630 labels belong to no split", out)
    for wrong in ("none.csv", "l.txt"):
        (tmp_path / "l.txt").touch()
        code, _, err = inside(capfd, *arguments[:4], str(tmp_path / wrong), "--type", "binary", "--entity", "people", "--horizon", "20 days", "--overwrite")  # fmt: skip
        assert code in (1, 2)
        assert "Traceback" not in err
