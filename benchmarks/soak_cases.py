"""The commands that write, and how to tell whether what they left is whole: `soak_commands`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

import relfrog
from relfrog.cli import main as relfrog_command
from relfrog.datasets import demo
from relfrog.datasets.tasks import load_task
from relfrog.runs.parts_folder import MANIFEST, PLAN, read_parts
from relfrog.store.parts import open_store

__all__ = ["Command", "commands", "typed"]

TINY = (
    "channels=4", "layers=1", "neighbors=3", "epochs=2", "steps_per_epoch=2", "batch_size=32",
    "fd_pairs=8", "fd_negatives=1", "encoder_depth=0", "bins=2", "text_channels=4",
)  # fmt: skip
QUESTION = "PREDICT COUNT(orders.*, 0, 10, days) > 0 FOR EACH people.code"
LABELS = """SELECT t.timestamp, p.code, CAST(count(o.id) > 0 AS INTEGER) AS buys
    FROM timestamps t CROSS JOIN people p LEFT JOIN orders o ON o.person = p.code
    AND o.ordered_at > t.timestamp AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
    GROUP BY 1, 2"""


@dataclass
class Command:
    """A command that writes.

    Attributes:
        words: What is typed, whether it was interrupted before or not.
        folder: Where it writes.
        names: What may lie there, besides partial files.
        look: Raises an exception if what is there is not whole.
        result: A name of what it makes when it is left alone; the same each time.
    """

    words: Callable[[], list[str]]
    folder: Path
    names: tuple[str, ...]
    look: Callable[[], Any]
    result: Callable[[], Any]


def shop(path: Path) -> str:
    """A database of ten people and a hundred orders: its address."""
    rng = random.Random(0)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (code TEXT PRIMARY KEY, city TEXT)")
        connection.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, person TEXT REFERENCES people, "
            "amount REAL, ordered_at TIMESTAMP)"
        )
        for number in range(10):
            connection.execute(
                "INSERT INTO people VALUES (?, ?)", (f"P{number}", rng.choice(["Rom", "Oslo"]))
            )
        for number in range(100):
            day = pd.Timestamp("2020-01-01") + pd.Timedelta(days=2 * number + rng.random())
            connection.execute(
                "INSERT INTO orders VALUES (?, ?, ?, ?)",
                (number, f"P{min(rng.randrange(20), 9)}", rng.random(), str(day)),
            )
    connection.close()
    return f"sqlite:///{path}"


def small_demo(path: Path) -> None:
    """Let the demo be of a fiftieth of the flights: a kill should meet writing."""
    demo.make_flights_database(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM flights WHERE flight_id % 50 != 0")
        connection.execute("DELETE FROM weather WHERE rowid % 20 != 0")
        connection.commit()
        connection.execute("VACUUM")
    demo.make_flights_database = lambda place: shutil.copy(path, place)


def digest(*paths: Path) -> str:
    """A name for the content of files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def commands(folder: Path) -> dict[str, Command]:
    """All commands that write, each with a folder of its own."""
    folder.mkdir()
    address = shop(folder / "shop.db")
    (folder / "labels.sql").write_text(LABELS)
    chosen = ["--val", "2020-05-01", "--test", "2020-06-10"]

    def bring(place: Path) -> list[str]:
        return ["import", address, str(place), "--overwrite", *chosen]

    def add(place: Path) -> list[str]:
        return ["task", str(place), "buys", "--sql", str(folder / "labels.sql"), "--type", "binary",
                "--entity", "people", "--horizon", "10 days", "--overwrite"]  # fmt: skip

    def learn(place: Path, model: str, *settings: str) -> list[str]:
        begun = (place / "run.json").exists()
        complete = begun and json.loads((place / "run.json").read_text())["status"] == "complete"
        how = ["--overwrite"] if complete else ["--resume"] if begun else []
        given = [] if how == ["--resume"] else [w for s in settings for w in ("--set", s)]
        return ["train", str(data), "buys", "--out", str(place), "--model", model, "--no-report",
                *given, *how]  # fmt: skip

    data, run, model = folder / "ds", folder / "model", folder / "trees"
    for words in (bring(data), add(data), learn(run, "frog", *TINY), learn(model, "mean")):
        assert typed(words) == 0, words
    told = pd.DataFrame({"code": [f"P{n}" for n in range(10)], "timestamp": "2020-06-10"})
    told.assign(probability=0.5).to_csv(folder / "told.csv", index=False)
    small_demo(folder / "flights.db")
    made: dict[str, Command] = {}

    def command(
        name: str,
        words: Callable[[Path], list[str]],
        names: tuple[str, ...],
        look: Callable[[Path], Any],
        result: Callable[[Path], Any],
        with_dataset: bool = False,
    ) -> None:
        place = folder / "work" / name.replace(" ", "-")
        place.mkdir(parents=True)
        if with_dataset:
            shutil.copytree(data, place / "ds")
        made[name] = Command(
            lambda: words(place), place, names, lambda: [look(place)], lambda: result(place)
        )

    def is_run(place: Path, time: str = "2020-06-10") -> None:
        if (place / "run.json").exists():
            about = json.loads((place / "run.json").read_text())
            if about["status"] == "complete":
                relfrog.load_run(place).predict(time)

    def weights(place: Path) -> str:
        """What a model has learned, without what a report shows of it."""
        found = [p for p in place.glob("*") if p.suffix in (".safetensors", ".txt")]
        return digest(*sorted(p for p in found if p.stem != "shown"))

    def table(path: Path) -> Any:
        if path.exists():
            found = pd.read_csv(path) if path.suffix == ".csv" else pq.read_table(path).to_pandas()
            assert len(found) == 10, len(found)
            return found.drop(columns=[c for c in found if "made_at" in c]).to_csv()
        return None

    def in_database(path: Path) -> Any:
        if not path.exists():
            return None
        with contextlib.closing(sqlite3.connect(path)) as connection:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
            if "churn" not in names:
                return None
            found = connection.execute("SELECT count(*) FROM churn").fetchone()[0]
            assert found == 10, found
            return found

    def members(place: Path) -> list[str]:
        """Which models were trained: their weights depend on the time that there was."""
        return sorted(relfrog.load_run(place).blend["members"])

    def whole_parts(place: Path) -> Any:
        if not (place / MANIFEST).exists():
            return None
        odd = [f.name for f in place.iterdir() if not f.name.startswith(".")
               and f.suffix != ".parquet" and f.name not in (MANIFEST, PLAN)]  # fmt: skip
        assert not odd, odd
        found = read_parts(place)
        assert len(found) == 10, len(found)
        return found.drop(columns=[c for c in found if "made_at" in c]).to_csv()

    def unfinished(place: Path) -> str:
        """A folder of parts: those that are there would not be made again."""
        if (place / MANIFEST).exists():
            shutil.rmtree(place)
        return str(place)

    def certified(path: Path) -> Any:
        return json.loads(path.read_text())["holds"] if path.exists() else None

    def another(place: Path) -> str:
        """A run without those of other seeds."""
        if not (place / "run.json").exists():
            shutil.copytree(run, place)
        other = place / "seeds" / "1" / "run.json"
        if other.exists() and json.loads(other.read_text())["status"] == "complete":
            shutil.rmtree(place / "seeds")
        return str(place)

    def kept() -> None:
        store = open_store()
        assert all(not store.damaged(part.name) for part in store.parts())

    def is_study(place: Path) -> Any:
        if not (place / "results.json").exists():
            return None
        return [sorted(json.loads((place / "results.json").read_text())),
                (place / "table.md").exists()]  # fmt: skip

    def is_demo(place: Path) -> None:
        is_dataset(place / "flights")
        is_run(place / "run", "2013-12-01")
        must(is_page(place / "report.html"))
        must(not (place / "schema.svg").exists()
             or (place / "schema.svg").read_text("utf-8").rstrip().endswith("</svg>"))  # fmt: skip
        if (place / "flights.db").exists():
            with contextlib.closing(sqlite3.connect(place / "flights.db")) as connection:
                assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]

    def is_page(path: Path) -> bool:
        return not path.exists() or path.read_text("utf-8").rstrip().endswith("</html>")

    def must(good: bool) -> None:
        assert good

    def anew(words: list[str], made: Path) -> list[str]:
        """The same without --overwrite, once what an earlier command made is gone."""
        shutil.rmtree(made, ignore_errors=True)
        return [word for word in words if word != "--overwrite"]

    def is_dataset(place: Path) -> None:
        if place.exists():
            relfrog.open_dataset(place).get_db()

    def is_task(place: Path) -> None:
        if (place / "tasks" / "buys").exists():
            load_task(relfrog.open_dataset(place), "buys").get_table("val")

    predict = ["predict", str(run), "--at", "2020-06-10", "--overwrite", "--out"]
    for name, fresh in (("import", True), ("import --overwrite", False)):
        command(name, lambda p, f=fresh: anew(bring(p / "ds"), p / "ds") if f else bring(p / "ds"),
                ("ds",), lambda p: is_dataset(p / "ds"),
                lambda p: digest(*sorted((p / "ds" / "db").glob("*.parquet"))))  # fmt: skip
    for name, fresh in (("task", True), ("task --overwrite", False)):
        command(name,
                lambda p, f=fresh: (
                    anew(add(p / "ds"), p / "ds" / "tasks" / "buys") if f else add(p / "ds")
                ),
                ("ds",), lambda p: is_task(p / "ds"),
                lambda p: digest(*sorted((p / "ds" / "tasks" / "buys").glob("*"))),
                with_dataset=True)  # fmt: skip
    command("task --query",
            lambda p: ["task", str(p / "ds"), "asked", "--query", QUESTION, "--overwrite"],
            ("ds",), lambda p: relfrog.open_dataset(p / "ds").get_db(),
            lambda p: digest(*sorted((p / "ds" / "tasks" / "asked").glob("*"))),
            with_dataset=True)  # fmt: skip
    command("train frog", lambda p: learn(p / "run", "frog", *TINY), ("run",),
            lambda p: is_run(p / "run"), lambda p: weights(p / "run"))  # fmt: skip
    command("train lightgbm", lambda p: learn(p / "run", "lightgbm", "trials=1"), ("run",),
            lambda p: is_run(p / "run"), lambda p: weights(p / "run"))  # fmt: skip
    command("train auto", lambda p: learn(p / "run", "auto", *TINY, "trials=1"), ("run",),
            lambda p: is_run(p / "run"), lambda p: members(p / "run"))  # fmt: skip
    command("ask",
            lambda p: ["ask", str(p / "ds"), QUESTION, "--out", str(p / "run"), "--minutes", "0.02",
                       "--no-report", "--overwrite", *(w for s in TINY for w in ("--set", s))],
            ("ds", "run"), lambda p: is_run(p / "run"),
            lambda p: relfrog.load_run(p / "run").about["status"], with_dataset=True)  # fmt: skip
    for ending in ("csv", "parquet"):
        command(f"predict {ending}", lambda p, e=ending: [*predict, str(p / f"p.{e}")],
                (f"p.{ending}", ".relfrog-written.json"),
                lambda p, e=ending: table(p / f"p.{e}"),
                lambda p, e=ending: table(p / f"p.{e}"))  # fmt: skip
    command("predict sqlite",
            lambda p: [*predict, f"sqlite:///{p / 'out.db'}", "--table", "churn"],
            ("out.db", "out.db-journal"), lambda p: in_database(p / "out.db"),
            lambda p: in_database(p / "out.db"))  # fmt: skip
    command("predict in parts", lambda p: [*predict, unfinished(p / "parts"), "--workers", "2"],
            ("parts",), lambda p: whole_parts(p / "parts"),
            lambda p: whole_parts(p / "parts"))  # fmt: skip
    command("predict in parts to a file", lambda p: [*predict, str(p / "p.csv"), "--workers", "2"],
            ("p.csv", ".relfrog-written.json"), lambda p: table(p / "p.csv"),
            lambda p: table(p / "p.csv"))  # fmt: skip
    command("predict --certify", lambda p: [*predict, str(p / "p.csv"), "--certify"],
            ("p.csv", "p.csv.certificate.json", "p.csv.certificate.parquet",
             ".relfrog-written.json"),
            lambda p: certified(p / "p.csv.certificate.json"),
            lambda p: certified(p / "p.csv.certificate.json"))  # fmt: skip
    command("roles --seeds", lambda p: ["roles", another(p / "run"), "--seeds", "2"], ("run",),
            lambda p: is_run(p / "run" / "seeds" / "1"),
            lambda p: weights(p / "run" / "seeds" / "1"))  # fmt: skip
    command("audit", lambda p: ["audit", str(folder / "told.csv"), "--task", str(data), "buys"],
            (), lambda p: kept(), lambda p: "")  # fmt: skip
    command("experiment",
            lambda p: ["experiment", "main", "--datasets", str(data), "--tasks", "buys", "--models",
                       "frog", "mean", "--seeds", "1", "--out", str(p / "study"), "--set",
                       "trials=1", *(w for s in TINY for w in ("--set", s))],
            ("study",), lambda p: is_study(p / "study"),
            lambda p: is_study(p / "study"))  # fmt: skip
    command("experiment tune",
            lambda p: ["experiment", "tune", "--datasets", str(data), "--tasks", "buys", "--trials",
                       "1", "--out", str(p / "study"), *(w for s in TINY for w in ("--set", s))],
            ("study",), lambda p: is_study(p / "study"),
            lambda p: is_study(p / "study"))  # fmt: skip
    command("demo",
            lambda p: ["demo", "--out", str(p / "demo"), "--epochs", "1", "--overwrite"],
            ("demo",), lambda p: is_demo(p / "demo"),
            lambda p: digest(*sorted((p / "demo" / "flights" / "db").glob("*"))))  # fmt: skip
    command("report", lambda p: ["report", str(model), "--out", str(p / "r.html")], ("r.html",),
            lambda p: must(is_page(p / "r.html")), lambda p: is_page(p / "r.html"))  # fmt: skip
    command("submit", lambda p: ["submit", str(run), "--out", str(p / "out"), "--overwrite"],
            ("out",), lambda p: None,
            lambda p: sorted(f.name for f in (p / "out").glob("*")))  # fmt: skip
    command("evaluate", lambda p: ["evaluate", str(run)], (), lambda p: is_run(run),
            lambda p: weights(run))  # fmt: skip
    command("explain", lambda p: ["explain", str(model), "--entity", "P3"], (),
            lambda p: is_run(model), lambda p: weights(model))  # fmt: skip
    command("suggest", lambda p: ["suggest", str(data)], (),
            lambda p: relfrog.open_dataset(data).get_db(), lambda p: "")  # fmt: skip
    command("store remove", lambda p: ["store", "remove", "--all"], (),
            lambda p: kept(), lambda p: len(list(open_store().parts())))  # fmt: skip
    return made


def typed(words: list[str]) -> int:
    """Run a command line in this process: its exit code."""
    before, sys.argv = sys.argv, ["relfrog", *words]
    try:
        relfrog_command()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
