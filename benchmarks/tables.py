"""Write the tables of README and docs/results.md from the files under benchmarks/ and experiments/.

    python benchmarks/tables.py

A test fails when a page does not show what the files say.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
EXPERIMENTS = ROOT / "experiments"
REFERENCES = EXPERIMENTS / "references.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
MARKS = re.compile(r"<!-- (\S+): made by benchmarks/tables\.py -->.*?<!-- /\1 -->", re.S)
#: Models in README's table, and how they are called there.
MODELS = {
    "frog": "FROG", "frog-refit": "FROG, refitted",
    "sage": "plain relational GNN (`sage`)", "sage-refit": "plain relational GNN, refitted",
    "relgnn": "RelGNN (`relgnn`)", "relgnn-refit": "RelGNN, refitted",
    "lightgbm": "LightGBM on automatic features",
    "lightgbm-refit": "LightGBM on automatic features, refitted",
    "lightgbm-own": "LightGBM on the driver's own columns",
    "auto": "the best of them, or a blend (`auto`)",
    "auto-refit": "the best of them, or a blend, refitted",
    "recent": "mean of recent labels (`recent`)", "mean": "entity mean", "median": "entity median",
    "global-mean": "global mean", "global-median": "global median",
}  # fmt: skip
#: Models that another seed gives another result of.
DRAWING = ("frog", "sage", "relgnn", "id-gnn", "lightgbm", "auto")
F1 = ("driver-dnf", "driver-top3", "driver-position")


def block(name: str) -> str:
    """What stands between the marks of this name."""
    if name == "speed":
        return "\n\n".join([importing(), sampling(), training(), defaults()])
    if name == "rel-f1":
        return formula_one()
    return study(EXPERIMENTS / name)


def study(folder: Path) -> str:
    """The tables and charts of an experiment, and the command that made them."""
    text = (folder / "table.md").read_text(encoding="utf-8")
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    _, _, body = text.partition("### ")
    body = re.split(r"(?m)^(?:Skipped|Failed):", f"### {body}")[0].strip()
    body = re.sub(r"(?m)^### (.*)$", r"**\1**", body)
    if folder.name == "fd-space":  # a row for every key is too much for a page
        body = re.sub(r"(?m)^\| \S+ \S+ \| [^|]* -> [^|]*\|.*\n", "", body)
    place = folder.relative_to(ROOT).as_posix()
    check_complete(results, place)
    body = re.sub(r"(!\[[^\]]*\]\()", rf"\1../{place}/", body)
    seconds = sum({(r["run"], r["seconds"]): r["seconds"] for r in results["runs"]}.values())
    return (
        f"`{results['command']}`: every run is in `{place}/results.json`; together "
        f"{seconds / 3600:.1f} hours of one thread, on a machine that had other work.\n\n{body}"
    )


def check_complete(results: dict[str, Any], place: str) -> None:
    """See whether all that draw at random have as many seeds as were asked for.

    Raises:
        SystemExit: They do not: the experiment was interrupted.
    """
    asked = re.search(r"--seeds (\d+)", results["command"])
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for run in results["runs"]:
        key = run["task"], run["variant"], run["model"]
        seeds.setdefault(key, set()).add(run["seed"])
    for (task, variant, model), found in seeds.items():
        if asked and model in DRAWING and len(found) < int(asked[1]):
            raise SystemExit(f"{place}: {task} {variant} has {len(found)} of {asked[1]} seeds")


def formula_one() -> str:
    """All models on rel-f1, beside the paper's figures and those of others."""
    folder = EXPERIMENTS / "rel-f1"
    results, more = (
        json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
        for name in ("main", "relgnn")
    )
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for run in [*results["runs"], *more["runs"]]:
        at = run["variant"], run["task"], run["regime"]
        found.setdefault(at, []).append(run["metrics"])
    seeds, others = (len({run["seed"] for run in some["runs"]}) for some in (results, more))
    fewer = "" if others == seeds else f" (RelGNN: {others})"
    lines = [
        "Test scores on rel-f1: ROC-AUC in per cent (more is better) and mean absolute error (less "
        f"is better); mean ± deviation over {seeds} seeds{fewer}. frozen: the database "
        "stops at the test time, as in the paper; rolling: each seed sees everything up to its "
        "own time, as a model in use does. Settings are the defaults, the epoch is chosen on "
        "validation alone; refitted: then learned once more from training and validation labels, "
        f"for as many epochs (`{results['command']}`; RelGNN: `{more['command']}`). What is in "
        "italics was reported by others:",
        "",
        "| | " + " | ".join(f"{t.removeprefix('driver-')}, {r}" for t in F1
                            for r in ("frozen", "rolling")) + " |",
        "|---|" + "--:|" * 6,
    ]  # fmt: skip
    for model, words in MODELS.items():
        cells = [found.get((model, t, r)) for t in F1 for r in ("frozen", "rolling")]
        if any(cells):
            shown = " | ".join(_score(some) if some else "" for some in cells)
            lines.append(f"| {words} | {shown} |")
    paper = json.loads(
        (ROOT / "src" / "relfrog" / "experiments" / "paper.json").read_text(encoding="utf-8")
    )["main"]
    names = {"frog": "FROG", "relgnn": "RelGNN", "sage": "RDL (GraphSAGE)",
             "lightgbm-own": "LightGBM"}  # fmt: skip
    for model, words in names.items():
        shown = " | ".join(_published(paper[f"rel-f1/{t}"].get(model)) for t in F1)
        lines.append(f"| *the paper: {words}* | {shown} |")
    reported: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in json.loads(REFERENCES.read_text(encoding="utf-8"))["scores"]:
        if entry["dataset"] == "rel-f1" and entry["name"] != "the paper's FROG":
            reported.setdefault(entry["name"], {})[entry["task"]] = entry
    for name, tasks in reported.items():
        told = [tasks.get(t, {}).get(r) or "" for t in F1 for r in ("frozen", "rolling")]
        lines.append(f"| *{name}* | {' | '.join(told)} |")
    return "\n".join(lines)


