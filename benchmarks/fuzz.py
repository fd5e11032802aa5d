"""Try random databases and damaged files, and count what comes of them.

    python benchmarks/fuzz.py --minutes 10 --out benchmarks/fuzz.json

Every case has a number, so that it can be tried again: ``--only journey --first 4711 --count 1``.
A case ends in success or in an error that RelFrog raises on purpose; anything else is a defect.

    python benchmarks/fuzz.py --journeys 300 --seed 1 --out benchmarks/fuzz.json

tries so many journeys on databases that are dirty but bearable, with a task that fits, drawn by
hypothesis (`tests/oracles/dirty_journeys.py`); the same seed and number give the same ones.

    python benchmarks/fuzz.py --formats 20000 --out benchmarks/fuzz.json

reads so many changed files of every format (`benchmarks/fuzz_formats.py`), in processes of their
own, so that a crash or a hang is noticed, and looks for files that should not be there. Most of the
time goes into writing files: ``TMPDIR=/dev/shm`` helps.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

import relfrog
from fuzz_changes import OWNED, mangled, mutated
from fuzz_formats import FORMATS, make_formats
from measuring import command_line
from relfrog.config import Config, parse_settings, read_preset
from relfrog.importing import plan_import
from relfrog.testing import random_database

TINY = {
    "channels": 4, "layers": 1, "neighbors": 3, "epochs": 1, "steps_per_epoch": 2, "batch_size": 32,
    "fd_pairs": 8, "fd_negatives": 1, "encoder_depth": 0, "bins": 2, "text_channels": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a case ended: success, error or traceback; and what was said."""

    kind: str
    text: str = ""


def journey(rng: random.Random, store: Path, folder: Path) -> None:
    """Import, check, train one epoch, predict, on a random database from a random source."""
    database = random_database(rng.randrange(1 << 30), size=rng.choice([1, 3, 10, 40]))
    kind = rng.choice(["sqlite", "duckdb", "csv", "parquet"])
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / ("source" if kind in ("csv", "parquet") else f"source.{kind}")
    relfrog.import_database(getattr(database, f"to_{kind}")(place), folder / "ds")
    relfrog.check(folder / "ds")
    dataset = relfrog.open_dataset(folder / "ds")
    keyed = [n for n, t in dataset.manifest.tables.items() if t.pkey]
    timed = [n for n, t in dataset.manifest.tables.items() if t.time_col]
    entity, event = rng.choice(keyed), rng.choice(timed)
    key, at = dataset.manifest.tables[entity].pkey, dataset.manifest.tables[event].time_col
    kind = rng.choice(["binary", "regression", "multiclass"])
    label = {"binary": "% 2", "regression": "% 1000 / 7.0", "multiclass": "% 3"}[kind]
    sql = f"""SELECT t.timestamp, e."{key}", hash(e."{key}", max(l."{at}")) {label} AS y
        FROM timestamps t CROSS JOIN "{entity}" e LEFT JOIN "{event}" l ON l."{at}" > t.timestamp
        AND l."{at}" <= t.timestamp + INTERVAL '{{timedelta}}' GROUP BY 1, 2"""
    between = (dataset.test_timestamp - dataset.val_timestamp).total_seconds()
    horizon = f"{max(1, int(between * rng.choice([0.1, 0.5, 1, 3])))} seconds"
    relfrog.add_task(folder / "ds", "y", sql, type=kind, entity=entity, horizon=horizon)
    run = relfrog.train(
        folder / "ds",
        "y",
        folder / "run",
        model="frog",
        settings={**TINY, "seed": rng.randrange(9)},
    )
    run.predict()
    relfrog.load_run(folder / "run").evaluate()


def _spoil(rng: random.Random, path: Path) -> None:
    content = path.read_bytes()
    if path.suffix in (".yaml", ".json") and rng.random() < 0.7:
        text = content.decode()
        tree = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
        made = mutated(rng, tree)
        text = yaml.safe_dump(made) if path.suffix == ".yaml" else json.dumps(made)
        path.write_text(text, encoding="utf-8")
    else:
        path.write_bytes(mangled(rng, content))


def manifests(rng: random.Random, store: Path, folder: Path) -> None:
    """A dataset folder in which one file is damaged: look at it, and train on it."""
    dataset = Path(shutil.copytree(store, folder / "ds"))
    # Two tasks, one of them of any type: a check takes its time for each.
    tasks = sorted(path.name for path in (dataset / "tasks").iterdir())
    for other in {*tasks} - {"buys", rng.choice(tasks)}:
        shutil.rmtree(dataset / "tasks" / other)
    files = [p for p in dataset.rglob("*") if p.is_file()]
    likely = [p for p in files if p.suffix in (".yaml", ".json")]
    _spoil(rng, rng.choice(likely if rng.random() < 0.7 else files))
    task = rng.choice([None, "buys"])
    relfrog.check(dataset, task)
    relfrog.inspect(dataset)
    if rng.random() < 0.3:
        relfrog.train(dataset, "buys", folder / "run", model="frog", settings=TINY)


