"""Tables of what commands cost at size, from `scale.json` and `paper_scale.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def scale() -> str:
    """What commands cost on a database like rel-hm, beside an earlier state of the code."""
    found = json.loads((HERE / "scale.json").read_text(encoding="utf-8"))
    cases: dict[tuple[int, str], dict[str, dict[str, Any]]] = {}
    for entry in found["cases"]:
        cases.setdefault((entry["rows"], entry["case"]), {})[entry["state"]] = entry
    compared = any("before" in states for states in cases.values())
    beside = " *Before* is an earlier state of the code, in the same run:" if compared else ""
    lines = [
        "Seconds of the processor and peak memory, on a shared machine with two cores "
        f"(`{found['machine']['command']}`).{beside}",
        "",
        "| rows | |" + " before |" * compared + " now |",
        "|--:|---|" + "--:|" * compared + "--:|",
    ]
    for (rows, case), states in sorted(cases.items()):
        shown = ("before", "after") if compared else ("after",)
        cells = [_cost(states.get(state)) for state in shown]
        lines.append(f"| {rows / 1e6:,.1f} M | {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paper_scale() -> str:
    """What each task of the paper costs, at the largest size that was measured."""
    found = json.loads((HERE / "paper_scale.json").read_text(encoding="utf-8"))
    largest: dict[str, dict[str, Any]] = {}
    for entry in found["tasks"]:
        if entry["model"] == "frog":
            known = largest.get(entry["task"])
            largest[entry["task"]] = max((entry, known or entry), key=lambda one: one["scale"])
    lines = [
        "Seconds of the processor of `relfrog train --model frog` with default settings, and peak "
        "memory, on made-up rows in the schemas of the paper's databases "
        f"(`{found['machine']['command']}`):",
        "",
        "| task | rows | of all | prepare | 100 steps | validate | score | peak memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for task, entry in sorted(largest.items()):
        cells = [f"{entry['rows']:,}", f"{100 * entry['scale']:g} %"]
        if "failed" in entry:
            cells += [f"failed: {entry['failed']}", "", "", ""]
        else:
            names = ("prepare", "per_100_steps", "validate", "score")
            cells += [_seconds(entry.get(f"{name}_cpu_seconds")) for name in names]
        lines.append(f"| {task} | {' | '.join(cells)} | {entry['peak_mb']:,} MB |")
    return "\n".join(lines)


def _cost(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    if "failed" in entry:
        return f"failed: {entry['failed']}"
    return f"{_seconds(entry['cpu_seconds'])}, {entry['peak_mb']:,} MB"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"
