"""The table of the presets `paper/...`: what `paper_grid.sh` has measured so far, by study."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from relfrog.experiments.paper import published_scores

HERE = Path(__file__).parent
FOLDER = HERE.parent / "experiments" / "rel-f1"
TASKS = ("driver-top3", "driver-position", "driver-dnf")
#: The studies, each with what it compares with FROG as it is.
STUDIES = {"main": "models", "roles": "roles", "fd": "losses", "sensitivity": "weights of losses"}
NAMES = {
    "frog": "FROG", "sage": "plain GNN", "node": "all tables as nodes",
    "edge": "all tables as edges", "random": "random, U(0, 1)",
}  # fmt: skip
#: What FROG as it is is called in the studies: the same runs as in the first.
ITSELF = ("learned", "full", "beta=1e-06", "gamma=0.1")

Run = dict[str, Any]


def presets() -> str:
    """Scores of each variant, and how far FROG as it is was ahead of it, seed by seed."""
    lines = [
        "Presets `paper/...` on rel-f1 as the authors' code has them: mean ± standard deviation "
        "over seeds; ROC-AUC in % (higher is better), on driver-position the mean absolute error "
        "(lower is better). The epoch is chosen on rolling validation. *FROG's lead*: of each seed "
        "that both have, on test, frozen, in points or in places; positive where FROG is better, "
        "mean ± standard deviation, and with how many seeds it is. `sh benchmarks/paper_grid.sh "
        "DATA`; every run is in `experiments/rel-f1/authors-*`.",
        "",
        "| task | study | variant | seeds | validation, rolling | test, frozen | the paper, frozen "
        "| test, rolling | FROG's lead |  |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    missing = []
    for task in TASKS:
        files = {study: FOLDER / f"authors-{study}-{task}" / "results.json" for study in STUDIES}
        found = {
            study: json.loads(file.read_text(encoding="utf-8"))["runs"]
            for study, file in files.items() if file.exists()
        }  # fmt: skip
        missing += [f"{study} on {task}" for study in STUDIES if study not in found]
        itself = _scores(found.get("main", []), "frog", "frozen", "metrics", task)
        for study, runs in found.items():
            lines += _rows(task, study, runs, itself)
    if missing:
        lines += ["", f"Not run: {', '.join(missing)}."]
    return "\n".join(lines)


def _scores(runs: list[Run], variant: str, regime: str, part: str, task: str) -> dict[int, float]:
    """The scores of a variant by seed."""
    metric = "mae" if task == "driver-position" else "roc_auc"
    return {
        run["seed"]: run[part][metric]
        for run in runs if (run["variant"], run["regime"]) == (variant, regime)
    }  # fmt: skip


def _rows(task: str, study: str, runs: list[Run], itself: dict[int, float]) -> list[str]:
    """A row per variant of a study; FROG as it is has one in the first study alone."""
    published = published_scores(study).get(f"rel-f1/{task}", {})
    lines = []
    for variant in dict.fromkeys(run["variant"] for run in runs):
        if variant in ITSELF:
            continue
        frozen = _scores(runs, variant, "frozen", "metrics", task)
        printed = [
            _shown(list(_scores(runs, variant, regime, part, task).values()), task)
            for regime, part in (
                ("rolling", "val_metrics"), ("frozen", "metrics"), ("rolling", "metrics"),
            )
        ]  # fmt: skip
        printed.insert(2, _published(published.get(variant), task))
        seeds = sorted(frozen.keys() & itself.keys()) if variant != "frog" else []
        sign = -1 if task == "driver-position" else 1
        leads = [sign * (itself[seed] - frozen[seed]) for seed in seeds]
        ahead = f"{sum(lead > 0 for lead in leads)} of {len(leads)}" if leads else ""
        lines.append(
            f"| {task} | {STUDIES[study]} | {NAMES.get(variant, variant)} | {len(frozen)} | "
            f"{' | '.join(printed)} | {_shown(leads, task, '+')} | {ahead} |"
        )
    return lines


def _shown(values: list[float], task: str, sign: str = "") -> str:
    """Mean and deviation, ROC-AUC in %."""
    if not values:
        return ""
    scale, digits = (1, 3) if task == "driver-position" else (100, 1)
    text = f"{scale * statistics.fmean(values):{sign}.{digits}f}"
    return f"{text} ± {scale * statistics.stdev(values):.{digits}f}" if values[1:] else text


def _published(figure: tuple[float, float | None] | None, task: str) -> str:
    """A figure of the paper, with as many digits as ours."""
    if figure is None:
        return ""
    digits = 3 if task == "driver-position" else 1
    mean, deviation = figure
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")
