"""How well `relfrog audit` tells honest predictions from leaking ones.

    python benchmarks/audit.py --data ../shared/data --out benchmarks/audit.json

Honest: LightGBM and a small FROG. Leaking, each from an honest LightGBM:
`future`, whose features end at the end of the label's window instead of its beginning, as if times
had been forgotten; `window`, the same with half of the window; `labels`, with a tenth, a fifth or
half of the label mixed in. A finding on an honest model is a false alarm. Cases that the file holds
are not audited again: an interrupted command continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import relfrog
from relfrog.analysis.audit.audited import Auditor
from relfrog.config import Config
from relfrog.models.boosting import QuickBoostedTrees
from relfrog.training.opened_task import OpenedTask

TASKS = (
    ("rel-f1", "driver-dnf"), ("rel-f1", "driver-top3"), ("rel-f1", "driver-position"),
    ("olist-sample", "order-late"), ("olist-sample", "seller-sales"),
    ("flights", "plane-delay"), ("flights", "airport-delay"), ("travel-exchange", "user-badge"),
)  # fmt: skip
CASES = (
    "honest lightgbm", "labels 10%", "labels 20%", "labels 50%", "future", "window", "honest frog",
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
    return keys.assign(time=seeds.times, prediction=np.asarray(values, float))


def cases(opened: OpenedTask, data: Path) -> Iterator[tuple[str, Any]]:
    """Predictions for the test split by name, each made when it is asked for."""
    seeds = opened.seeds("test")
    labels = np.asarray(seeds.labels, float)
    honest = predictions(opened, 0.0)
    yield "honest lightgbm", honest
    scale = float(np.std(honest)) / max(float(np.std(labels)), 1e-9)
    for part in (0.1, 0.2, 0.5):
        yield f"labels {part:.0%}", (1 - part) * honest + part * scale * labels
    yield "future", predictions(opened, 1.0)
    yield "window", predictions(opened, 0.5)
    with tempfile.TemporaryDirectory() as folder:
        run = relfrog.train(
            data, opened.task.name, out=Path(folder) / "run", model="frog", size="small",
            settings={"epochs": 4}, baselines=False, quiet=True,
        )  # fmt: skip
        yield "honest frog", run.predict_seeds(seeds, None)


def kept(out: Path, rows: list[dict[str, Any]]) -> None:
    """Write all cases so far; whoever is interrupted keeps the file as it was."""
    command = "python benchmarks/audit.py --data ../shared/data"
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps({"command": command, "cases": rows}, indent=1) + "\n")
    beside.replace(out)


def main() -> None:
    """Audit all of them, and write what was found after each case; nothing is repeated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/audit.json"))
    given = parser.parse_args()
    results = json.loads(given.out.read_text("utf-8"))["cases"] if given.out.is_file() else []
    for dataset, task in TASKS:
        there = {row["case"] for row in results if (row["dataset"], row["task"]) == (dataset, task)}
        if there.issuperset(CASES) or (given.only and task not in given.only):
            continue
        auditor = Auditor(given.data / dataset, task)
        for name, values in cases(auditor.opened, given.data / dataset):
            if name in there:
                continue
            started = time.process_time()
            found = auditor.audit(frame(auditor.opened, values))
            row = {
                "dataset": dataset, "task": task, "case": name,
                "findings": [f"{f.level} {f.place}: {f.text}" for f in found.report.findings],
                "metrics": found.metrics, "numbers": found.numbers,
                "cpu_seconds": round(time.process_time() - started, 1),
            }  # fmt: skip
            results.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            kept(given.out, results)


if __name__ == "__main__":
    main()
