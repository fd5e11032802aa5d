"""How well `relfrog audit` tells honest predictions from leaking ones.

    python benchmarks/audit.py --data ../shared/data --out benchmarks/audit.json

Honest: LightGBM, a small FROG, the mean of recent labels. Leaking, each from an honest LightGBM:
`future`, whose features end at the end of the label's window instead of its beginning, as if times
had been forgotten; `window`, the same with half of the window; `labels`, with a tenth, a fifth or
half of the label mixed in. A finding on an honest model is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import relfrog
from relfrog.analysis.audit import audit
from relfrog.config import Config
from relfrog.models.boosting import QuickBoostedTrees
from relfrog.training.opened_task import OpenedTask, open_task

TASKS = (
    ("rel-f1", "driver-dnf"), ("rel-f1", "driver-top3"), ("rel-f1", "driver-position"),
    ("olist-sample", "order-late"), ("olist-sample", "seller-sales"),
    ("flights", "plane-delay"), ("flights", "airport-delay"), ("travel-exchange", "user-badge"),
)  # fmt: skip


class Peeking(QuickBoostedTrees):
    """Trees whose features see rows after the seed's time."""

    ahead = 0.0

    def limits(self, seeds: Any, cutoff: pd.Timestamp | None) -> Any:
        """The cut-offs, moved into the label's window."""
        return super().limits(seeds, cutoff) + int(self.ahead * self.maker.horizon)


def predictions(opened: OpenedTask, ahead: float) -> Any:
    """Predictions for the test split of trees that see a part of the window."""
    prepared = opened.prepare(Config(model="lightgbm", trials=1), encode=False)
    model = Peeking(prepared, prepared.describe_labels(prepared.train_seeds))
    model.ahead = ahead
    with tempfile.TemporaryDirectory() as folder:
        model.fit(Path(folder))
    return model.predict(opened.seeds("test"), None)


def frame(opened: OpenedTask, values: Any) -> pd.DataFrame:
    """Predictions as a table with keys."""
    from relfrog.datasets.entities import key_frame

    seeds, table = opened.seeds("test"), opened.task.entity_table
    pkey = opened.dataset.manifest.tables[table].pkey
    keys = key_frame(opened.dataset.dataset_dir, table, pkey, seeds.rows)
    return keys.assign(time=seeds.times.to_numpy(), prediction=np.asarray(values, float))


def main() -> None:
    """Audit all of them, and write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/audit.json"))
    given = parser.parse_args()
    results = []
    for dataset, task in TASKS:
        if given.only and task not in given.only:
            continue
        opened = open_task(given.data / dataset, task)
        seeds = opened.seeds("test")
        labels = np.asarray(seeds.labels, float)
        honest = predictions(opened, 0.0)
        with tempfile.TemporaryDirectory() as folder:
            run = relfrog.train(
                given.data / dataset, task, out=Path(folder) / "run", model="frog", size="small",
                settings={"epochs": 4}, baselines=False, quiet=True,
            )  # fmt: skip
            frog = run.predict_seeds(seeds, None)
        scale = float(np.std(honest)) / max(float(np.std(labels)), 1e-9)
        cases = {
            "honest lightgbm": honest, "honest frog": frog,
            "future": predictions(opened, 1.0), "window": predictions(opened, 0.5),
            **{
                f"labels {part:.0%}": (1 - part) * honest + part * scale * labels
                for part in (0.1, 0.2, 0.5)
            },
        }  # fmt: skip
        for name, values in cases.items():
            found = audit(frame(opened, values), given.data / dataset, task)
            row = {
                "dataset": dataset, "task": task, "case": name,
                "findings": [f"{f.level} {f.place}" for f in found.report.findings],
                "metrics": found.metrics, "numbers": found.numbers,
            }  # fmt: skip
            results.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
        command = f"python benchmarks/audit.py {' '.join(sys.argv[1:])}"
        given.out.write_text(json.dumps({"command": command, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
