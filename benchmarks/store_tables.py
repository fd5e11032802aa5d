"""Tables of `certify.json` and `first_step.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def certify() -> str:
    """What a certificate costs, with overlays and with a second database in memory."""
    found = json.loads((HERE / "certify.json").read_text(encoding="utf-8"))
    words = {"predict": "`predict` for ten customers", "certify": "the same with `--certify`"}
    states = {"before": "a second database in memory", "after": "overlays"}
    lines = [
        f"Seconds of the processor and peak memory on {found['rows'] / 1e6:.1f} M rows like "
        f"rel-hm's, two weeks of which are later ({found['machine']['command']}):",
        "",
        "| | altered futures are | processor | peak memory |",
        "|---|---|--:|--:|",
    ]
    for entry in found["cases"]:
        state = states[entry["state"]] if entry["case"] == "certify" else ""
        lines.append(
            f"| {words[entry['case']]} | {state} | {entry['cpu_seconds']:.1f} s | "
            f"{entry['peak_mb']:,} MB |"
        )
    return "\n".join(lines)


def first_step() -> str:
    """The time to the first step, before there was a store and now."""
    found = json.loads((HERE / "first_step.json").read_text(encoding="utf-8"))
    lines = [
        "Seconds of the processor, and by the clock, from the start of the process to the first "
        f"step, on two cores (`{found['machine']['command']}`): before there was a store, with "
        "an empty one, and with what the first training left there. What label SQL takes of the "
        "processor, in a process of its own, is not in the first number. Tensors of the weights "
        "after 20 steps that are the same, bit for bit, of those that both have:",
        "",
        "| task | before | first | later | same weights |",
        "|---|--:|--:|--:|--:|",
    ]
    for entry in found["tasks"]:
        cells = [_until(entry[state][case]) for state, case in
                 (("before", "first"), ("after", "first"), ("after", "later"))]  # fmt: skip
        weights = entry["weights"]
        cells.append(f"{weights['equal']} of {weights['in_both']}")
        lines.append(f"| {entry['dataset']} {entry['task']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _until(entry: dict[str, Any]) -> str:
    cpu, clock = (
        entry[f"prepare_{unit}"] + entry[f"first_step_{unit}"]
        for unit in ("cpu_seconds", "seconds")
    )
    return f"{cpu:.1f} s, {clock:.1f} s"
