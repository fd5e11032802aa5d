"""Messages and gates beside the paper's: what each option gives on validation, on every database.

    python benchmarks/message_options.py --data ../shared/data --sources ../shared/sources

Trains a small FROG for a few steps with each option and otherwise the same settings, and compares
validation scores, rolling; test is not looked at. The file is written after every run; what it has
already is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import databases as known
import relfrog
from relfrog.kinds import TASK_KINDS

HERE = Path(__file__).parent
#: On large datasets; small ones are trained as by default, as 200 steps say little there.
SETTINGS = {"epochs": 5, "patience": 5, "steps_per_epoch": 40}
#: The fourth gives each row its own gate in predictions as in training; with the default `alpha`
#: such a gate is within 0.01 of the average, so that it is compared where it can differ.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "message=pair": {"message": "pair"},
    "gate_norm": {"gate_norm": True},
    "gate_at=row, alpha=0.5": {"gate_at": "row", "alpha": 0.5},
}
#: One task of each database first.
TASKS = [
    ("rel-f1", "driver-top3"), ("olist-sample", "order-late"), ("flights", "plane-delay"),
    ("travel-exchange", "user-engagement"), ("rel-f1", "driver-position"),
    ("olist-sample", "seller-sales"), ("flights", "plane-activity"),
    ("travel-exchange", "user-badge"), ("rel-f1", "driver-dnf"), ("flights", "airport-delay"),
    ("travel-exchange", "post-votes"),
]  # fmt: skip
#: Of databases that are made from sources: two questions each.
ASKED = {"Chinook": ("buys", "spend"), "Northwind": ("again", "units")}
#: What tells runs apart.
PARTS = ("dataset", "task", "option", "seed")


def datasets(data: Path, sources: Path, work: Path) -> Iterator[tuple[str, Path, str]]:
    """Name, folder and task of everything that there is."""
    for name, task in TASKS:
        if (data / name).exists():
            yield name, data / name, task
        else:
            print(f"{name}: not in {data}, skipped", flush=True)
    for name, wanted in ASKED.items():
        make, questions = known.MADE[name]
        folder = make(sources.resolve(), work)
        for question in questions:
            if question.name in wanted:
                relfrog.add_task(folder, question.name, question.sql, **question.options)
                yield name, folder, question.name


def given_to(dataset: str) -> dict[str, Any]:
    """The settings that all options share."""
    return {"calibration": "none"} | ({} if dataset in ASKED else SETTINGS)


def main() -> None:
    """Run what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the datasets")
    parser.add_argument("--sources", type=Path, required=True, help="folder of the databases")
    parser.add_argument("--out", type=Path, default=HERE / "message_options.json")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run later")
    given = parser.parse_args()
    command = (
        "python benchmarks/message_options.py --data ../shared/data --sources ../shared/sources"
    )
    about: dict[str, Any] = {
        "command": command, "regime": "rolling", "split": "val",
        "settings": {**SETTINGS, "size": "small"}, "options": OPTIONS, "runs": [],
    }  # fmt: skip
    if given.out.exists():
        about["runs"] = json.loads(given.out.read_text(encoding="utf-8"))["runs"]
    done = {tuple(run[part] for part in PARTS) for run in about["runs"]}
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder:
        plan = list(datasets(given.data, given.sources, Path(folder)))
        for seed, (name, dataset, task), option in [
            (seed, one, option) for seed in range(given.seeds) for one in plan for option in OPTIONS
        ]:
            if (name, task, option, seed) in done or time.monotonic() > until:
                continue
            run = relfrog.train(
                dataset, task, Path(folder, "run"), model="frog", size="small", seed=seed,
                settings={**given_to(name), **OPTIONS[option]}, baselines=False, overwrite=True,
            )  # fmt: skip
            metric = TASK_KINDS[run.about["task_type"]].metric
            about["runs"].append(
                {
                    "dataset": name, "task": task, "option": option, "seed": seed,
                    "metric": metric, "val": round(run.metrics["val"]["rolling"][metric], 5),
                    "seconds": run.about["seconds"],
                }
            )  # fmt: skip
            print(json.dumps(about["runs"][-1]), flush=True)
            given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
