"""Write the tables of README and docs from the JSON files under benchmarks/ and experiments/.

    python benchmarks/tables.py

A test fails when a page does not show what the files say.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from audit_tables import audits
from cluster_tables import billions, cluster
from database_tables import databases, losses, time_budget
from preset_tables import presets
from question_tables import relbench_questions
from relfrog.config import Config
from role_tables import message_options, when_roles_matter
from scale_tables import paper_scale, scale
from store_tables import certify, first_step
from strongest_tables import refits, strongest

HERE = Path(__file__).parent
ROOT = HERE.parent
EXPERIMENTS = ROOT / "experiments"
REFERENCES = EXPERIMENTS / "references.json"
PAGES = (
    ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "when-roles-matter.md", ROOT / "docs" / "ask.md",
    ROOT / "docs" / "scale.md", ROOT / "docs" / "promises.md",
)  # fmt: skip
MARKS = re.compile(r"<!-- (\S+): made by benchmarks/tables\.py -->.*?<!-- /\1 -->", re.S)
#: Models of the full table on rel-f1, and what they are called there.
MODELS = {
    "frog": "FROG (`frog`)", "frog-refit": "FROG, refit",
    "sage": "plain relational GNN (`sage`)", "sage-refit": "plain relational GNN, refit",
    "relgnn": "RelGNN (`relgnn`)", "relgnn-refit": "RelGNN, refit",
    "lightgbm": "LightGBM on automatic features (`lightgbm`)",
    "lightgbm-refit": "LightGBM on automatic features, refit",
    "lightgbm-own": "LightGBM on the driver's own columns",
    "auto": "best or blend of FROG and baselines (`auto`)",
    "auto-refit": "best or blend of FROG and baselines, refit",
    "recent": "mean of recent labels (`recent`)", "mean": "entity mean", "median": "entity median",
    "global-mean": "global mean", "global-median": "global median",
}  # fmt: skip
#: Rows of the summary, before the paper's own figure.
SUMMARY = {
    "frog": "FROG", "sage": "plain GNN", "relgnn": "RelGNN", "lightgbm": "LightGBM",
    "auto": "`auto`",
}  # fmt: skip
#: Models whose result depends on the random seed.
DRAWING = ("frog", "sage", "relgnn", "id-gnn", "lightgbm", "auto")
F1 = ("driver-dnf", "driver-top3", "driver-position")


def block(name: str) -> str:
    """The text between the marks of this name."""
    if name in MAKERS:
        return MAKERS[name]()
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
        f"`{results['command']}`. Every run is in `{place}/results.json`; together they took "
        f"{seconds / 3600:.1f} single-thread hours on a shared machine.\n\n{body}"
    )


def check_complete(results: dict[str, Any], place: str) -> None:
    """Check that every model with random choices has as many seeds as requested.

    Raises:
        SystemExit: A seed is missing: the experiment was interrupted.
    """
    asked = re.search(r"--seeds (\d+)", results["command"])
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for run in results["runs"]:
        key = run["task"], run["variant"], run["model"]
        seeds.setdefault(key, set()).add(run["seed"])
    for (task, variant, model), found in seeds.items():
        if asked and model in DRAWING and len(found) < int(asked[1]):
            raise SystemExit(f"{place}: {task} {variant} has {len(found)} of {asked[1]} seeds")


def formula_one_runs() -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of all models on rel-f1, and those of RelGNN, which was run separately."""
    folder = EXPERIMENTS / "rel-f1"
    main, relgnn = (
        json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
        for name in ("main", "relgnn")
    )
    return main, relgnn


def formula_one_rows(models: dict[str, str], digits: int) -> list[str]:
    """One row per model: the test score of each task on rel-f1 in both regimes."""
    main, relgnn = formula_one_runs()
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for run in [*main["runs"], *relgnn["runs"]]:
        at = run["variant"], run["task"], run["regime"]
        found.setdefault(at, []).append(run["metrics"])
    rows = []
    for model, words in models.items():
        cells = [found.get((model, t, r)) for t in F1 for r in ("frozen", "rolling")]
        if any(cells):
            shown = " | ".join(_score(some, digits) if some else "" for some in cells)
            rows.append(f"| {words} | {shown} |")
    return rows


