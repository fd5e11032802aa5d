"""A store small enough to train on in a second, with tasks of every type."""

from __future__ import annotations

import inspect
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from safetensors.numpy import load_file

import relfrog
from helpers import sqlite
from relfrog.datasets.tasks import load_task

VAL, TEST, END = (pd.Timestamp(t) for t in ("2020-08-01", "2020-10-01", "2020-12-31"))
HORIZON = pd.Timedelta("20 days")

_SCHEMA = """
CREATE TABLE people (code TEXT PRIMARY KEY, joined TIMESTAMP, city TEXT, age INTEGER, note TEXT);
CREATE TABLE things (id INTEGER PRIMARY KEY, title TEXT, price REAL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, person TEXT REFERENCES people (code),
    thing INTEGER REFERENCES things (id), amount REAL, channel TEXT, ordered_at TIMESTAMP);
CREATE TABLE reviews (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders (id),
    stars INTEGER, words TEXT, written TIMESTAMP);
"""
_WINDOW = """
FROM timestamps t CROSS JOIN people p
LEFT JOIN orders o ON o.person = p.code AND o.ordered_at > t.timestamp
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
LEFT JOIN things g ON g.id = o.thing
WHERE p.joined <= t.timestamp
GROUP BY t.timestamp, p.code
"""
#: Per task its type and the SQL of its label.
TASKS = {
    "buys": ("binary", "CAST(count(o.id) > 2 AS INTEGER) AS buys"),
    "spends": ("regression", "1000 * coalesce(sum(o.amount), 0) AS cents"),
    "wants": ("multiclass", "coalesce(mode(g.title ORDER BY g.title), 'nothing') AS title"),
    "counts": ("multiclass", "least(count(o.id), 3) AS n"),
    "sorts": ("multilabel", " || ".join(
        f"[CAST(coalesce(bool_or(o.thing % 3 = {i}), false) AS INTEGER)]" for i in range(3)
    ) + " AS sorts"),
}  # fmt: skip
#: Settings with which a run takes a second.
QUICK = {
    "channels": 8, "layers": 1, "neighbors": 4, "epochs": 2, "batch_size": 128, "lr": 0.01,
    "average": 0.0, "fd_pairs": 16, "fd_negatives": 2, "encoder_depth": 0, "bins": 2, "text_channels": 4,
    "networks": 1,
}  # fmt: skip


def make_store(folder: Path, seed: int = 0) -> Path:
    """Import the store, with all of its tasks, into a dataset folder."""
    rng = random.Random(seed)
    people = [f"P{i:02d}" for i in range(20)]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "people": [
            (code, _day(rng.randrange(-300, 90)), rng.choice(["Rom", "Oslo"]), rng.randrange(18, 80),
             f"likes {rng.choice(['tea', 'ice', 'rye'])} and number {rng.random():.3f}")
            for code in people
        ],
        "things": [(i, f"thing {i % 4}", i * 1.5) for i in range(1, 9)],
        "orders": [],
        "reviews": [],
    }  # fmt: skip
    for day in range(364):
        busy = False  # the first order of a day is at midnight, when windows close
        for number, code in enumerate(people):
            if rng.random() < 0.02 + 0.012 * number and _day(day) > rows["people"][number][1]:
                key = 7 * len(rows["orders"]) + 3
                thing = 1 + (number + rng.randrange(3)) % 8
                rows["orders"].append(
                    (key, rng.choice([code] * 20 + [None]), thing, thing * 1.5 + rng.random(),
                     rng.choice(["web", "shop"]), _day(day, rng.randrange(86400) if busy else 0))
                )  # fmt: skip
                busy = True
                if rng.random() < 0.4:
                    rows["reviews"].append(
                        (len(rows["reviews"]), key, rng.randrange(1, 6),
                         f"{rng.choice(['good', 'bad'])} {len(rows['reviews'])}",
                         _day(day + rng.randrange(1, 30)))
                    )  # fmt: skip
    marks = {name: ", ".join("?" * len(found[0])) for name, found in rows.items()}
    address = sqlite(folder / "store.db", _SCHEMA)
    connection = sqlite3.connect(folder / "store.db")
    try:
        for name, found in rows.items():
            connection.executemany(f"INSERT INTO {name} VALUES ({marks[name]})", found)
        connection.commit()
    finally:
        connection.close()
    relfrog.import_database(
        address, folder / "store", val=str(VAL), test=str(TEST), time=("people.joined",)
    )
    for name, (kind, label) in TASKS.items():
        relfrog.add_task(
            folder / "store", name, f"SELECT t.timestamp, p.code, {label} {_WINDOW}", type=kind,
            entity="people", horizon="20 days", eval_times=3,
        )  # fmt: skip
        from_the_first_row(folder / "store", name)
    return folder / "store"


