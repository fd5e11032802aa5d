"""What commands cost on a database like rel-hm, in time, processor time and memory.

    python benchmarks/scale.py --rows 3.4e6 17e6 --before REF --out benchmarks/scale.json
    python benchmarks/scale.py --rows 1e8 --cases first later train everyone --folder DATA

The database is drawn anew by `paper_databases.py`. Every command is a process of its own; with
`--before` each is run on an earlier state of the code as well, one after the other. The file is
written after each command; what was measured before and is not measured again stays in it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Worktree, machine, measure
from paper_databases import read_schema, write

HERE = Path(__file__).parent
CASES = ("inspect", "first", "later", "train", "predict", "everyone", "evaluate", "recommend")
#: Cases that look at the run that `train` makes.
OF_A_RUN = {"predict", "everyone", "evaluate"}


def commands(data: Path, work: Path, cases: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The commands to measure, in an order in which each finds what it needs."""
    relfrog = [sys.executable, "-m", "relfrog"]
    first = [sys.executable, str(HERE / "timed_training.py"), "--stop", str(data), "user-churn"]
    run = str(work / "churn")
    train = ["--model", "frog", "--size", "small", "--set", "epochs=1", "--no-report",
             "--no-baselines", "--overwrite"]  # fmt: skip
    if "inspect" in cases:
        yield "inspect", [*relfrog, "inspect", str(data)]
    if "first" in cases:
        yield "first preparation for user-churn, one step", [*first, str(work / "first")]
    if "later" in cases:
        yield (
            "the same with other settings",
            [*first, str(work / "later"), "channels=16", "lr=0.01"],
        )
    if ({"train"} | OF_A_RUN) & set(cases):
        steps = ["--set", "steps_per_epoch=20"]
        yield (
            "train user-churn, 20 steps, with all scores",
            [*relfrog, "train", str(data), "user-churn", "--out", run, *train, *steps],
        )
    if "predict" in cases:
        ten = work / "ten.csv"
        ten.write_text("customer_id\n" + "\n".join(map(str, range(0, 1000, 100))) + "\n")
        yield (
            "predict for ten customers",
            [*relfrog, "predict", run, "--entities", str(ten), "--out", str(work / "ten.parquet"),
             "--overwrite"],
        )  # fmt: skip
    if "everyone" in cases:
        yield (
            "predict for all customers",
            [*relfrog, "predict", run, "--all", "--out", str(work / "all.parquet"), "--overwrite"],
        )
    if "evaluate" in cases:
        yield "evaluate user-churn", [*relfrog, "evaluate", run]
    if "recommend" in cases:
        yield (
            "train user-item-purchase, 20 steps, with all scores",
            [*relfrog, "train", str(data), "user-item-purchase", "--out", str(work / "buy"), *train,
             "--set", "steps_per_epoch=20"],
        )  # fmt: skip


def measured(
    data: Path, state: Worktree, cases: list[str], limit: float
) -> Iterator[dict[str, Any]]:
    """Every command on one state of the code, with an empty store at the beginning."""
    with tempfile.TemporaryDirectory(prefix="relfrog-scale-") as folder:
        work = Path(folder)
        environment = state.environment | {"RELFROG_CACHE": str(work / "warm")}
        _compile(work, environment)
        environment |= {"RELFROG_CACHE": str(work / "cache")}
        for name, command in commands(data, work, cases):
            found = measure(command, environment, limit)
            output = found.pop("output")
            if command[1].endswith("timed_training.py") and "failed" not in found:
                found |= json.loads(output.splitlines()[-1])
            print(name, state.commit, json.dumps(found), file=sys.stderr, flush=True)
            about = machine()
            yield {
                "case": name, "commit": state.commit, "command": about["command"],
                "load": about["load"][0], **found,
            }  # fmt: skip
        if (work / "cache").exists():
            size = sum(
                path.stat().st_size for path in (work / "cache").rglob("*") if path.is_file()
            )
            print(f"store: {size / 2**20:,.0f} MB", file=sys.stderr)


def _compile(work: Path, environment: dict[str, str]) -> None:
    """Compile what commands compile, which is kept beside the source: not what is measured here."""
    warm = write("rel-hm", work / "tiny", 0.002)
    relfrog, run = [sys.executable, "-m", "relfrog"], str(work / "tiny-run")
    train = ["--model", "frog", "--size", "small", "--set", "epochs=1", "--no-report"]
    predict = [*relfrog, "predict", run, "--overwrite", "--out", str(work / "tiny.parquet")]
    for command in (
        [*relfrog, "train", str(warm), "user-churn", "--out", run, *train, "--no-baselines"],
        predict,
        [*predict, "--all"],
    ):
        measure(command, environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[3.4e6])
    parser.add_argument("--before", help="a commit to measure beside")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--folder", type=Path, help="where databases are kept between runs")
    parser.add_argument("--limit", type=float, default=3600, help="seconds of one command")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    schema = read_schema("rel-hm")
    full = sum(schema.rows(table) for table in schema.tables)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="relfrog-scale-"))
    kept = {}
    if arguments.out is not None and arguments.out.exists():
        for entry in json.loads(arguments.out.read_text(encoding="utf-8"))["cases"]:
            kept[entry["case"], entry["rows"], entry["state"]] = entry
    about = machine()
    for rows in arguments.rows:
        data, scale = folder / f"rel-hm-{rows:.0f}", rows / full
        if not (data / "manifest.yaml").exists():
            write("rel-hm", data, scale)
        count = sum(schema.rows(table, scale) for table in schema.tables)
        states = {"after": None} | ({"before": arguments.before} if arguments.before else {})
        for state, reference in states.items():
            with Worktree(reference) as code:
                for entry in measured(data, code, arguments.cases, arguments.limit):
                    kept[entry["case"], count, state] = {"rows": count, "state": state, **entry}
                    found = {"machine": about, "cases": [kept[key] for key in sorted(kept)]}
                    if arguments.out is not None:
                        text = json.dumps(found, indent=1) + "\n"
                        arguments.out.write_text(text, encoding="utf-8")
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
