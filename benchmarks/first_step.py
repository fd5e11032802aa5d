"""Time to the first step on real data, and the same scores as before.

    python benchmarks/first_step.py DATASET:TASK ... --before REF --out benchmarks/first_step.json

Each task is trained for some steps with the code as it is, and with an earlier state of it: with an
empty store, then until the first step with what the first training left there. Weights are compared
tensor by tensor, bit by bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from measuring import Worktree, machine, measure

HERE = Path(__file__).parent


def trained(data: str, task: str, state: Worktree, work: Path) -> dict[str, Any]:
    """What a training costs until its first step, and what it gives."""
    environment = state.environment | {"RELFROG_CACHE": str(work / "cache")}
    script = [sys.executable, str(HERE / "timed_training.py"), data, task]
    found: dict[str, Any] = {"commit": state.commit}
    for case, words in (
        ("first", [str(work / "run"), "--steps", "20"]),
        ("later", [str(work / "again"), "--stop"]),
    ):
        done = measure([*script, *words], environment)
        output = done.pop("output")
        if "failed" not in done:
            done |= json.loads(output.splitlines()[-1])
        print(task, case, state.commit, json.dumps(done), file=sys.stderr, flush=True)
        found[case] = done
    metrics = work / "run" / "metrics.json"
    found["metrics"] = json.loads(metrics.read_text()) if metrics.exists() else None
    return found


def warm(data: str, task: str, state: Worktree) -> None:
    """Compile the kernels, whose code is kept beside the source: not what is measured here."""
    with tempfile.TemporaryDirectory(prefix="relfrog-first-") as folder:
        words = [str(HERE / "timed_training.py"), data, task, f"{folder}/run", "--stop"]
        environment = state.environment | {"RELFROG_CACHE": f"{folder}/cache"}
        measure([sys.executable, *words], environment)


def compared(before: Path, after: Path) -> dict[str, int]:
    """How many tensors of two trainings are the same."""
    old, new = (load_file(folder / "run" / "model.safetensors") for folder in (before, after))
    both = old.keys() & new.keys()
    same = sum(torch.equal(old[name], new[name]) for name in both)
    return {"before": len(old), "after": len(new), "in_both": len(both), "equal": same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+", help="DATASET:TASK")
    parser.add_argument("--before", required=True, help="a commit to compare with")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "tasks": []}
    names = [name.rpartition(":")[::2] for name in arguments.tasks]
    with Worktree(None) as now, Worktree(arguments.before) as then:
        for code in (now, then):
            warm(*names[0], code)
        for data, task in names:
            with tempfile.TemporaryDirectory(prefix="relfrog-first-") as folder:
                entry: dict[str, Any] = {"dataset": Path(data).name, "task": task}
                for state, code in (("after", now), ("before", then)):
                    (Path(folder) / state).mkdir()
                    entry[state] = trained(data, task, code, Path(folder) / state)
                entry["weights"] = compared(Path(folder) / "before", Path(folder) / "after")
                found["tasks"].append(entry)
            text = json.dumps(found, indent=1) + "\n"
            if arguments.out is not None:
                arguments.out.write_text(text, encoding="utf-8")
    if arguments.out is None:
        print(text)


if __name__ == "__main__":
    main()
