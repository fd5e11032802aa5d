"""The tables of docs/when-roles-matter.md: made-up databases, and options on all others."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from relfrog.nn.roles import role_of

__all__ = ["message_options", "when_roles_matter"]

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
OPTIONS = Path(__file__).parent / "message_options.json"
#: Roles that are chosen rather than learned.
FIXED = ("node", "edge")


def when_roles_matter() -> str:
    """ROC-AUC by layers and label, a column per network."""
    results = json.loads((EXPERIMENTS / "when-roles-matter.json").read_text(encoding="utf-8"))
    scores: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for run in results["runs"]:
        scores[run["layers"], run["world"], run["variant"]].append(100 * run["roc_auc"])
    variants = list(dict.fromkeys(run["variant"] for run in results["runs"]))
    seeds = max(len(some) for some in scores.values())
    fewer = any(len(some) < seeds for some in scores.values())
    lines = [
        "ROC-AUC in % on customers that were not learned from, mean ± standard deviation over "
        f"{seeds} seeds{', or as many as the bracket says' if fewer else ''}; **bold** from 95 on. "
        "The last column: learned roles beside the better of node and edge, in points. "
        f"`{results['command']}`; every run is in `experiments/when-roles-matter.json`.", "",
        f"| layers | label hangs on | {' | '.join(variants)} | learned - best fixed |",
        f"|--:|---|{'--:|' * (len(variants) + 1)}",
    ]  # fmt: skip
    for layers in sorted({run["layers"] for run in results["runs"]}):
        for world in results["labels"]:
            row = [scores.get((layers, world, variant), []) for variant in variants]
            if any(row):
                cells = [_cell(some, seeds) for some in row]
                best = [statistics.mean(x) for v in FIXED if (x := scores.get((layers, world, v)))]
                learned = scores.get((layers, world, "learned"))
                ahead = f"{statistics.mean(learned) - max(best):+.1f}" if learned and best else ""
                lines.append(f"| {layers} | {world} | {' | '.join(cells)} | {ahead} |")
    return "\n".join([*lines, "", *_gates(results)])


def message_options() -> str:
    """What each option gives on validation, beside the default: a row per task."""
    results = json.loads(OPTIONS.read_text(encoding="utf-8"))
    scores: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(dict)
    smaller = set()
    for run in results["runs"]:
        task = run["dataset"], run["task"]
        scores[task].setdefault(run["option"], {})[run["seed"]] = run["val"]
        if run["metric"] != "roc_auc":
            smaller.add(task)
    default, *others = results["options"]
    lines = [
        "Validation scores, rolling, of a small FROG after at most "
        f"{results['settings']['epochs'] * results['settings']['steps_per_epoch']} steps (Chinook "
        "and Northwind: as many as by default): with the "
        "default, and how much better or worse (-) each option is with the same seeds: points of "
        "ROC-AUC, or % of the mean absolute error; means over seeds. Test labels were not looked "
        f"at. `{results['command']}`.", "",
        f"| | metric | seeds | {default} | {' | '.join(others)} |",
        f"|---|---|--:|--:|{'--:|' * len(others)}",
    ]  # fmt: skip
    leads: dict[str, list[float]] = defaultdict(list)
    for task, found in scores.items():
        own = found.get(default, {})
        cells = []
        for option in others:
            seeds = found.get(option, {}).keys() & own.keys()
            each = [_better(found[option][s], own[s], task in smaller) for s in sorted(seeds)]
            cells.append(f"{statistics.mean(each):+.1f}" if each else "")
            leads[option] += [statistics.mean(each)] if each else []
        mean = statistics.mean(own.values())
        shown = f"{mean:.3f}" if task in smaller else f"{100 * mean:.1f}"
        metric = "MAE" if task in smaller else "ROC-AUC"
        lines.append(
            f"| {', '.join(task)} | {metric} | {len(own)} | {shown} | {' | '.join(cells)} |"
        )
    ends = [
        f"{sum(x > 0 for x in leads[o])} better, {sum(x < 0 for x in leads[o])} worse; "
        f"median {statistics.median(leads[o]):+.1f}" if leads[o] else ""
        for o in others
    ]  # fmt: skip
    return "\n".join([*lines, f"| **all** | | | | {' | '.join(ends)} |"])


def _better(one: float, other: float, smaller: bool) -> float:
    """How much better a score is: in points, or in % where smaller is better."""
    return 100 * (1 - one / other) if smaller else 100 * (one - other)


def _gates(results: dict[str, Any]) -> list[str]:
    """What the gates say with one layer: a row per label, its seeds in one cell."""
    gates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in results["runs"]:
        if run["layers"] == 1 and run["variant"].startswith("learned"):
            # The other routes of one layer end in tables that do not reach the label.
            (gate,) = (g for route, g in run["gates"].items() if route.endswith("-> customers"))
            gates[run["world"], run["variant"]].append(gate)
    variants = list(dict.fromkeys(variant for _, variant in gates))
    lines = [
        "Gates of the route into customers with one layer, a figure per seed (0: node, 1: edge), "
        "and the role on which all seeds agree:", "",
        f"| label hangs on | {' | '.join(variants)} |", f"|---|{'---|' * len(variants)}",
    ]  # fmt: skip
    for world in results["labels"]:
        cells = [_agreed(gates[world, variant]) for variant in variants]
        lines.append(f"| {world} | {' | '.join(cells)} |")
    return lines


def _agreed(gates: list[float]) -> str:
    """The gates, and their role if it is the same for all of them."""
    if not gates:
        return ""
    roles = {role_of(gate) for gate in gates}
    word = f"**{roles.pop()}**" if len(roles) == 1 else "undecided"
    return f"{', '.join(f'{gate:.2f}' for gate in gates)}: {word}"


def _cell(scores: list[float], seeds: int) -> str:
    """Mean and deviation; the number of seeds if it is not that of the others."""
    if not scores:
        return ""
    mean = statistics.mean(scores)
    text = f"{mean:.1f}" + (f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else "")
    text = f"**{text}**" if mean >= 95 else text
    return text if len(scores) == seeds else f"{text} ({len(scores)})"