def from_the_first_row(dataset: Path, task: str) -> None:
    """Let training times go back to the first row, as RelBench lays them out.

    People join before the first order, so some training times have no order yet, which tests of
    history and of empty neighbourhoods need.
    """
    folder = dataset / "tasks" / task
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    assert manifest.pop("train_from")
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    loaded = load_task(relfrog.open_dataset(dataset), task, regenerate=True)
    frame = loaded.get_table("train", mask_input_cols=False).df
    stored = pd.read_parquet(folder / "train.parquet")
    frame.astype({c: t for c, t in stored.dtypes.items() if t.kind != "O"}).to_parquet(
        folder / "train.parquet", index=False
    )


def without_sql(dataset: Path, task: str) -> None:
    """Leave a task's labels and take its SQL away: labels that differ from it are refused."""
    path = dataset / "tasks" / task / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    for name in ("sql", "source_sql"):  # the latter: SQL that RelBench could not run
        manifest.pop(name, None)
    path.write_text(yaml.safe_dump({**manifest, "kind": "external"}, sort_keys=False))


def _day(number: int, seconds: int = 0) -> str:
    when = pd.Timestamp("2020-01-01") + pd.Timedelta(number, "D") + pd.Timedelta(seconds, "s")
    return f"{when:%Y-%m-%d %H:%M:%S}"


def fit(store: Path, out: Path, task: str = "buys", **options: Any) -> relfrog.Run:
    """Train FROG, if no other model is named; options that `train` does not have are settings."""
    known = inspect.signature(relfrog.train).parameters
    settings = {**QUICK, **{k: v for k, v in options.items() if k not in known}}
    named = {k: v for k, v in options.items() if k in known}
    named = {"baselines": False, "model": "frog"} | named
    return relfrog.train(store, task, out, settings=settings, **named)


def weights(folder: Path) -> dict[str, bytes]:
    """All weights of a run, bit by bit."""
    return {k: v.tobytes() for k, v in load_file(folder / "model.safetensors").items()}


def copied(store: Path, folder: Path) -> Path:
    """A copy of the dataset that may be changed."""
    return Path(shutil.copytree(store, folder / "copy"))


def change(store: Path, table: str, by: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Change the rows of a table in a dataset folder."""
    path = store / "db" / f"{table}.parquet"
    by(pd.read_parquet(path)).to_parquet(path, index=False)


def truncate(store: Path, time: pd.Timestamp) -> None:
    """Remove all rows that are later."""
    times = {"people": "joined", "orders": "ordered_at", "reviews": "written"}
    for table, column in times.items():
        change(store, table, lambda frame, c=column: frame[frame[c] <= time])
        keys = store / "keys" / f"{table}.parquet"
        rows = len(pd.read_parquet(store / "db" / f"{table}.parquet"))
        pd.read_parquet(keys).iloc[:rows].to_parquet(keys, index=False)


#: A list to be predicted: things that a person will order.
LIST = """
SELECT t.timestamp, o.person AS code, LIST(DISTINCT o.thing) AS id
FROM timestamps t JOIN orders o ON o.ordered_at > t.timestamp
    AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE o.person IS NOT NULL GROUP BY ALL
"""


def make_shop(store: Path, folder: Path) -> Path:
    """A copy of the store with one more task, a list."""
    shop = copied(store, folder)
    relfrog.add_task(
        shop, "list", LIST, type="recommendation", source="people", target="things",
        horizon="20 days", k=3,
    )  # fmt: skip
    from_the_first_row(shop, "list")
    return shop
