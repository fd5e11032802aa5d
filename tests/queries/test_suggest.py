"""Suggested questions run, say what they are about, and come in the order of their worth."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

import relfrog
from helpers import inside
from relfrog.queries.new_task import add_query_tasks, plan_query
from relfrog.queries.proposals import choose_window
from relfrog.queries.quick_scores import quick_score
from relfrog.queries.suggest import suggest

DAY = pd.Timedelta(days=1)
#: Text and composite keys, NULL keys, two ways between tables, a table that names itself, words of
#: the language and dots in names, an empty table, and a column that is the same for an entity.
ODD = """
CREATE TABLE "not" ("key.id" TEXT PRIMARY KEY, "where" TEXT, boss TEXT REFERENCES "not"("key.id"));
CREATE TABLE shops (country TEXT, num INTEGER, PRIMARY KEY (country, num));
CREATE TABLE "order" ("select" TEXT PRIMARY KEY, "group by" TEXT, "at.time" TEXT, "a ""b"" c" REAL,
    "for each" TEXT REFERENCES "not"("key.id"), paid_by TEXT REFERENCES "not"("key.id"),
    country TEXT, num INTEGER, "predict" BOOLEAN,
    FOREIGN KEY (country, num) REFERENCES shops(country, num));
CREATE TABLE refunds (id INTEGER PRIMARY KEY, "order" TEXT REFERENCES "order"("select"), at TEXT);
"""
T = [pd.Timestamp("2020-01-01") + n * 10 * DAY for n in range(4)]


@pytest.mark.slow
def test_suggested_questions_become_tasks(bare_shop: Path) -> None:
    found = suggest(bare_shop, limit=20)
    assert {one.type for one in found} >= {"regression", "recommendation"}
    assert len({one.query for one in found}) == len(found)
    for one in found:
        assert plan_query(bare_shop, one.query).question.kind == one.type
        assert min(one.labels.values()) >= 20
    (added,) = add_query_tasks(bare_shop, "first", found[0].query)
    assert added.stats["val"].rows


def test_numbers_that_name_rows_are_not_asked_about(tmp_path: Path) -> None:
    """The running number of an order line has many values, but no meaning."""
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.executescript(
            """CREATE TABLE shops (shopkey INTEGER PRIMARY KEY);
            CREATE TABLE lines (orderkey INTEGER, lineitemid INTEGER, shopkey INTEGER REFERENCES
                shops (shopkey), linedate DATE, weight INTEGER, PRIMARY KEY (orderkey, lineitemid));"""
        )
        connection.executemany("INSERT INTO shops VALUES (?)", [(n,) for n in range(1, 9)])
        rows = [
            (n // 3, 1000 + n, 1 + n % 8, str((T[0] + n % 400 * DAY).date()), n * n % 97)
            for n in range(2000)
        ]
        connection.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?)", rows)
    relfrog.import_database(f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "a")
    queries = [one.query for one in suggest(tmp_path / "a", limit=20)]
    assert any("lines.weight" in query for query in queries)
    assert not any("lineitemid" in query for query in queries)


@pytest.mark.slow
def test_the_command_prints_questions_to_ask(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = inside(capfd, "suggest", str(store), "--limit", "3")
    assert code == 0
    assert "1. " in said
    assert "relfrog ask" in said
    code, said, _ = inside(capfd, "suggest", str(store), "--limit", "3", "--json")
    assert len(json.loads(said)) == 3
    code, said, _ = inside(capfd, "suggest", str(store), "--seconds", "0")
    assert code == 0


def test_windows_fit_the_splits() -> None:
    val = pd.Timestamp("2020-07-01")
    assert choose_window(pd.Timestamp("2015-01-01"), val, val + 100 * DAY) == (30, "days")
    assert choose_window(pd.Timestamp("2020-06-01"), val, val + 100 * DAY) == (1, "days")
    assert choose_window(val - DAY / 100, val, val + DAY) is None


def test_scores_by_hand() -> None:
    frame = pd.DataFrame(
        [(T[0], "a", 1), (T[1], "a", 1), (T[2], "a", 1), (T[0], "b", 0), (T[1], "b", 1), (T[2], "b", 0), (T[3], "b", 5)],
        columns=["timestamp", "entity", "label"],
    )  # fmt: skip
    binary = quick_score("binary", frame, [T[2]], 10 * DAY)
    assert binary is not None
    assert (binary.score, binary.chance, binary.gain) == (1.0, 0.5, 1.0)
    number = quick_score("regression", frame, [T[2]], 10 * DAY)
    assert number is not None
    # The mean is 1 for a and 0.5 for b, the median of all is 1.
    assert (number.score, number.chance) == (0.25, 0.5)
    lists = frame.assign(label=[["x"], ["x", "y"], ["x"], ["z"], ["z"], ["y", "z"], []])
    ranked = quick_score("recommendation", lists, [T[2]], 10 * DAY)
    assert ranked is not None
    # a: x is first. b: z first, then x before y, so y is third.
    assert ranked.score == pytest.approx((1 + (1 + 2 / 3) / 2) / 2)
    words = frame.assign(label=["u", "u", "u", "v", "v", "v", "u"])
    classes = quick_score("multiclass", words, [T[2]], 10 * DAY)
    assert classes is not None
    assert (classes.score, classes.chance, classes.gain) == (1.0, 0.5, 1.0)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with everything that schemas can have to trip over."""
    folder, rng = tmp_path_factory.mktemp("odd"), random.Random(3)
    people = [f"P {n}" for n in range(40)]
    shops = [(country, n) for country in ("DE", "FR") for n in range(8)]
    with sqlite3.connect(folder / "odd.db") as db:
        db.executescript(ODD)
        db.executemany('INSERT INTO "not" VALUES (?, ?, ?)',
                       [(p, rng.choice("ab"), people[n // 4]) for n, p in enumerate(people)])  # fmt: skip
        db.executemany("INSERT INTO shops VALUES (?, ?)", shops)
        for n in range(1800):
            who = people[int(40 * rng.random() ** 2)] if rng.random() < 0.95 else None
            at = pd.Timestamp("2022-01-01") + rng.random() * 600 * DAY
            row = (f"O{n}", rng.choice("xyz"), str(at), rng.random() * 9, who, rng.choice(people),
                   *rng.choice(shops), rng.random() < 0.4)  # fmt: skip
            db.execute('INSERT INTO "order" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)', row)
    relfrog.import_database(f"sqlite:///{folder / 'odd.db'}", folder / "odd")
    return folder / "odd"


@pytest.mark.slow
def test_every_suggestion_about_an_odd_schema_becomes_a_task(odd: Path) -> None:
    found = suggest(odd, limit=50)
    assert {one.type for one in found} == {"binary", "regression", "multiclass", "recommendation"}
    told = " ".join(one.query for one in found)
    assert 'FOR EACH not."key.id"' in told
    assert "FOR EACH shops." in told
    assert 'VIA order."for each"' in told
    assert "VIA order.paid_by" in told
    # The country of a shop's orders is the shop's: nothing to predict.
    assert "LAST(order.country" not in told
    for one in found:
        assert plan_query(odd, one.query).question.kind == one.type
        if "not." in one.query:
            add_query_tasks(odd, "tried", one.query, overwrite=True)


def test_what_never_changes_for_an_entity_is_not_suggested(odd: Path) -> None:
    question = "PREDICT LAST(order.country, 0, 30, days) FOR EACH shops.shops_id"
    assert plan_query(odd, question).question.kind == "multiclass"
    frame = pd.DataFrame({"timestamp": [T[0], T[0], T[2], T[2]], "entity": [1, 2, 1, 2],
                          "label": ["DE", "FR", "DE", "FR"]})  # fmt: skip
    score = quick_score("multiclass", frame, T[2:3], DAY)
    assert score is not None
    assert score.gain == 1
