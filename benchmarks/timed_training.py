"""Train, and say how long each part took: preparation, steps, validation, scores.

    python benchmarks/timed_training.py DATASET TASK RUN [KEY=VALUE ...] [--steps 20] [--stop]

Prints JSON. With `--stop` the process ends after the steps, like in a power cut: nothing is scored,
nothing is saved. That is what a command costs until its own work begins. With `--most` only so many
seeds of validation and of test are scored, drawn at random: what all of them cost follows from it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from typing import Any


def main() -> None:
    start = time.perf_counter(), time.process_time()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("task")
    parser.add_argument("run")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--model", default="frog")
    parser.add_argument("--size", default="small")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--most", type=int, help="the most seeds of a split to score")
    arguments = parser.parse_args()

    import relfrog

    seeds = count_seeds(arguments.most)

    marks = {"start": start}

    class Clock(relfrog.Callback):
        """Looks at the clock."""

        steps = 0

        def on_start(self, trainer: Any) -> None:
            marks["prepared"] = time.perf_counter(), time.process_time()
            seeds["prepared_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

        def on_step(self, trainer: Any, loss: float) -> None:
            self.steps += 1
            marks["first" if self.steps == 1 else "steps"] = (
                time.perf_counter(),
                time.process_time(),
            )
            if self.steps == arguments.steps and arguments.stop:
                marks.setdefault("steps", marks["first"])
                finish(marks, self.steps, seeds)

        def on_epoch(self, trainer: Any, record: Any) -> None:
            marks["validated"] = time.perf_counter(), time.process_time()

    clock = Clock()
    settings = dict(part.split("=", 1) for part in arguments.settings)
    settings = {"epochs": "1", "steps_per_epoch": str(arguments.steps), **settings}
    relfrog.train(
        arguments.dataset, arguments.task, arguments.run, model=arguments.model,
        size=arguments.size, settings=settings, overwrite=True, baselines=False, callbacks=[clock],
    )  # fmt: skip
    marks["scored"] = time.perf_counter(), time.process_time()
    finish(marks, clock.steps, seeds)


def count_seeds(most: int | None) -> dict[str, int]:
    """Count the seeds of splits when they are made; those that are scored at most `most`."""
    import numpy as np

    from relfrog.training.opened_task import OpenedTask

    found: dict[str, int] = {}
    make = OpenedTask.seeds

    def seeds(opened: OpenedTask, split: str) -> Any:
        known = split in opened._seeds
        made = make(opened, split)
        if not known:
            found[f"{split}_seeds"] = len(made)
            if most is not None and split != "train" and len(made) > most:
                chosen = np.random.default_rng(0).permutation(len(made))[:most]
                made = opened._seeds[split] = made.take(np.sort(chosen))
            if split != "train":
                found[f"{split}_scored"] = len(made)
        return made

    OpenedTask.seeds = seeds  # type: ignore[method-assign]
    return found


def finish(marks: dict[str, tuple[float, float]], steps: int, seeds: dict[str, int]) -> None:
    """Print what was found, and leave."""

    def between(begin: str, end: str, each: float = 1) -> dict[str, float]:
        if begin not in marks or end not in marks:
            return {}
        name = {"start": "prepare", "prepared": "first_step", "first": "per_100_steps",
                "steps": "validate", "validated": "score"}[begin]  # fmt: skip
        passed = [(b - a) * each for a, b in zip(marks[begin], marks[end], strict=True)]
        return {f"{name}_seconds": round(passed[0], 2), f"{name}_cpu_seconds": round(passed[1], 2)}

    found: dict[str, float] = {"steps": steps, **seeds}
    found |= between("start", "prepared") | between("prepared", "first")
    if steps > 1:
        found |= between("first", "steps", 100 / (steps - 1))
    found |= between("steps", "validated") | between("validated", "scored")
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
