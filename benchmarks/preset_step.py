"""Processor seconds of training with the paper's presets on rel-f1, one thread.

    python benchmarks/preset_step.py --data ../shared/data/rel-f1 --task driver-dnf --as "a name"

Adds to `benchmarks/preset_step.json`: seconds of a step, of a step of the regulariser's own pass
and of a validation, and what a run of all epochs takes at that rate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from measuring import command_line
from relfrog.config import resolve
from relfrog.support.threads import thread_limit
from relfrog.training.opened_task import open_task
from relfrog.training.trainer import Trainer

OUT = Path(__file__).with_suffix(".json")


def seconds(work: Callable[[], Any], times: int) -> float:
    """Processor seconds of one of so many."""
    started = time.process_time()
    work()
    return round((time.process_time() - started) / times, 3)


def measure(data: Path, task: str, model: str, steps: int) -> dict[str, Any]:
    """Train for a few steps."""
    opened = open_task(data, task)
    settings = {"seed": 0, "model": model}
    config = resolve(1000, preset=f"paper/rel-f1-{task}", settings=settings, kind=opened.kind)
    with tempfile.TemporaryDirectory() as folder, thread_limit(1):
        trainer = Trainer(opened.prepare(config), Path(folder))
        plans = list(itertools.islice(trainer.batches(trainer.loader), steps + 1))
        trainer.train_step(plans[0])
        found = {"step": seconds(lambda: [trainer.train_step(p) for p in plans[1:]], steps)}
        found["regulariser_step"] = 0.0
        if trainer.fd_loader is not None:
            trainer.network.train(config.fd_training)
            some = itertools.islice(trainer.batches(trainer.fd_loader), steps)
            found["regulariser_step"] = seconds(
                lambda: [trainer.fit_regulariser(trainer._pairs(p)) for p in some], steps
            )
        found["validation"] = seconds(lambda: trainer.validate(trainer.network), 1)
        each = trainer.steps_per_epoch * (found["step"] + found["regulariser_step"])
        found["run_hours"] = round(config.epochs * (each + found["validation"]) / 3600, 2)
    return {"task": task, "model": model, "steps": steps, **found}


def main() -> None:
    """Measure one task and model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", default="driver-dnf")
    parser.add_argument("--model", default="frog")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--as", dest="name", required=True)
    given = parser.parse_args()
    row = {
        "name": given.name, **measure(given.data, given.task, given.model, given.steps),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "command": command_line(),
    }  # fmt: skip
    print(json.dumps(row))
    rows = json.loads(OUT.read_text()) if OUT.exists() else []
    OUT.write_text(json.dumps([*rows, row], indent=1) + "\n")


if __name__ == "__main__":
    main()
