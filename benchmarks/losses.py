"""Which loss, and whether to weigh rare positives: validation scores on small databases.

    python benchmarks/losses.py --sources ../shared/sources

Amounts and counts are learned with each loss; rare labels (fewer than 2 % positive) with and
without class weights. Validation scores alone, rolling; test is not looked at. The file is written
after every run; what it has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import databases as known
import relfrog

HERE = Path(__file__).parent
#: LightGBM first: it takes seconds.
MODELS: dict[str, dict[str, Any]] = {"lightgbm": {"trials": 1}, "frog": {}}
SEEDS = (0, 1)
#: What tells runs apart.
PARTS = ("database", "task", "setting", "model", "seed")
LOSSES = ("l1", "squared", "poisson", "tweedie", "quantile")
#: What is learned with that loss: a number that four of five labels shall not exceed.
QUANTILE = 0.8
WEIGHTS = ("none", "auto", "balanced")
#: Of each database: the amount, and the question whose positives are rare over a short horizon.
TASKS = {
    "Chinook": ("spend", "buys", "3 days"),
    "Northwind": ("units", "again", "1 day"),
}


def validated(
    dataset: Path, task: str, out: Path, model: str, seed: int, **settings: Any
) -> dict[str, float]:
    """Validation scores of one model, rolling."""
    given = {"calibration": "none", "quantile": QUANTILE, **MODELS[model], **settings}
    run = relfrog.train(
        dataset, task, out, model=model, size="small", seed=seed, settings=given, baselines=False
    )
    scores = {name: float(value) for name, value in run.metrics["val"]["rolling"].items()}
    if run.kind.name == "regression":  # what is known of the quantile, whatever was learned
        _, truth, predicted = run.answers("val")
        missed = truth.astype(float) - predicted
        scores["pinball"] = float(np.maximum(QUANTILE * missed, (QUANTILE - 1) * missed).mean())
        scores["below"] = float((missed <= 0).mean())
    return scores


def main() -> None:
    """Run what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "losses.json")
    given = parser.parse_args()
    command = "python benchmarks/losses.py --sources ../shared/sources"
    about: dict[str, Any] = {
        "command": command, "regime": "rolling", "split": "val", "quantile": QUANTILE, "runs": [],
    }  # fmt: skip
    if given.out.exists():
        about["runs"] = json.loads(given.out.read_text(encoding="utf-8"))["runs"]
    done = {tuple(run[part] for part in PARTS) for run in about["runs"]}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        plan = []
        for name, (amount, rare, horizon) in TASKS.items():
            make, questions = known.MADE[name]
            dataset = make(given.sources.resolve(), work)
            by_name = {question.name: question for question in questions}
            one, two = by_name[amount], by_name[rare]
            relfrog.add_task(dataset, amount, one.sql, **one.options)
            options = {**two.options, "horizon": horizon, "eval_times": 20}
            added = relfrog.add_task(dataset, rare, two.sql, **options)
            about.setdefault("positive", {})[name] = added.stats["train"].label["positive"]
            plan += [(name, dataset, amount, f"loss={value}") for value in LOSSES]
            plan += [(name, dataset, rare, f"class_weight={value}") for value in WEIGHTS]
        for model, seed in [(model, seed) for model in MODELS for seed in SEEDS]:
            # Losses first: labels of the other tasks are many more.
            for name, dataset, task, setting in sorted(plan, key=lambda one: "weight" in one[3]):
                entry = (name, task, setting, model, seed)
                if entry in done:
                    continue
                key, _, value = setting.partition("=")
                out = work / "-".join(map(str, (name, task, value, model, seed)))
                scores = validated(dataset, task, out, model, seed, **{key: value})
                about["runs"].append(dict(zip(PARTS, entry, strict=True)) | {"val": scores})
                given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
                print(*entry, scores, flush=True)


if __name__ == "__main__":
    main()
