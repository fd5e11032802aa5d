"""How long a run without any setting takes, and how much memory.

    python benchmarks/defaults.py --data ../shared/data --out benchmarks/defaults.json

Each run is `relfrog train DATASET TASK --model frog --out FOLDER` in a process of its own, from the
start of Python to the last file, with the scores that it ends with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RUNS = [
    ("rel-f1", "driver-dnf"),
    ("rel-f1", "driver-top3"),
    ("rel-f1", "driver-position"),
    ("travel-exchange", "user-engagement"),
]


def measure(data: Path, dataset: str, task: str) -> dict[str, Any]:
    """One run: seconds, largest memory, epochs and scores."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        command = [sys.executable, "-m", "relfrog", "train", str(data / dataset), task,
                   "--model", "frog"]  # fmt: skip
        began = time.monotonic()
        process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{dataset} {task}: training ended with {process.returncode}")
        scores = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
        epochs = len((out / "history.jsonl").read_text(encoding="utf-8").splitlines())
    per_mb = 2**20 if sys.platform == "darwin" else 2**10
    return {
        "dataset": dataset, "task": task, "seconds": round(seconds, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss / per_mb), "epochs": epochs, "metrics": scores,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the datasets")
    parser.add_argument("--out", type=Path, help="JSON with what came out")
    options = parser.parse_args()
    busy, found = round(os.getloadavg()[0], 1), []
    for dataset, task in RUNS:
        if not (options.data / dataset).exists():
            print(f"{dataset}: not in {options.data}, skipped", file=sys.stderr)
            continue
        found.append(measure(options.data, dataset, task))
        print(json.dumps(found[-1]), flush=True)
    result = {
        "command": "python benchmarks/defaults.py --data ../shared/data "
        "--out benchmarks/defaults.json",
        "machine": {"cores": os.cpu_count(), "busy_before": busy},
        "runs": found,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
