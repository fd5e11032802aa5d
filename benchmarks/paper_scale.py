"""Does every task of the paper's main table run here at full size, and what does it cost?

    python benchmarks/paper_scale.py --folder DATA --out benchmarks/paper_scale.json
    python benchmarks/paper_scale.py --tasks rel-hm/user-churn --scale 0.1

The databases are those of `paper_databases.py`: RelBench's tables, keys, columns, row counts and
tasks with made-up rows. Each task is trained as `relfrog experiment main` trains it, but for fewer
steps, and scored on validation and test, all in one process; with `--most`, on so many seeds of
each split, drawn at random. What is in the file already stays there until it is measured again. The
first task of a database prepares what others share.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import Worktree, machine, measure
from paper_databases import NAMES, read_schema, write

HERE = Path(__file__).parent


def every_task() -> list[str]:
    """The tasks of the paper, as dataset/task."""
    return [f"{name}/{task}" for name in NAMES for task in read_schema(name).tasks]


def run_task(
    data: Path, task: str, model: str, steps: int, cache: Path, limit: float, most: int | None
) -> dict[str, Any]:
    """Train a task for some steps and score it."""
    with tempfile.TemporaryDirectory(prefix="relfrog-paper-") as folder:
        command = [
            sys.executable, str(HERE / "timed_training.py"), str(data), task, f"{folder}/run",
            "--model", model, "--size", "medium", "--steps", str(steps),
            *(["--most", str(most)] if most else []),
        ]  # fmt: skip
        environment = {"RELFROG_CACHE": str(cache), **Worktree(None).environment}
        found = measure(command, environment, limit)
        output = found.pop("output")
        if "failed" not in found:
            found |= json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=every_task(), metavar="DATASET/TASK")
    parser.add_argument("--models", nargs="+", default=["frog"])
    parser.add_argument("--scale", type=float, default=1, help="share of the rows")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--most", type=int, help="the most seeds of a split to score")
    parser.add_argument("--folder", type=Path, help="where databases and stores are kept")
    parser.add_argument("--limit", type=float, default=3600, help="seconds of one task")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="relfrog-paper-"))
    kept: dict[tuple[str, str, float], dict[str, Any]] = {}
    if arguments.out is not None and arguments.out.exists():
        for entry in json.loads(arguments.out.read_text(encoding="utf-8"))["tasks"]:
            kept[entry["task"], entry["model"], entry["scale"]] = entry
    commit = Worktree(None).commit
    for full in arguments.tasks or every_task():
        name, _, task = full.partition("/")
        schema = read_schema(name)
        data = folder / (name if arguments.scale == 1 else f"{name}-{arguments.scale:g}")
        if not (data / "manifest.yaml").exists():
            write(name, data, arguments.scale)
        rows = sum(schema.rows(table, arguments.scale) for table in schema.tables)
        for model in arguments.models:
            found = run_task(
                data, task, model, arguments.steps, folder / "cache", arguments.limit,
                arguments.most,
            )  # fmt: skip
            print(full, model, json.dumps(found), file=sys.stderr, flush=True)
            kept[full, model, arguments.scale] = {
                "task": full, "model": model, "scale": arguments.scale, "rows": rows,
                "kind": schema.tasks[task]["task_type"], "commit": commit,
                "load": machine()["load"][0], **found,
            }  # fmt: skip
            if arguments.out is not None:
                listed = [kept[key] for key in sorted(kept)]
                text = json.dumps({"machine": machine(), "tasks": listed}, indent=1)
                arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
