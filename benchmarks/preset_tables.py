"""The table of the presets `paper/...`: what `paper_grid.sh` has measured so far, by study."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE.parent / "experiments" / "rel-f1"
TASKS = ("driver-top3", "driver-position", "driver-dnf")
#: The studies, each with what it compares with FROG as it is.
STUDIES = {"main": "models", "roles": "roles", "fd": "losses", "sensitivity": "weights of losses"}
NAMES = {"frog": "FROG", "sage": "plain GNN"}


def presets() -> str:
    """Scores of each variant, and in how many seeds FROG as it is was ahead of it."""
    lines = [
        "Presets `paper/...` on rel-f1 as the authors' code has them: mean ± standard deviation "
        "over seeds, in the order of runs; ROC-AUC in % (higher is better), on driver-position "
        "the mean absolute error. The epoch is chosen on rolling validation. *FROG ahead*: of the "
        "seeds that both have, on test, frozen. `sh benchmarks/paper_grid.sh DATA`; every run is "
        "in `experiments/rel-f1/authors-*`.",
        "",
        "| task | study | variant | seeds | validation, rolling | test, frozen | test, rolling | "
        "FROG ahead |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    missing = []
    for task in TASKS:
        for study, what in STUDIES.items():
            file = FOLDER / f"authors-{study}-{task}" / "results.json"
            if not file.exists():
                missing.append(f"{study} on {task}")
                continue
            runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
            lines += _rows(task, what, runs)
    if missing:
        lines += ["", f"Not run: {', '.join(missing)}."]
    return "\n".join(lines)


def _rows(task: str, what: str, runs: list[dict[str, Any]]) -> list[str]:
    """A row per variant of a study."""
    metric = "mae" if task == "driver-position" else "roc_auc"

    def scores(variant: str, regime: str, part: str) -> dict[int, float]:
        return {
            run["seed"]: run[part][metric]
            for run in runs
            if (run["variant"], run["regime"]) == (variant, regime)
        }

    frog = scores("frog", "frozen", "metrics")
    lines = []
    for variant in dict.fromkeys(run["variant"] for run in runs):
        frozen = scores(variant, "frozen", "metrics")
        both = sorted(frozen.keys() & frog.keys())
        ahead = sum((frog[s] < frozen[s]) == (metric == "mae") for s in both)
        cells = [
            _shown(list(scores(variant, regime, part).values()), metric)
            for regime, part in (
                ("rolling", "val_metrics"), ("frozen", "metrics"), ("rolling", "metrics"),
            )
        ]  # fmt: skip
        beside = f"{ahead} of {len(both)}" if both and variant != "frog" else ""
        lines.append(
            f"| {task} | {what} | {NAMES.get(variant, variant)} | {len(frozen)} | "
            f"{' | '.join(cells)} | {beside} |"
        )
    return lines


def _shown(values: list[float], metric: str) -> str:
    """Mean and deviation, ROC-AUC in %."""
    scale, digits = (1, 3) if metric == "mae" else (100, 1)
    text = f"{scale * statistics.fmean(values):.{digits}f}"
    return f"{text} ± {scale * statistics.stdev(values):.{digits}f}" if values[1:] else text
