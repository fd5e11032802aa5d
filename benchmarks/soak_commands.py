"""Kill every command that writes with SIGKILL at random moments, and look at what is left.

    python benchmarks/soak_commands.py --kills 500 --out benchmarks/soak_commands.json

What was there before must be whole, or what replaces it; nothing but partial files, whose names say
so, may lie beside it; and the next command of the same kind must end as if nothing had happened.
Commands run in forks of one process, so that a kill does not wait for imports.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
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

import relfrog
from relfrog.datasets.tasks import load_task

TINY = {
    "channels": 4, "layers": 1, "neighbors": 3, "epochs": 2, "steps_per_epoch": 2, "batch_size": 32,
    "fd_pairs": 8, "fd_negatives": 1, "encoder_depth": 0, "bins": 2, "text_channels": 4,
}  # fmt: skip


@dataclass
class Command:
    """A command that writes.

    Attributes:
        run: Does it, whether it was interrupted before or not.
        look: Raises an exception if what is there is not whole.
        folder: Where it writes.
        result: A name of what it makes when it is left alone.
    """

    run: Callable[[], Any]
    look: Callable[[], Any]
    folder: Path
    result: Callable[[], str]


def digest(*paths: Path) -> str:
    """A name for the content of files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def commands(folder: Path, store: Path) -> dict[str, Command]:
    """All commands that write, each with a folder of its own."""
    address = f"sqlite:///{store.parent / 'store.db'}"
    sql = (store / "tasks" / "buys" / "manifest.yaml").read_text()
    import yaml

    sql = yaml.safe_load(sql)["sql"]
    places = {name: folder / name for name in ("import", "task", "train", "auto", "out", "report")}
    for place in places.values():
        place.mkdir(parents=True)
    data, tasked = places["import"] / "ds", places["task"] / "ds"

    def bring(where: Path) -> None:
        relfrog.import_database(
            address, where, overwrite=True, time=("people.joined",), val="2020-08-01",
            test="2020-10-01",
        )  # fmt: skip

    def add() -> None:
        relfrog.add_task(
            tasked, "buys", sql, type="binary", entity="people", horizon="20 days", eval_times=3,
            overwrite=True,
        )  # fmt: skip

    def learn(out: Path, model: str) -> None:
        begun = (out / "run.json").exists()
        complete = begun and json.loads((out / "run.json").read_text())["status"] == "complete"
        relfrog.train(
            store, "buys", out, model=model, settings=TINY if model == "frog" else {"trials": 1},
            resume=begun and not complete, overwrite=complete, baselines=False,
        )  # fmt: skip

    def is_run(out: Path) -> None:
        if (out / "run.json").exists():
            about = json.loads((out / "run.json").read_text())
            if about["status"] == "complete":
                relfrog.load_run(out).evaluate()

    bring(data)
    bring(tasked)
    add()
    run = relfrog.train(store, "buys", folder / "run", model="mean", baselines=False)
    table = places["out"] / "predictions.csv"

    def predict() -> None:
        from relfrog.io.output import write_frame

        write_frame(run.predict(), str(table), overwrite=True)

    def is_table() -> None:
        if table.exists():
            assert len(pd.read_csv(table)) == 20

    page = places["report"] / "report.html"

    def is_page() -> None:
        if page.exists():
            assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")

    def weights(out: Path) -> str:
        return digest(*sorted(p for p in out.glob("*") if p.suffix in (".safetensors", ".txt")))

    trained, trees = places["train"] / "run", places["auto"] / "run"
    return {
        "import": Command(
            lambda: bring(data), lambda: relfrog.open_dataset(data).get_db(), places["import"],
            lambda: digest(*sorted((data / "db").glob("*.parquet"))),
        ),
        "task": Command(
            add, lambda: load_task(relfrog.open_dataset(tasked), "buys").get_table("val"),
            places["task"], lambda: digest(*sorted((tasked / "tasks" / "buys").glob("*"))),
        ),
        "train frog": Command(
            lambda: learn(trained, "frog"), lambda: is_run(trained), places["train"],
            lambda: weights(trained),
        ),
        "train lightgbm": Command(
            lambda: learn(trees, "lightgbm"), lambda: is_run(trees), places["auto"],
            lambda: weights(trees),
        ),
        "predict": Command(predict, is_table, places["out"], lambda: digest(table)),
        "report": Command(
            lambda: run.report(page), is_page, places["report"],
            lambda: str(page.stat().st_size > 10_000),
        ),
    }  # fmt: skip


def forked(work: Callable[[], Any], after: float | None = None) -> tuple[int, float]:
    """Run something in a fork, killed after a time if one is given: how it ended, how long."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setsid()
            work()
            code = 0
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
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from small_store import make_store

    warnings.simplefilter("ignore")
    rng, defects = random.Random(options.seed), []
    kills: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        all_of = commands(Path(folder, "work"), make_store(Path(folder)))
        seconds, expected = {}, {}
        for name, command in all_of.items():
            code, seconds[name] = forked(command.run)
            assert code == 0, name
            expected[name] = command.result()
        end = time.monotonic() + 60 * options.minutes
        while sum(kills.values()) < options.kills and time.monotonic() < end:
            for name, command in all_of.items():
                code, _ = forked(command.run, rng.uniform(0, 1.05 * seconds[name]))
                kills[name] += code == -9
                ended[name] += code == 0
                if code > 0:
                    defects.append(f"{name}: ended with {code} after {kills[name]} kills")
                if forked(command.look)[0] != 0:
                    defects.append(f"{name}: not whole after {kills[name]} kills")
                odd = [
                    p.name for p in command.folder.iterdir()
                    if ".partial-" not in p.name and p.name not in
                    ("ds", "run", "predictions.csv", "report.html", ".relfrog-written.json")
                ]  # fmt: skip
                if odd:
                    defects.append(f"{name}: left {odd}")
            print(sum(kills.values()), dict(kills), defects[-3:], flush=True)
        for name, command in all_of.items():
            code, _ = forked(command.run)
            same = code == 0 and command.result() == expected[name]
            if not same:
                defects.append(f"{name}: at the end {code}, not what it was")
            left = [p.name for p in command.folder.iterdir() if ".partial-" in p.name]
            if left:
                defects.append(f"{name}: {left} is left after a command that ended")
    content = {
        "command": " ".join(["python", *sys.argv]), "kills": sum(kills.values()),
        "by_command": dict(kills), "ended_before": dict(ended),
        "seconds_undisturbed": {name: round(value, 1) for name, value in seconds.items()},
        "defects": defects,
    }  # fmt: skip
    print(json.dumps(content, indent=1))
    if options.out:
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
