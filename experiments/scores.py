"""Scores of RelFrog with its default settings, one run after the other as they get done.

    python experiments/scores.py --data ../shared/data --datasets olist-sample --seeds 5

Each run is one line of `experiments/scores.jsonl`: dataset, task, settings, seed, validation and
test metrics in both regimes, seconds, memory. A run that is there already is not run again.
Within a run the epoch is chosen by validation alone, and test scores are computed once, after it.
Whole comparisons, with smaller networks, are those of `relfrog experiment` in the folders here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import relfrog
from relfrog.tasks import load_task, task_names

HERE = Path(__file__).parent
CHILD = """
import json, sys, relfrog
from relfrog.training import Callback
asked = json.loads(sys.argv[1])
run = relfrog.train(asked["dataset"], asked["task"], asked["out"], seed=asked["seed"],
                    model=asked["model"], preset=asked["preset"], settings=asked["settings"],
                    baselines=False)
print(json.dumps({"metrics": run.metrics, "about": run.about}))
"""


def lines(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def add(path: Path, entry: dict) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(entry) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--datasets", nargs="+", default=["rel-f1"])
    parser.add_argument("--tasks", nargs="+", help="default: all but recommendations")
    parser.add_argument("--model", default="frog")
    parser.add_argument("--preset", help="{dataset} and {task} are filled in")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name", default="default", help="what to call these settings")
    parser.add_argument("--out", type=Path, default=HERE / "scores.jsonl")
    args = parser.parse_args()
    command = " ".join(["python", "experiments/scores.py", *sys.argv[1:]])
    done = {(e["dataset"], e["task"], e["name"], e["seed"]) for e in lines(args.out)}
    for dataset in args.datasets:
        opened = relfrog.open_dataset(args.data / dataset)
        for name in args.tasks or task_names(opened):
            task = load_task(opened, name)
            if task.task_type.value == "recommendation" and not args.tasks:
                continue
            for seed in range(args.seeds):
                if (dataset, name, args.name, seed) in done:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    preset = args.preset and args.preset.format(dataset=dataset, task=name)
                    asked = {
                        "dataset": str(args.data / dataset), "task": name, "seed": seed,
                        "out": f"{folder}/run", "model": args.model, "preset": preset,
                        "settings": dict(s.split("=", 1) for s in args.set),
                    }  # fmt: skip
                    # A process of its own, so that memory is that of one run.
                    child = subprocess.run(
                        [sys.executable, "-c", CHILD, json.dumps(asked)],
                        stdout=subprocess.PIPE, text=True, check=True,
                        env={"GOMP_SPINCOUNT": "100000", **os.environ},
                    )  # fmt: skip
                result = json.loads(child.stdout.splitlines()[-1])
                about = result["about"]
                entry = {
                    "dataset": dataset, "task": name, "name": args.name, "seed": seed,
                    "model": args.model, "preset": preset, "settings": asked["settings"],
                    **result["metrics"], "seconds": about["seconds"], "epochs": about["epochs"],
                    "peak_memory_bytes": about["peak_memory_bytes"], "weights": about["weights"],
                    "relfrog": about["relfrog"], "command": command,
                }  # fmt: skip
                add(args.out, entry)
                print(
                    dataset, name, args.name, seed,
                    {r: round(next(iter(m.values())), 4) for r, m in entry["test"].items()},
                    f"{about['seconds']:.0f} s", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
