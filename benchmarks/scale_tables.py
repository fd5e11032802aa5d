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
    beside = " *Before* is an earlier state of the code." if compared else ""
    lines = [
        "Seconds of the processor and peak memory of whole commands, with the start of Python, on "
        f"a busy machine with two cores (`benchmarks/scale.py`, `scale.json`).{beside} The file "
        "says of each number how it was measured. Where a training ends after its first steps, the "
        "process of the label SQL is not counted:",
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
        "memory, on made-up rows in the schemas of the paper's databases, on a busy machine with "
        "two cores (`benchmarks/paper_scale.py`, `paper_scale.json`). *Score* is the time for "
        "1,000 seeds, measured on at most 2,000 of a split, and what follows from it for all seeds "
        "of validation and test. The first task of a database prepares what the others share:",
        "",
        "| task | rows | seeds to learn from | prepare | 100 steps | score 1,000 | score all "
        "| peak memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for task, entry in sorted(largest.items(), key=_in_order(found["tasks"])):
        cells = [_count(entry["rows"])]
        if entry["scale"] != 1:
            cells[0] += f" ({100 * entry['scale']:g} %)"
        if "failed" in entry:
            cells += [f"failed: {entry['failed']}", "", "", "", ""]
        else:
            cells.append(_count(entry.get("train_seeds")))
            cells += [_seconds(entry.get(f"{n}_cpu_seconds")) for n in ("prepare", "per_100_steps")]
            cells += map(_seconds, _scoring(entry))
        lines.append(f"| {task} | {' | '.join(cells)} | {entry['peak_mb']:,} MB |")
    return "\n".join(lines)


def _in_order(tasks: list[dict[str, Any]]) -> Any:
    """By database, in the order in which they were measured."""
    place = {entry["task"]: number for number, entry in enumerate(tasks)}
    return lambda item: (item[0].partition("/")[0], place[item[0]])


def _scoring(entry: dict[str, Any]) -> tuple[float | None, float | None]:
    """Seconds to score 1,000 seeds, and those of validation and test."""
    if "val_scored" not in entry:
        return None, None
    each = entry["validate_cpu_seconds"] / max(entry["val_scored"], 1)
    return 1000 * each, each * (entry["val_seeds"] + entry["test_seeds"])


def _count(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e6:,.1f} M" if value >= 1e6 else f"{value:,}"


def _cost(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    if "failed" in entry:
        return f"failed: {entry['failed']}"
    cost = f"{_seconds(entry['cpu_seconds'])}, {entry['peak_mb']:,} MB"
    if "prepared_peak_mb" in entry:
        cost += f" ({entry['prepared_peak_mb']:,} MB until the first step)"
    return cost


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"
