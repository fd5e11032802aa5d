"""Write README's tables of numbers from the JSON files under benchmarks/.

    python benchmarks/tables.py

A test fails when README does not show what the files say.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
SCORES = HERE.parent / "experiments" / "scores.jsonl"
REFERENCES = HERE.parent / "experiments" / "references.json"
BEGIN, END = "<!-- numbers: made by benchmarks/tables.py -->", "<!-- /numbers -->"


def numbers() -> str:
    """The section between the marks."""
    parts = [importing(), sampling()]
    if (HERE / "training.json").exists():
        parts.append(training())
    if SCORES.exists():
        parts.append(scores())
    return "\n\n".join([BEGIN, *parts, END])


def importing() -> str:
    found = json.loads((HERE / "importing.json").read_text(encoding="utf-8"))
    ours, theirs = found["relfrog_import"], found["pandas_read_sql_to_parquet"]
    return (
        f"Importing {found['rows']:,} rows from SQLite, two cores (`{found['command']}`):\n\n"
        "| | seconds | peak memory |\n|---|--:|--:|\n"
        f"| `relfrog import`: keys checked, rows in order of time | {ours['seconds']:.1f} | "
        f"{ours['peak_mb']:,.0f} MB |\n"
        f"| `pandas.read_sql`, then `to_parquet` | {theirs['seconds']:.1f} | "
        f"{theirs['peak_mb']:,.0f} MB |"
    )


def reads_alone(growth: list[dict[str, Any]]) -> str:
    """What the same reads cost by themselves, where that was measured."""
    costs = [g["reads_alone_us_per_seed"] for g in growth if "reads_alone_us_per_seed" in g]
    if not costs:
        return ""
    listed = ", ".join(f"{cost:.1f}" for cost in costs)
    return (
        f" A plain loop that reads the same places of the same arrays in the same order, and does "
        f"nothing else, takes {listed} µs."
    )


def sampling() -> str:
    found = json.loads((HERE / "sampling.json").read_text(encoding="utf-8"))
    lines = [
        f"Sampling, in thousands of seeds a second, two cores (`{found['command']}`); pyg-lib's "
        "figures are reported ones from another two-core machine, not of this run:",
        "",
        "| | separate, 1 / 2 threads | shared, 1 / 2 threads | pyg-lib |",
        "|---|--:|--:|--:|",
    ]
    rows: dict[tuple[str, str, str], dict[tuple[str, int], float]] = {}
    reference: dict[tuple[str, str, str], float | None] = {}
    for entry in found["sampling"]:
        fanouts = "/".join(map(str, entry["fanouts"]))
        name = (f"{entry['dataset']} {entry['task']}", fanouts, str(entry["batch"]))
        rows.setdefault(name, {})[entry["mode"], entry["workers"]] = entry["seeds_per_s"]
        reference[name] = entry["pyg_lib_seeds_per_s"]
    for (task, fanouts, size), speed in rows.items():
        cells = [
            " / ".join(f"{speed[mode, workers] / 1000:.1f}" for workers in (1, 2))
            for mode in ("separate", "shared")
        ]
        label = f"{task}, {fanouts} neighbours, batch {size}"
        known = reference[task, fanouts, size]
        cells.append(f"{known / 1000:g}" if known else "")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    build = found["build"][-1]
    growth = [g for g in found["growth"] if len(g["fanouts"]) == 2]
    costs = ", ".join(f"{g['us_per_seed']:.0f} µs at {g['rows']:,} rows" for g in growth)
    lines += [
        "",
        f"A seed with 128/64 neighbours on scaled copies of rel-f1, separate, one thread: {costs} "
        f"(the same {growth[0]['rows_per_seed']:.0f} rows each time: what grows is the share of "
        f"them that is not in the processor's caches).{reads_alone(growth)}",
        "",
        f"Building the graph of {build['rows']:,} rows with two foreign keys takes "
        f"{build['build_s']:.1f} s and {build['bytes_per_fact']:.1f} bytes a row.",
    ]
    return "\n".join(lines)


def training() -> str:
    found = json.loads((HERE / "training.json").read_text(encoding="utf-8"))
    cores = {1: "one core", 2: "two cores"}.get(found["machine"]["cores"], "all cores")
    lines = [
        f"Training on rel-f1, in seeds a second, {cores} (`{found['command']}`). A step samples a "
        "batch, runs both phases of the alternation where the model has them, and updates the "
        "weights; beside it, in the same run, the same network written plainly on PyTorch "
        "Geometric:",
        "",
        "| | weights | RelFrog | plain | times | peak memory, both |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for case in found["cases"]:
        fanouts = "/".join(map(str, case["fanouts"]))
        label = (
            f"{case['task']}, {case['model']}, {case['channels']} channels, {fanouts} neighbours, "
            f"batch {case['batch']}"
        )
        if case["case"].startswith("default") or case["case"] == "recommend":
            label += " (default settings)"
        elif case["case"] == "recommend-paper":
            label += " (sampled targets alone)"
        plain = case.get("plain_seeds_per_s")
        memory = f"{case['peak_mb']:,}"
        cells = ["", "", f"{memory} MB"]
        if plain:
            both = f"{memory} / {case['peak_mb_with_plain']:,} MB"
            cells = [_speed(plain), _speed(case["times_faster"]), both]
        cells = [f"{case['weights'] / 1e6:.1f} M", _speed(case["seeds_per_s"]), *cells]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    growth = found["growth"]
    if growth:
        costs = ", ".join(
            f"{g['ms_per_seed_one_copy']:.1f} ms ({g['ms_per_seed_anywhere']:.1f}) at "
            f"{g['rows']:,} rows and {g['peak_mb']:,} MB"
            for g in growth
        )
        lines += [
            "",
            "A seed of driver-dnf with frog and 128 channels on scaled copies of rel-f1, the "
            "seeds of a batch in one copy (in any: they then have fewer rows in common): "
            f"{costs}.",
        ]
    known = "; ".join(
        f"{entry['of']}: {' to '.join(f'{value:,}' for value in entry['seeds_per_s'])}"
        for entry in found["references_not_of_this_run"]
    )
    lines += ["", f"Figures of others in seeds a second, reported and not of this run: {known}."]
    return "\n".join(lines)


def scores() -> str:
    """Mean and deviation over seeds, per task, settings and regime."""
    entries = [json.loads(line) for line in SCORES.read_text(encoding="utf-8").splitlines()]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["dataset"], entry["task"], entry["name"]), []).append(entry)
    lines = [
        "Test scores (`experiments/scores.py`; every run is a line of `experiments/scores.jsonl` "
        "with its command). ROC-AUC in per cent, MAE, or MAP@k; mean ± deviation over seeds. "
        "frozen: the database stops at the test time; rolling: each seed sees everything up to its "
        "own time. Within a run the epoch is chosen on validation alone. The default settings were "
        "picked on rel-f1 by validation: most of them with its test scores in sight, the latest "
        "(recency in edge messages, weight decay, few numbers for names) without; "
        "`experiments/levers.json` says what each gave. Runs went two at a time, one thread each, "
        "many of them beside other work, so that seconds are upper bounds. "
        "What is in italics was reported by others, not measured here:",
        "",
        "| task | answer | seeds | frozen | rolling | seconds | memory |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    reported: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in json.loads(REFERENCES.read_text(encoding="utf-8"))["scores"]:
        reported.setdefault((entry["dataset"], entry["task"]), []).append(entry)
    trained = {(e["dataset"], e["task"]) for e in entries if "seconds" in e}
    for (dataset, task, name), runs in sorted(groups.items()):
        if (dataset, task) not in trained:
            continue
        for entry in reported.pop((dataset, task), []):
            known = [entry[regime] or "" for regime in ("frozen", "rolling")]
            lines.append(f"| {dataset} {task} | *{entry['name']}* | | {' | '.join(known)} | | |")
        cells = []
        for regime in ("frozen", "rolling"):
            found = [run["test"][regime] for run in runs if regime in run["test"]]
            cells.append(_score(found) if found else "")
        timed = [run for run in runs if "seconds" in run]
        if timed:
            mean = statistics.fmean(run["seconds"] for run in timed)
            memory = max(run["peak_memory_bytes"] for run in timed) / 1e9
            cells += [f"{mean:.0f}", f"{memory:.1f} GB"]
        else:
            cells += ["", ""]
        lines.append(f"| {dataset} {task} | {name} | {len(runs)} | {' | '.join(cells)} |")
    lines += [
        "",
        "On flights airport-delay every constant is better: the model follows the calm weeks "
        "before the test weeks, which are the stormy ones of December (mean label 2 minutes in "
        "validation, 19 in test). On rel-f1 LightGBM on "
        "features that RelFrog builds by itself is ahead of the network, here and there by more "
        "than its deviation: `--model auto` trains both and goes by validation.",
    ]
    return "\n".join(lines)


def _score(metrics: list[dict[str, float]]) -> str:
    if "roc_auc" in metrics[0]:
        values, digits = [100 * m["roc_auc"] for m in metrics], 1
    elif "map" in metrics[0]:
        values, digits = [m["map"] for m in metrics], 4
    else:
        values, digits = [m["mae"] for m in metrics], 3
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def updated(readme: str) -> str:
    """README with the section made anew."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + numbers() + tail


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