def mappings(rng: random.Random, store: Path, folder: Path) -> None:
    """A mapping file with something wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    source, path = f"sqlite:///{store.parent / 'store.db'}", folder / "map.yaml"
    path.write_text(plan_import(source).mapping.to_yaml(), encoding="utf-8")
    _spoil(rng, path)
    relfrog.import_database(source, folder / "ds", mapping=path)


def config(rng: random.Random, store: Path, folder: Path) -> None:
    """Settings with something wrong, from a file and one by one."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = mutated(rng, asdict(Config()))
    if isinstance(settings, dict):
        Config(**parse_settings(settings))
    (folder / "some.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    _spoil(rng, folder / "some.yaml")
    read_preset(str(folder / "some.yaml"))


def runs(rng: random.Random, store: Path, folder: Path) -> None:
    """A run folder in which one file is damaged."""
    stored = Path(__file__).parents[1] / "tests" / "stored" / "format-1"
    copy = Path(shutil.copytree(stored, folder / "copy"))
    about = json.loads((copy / "run" / "run.json").read_text())
    (copy / "run" / "run.json").write_text(json.dumps({**about, "dataset": str(copy / "dataset")}))
    _spoil(rng, rng.choice([p for p in (copy / "run").iterdir() if p.is_file()]))
    run = relfrog.load_run(copy / "run")
    run.roles()
    run.history()
    _ = run.metrics
    run.predict("2020-11-01", ["P01", "P02"])


CASES: dict[str, Callable[[random.Random, Path, Path], None]] = {
    "journey": journey, "manifests": manifests, "mappings": mappings, "config": config,
    "runs": runs,
}  # fmt: skip


def try_case(name: str, seed: int, store: Path, folder: Path) -> Outcome:
    """Run one case."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CASES[name](random.Random(f"{name} {seed}"), store, folder)
    except relfrog.RelFrogError as error:
        return Outcome("error", str(error))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1:]
        where = (
            f" at {Path(place[0].filename).name}:{place[0].lineno}" if "--debug" in sys.argv else ""
        )
        if where:
            traceback.print_exc(limit=-6)
        return Outcome("traceback", f"{type(error).__name__}: {error}{where}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome("success")


def read_files(names: list[str], first: int, count: int, folder: str, until: float) -> None:
    """Read changed files of some formats, and write what came of them; in a process of its own.

    Args:
        names: The formats.
        first: The number of the first file.
        count: How many.
        folder: Where to write.
        until: When to stop, in seconds since 1970.
    """
    import os

    place = Path(folder) / f"formats-{os.getpid()}"
    os.chdir(folder)
    os.environ["RELFROG_CACHE"] = f"{folder}/cache-{os.getpid()}"
    formats = make_formats(place, STORED, names)
    for name in names:
        found: Counter[str] = Counter()
        slowest, defects = 0.0, []
        for number in range(first, first + count):
            if time.time() > until:
                break
            began = time.monotonic()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    formats[name].try_case(random.Random(f"{name} {number}"))
                found["read"] += 1
            except relfrog.RelFrogError:
                found["refused"] += 1
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(at.filename).name}:{at.lineno}"
                defects.append(f"{name} {number}: {type(error).__name__}: {error} at {where}"[:300])
            slowest = max(slowest, time.monotonic() - began)
        formats[name].put_back()
        if time.time() > until and not found:
            break
        if any(Path(folder).rglob(OWNED)):
            defects.append(f"{name}: a file was made")
        content = {**found, "slowest_seconds": round(slowest, 2), "defects": defects}
        made = Path(folder, f"{name}.partial")
        made.write_text(json.dumps(content))
        made.rename(made.with_suffix(".result"))


#: Seconds after which a process that does not stop hangs.
HANGS = 60
STORED = Path(__file__).parents[1] / "tests" / "stored" / "format-1" / "run"


def try_formats(
    count: int, first: int, names: list[str], minutes: float, keep: Callable[[str, Any], None]
) -> dict[str, Any]:
    """Read changed files of every format: how many were refused, and what went wrong.

    A process that crashes or hangs is a defect of the format it was reading; the others go on.

    Args:
        count: Files of each format.
        first: The number of the first.
        names: The formats.
        minutes: At most.
        keep: Called with each format that is done and what came of it.
    """
    import multiprocessing

    result: dict[str, Any] = {}
    spawn = multiprocessing.get_context("spawn")
    until = time.time() + 60 * minutes
    end = time.monotonic() + 60 * minutes + HANGS
    with tempfile.TemporaryDirectory() as folder:
        waiting = list(names)

        def found(name: str, content: dict[str, Any]) -> None:
            result[name] = content
            waiting.remove(name)
            keep(name, content)

        while waiting and time.time() < until:
            process = spawn.Process(target=read_files, args=(waiting, first, count, folder, until))
            process.start()
            while process.is_alive() and time.monotonic() < end:
                process.join(5.0)
                for name in [n for n in waiting if Path(folder, f"{n}.result").exists()]:
                    found(name, json.loads(Path(folder, f"{name}.result").read_text()))
            hangs = process.is_alive()
            if hangs:
                process.kill()
                process.join()
            elif waiting and process.exitcode:
                name = waiting[0]
                found(name, {"defects": [f"{name}: ended by {process.exitcode}"]})
    return result | {name: {"defects": [], "not_reached": True} for name in waiting}


def try_journeys(count: int, seed: int, minutes: float) -> dict[str, Any]:
    """Journeys that hypothesis draws: how far they came, and what went wrong."""
    import hypothesis

    from oracles.dirty_journeys import Journey, journeys, run_journey

    reached: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    said: Counter[str] = Counter()
    defects: list[str] = []
    seconds: list[float] = []
    end = time.monotonic() + 60 * minutes

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, deadline=None, database=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(journeys())
    def each(journey: Journey) -> None:
        began = time.monotonic()
        if began > end:
            return
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                at, why = run_journey(journey, Path(folder, "case"))
                said[" ".join(why.split())[:60]] += bool(why)
            except Exception as error:
                at = "traceback"
                number = len(seconds)
                defects.append(f"journey {number}: {type(error).__name__}: {error}")
                print(defects[-1], flush=True)
                traceback.print_exc(limit=-6)
        reached[at] += 1
        drawn.update((journey.source, journey.kind, journey.model))
        seconds.append(time.monotonic() - began)
        if len(seconds) % 20 == 0:
            print(len(seconds), dict(reached), flush=True)

    each()
    return {
        "journeys": len(seconds), "seed": seed, "reached": dict(reached.most_common()),
        "drawn": dict(drawn.most_common()),
        "median_seconds": round(sorted(seconds)[len(seconds) // 2], 1),
        "slowest_seconds": round(max(seconds), 1),
        "errors": {text: n for text, n in said.most_common() if text}, "defects": defects,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int, default=1 << 40, help="of each kind, at most")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--journeys", type=int, default=0, help="so many that fit, nothing else")
    parser.add_argument("--seed", type=int, default=0, help="of these")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--debug", action="store_true", help="say where a traceback ended")
    parser.add_argument("--formats", type=int, default=0, help="so many files of each format")
    parser.add_argument("--format", action="append", help="of this one alone; may be repeated")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from small_store import make_store

    if options.formats:
        names = options.format or list(FORMATS)
        command = command_line()

        def keep(name: str, found: dict[str, Any]) -> None:
            print(name, found, flush=True)
            if options.out:
                before = json.loads(options.out.read_text()) if options.out.exists() else {}
                formats = {**before.get("formats", {}), name: {"command": command, **found}}
                text = json.dumps({**before, "formats": formats}, indent=1, ensure_ascii=False)
                options.out.write_text(text + "\n", encoding="utf-8")

        found = try_formats(options.formats, options.first, names, options.minutes, keep)
        sys.exit(any(one["defects"] for one in found.values()))
    if options.journeys:
        result = try_journeys(options.journeys, options.seed, options.minutes)
        print(json.dumps(result, indent=1, ensure_ascii=False))
        if options.out:
            before = json.loads(options.out.read_text()) if options.out.exists() else {}
            entry = {"command": command_line(), **result}
            content = {**before, "fitting": [*before.get("fitting", []), entry]}
            text = json.dumps(content, indent=1, ensure_ascii=False)
            options.out.write_text(text + "\n", encoding="utf-8")
        sys.exit(bool(result["defects"]))
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in CASES}
    defects: list[str] = []
    slowest: dict[str, float] = dict.fromkeys(CASES, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder))
        end, number = time.monotonic() + 60 * options.minutes, options.first
        while time.monotonic() < end and number < options.first + options.count:
            for name in [options.only] if options.only else CASES:
                for seed in [number] if name == "journey" else range(8 * number, 8 * number + 8):
                    began = time.monotonic()
                    outcome = try_case(name, seed, store, Path(folder, "case"))
                    slowest[name] = max(slowest[name], time.monotonic() - began)
                    outcomes[name][outcome.kind] += 1
                    if outcome.kind == "traceback":
                        defects.append(f"{name} {seed}: {outcome.text}")
                        print(defects[-1], flush=True)
            number += 1
    content = {
        "command": command_line(), "cases": {n: dict(c) for n, c in outcomes.items()},
        "slowest_seconds": {n: round(s, 1) for n, s in slowest.items()}, "defects": defects,
    }  # fmt: skip
    print(json.dumps(content["cases"], indent=1))
    if options.out:
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        kept = {part: before[part] for part in ("fitting", "formats") if part in before}
        options.out.write_text(json.dumps({**content, **kept}, indent=1, ensure_ascii=False) + "\n")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main()
