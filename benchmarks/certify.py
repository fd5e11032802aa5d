"""What `predict --certify` costs on a database like rel-hm, now and before.

    python benchmarks/certify.py --rows 3.4e6 --before REF --out benchmarks/certify.json

Ten customers are predicted at the validation time, so that two weeks of rows are later: certified
and not. Every command is a process of its own, after a training of 20 steps with the same code.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Worktree, machine, measure
from paper_databases import read_schema, write

AT = "2020-09-07"


def measured(data: Path, state: Worktree, models: list[str]) -> Iterator[dict[str, Any]]:
    """The commands on one state of the code, with an empty store at the beginning."""
    relfrog = [sys.executable, "-m", "relfrog"]
    with tempfile.TemporaryDirectory(prefix="relfrog-certify-") as folder:
        work = Path(folder)
        environment = state.environment | {"RELFROG_CACHE": str(work / "cache")}
        ten = work / "ten.csv"
        ten.write_text("customer_id\n" + "\n".join(map(str, range(0, 1000, 100))) + "\n")
        for model in models:
            run, out = str(work / model), str(work / f"{model}.csv")
            quick = {
                "frog": ["--size", "small", "--set", "epochs=1", "--set", "steps_per_epoch=20"]
            }
            train = [*relfrog, "train", str(data), "user-churn", "--out", run, "--model", model,
                     "--no-report", "--no-baselines", *quick.get(model, [])]  # fmt: skip
            predict = [*relfrog, "predict", run, "--entities", str(ten), "--at", AT, "--out", out,
                       "--overwrite"]  # fmt: skip
            commands = {"train": train, "warm": predict, "predict": predict,
                        "certify": [*predict, "--certify"]}  # fmt: skip
            for case, command in commands.items():
                found = measure(command, environment)
                found.pop("output")
                if case == "certify" and "failed" not in found:
                    about = json.loads(Path(f"{out}.certificate.json").read_text())
                    trial = about["trial"]
                    found["holds"] = about["holds"]
                    found["later_rows"] = {way: trial[way]["rows"] for way in trial
                                           if isinstance(trial[way], dict)}  # fmt: skip
                print(model, case, state.commit, json.dumps(found), file=sys.stderr, flush=True)
                if case != "warm":
                    yield {"model": model, "case": case, "commit": state.commit, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=3.4e6)
    parser.add_argument("--before", help="a commit to measure beside")
    parser.add_argument("--models", nargs="+", default=["frog", "recent"])
    parser.add_argument("--folder", type=Path, help="where the database is kept between runs")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    schema = read_schema("rel-hm")
    scale = arguments.rows / sum(schema.rows(table) for table in schema.tables)
    with tempfile.TemporaryDirectory(prefix="relfrog-certify-") as made:
        data = arguments.folder or Path(made) / "data"
        if not (data / "manifest.yaml").exists():
            write("rel-hm", data, scale)
        rows = sum(schema.rows(table, scale) for table in schema.tables)
        found: dict[str, Any] = {"machine": machine(), "rows": rows, "cases": []}
        states = {"after": None} | ({"before": arguments.before} if arguments.before else {})
        for state, reference in states.items():
            with Worktree(reference) as code:
                for entry in measured(data, code, arguments.models):
                    found["cases"].append({"state": state, **entry})
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        else:
            print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
