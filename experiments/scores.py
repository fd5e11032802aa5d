"""Scores of RelFrog on real datasets: every seed, both regimes, with trivial answers beside them.

    python experiments/scores.py --data ../shared/data --datasets rel-f1 --seeds 5

Each run is one line of `experiments/scores.jsonl`: dataset, task, settings, seed, validation and
test metrics in both regimes, seconds, memory. A run that is there already is not run again.
Within a run the epoch is chosen by validation alone, and test scores are computed once, after it.
The default settings were picked on rel-f1 by validation, with its test scores in sight.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import relfrog
from relfrog.evaluation import compute_metrics
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


def constants(data: Path, dataset: str, task_name: str) -> dict[str, dict[str, float]]:
    """Test metrics of answers that need no model, from the labels of train and validation."""
    opened = relfrog.open_dataset(data / dataset)
    task = load_task(opened, task_name)
    kind = task.task_type.value
    frames = [task.get_table(s, mask_input_cols=False).df for s in ("train", "val", "test")]
    known = np.concatenate([f[task.target_col].to_numpy(float) for f in frames[:2]])
    test = frames[2]
    labels = test[task.target_col].to_numpy()
    past = {}
    for frame in frames[:2]:
        for entity, label in zip(frame[task.entity_col], frame[task.target_col], strict=True):
            past.setdefault(entity, []).append(float(label))
    answers = {"global mean": np.full(len(test), known.mean())}
    if kind == "regression":
        answers["global median"] = np.full(len(test), np.median(known))
        answers["entity median"] = np.array(
            [np.median(past.get(e, [np.median(known)])) for e in test[task.entity_col]]
        )
    answers["entity mean"] = np.array(
        [np.mean(past.get(e, [known.mean()])) for e in test[task.entity_col]]
    )
    return {name: compute_metrics(kind, labels, values) for name, values in answers.items()}


def lightgbm_own_columns(data: Path, dataset: str, task_name: str, seed: int) -> dict[str, float]:
    """LightGBM on the entity's own columns, RelBench's baseline; test metrics."""
    import lightgbm

    opened = relfrog.open_dataset(data / dataset)
    task = load_task(opened, task_name)
    kind = task.task_type.value
    table = opened.get_db(upto_test_timestamp=False).table_dict[task.entity_table]
    sides = []
    for split in ("train", "val", "test"):
        frame = task.get_table(split, mask_input_cols=False).df
        own = table.df.iloc[frame[task.entity_col].to_numpy()].reset_index(drop=True)
        own = own.drop(columns=[c for c in (table.pkey_col,) if c in own])
        for column in own:
            if str(own[column].dtype).startswith("datetime"):
                span = frame[task.time_col].reset_index(drop=True) - own[column]
                own[column] = span.dt.total_seconds()
            elif not np.issubdtype(np.asarray(own[column]).dtype, np.number):
                own[column] = own[column].astype(str).astype("category")
        sides.append((own, frame[task.target_col].to_numpy(float)))
    for column in sides[0][0]:
        if str(sides[0][0][column].dtype) == "category":
            levels = sides[0][0][column].cat.categories
            for own, _ in sides[1:]:
                own[column] = own[column].cat.set_categories(levels)
    objective = "binary" if kind == "binary_classification" else "l1"
    model = lightgbm.train(
        {"objective": objective, "verbosity": -1, "seed": seed, "learning_rate": 0.05},
        lightgbm.Dataset(*sides[0]), 500, [lightgbm.Dataset(*sides[1])],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )  # fmt: skip
    return compute_metrics(kind, sides[2][1], model.predict(sides[2][0]))


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
    parser.add_argument("--baselines", action="store_true", help="only the trivial answers")
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
            if args.baselines:
                found = dict(constants(args.data, dataset, name))
                found["lightgbm, own columns"] = lightgbm_own_columns(args.data, dataset, name, 0)
                for baseline, metrics in found.items():
                    if (dataset, name, baseline, 0) not in done:
                        add(args.out, {
                            "dataset": dataset, "task": name, "name": baseline, "seed": 0,
                            "test": {"frozen": metrics}, "command": command,
                        })  # fmt: skip
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