def formula_one_header() -> list[str]:
    """The header of a table with one column per task on rel-f1 and regime."""
    names = [f"{t.removeprefix('driver-')}, {r}" for t in F1 for r in ("frozen", "rolling")]
    return [f"| | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]


def paper_figures(model: str) -> list[list[float]]:
    """The paper's figures on rel-f1, one per task: mean, and deviation where it has one."""
    path = ROOT / "src" / "relfrog" / "experiments" / "paper.json"
    paper = json.loads(path.read_text(encoding="utf-8"))["main"]
    return [paper[f"rel-f1/{task}"].get(model) or [] for task in F1]


def settings_used(runs: list[dict[str, Any]]) -> str:
    """The settings of FROG's runs in words; defaults may have changed since they were made."""
    used = [run["settings"] for run in runs if run["model"] == "frog"]
    (strategy,) = {settings["strategy"] for settings in used}
    if strategy == Config.strategy:
        return "default settings"
    epochs = max(settings["epochs"] for settings in used)
    return f"default settings but for `strategy={strategy}` and at most {epochs} epochs"


def summary() -> str:
    """Six rows for README: the models that learn, and the paper's FROG."""
    main, _ = formula_one_runs()
    seeds = len({run["seed"] for run in main["runs"]})
    paper = [
        " ± ".join(f"{value:.{digits}f}" for value in figure) + " | "
        for figure, digits in zip(paper_figures("frog"), (1, 1, 2), strict=True)
    ]
    lines = [
        f"Test scores on RelBench's rel-f1, {settings_used(main['runs'])}, mean ± standard "
        f"deviation over {seeds} seeds. ROC-AUC in % for dnf and top3 (higher is better), mean "
        "absolute error for position (lower is better):",
        "",
        *formula_one_header(),
        *formula_one_rows(SUMMARY, 2),
        f"| FROG, published | {' | '.join(paper)} |",
    ]
    return "\n".join(lines)


def formula_one() -> str:
    """All models on rel-f1, beside the paper's figures and those of others."""
    main, relgnn = formula_one_runs()
    seeds, others = (len({run["seed"] for run in some["runs"]}) for some in (main, relgnn))
    fewer = "" if others == seeds else f" ({others} for RelGNN)"
    lines = [
        "ROC-AUC in % (higher is better) and mean absolute error (lower is better) on test; mean ± "
        f"standard deviation over {seeds} seeds{fewer}. "
        f"{settings_used(main['runs']).capitalize()}; the epoch is chosen on validation alone. "
        "*Refit*: then retrained on training and validation labels for the same "
        "number of epochs. Figures in italics were reported by others. Commands: "
        f"`{main['command']}`; for RelGNN `{relgnn['command']}`.",
        "",
        *formula_one_header(),
        *formula_one_rows(MODELS, 3),
    ]
    names = {"frog": "FROG", "relgnn": "RelGNN", "sage": "RDL (GraphSAGE)",
             "lightgbm-own": "LightGBM"}  # fmt: skip
    for model, words in names.items():
        shown = [" ± ".join(f"{v:g}" for v in figure) + " | " for figure in paper_figures(model)]
        lines.append(f"| *the paper: {words}* | {' | '.join(shown)} |")
    reported: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in json.loads(REFERENCES.read_text(encoding="utf-8"))["scores"]:
        if entry["dataset"] == "rel-f1" and entry["name"] != "the paper's FROG":
            reported.setdefault(entry["name"], {})[entry["task"]] = entry
    for name, tasks in reported.items():
        cells = [tasks.get(t, {}).get(r) or "" for t in F1 for r in ("frozen", "rolling")]
        lines.append(f"| *{name}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def importing() -> str:
    found = json.loads((HERE / "importing.json").read_text(encoding="utf-8"))
    ours, theirs = found["relfrog_import"], found["pandas_read_sql_to_parquet"]
    return (
        f"{found['rows']:,} rows from SQLite on two cores (`{found['command']}`):\n\n"
        "| | seconds | peak memory |\n|---|--:|--:|\n"
        f"| `relfrog import`, with keys checked and rows sorted by time | {ours['seconds']:.1f} | "
        f"{ours['peak_mb']:,.0f} MB |\n"
        f"| `pandas.read_sql` and `to_parquet` | {theirs['seconds']:.1f} | "
        f"{theirs['peak_mb']:,.0f} MB |"
    )


def reads_alone(growth: list[dict[str, Any]]) -> str:
    """The cost of the same reads alone, where that was measured."""
    costs = [g["reads_alone_us_per_seed"] for g in growth if "reads_alone_us_per_seed" in g]
    if not costs:
        return ""
    listed = ", ".join(f"{cost:.1f}" for cost in costs)
    return f" A bare loop over the same memory accesses, in the same order, takes {listed} µs."


def sampling() -> str:
    found = json.loads((HERE / "sampling.json").read_text(encoding="utf-8"))
    lines = [
        f"Thousands of seeds per second on two cores (`{found['command']}`). In *separate* mode "
        "each seed has its own subgraph; in *shared* mode seeds with the same time share one. "
        "pyg-lib's figures were reported from another two-core machine:",
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
        label = f"{task}, fanout {fanouts}, batch {size}"
        known = reference[task, fanouts, size]
        cells.append(f"{known / 1000:g}" if known else "")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    build = found["build"][-1]
    growth = [g for g in found["growth"] if len(g["fanouts"]) == 2]
    costs = ", ".join(f"{g['us_per_seed']:.0f} µs at {g['rows']:,} rows" for g in growth)
    lines += [
        "",
        f"Cost per seed as rel-f1 is scaled up, fanout 128/64, separate, one thread: {costs}. "
        f"Every seed reads the same {growth[0]['rows_per_seed']:.0f} rows; the machine is shared, "
        f"so single figures are noisy.{reads_alone(growth)}",
        "",
        f"Building the graph of {build['rows']:,} rows with two foreign keys takes "
        f"{build['build_s']:.1f} s and {build['bytes_per_fact']:.1f} bytes per row.",
    ]
    return "\n".join(lines)


def training() -> str:
    found = json.loads((HERE / "training.json").read_text(encoding="utf-8"))
    cores = {1: "one core", 2: "two cores"}.get(found["machine"]["cores"], "all cores")
    lines = [
        f"Seeds per second on rel-f1, {cores} (`{found['command']}`). A step samples a batch, runs "
        "both optimization phases where the model has them, and updates the weights. The reference "
        "is the same network written in plain PyTorch Geometric, measured in the same run:",
        "",
        "| | weights | RelFrog | PyG | speed-up | peak memory, RelFrog / with PyG |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for case in found["cases"]:
        fanouts = "/".join(map(str, case["fanouts"]))
        label = (
            f"{case['task']}, {case['model']}, {case['channels']} channels, fanout {fanouts}, "
            f"batch {case['batch']}"
        )
        if case["case"].startswith("default") or case["case"] == "recommend":
            label += " (default settings)"
        elif case["case"] == "recommend-paper":
            label += " (sampled targets only)"
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
            "Cost per seed as rel-f1 is scaled up by copying (driver-dnf, frog, 128 channels), "
            "with all seeds of a batch in one copy, and in brackets spread over all copies, where "
            f"they share fewer rows: {costs}.",
        ]
    if found.get("seeds"):
        costs = ", ".join(
            f"{row['ms_per_seed']:.1f} ms and {row['peak_mb']:,} MB with {row['seeds']:,}"
            for row in found["seeds"]
        )
        lines += ["", f"The same on one copy, with more seeds at more seed times: {costs}."]
    known = "; ".join(
        f"{entry['of']}: {' to '.join(f'{value:,}' for value in entry['seeds_per_s'])}"
        for entry in found["references_not_of_this_run"]
    )
    lines += ["", f"Reported by others, in seeds per second, not measured here: {known}."]
    return "\n".join(lines)


def defaults() -> str:
    found = json.loads((HERE / "defaults.json").read_text(encoding="utf-8"))
    runs = "; ".join(
        f"{run['dataset']} {run['task']} {run['seconds'] / 60:.1f} minutes and "
        f"{run['peak_mb']:,} MB ({run['epochs']} epochs)"
        for run in found["runs"]
    )
    return (
        "`relfrog train --model frog`, from start to scores, with `strategy=last` and at most 12 "
        "epochs, then the defaults, on a shared machine "
        f"(`{found['command']}`): {runs}."
    )


def _score(metrics: list[dict[str, float]], digits: int) -> str:
    """Mean and deviation: ROC-AUC in % with one digit, errors with as many as asked for."""
    if "roc_auc" in metrics[0]:
        values, digits = [100 * m["roc_auc"] for m in metrics], 1
    else:
        values = [m["mae"] for m in metrics]
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _megabytes(value: int | None) -> str:
    return "" if value is None else f"{value:,} MB"


def _state(entry: dict[str, Any]) -> str:
    """What to know of entries that were measured before each way had a process of its own."""
    return "" if "commit" in entry else " (earlier code; memory with preparation)"


def everyone() -> str:
    """Predictions for all entities at one time: speed, memory and scores of both ways."""
    found = json.loads((HERE / "everyone.json").read_text(encoding="utf-8"))
    commands = ", ".join(f"`{entry['command']}`" for entry in found["speed"])
    lines = [
        "All customers of a made-up database like rel-hm at its newest time, FROG with default "
        "settings, two cores: layer by layer, as `predict` does it, and in batches of 512 "
        f"customers that share a sampled past, as before ({commands}). Other "
        "work on the machine makes both numbers larger, so processor time per customer stands "
        "beside the time that elapsed; batches are those of a sample of customers, in proportion:",
        "",
        "| rows, earlier labels among them | customers | processor: layer by layer | in batches | "
        "ratio | elapsed, all customers: layer by layer | in batches | ratio | memory: private | "
        "with mapped files |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for entry in found["speed"]:
        own, batches = entry["layerwise"], entry["batches"]
        whole = batches["seconds"] / batches["seeds"] * entry["customers"]
        lines.append(
            f"| {entry['rows']:,}{_state(entry)} | {entry['customers']:,} | "
            f"{own['cpu_us_per_seed']:.1f} µs | "
            f"{batches['cpu_us_per_seed']:.0f} µs | "
            f"{batches['cpu_us_per_seed'] / own['cpu_us_per_seed']:.1f} | "
            f"{own['seconds']:.1f} s | {whole:,.0f} s | {whole / own['seconds']:.1f} | "
            f"{_megabytes(own.get('private_mb'))} | {_megabytes(own['peak_mb'])} |"
        )
    for entry in found["speed"]:
        if "before" in entry:
            before, own = entry["before"], entry["layerwise"]
            old, new = (one["seconds"] / one["seeds"] * 1e6 for one in (before, own))
            lines += [
                "",
                f"Before there was this way, at commit {before['commit']}, a customer of the "
                f"{entry['customers']:,} took {before['cpu_us_per_seed']:.0f} µs of the processor, "
                f"{before['cpu_us_per_seed'] / own['cpu_us_per_seed']:.1f} times as much as layer "
                f"by layer in the same run, and {old:.0f} µs by the clock, {old / new:.1f} times "
                "as long: both cores compute blocks.",
            ]
    lines += [
        "",
        "Test scores of trained runs (`python benchmarks/everyone.py --runs RUN ...`), trained in "
        "shared subgraphs, and scored in shared ones, in separate ones, and layer by layer:",
        "",
        "| | rolling: shared | separate | layer by layer | frozen: shared | separate | "
        "layer by layer |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for entry in found["scores"]:
        cells = [
            f"{entry[regime][way]:.4f}"
            for regime in ("rolling", "frozen")
            for way in ("shared", "separate", "layerwise")
        ]
        lines.append(f"| {entry['run']} ({entry['metric']}) | {' | '.join(cells)} |")
    return "\n".join(lines)


#: Blocks that are not the tables of a single study.
MAKERS = {
    "summary": summary, "rel-f1": formula_one, "importing": importing, "sampling": sampling,
    "training": training, "whole-runs": defaults, "databases": databases, "scale": scale,
    "losses": losses, "time-budget": time_budget,
    "paper-scale": paper_scale, "everyone": everyone, "certify": certify, "first-step": first_step,
    "when-roles-matter": when_roles_matter, "relbench-questions": relbench_questions,
    "cluster": cluster, "billions": billions, "strongest": strongest, "refits": refits,
    "audit": audits, "presets": presets, "message-options": message_options,
}  # fmt: skip


def updated(page: str) -> str:
    """A page with everything between marks generated again."""

    def anew(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name}: made by benchmarks/tables.py -->\n\n{block(name)}\n\n<!-- /{name} -->"

    return MARKS.sub(anew, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