def _published(figure: list[float] | None) -> str:
    """A figure of the paper, which has one regime."""
    return " | " if figure is None else " ± ".join(f"{value:g}" for value in figure) + " | "


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
        f"(the same {growth[0]['rows_per_seed']:.0f} rows each time; the machine is "
        f"shared, and single figures are noisy).{reads_alone(growth)}",
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
    if found.get("seeds"):
        costs = ", ".join(
            f"{row['ms_per_seed']:.1f} ms and {row['peak_mb']:,} MB with {row['seeds']:,}"
            for row in found["seeds"]
        )
        lines += ["", f"The same on one copy with more seeds at more times: {costs}."]
    known = "; ".join(
        f"{entry['of']}: {' to '.join(f'{value:,}' for value in entry['seeds_per_s'])}"
        for entry in found["references_not_of_this_run"]
    )
    lines += ["", f"Figures of others in seeds a second, reported and not of this run: {known}."]
    return "\n".join(lines)


def defaults() -> str:
    found = json.loads((HERE / "defaults.json").read_text(encoding="utf-8"))
    runs = "; ".join(
        f"{run['dataset']} {run['task']} {run['seconds'] / 60:.1f} minutes and "
        f"{run['peak_mb']:,} MB ({run['epochs']} epochs)"
        for run in found["runs"]
    )
    return (
        f"A whole run without any setting, from start to scores (`{found['command']}`, while the "
        f"machine had other work): {runs}."
    )


def _score(metrics: list[dict[str, float]]) -> str:
    if "roc_auc" in metrics[0]:
        values, digits = [100 * m["roc_auc"] for m in metrics], 1
    else:
        values, digits = [m["mae"] for m in metrics], 3
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def updated(page: str) -> str:
    """A page with everything between marks made anew."""

    def anew(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name}: made by benchmarks/tables.py -->\n\n{block(name)}\n\n<!-- /{name} -->"

    return MARKS.sub(anew, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
