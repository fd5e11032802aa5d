"""Train until the first step is done, then stop: what a command costs before its own work.

    python benchmarks/first_step.py DATASET TASK RUN [KEY=VALUE ...] [--steps 1]

Prints JSON: seconds until the first step began, and those of the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any


def main() -> None:
    start = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("task")
    parser.add_argument("run")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--model", default="frog")
    parser.add_argument("--size", default="small")
    parser.add_argument("--steps", type=int, default=1)
    arguments = parser.parse_args()

    import relfrog

    class Stop(relfrog.Callback):
        """Leaves the process, like a power cut: nothing is scored, nothing is saved."""

        began = 0.0
        steps = 0

        def on_start(self, trainer: Any) -> None:
            self.began = time.perf_counter()

        def on_step(self, trainer: Any, loss: float) -> None:
            self.steps += 1
            if self.steps < arguments.steps:
                return
            found = {
                "until_first_step": round(self.began - start, 2),
                "steps": self.steps,
                "step_seconds": round(time.perf_counter() - self.began, 2),
            }
            print(json.dumps(found), flush=True)
            sys.stdout.flush()
            os._exit(0)

    settings = dict(part.split("=", 1) for part in arguments.settings)
    relfrog.train(
        arguments.dataset, arguments.task, arguments.run, model=arguments.model,
        size=arguments.size, settings=settings, overwrite=True, baselines=False, callbacks=[Stop()],
    )  # fmt: skip
    raise SystemExit("training ended before it came to the step")


if __name__ == "__main__":
    main()
