"""Does `train` keep its time? Minutes that are asked for, and the time of the whole command.

    python benchmarks/time_budget.py --sources ../shared/sources --data ../shared/data

`relfrog train` without --model, as a command: reading, all members, scores, the report. Seconds of
the processor tell how much of a busy machine it had. The file is written after every run; what it
has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import databases as known
import relfrog
from measuring import machine, measure

HERE = Path(__file__).parent
#: Database, task, and the minutes that are asked for.
RUNS = (
    ("Chinook", "spend", 2), ("rel-f1", "driver-position", 2), ("rel-f1", "driver-position", 8),
    ("travel-exchange", "user-engagement", 8),
)  # fmt: skip


def timed(dataset: Path, task: str, minutes: float, out: Path) -> dict[str, Any]:
    """One command, from its start to its end."""
    command = [sys.executable, "-m", "relfrog", "train", str(dataset), task, "--out", str(out)]
    load = os.getloadavg()[0]
    found = measure([*command, "--set", f"minutes={minutes}"])
    if "failed" in found:
        raise SystemExit(f"{task}: {found['failed']}")
    run = relfrog.load_run(out)
    return {
        "seconds": found["seconds"], "cpu_seconds": found["cpu_seconds"],
        "training_seconds": run.about["seconds"], "load": [load, os.getloadavg()[0]],
        "members": {name: one["seconds"] for name, one in run.blend["members"].items()},
        "skipped": run.blend["skipped"], "report": (out / "report.html").stat().st_size,
    }  # fmt: skip


def main() -> None:
    """Run what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE / "time_budget.json")
    given = parser.parse_args()
    command = "python benchmarks/time_budget.py --sources ../shared/sources --data ../shared/data"
    about: dict[str, Any] = {"command": command, "machine": machine(), "runs": []}
    if given.out.exists():
        about["runs"] = json.loads(given.out.read_text(encoding="utf-8"))["runs"]
    done = {(run["database"], run["task"], run["minutes"]) for run in about["runs"]}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for number, (name, task, minutes) in enumerate(RUNS):
            if (name, task, minutes) in done:
                continue
            dataset = given.data.resolve() / name
            if name in known.MADE:
                make, questions = known.MADE[name]
                dataset = make(given.sources.resolve(), work)
                question = next(one for one in questions if one.name == task)
                relfrog.add_task(dataset, task, question.sql, **question.options)
            entry = {"database": name, "task": task, "minutes": minutes}
            about["runs"].append(entry | timed(dataset, task, minutes, work / f"run-{number}"))
            given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            print(about["runs"][-1], flush=True)


if __name__ == "__main__":
    main()
