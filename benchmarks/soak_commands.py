"""Kill every command that writes with SIGKILL at random moments, and look at what is left.

    python benchmarks/soak_commands.py --kills 500 --out benchmarks/soak_commands.json

What was there before must be whole, or what replaces it; nothing but partial files, whose names say
so, may lie beside it; and the next command of the same kind must end as if nothing had happened.
Commands run in forks of one process, so that a kill does not wait for imports, and are the ones of
the command line. What they make lies on a database of a few rows: a kill should meet writing, not
arithmetic.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

import relfrog
from relfrog.cli import main as relfrog_command
from relfrog.datasets.tasks import load_task
from relfrog.store.parts import open_store

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

    def is_run(place: Path) -> None:
        if (place / "run.json").exists():
            about = json.loads((place / "run.json").read_text())
            if about["status"] == "complete":
                relfrog.load_run(place).predict("2020-06-10")

    def weights(place: Path) -> str:
        return digest(*sorted(p for p in place.glob("*") if p.suffix in (".safetensors", ".txt")))

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

    def is_page(path: Path) -> bool:
        return not path.exists() or path.read_text("utf-8").rstrip().endswith("</html>")

    def must(good: bool) -> None:
        assert good

    predict = ["predict", str(run), "--at", "2020-06-10", "--overwrite", "--out"]
    command("import", lambda p: bring(p / "ds"), ("ds",),
            lambda p: relfrog.open_dataset(p / "ds").get_db() if (p / "ds").exists() else None,
            lambda p: digest(*sorted((p / "ds" / "db").glob("*.parquet"))))  # fmt: skip
    command("task", lambda p: add(p / "ds"), ("ds",),
            lambda p: load_task(relfrog.open_dataset(p / "ds"), "buys").get_table("val"),
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
            lambda p: must(all(not open_store().damaged(part.name)
                               for part in open_store().parts())),
            lambda p: len(list(open_store().parts())))  # fmt: skip
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


def forked(work: Callable[[], Any], after: float | None = None) -> tuple[int, float]:
    """Run something in a fork, killed after a time if one is given: how it ended, how long."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            found = work()
            code = found if isinstance(found, int) and not isinstance(found, bool) else 0
        except BaseException:
            traceback.print_exc(limit=-4)
        finally:
            sys.stderr.flush()
            os._exit(code)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - began
        if done:
            return os.waitstatus_to_exitcode(status), passed
        if after is not None and passed >= after:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -9, passed
        time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=500, help="of all commands together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="at most")
    parser.add_argument("--only", action="append", help="this command; may be repeated")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng, defects = random.Random(options.seed), []
    kills: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as base:
        os.environ["RELFROG_CACHE"] = f"{base}/cache"
        os.chdir(base)
        all_of = commands(Path(base, "all"))
        if options.only:
            all_of = {name: all_of[name] for name in options.only}
        seconds, expected = {}, {}
        for name, command in all_of.items():
            code, seconds[name] = forked(lambda c=command: typed(c.words()))
            assert code == 0, name
            expected[name] = command.result()
            print(name, round(seconds[name], 2), flush=True)
        end = time.monotonic() + 60 * options.minutes
        while sum(kills.values()) < options.kills and time.monotonic() < end:
            for name, command in all_of.items():
                words = command.words()
                after = rng.uniform(0, 1.05 * seconds[name])
                code, passed = forked(lambda w=words: typed(w), after)
                kills[name] += code == -9
                ended[name] += code == 0
                if code == 0:
                    seconds[name] = 0.7 * seconds[name] + 0.3 * passed  # on a machine that varies
                elif code > 0:
                    defects.append(f"{name}: ended with {code} after {kills[name]} kills: {words}")
                if forked(command.look)[0] != 0:
                    defects.append(f"{name}: not whole after {kills[name]} kills")
                odd = [
                    p.name for p in command.folder.iterdir()
                    if ".partial-" not in p.name and p.name not in command.names
                ]  # fmt: skip
                if odd:
                    defects.append(f"{name}: left {odd}")
            print(sum(kills.values()), dict(kills), defects[-3:], flush=True)
        for name, command in all_of.items():
            code, _ = forked(lambda c=command: typed(c.words()))
            if code != 0 or command.result() != expected[name]:
                defects.append(f"{name}: at the end {code}, not what it was")
            left = [p.name for p in command.folder.iterdir() if ".partial-" in p.name]
            if left:
                defects.append(f"{name}: {left} is left after a command that ended")
    content = {
        "command": " ".join(["python", *sys.argv]), "kills": sum(kills.values()),
        "by_command": dict(kills), "ended_before": dict(ended),
        "seconds_undisturbed": {name: round(value, 2) for name, value in seconds.items()},
        "defects": defects,
    }  # fmt: skip
    print(json.dumps(content, indent=1))
    if options.out:
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
