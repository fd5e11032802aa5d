"""Seed times are labelled some at a time only where that gives the same labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from relbench.base import Database

from relfrog.datasets import label_sql
from relfrog.datasets.label_independence import is_independent
from relfrog.datasets.label_sql import run_sql
from relfrog.store.file_table import FileTable

DAY = pd.Timedelta("3 days")
AFTER = "e.at > t.timestamp AND e.at <= t.timestamp + INTERVAL '{timedelta}'"
BUYERS = f"SELECT DISTINCT t.timestamp, e.who FROM timestamps t JOIN events e ON {AFTER}"

#: Statements that give the same rows whether times come together or apart.
INDEPENDENT = [
    f"SELECT t.timestamp, e.who, count(*) AS n FROM timestamps t JOIN events e ON {AFTER} "
    "GROUP BY t.timestamp, e.who",
    f"SELECT timestamp, who, sum(x) AS n FROM timestamps t, events e WHERE {AFTER} GROUP BY ALL",
    f"SELECT t.timestamp, p.who, count(e.who) AS n FROM timestamps t CROSS JOIN people p "
    f"LEFT JOIN events e ON e.who = p.who AND {AFTER} GROUP BY 1, 2",
    f"WITH a AS ({BUYERS}), b AS ({BUYERS}) SELECT a.timestamp, a.who, "
    "CAST(b.who IS NULL AS INTEGER) AS n FROM a LEFT JOIN b USING (timestamp, who)",
    f"WITH a AS ({BUYERS}) SELECT a.timestamp, a.who, max(b.who) AS n FROM a JOIN a b "
    "ON a.timestamp = b.timestamp GROUP BY a.timestamp, a.who",
    "SELECT t.timestamp, p.who, CAST(EXISTS (SELECT 1 FROM events e WHERE e.who = p.who AND "
    f"{AFTER}) AS INTEGER) AS n FROM timestamps t, people p",
    f"SELECT * FROM ({BUYERS}) QUALIFY row_number() OVER (PARTITION BY timestamp, who "
    "ORDER BY who) = 1",
    f"SELECT timestamp, who, 1 AS n FROM ({BUYERS}) UNION ALL "
    "SELECT t.timestamp, 99 AS who, 0 AS n FROM timestamps t",
    f"SELECT DISTINCT ON (timestamp, who) * FROM ({BUYERS}) ORDER BY timestamp, who",
]
#: Statements of which it cannot be said, most of which give others.
DEPENDENT = [
    f"SELECT max(t.timestamp) AS timestamp, e.who, count(*) AS n FROM timestamps t JOIN events e "
    f"ON {AFTER} GROUP BY e.who",
    "SELECT t.timestamp, p.who, t.timestamp > (SELECT min(timestamp) FROM timestamps) AS n "
    "FROM timestamps t, people p",
    "SELECT t.timestamp, p.who, row_number() OVER (ORDER BY t.timestamp) AS n "
    "FROM timestamps t, people p",
    "SELECT t.timestamp, p.who, count(*) AS n FROM timestamps t, timestamps u, people p "
    "GROUP BY t.timestamp, p.who",
    "SELECT t.timestamp, p.who, 1 AS n FROM people p LEFT JOIN timestamps t "
    "ON p.who = day(t.timestamp)",
    f"{BUYERS} LIMIT 5",
    f"SELECT * FROM ({BUYERS} LIMIT 5)",
    "SELECT DISTINCT p.who FROM timestamps t, people p",
    "SELECT date_trunc('month', t.timestamp) AS timestamp, p.who, count(*) AS n "
    "FROM timestamps t, people p GROUP BY timestamp, p.who",
    "SELECT count(*) AS n FROM timestamps t, people p",
    "SELECT mode(p.who) AS n FROM timestamps t, people p",
    "SELECT t.timestamp, p.who, random() AS n FROM timestamps t, people p",
    "SELECT DATE '2020-01-01' AS timestamp, who, 1 AS n FROM people",
    "SELECT timestamp, 1 AS who FROM timestamps UNION SELECT timestamp, 2 FROM timestamps",
    f"{BUYERS} UNION ALL SELECT DATE '2020-01-01', who FROM people",
    "SELECT t.timestamp, p.who FROM people p ANTI JOIN timestamps t ON p.who = day(t.timestamp)",
    "WITH RECURSIVE a AS (SELECT timestamp FROM timestamps) SELECT * FROM a",
    "SELECT t.timestamp, p.who, 1 AS n FROM timestamps t ASOF JOIN events p ON t.timestamp >= p.at",
    "SELECT (SELECT max(t.timestamp)) AS timestamp FROM timestamps t",
    "this is no SQL",
]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Database:
    folder, rng = tmp_path_factory.mktemp("events"), np.random.default_rng(0)
    at = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 40 * 24, 300)), "h")
    who, x = rng.integers(0, 12, 300), rng.random(300).round(3)
    pd.DataFrame({"at": at, "who": who, "x": x}).to_parquet(folder / "events.parquet", index=False)
    people = pd.DataFrame({"who": np.arange(12)})
    people.to_parquet(folder / "people.parquet", index=False)
    return Database({
        "events": FileTable(folder / "events.parquet", {"who": "people"}, None, "at"),
        "people": FileTable(folder / "people.parquet", {}, "who", None),
    })  # fmt: skip


@pytest.mark.parametrize("sql", INDEPENDENT)
def test_times_apart_give_the_same_labels(
    events: Database, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = sql.replace("{timedelta}", str(DAY))
    assert is_independent(filled)
    times = list(pd.date_range("2020-02-05", "2020-01-02", freq=-DAY))

    def labels() -> pd.DataFrame:
        found = run_sql(sql, events, times, DAY, order=["timestamp", "who"])
        assert len(found)
        return found

    whole = labels()
    monkeypatch.setattr(label_sql, "_MANY", 0)
    for statements in (1, 3, 64):
        monkeypatch.setattr(label_sql, "_STATEMENTS", statements)
        pd.testing.assert_frame_equal(labels(), whole)


@pytest.mark.parametrize("sql", DEPENDENT)
def test_what_may_depend_on_other_times_is_not_taken_apart(sql: str) -> None:
    assert not is_independent(sql.replace("{timedelta}", str(DAY)))


def test_the_papers_tasks_can_be_taken_apart() -> None:
    import yaml

    schemas = sorted((Path(__file__).parents[2] / "benchmarks" / "schemas").glob("*.yaml"))
    tasks = [task for path in schemas
             for task in yaml.safe_load(path.read_text(encoding="utf-8"))["tasks"].values()]  # fmt: skip
    assert len(tasks) == 23
    assert all(is_independent(task["sql"].replace("{timedelta}", "7 days")) for task in tasks)
