"""Names and values that are SQL, HTML, paths, patterns and terminal codes, through every command."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from fuzz_changes import OWNED
from helpers import inside
from relfrog.support.duckdb import quoted

#: What would write a file as SQL, end an identifier or a text, or be a script in a page.
SQL = f"x\"' ); COPY (SELECT 1) TO '{OWNED}'; --"
HTML = "<script>alert(1)</script>"
PEOPLE, ORDERS = f"people {SQL}", f"orders \x1b[31m {HTML} [1]*?"
CODE, CITY = f"code {SQL}", f"city \x1b[31m {HTML}"
WHO, AMOUNT = f"who {SQL}", f"amount \x1b[31m %s {{x}} {SQL}"
QUICK = [
    f"--set={setting}" for setting in (
        "channels=4", "layers=1", "neighbors=3", "epochs=1", "steps_per_epoch=2", "batch_size=32",
        "fd_pairs=8", "fd_negatives=1", "encoder_depth=0", "bins=2", "text_channels=4", "trials=1",
    )
]  # fmt: skip


def evil_shop(path: Path) -> str:
    """A database in which every name but those of times is hostile, and so are values."""
    rng = random.Random(0)
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"CREATE TABLE {quoted(PEOPLE)} ({quoted(CODE)} TEXT PRIMARY KEY, {quoted(CITY)} TEXT)"
        )
        connection.execute(
            f"CREATE TABLE {quoted(ORDERS)} (id INTEGER PRIMARY KEY, {quoted(WHO)} TEXT "
            f"REFERENCES {quoted(PEOPLE)}, {quoted(AMOUNT)} REAL, ordered_at TIMESTAMP)"
        )
        people = [f"P{n} {SQL} {HTML}" for n in range(10)]
        cities = [HTML, f"=cmd|'/c calc'!A1 {SQL}", "\x1b[31mred"]
        connection.executemany(
            f"INSERT INTO {quoted(PEOPLE)} VALUES (?, ?)",
            [(code, rng.choice(cities)) for code in people],
        )
        connection.executemany(
            f"INSERT INTO {quoted(ORDERS)} VALUES (?, ?, ?, ?)",
            [
                (n, people[min(rng.randrange(20), 9)], rng.random(),
                 str(pd.Timestamp("2020-01-01") + pd.Timedelta(days=2 * n + rng.random())))
                for n in range(100)
            ],
        )  # fmt: skip
    connection.close()
    return f"sqlite:///{path}"


@pytest.mark.slow
def test_names_are_names_in_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    ds = "ds [1]*"  # a pattern that is its own name, too
    splits = ["--val", "2020-05-01", "--test", "2020-06-10"]
    code, _, err = inside(capfd, "import", evil_shop(tmp_path / "shop.db"), ds, *splits)
    assert code == 0, err
    tables = yaml.safe_load((tmp_path / ds / "manifest.yaml").read_text("utf-8"))["tables"]
    people, orders = (next(t for t in tables if t.startswith(w)) for w in ("people", "orders"))
    (tmp_path / "labels.sql").write_text(
        f"SELECT t.timestamp, p.{quoted(CODE)}, CAST(count(o.id) > 0 AS INTEGER) AS {quoted(SQL)} "
        f"FROM timestamps t CROSS JOIN {quoted(people)} p LEFT JOIN {quoted(orders)} o "
        f"ON o.{quoted(WHO)} = p.{quoted(CODE)} AND o.ordered_at > t.timestamp "
        "AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}' GROUP BY 1, 2"
    )
    question = (
        f"PREDICT SUM({quoted(orders)}.{quoted(AMOUNT)}, 0, 10, days) > 0 FOR EACH "
        f"{quoted(people)}.{quoted(CODE)}"
    )
    everything = [
        ["check", ds], ["inspect", ds], ["suggest", ds, "--seconds", "3"],
        ["task", ds, "buys", "--sql", "labels.sql", "--type", "binary", "--entity", people,
         "--horizon", "10 days"],
        ["task", ds, "asked", "--query", question],
        ["task", ds, "filled", "--autocomplete", f"{orders}.{AMOUNT}"],
        ["train", ds, "buys", "--out", "trees", "--model", "lightgbm", *QUICK],
        ["train", ds, "asked", "--out", "frog", "--model", "frog", *QUICK],
        ["evaluate", "frog"], ["roles", "frog"], ["report", "frog"],
        ["explain", "trees", "--entity", f"P1 {SQL} {HTML}"],
        ["predict", "frog", "--out", "p.csv"], ["predict", "frog", "--out", "p.parquet"],
        ["predict", "frog", "--out", "duckdb:///p.duckdb", "--table", SQL],
        ["predict", "frog", "--out", "sqlite:///p.db", "--table", SQL],
        ["predict", "frog", "--out", "parts"],
        ["audit", "p.csv", "--task", ds, "asked"],
        ["submit", "frog", "--out", "submitted"],
    ]  # fmt: skip
    for words in everything:
        code, out, err = inside(capfd, *words)
        assert "Unexpected" not in err, (words, err)
        assert "\x1b" not in out + err, (words, out, err)
        assert code == 0 or words[0] in ("audit", "submit"), (words, out, err)
    assert not list(tmp_path.rglob(OWNED))
    for page in tmp_path.rglob("*.html"):
        assert HTML not in page.read_text("utf-8"), page
