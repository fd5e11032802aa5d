"""What `relfrog train` answers with nothing but defaults, in the regime that is asked for.

    python benchmarks/strongest.py --data ../shared/data --sources ../shared/sources

Per run: test scores, those before a refit, the scores of all members, their weights, and what the
backtests said of a refit. The file is written after every run; what it has is not run again, and a
run that was interrupted goes on where it was, if `--work` is the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import relfrog
from databases import MADE
from relfrog.analysis.bootstrap import Scorer, resample

HERE = Path(__file__).parent
F1 = ("driver-dnf", "driver-top3", "driver-position")
TASKS = (
    *(f"rel-f1:{task}:rolling" for task in F1), *(f"rel-f1:{task}:frozen" for task in F1),
    "flights:airport-delay:rolling", "travel-exchange:post-votes:rolling",
    "olist-sample:seller-sales:rolling", "flights:plane-activity:rolling",
    "travel-exchange:user-badge:rolling", "olist-sample:order-late:rolling",
    "Northwind:again:rolling", "Northwind:units:rolling", "Chinook:spend:rolling",
)  # fmt: skip


def entry_of(run: relfrog.Run, regime: str, took: float) -> dict[str, Any]:
    """What is kept of a run."""
    metric = run.kind.metric
    backtests = run.folder / "members" / "lightgbm" / "backtests.json"
    evidence = json.loads(backtests.read_text()) if backtests.is_file() else {}
    seeds, truth, predicted = run.answers("test", regime)
    scorer = Scorer(run.kind.name, metric, truth, predicted, run.quantile)
    members = run.blend["members"]
    return {
        "metric": metric, "answers": run.blend["weights"], "refit": run.refitted,
        "test": run.metrics["test"][regime][metric], "val": run.metrics["val"][regime][metric],
        "before_refit": run.metrics_before_refit[regime][metric],
        "members": {
            name: {split: one[split][regime][metric] for split in ("val", "test")}
            for name, one in members.items()
        },
        "range": list(resample(np.asarray(seeds.rows), scorer)[1:]),
        "backtests": run.blend.get("backtests"), "sure": run.blend.get("sure"),
        "newer_labels": evidence.get("newer_labels"), "staleness": evidence.get("staleness"),
        "dropped": evidence.get("dropped"), "seconds": run.about["seconds"],
        "cpu_seconds": round(took, 1),
    }  # fmt: skip


def dataset_of(name: str, data: Path, sources: Path, work: Path) -> Path:
    """The folder of a dataset; those that `databases.py` makes are made with its questions."""
    if name not in MADE:
        return data.resolve() / name
    make, questions = MADE[name]
    if not (work / name.lower()).is_dir():
        dataset = make(sources.resolve(), work)
        for question in questions:
            relfrog.add_task(dataset, question.name, question.sql, **question.options)
    return work / name.lower()


def main() -> None:
    """Run what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "strongest.json")
    parser.add_argument("--work", type=Path, default=Path("strongest-runs"))
    parser.add_argument("--tasks", nargs="*", default=TASKS, help="DATASET:TASK:REGIME")
    parser.add_argument("--seeds", nargs="*", type=int, default=range(5))
    given = parser.parse_args()
    about: dict[str, Any] = {
        "command": "python benchmarks/strongest.py --data ../shared/data --sources "
        "../shared/sources", "runs": [],
    }  # fmt: skip
    if given.out.exists():
        about |= json.loads(given.out.read_text(encoding="utf-8"))
    done = {(run["database"], run["task"], run["regime"], run["seed"]) for run in about["runs"]}
    given.work.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        for spec in given.tasks:
            name, task, regime = spec.split(":")
            if (name, task, regime, seed) in done:
                continue
            place = given.work / f"{name}-{task}-{regime}-{seed}"
            dataset = dataset_of(name, given.data, given.sources, given.work)
            begun, started = (place / "run.json").is_file(), time.process_time()
            new = {"seed": seed, "settings": {"regime": regime}}
            run = relfrog.train(
                dataset, task, place, baselines=False,
                **({"resume": True} if begun else new),
            )  # fmt: skip
            took = time.process_time() - started
            about["runs"].append(
                {"database": name, "task": task, "regime": regime, "seed": seed,
                 **entry_of(run, regime, took)}
            )  # fmt: skip
            given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            print(name, task, regime, seed, about["runs"][-1]["test"], flush=True)
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
