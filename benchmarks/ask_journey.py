"""From a database URL to predictions: commands and seconds, step by step and by asking.

    python benchmarks/ask_journey.py relfrog-demo/flights.db --out benchmarks/ask-journey.json

Step by step is what it took before questions: import, label SQL written into a file, task, train,
predict. Both ways train the same models with the same settings on the demo's database; what differs
is what the user has to type and to know. Seconds are of the wall and of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import command_line

SETTINGS = "--set epochs=1 --set trials=1 --set neighbors=4 --set features=own --set channels=16"
SQL = """\
SELECT t.timestamp, f.tailnum, CAST(COUNT(CASE WHEN f.known_at > t.timestamp THEN 1 END) = 0
    AS INTEGER) AS gone
FROM timestamps t
JOIN flights f ON f.known_at > t.timestamp - INTERVAL '28 days'
    AND f.known_at <= t.timestamp + INTERVAL '{timedelta}'
WHERE f.tailnum IS NOT NULL
GROUP BY t.timestamp, f.tailnum
HAVING COUNT(CASE WHEN f.known_at <= t.timestamp THEN 1 END) > 0
"""
QUESTION = (
    "PREDICT COUNT(flights.*, 0, 7, days) = 0 FOR EACH planes.tailnum "
    "WHERE COUNT(flights.*, -28, 0, days) > 0"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    url = f"sqlite:///{options.database.resolve()}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "gone.sql").write_text(SQL)
        steps = [
            f"import {url} flights",
            "task flights gone --sql gone.sql --type binary --entity planes --horizon '7 days'",
            f"train flights gone --out run {SETTINGS}",
            "predict run --out predictions.csv",
        ]
        before = [run(step, place) for step in steps]
        one = f'ask {url} "{QUESTION}" --dataset asked --out answer {SETTINGS}'
        after = [run(one, place)]
    result = {
        "command": command_line(), "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "before": summary(before, files_to_write=1, lines_of_sql=len(SQL.splitlines())),
        "after": summary(after, files_to_write=0, lines_of_sql=0),
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def run(arguments: str, folder: Path) -> dict[str, Any]:
    """Run a command; how long it took, and when a first answer came."""
    import shlex

    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    told, first = [], {}
    with subprocess.Popen(
        [sys.executable, "-m", "relfrog", *shlex.split(arguments)], cwd=folder, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if line.startswith("First answer"):
                first = {
                    "first_answer_seconds": round(time.monotonic() - began, 1),
                    "first_answer_processor_seconds": processor_seconds(process.pid),
                }
    if process.returncode:
        raise SystemExit(f"{arguments}\n{''.join(told)}")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {
        "command": arguments.split()[0], "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(cpu, 1), **first,
    }  # fmt: skip


def processor_seconds(pid: int) -> float:
    """What a process that still runs has used, with its children that have ended (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return round(sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"), 1)


def summary(steps: list[dict[str, Any]], **more: int) -> dict[str, Any]:
    """Steps with their sums."""
    sums = {
        name: round(sum(step[name] for step in steps), 1)
        for name in ("seconds", "processor_seconds")
    }
    return {"commands": len(steps), **more, **sums, "steps": steps}


if __name__ == "__main__":
    main()
