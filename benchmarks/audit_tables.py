"""The table of docs/promises.md: what audits found in honest and in leaking predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["audits"]

HERE = Path(__file__).parent


def audits() -> str:
    """A row per task, a column per way of making predictions."""
    found = json.loads((HERE / "audit.json").read_text(encoding="utf-8"))
    cases: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found["cases"]:
        cases.setdefault((row["dataset"], row["task"]), {})[row["case"]] = row
    names = sorted({name for some in cases.values() for name in some}, key=_honest_first)
    lines = [
        "Whether an audit passes predictions or finds signs of a leak, and in brackets how far "
        "they follow labels where the past says nothing (the lower end of the 95 % range of the "
        f"correlation). `{found['command']}`; all numbers are in `benchmarks/audit.json`.",
        "",
        f"| | {' | '.join(names)} |",
        "|---|" + "---|" * len(names),
    ]
    for (dataset, task), some in cases.items():
        cells = [_cell(some[name]) if name in some else "" for name in names]
        lines.append(f"| {dataset} {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _honest_first(name: str) -> tuple[bool, bool, str]:
    return not name.startswith("honest"), name.startswith("labels"), name


def _cell(row: dict[str, Any]) -> str:
    said = [finding.split()[0] for finding in row["findings"]]
    word = "**error**" if "error" in said else "**warning**" if said else "passes"
    low = row["numbers"].get("beyond_the_past", {}).get("low")
    return word if low is None else f"{word} ({low:+.2f})"
