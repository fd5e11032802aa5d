"""Tables of the default model: `databases.json`, `losses.json` and `time_budget.json`."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: Columns of the table of databases.
DATABASE_COLUMNS = {
    "auto": "`train`", "frog": "FROG", "sage": "plain GNN", "lightgbm": "LightGBM",
    "recent": "recent", "mean": "mean", "median": "median", "global-mean": "global mean",
    "global-median": "global median", "popularity": "popularity", "past-visit": "past visit",
}  # fmt: skip


def databases() -> str:
    """The default model beside all others, on databases as their users have them."""
    found = json.loads((HERE / "databases.json").read_text(encoding="utf-8"))
    tasks: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in found["runs"]:
        tasks.setdefault((run["database"], run["task"]), []).append(run)
    seeds = {len(runs) for runs in tasks.values()}
    if len(seeds) != 1:
        raise SystemExit(f"benchmarks/databases.json: tasks with {sorted(seeds)} seeds")
    names = [
        name for name in DATABASE_COLUMNS
        if any(name in run["scores"] for run in found["runs"])
    ]  # fmt: skip
    lines = [
        f"Test scores, rolling, mean ± standard deviation over {seeds.pop()} seeds "
        f"(`{found['command']}`, at most {found['settings']['minutes']} minutes a run). ROC-AUC "
        "and MAP in %, higher is better; RMSE and MAE, lower is better. In brackets under `train`: "
        "the 95 % range of seed 0 over entities, and what answers. Bold: the best.",
        "",
        f"| | labels: train, test | metric | {' | '.join(DATABASE_COLUMNS[n] for n in names)} |",
        f"|---|--:|---|{'--:|' * len(names)}",
    ]
    for (database, task), runs in tasks.items():
        metric, higher = runs[0]["metric"], runs[0]["higher"]
        scores = {
            name: [run["scores"][name]["test"] for run in runs if name in run["scores"]]
            for name in names
        }
        means = {name: statistics.fmean(values) for name, values in scores.items() if values}
        best = (max if higher else min)(means.values())
        cells = []
        for name in names:
            text = _database_score(scores[name], metric)
            text = f"**{text}**" if means.get(name) == best else text
            cells.append(f"{text} ({_database_answer(runs, metric)})" if name == "auto" else text)
        counts = f"{runs[0]['training_labels']:,}, {runs[0]['labels']:,}"
        title = f"{database}, {task}"
        words = metric.upper().replace("_", "-")
        lines.append(f"| {title} | {counts} | {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _database_score(values: list[float], metric: str) -> str:
    if not values:
        return ""
    scale, digits = (100, 1) if metric in ("roc_auc", "map") else (1, 2)
    text = f"{scale * statistics.fmean(values):.{digits}f}"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{text} ± {scale * spread:.{digits}f}" if spread else text


def _database_answer(runs: list[dict[str, Any]], metric: str) -> str:
    """The range of the first seed, and which models answered with how many seeds."""
    scale, digits = (100, 1) if metric in ("roc_auc", "map") else (1, 2)
    low, high = (f"{scale * value:.{digits}f}" for value in runs[0]["range"])
    answers = Counter(" + ".join(run["answers"]) for run in runs)
    said = ", ".join(
        name if count == len(runs) else f"{count}x {name}" for name, count in answers.most_common()
    )
    return f"{low} to {high}; {said}"


#: What the table of losses shows of amounts, and of rare labels; each with its factor and digits.
AMOUNTS = {"rmse": ("RMSE", 1, 2), "mae": ("MAE", 1, 2), "pinball": ("pinball loss", 1, 2)}
RARE = {"roc_auc": ("ROC-AUC", 100, 1), "average_precision": ("average precision", 100, 1)}


def losses() -> str:
    """Losses on amounts, and weights of rare positives: validation scores."""
    found = json.loads((HERE / "losses.json").read_text(encoding="utf-8"))
    lines = [
        f"Validation scores, rolling, mean over seeds (`{found['command']}`, networks of size "
        f"small). RMSE, MAE and the pinball loss of the {found['quantile']:g} quantile: lower is "
        "better. ROC-AUC and average precision in %: higher is better. Bold: the best.",
    ]
    for setting, metrics in (("loss", AMOUNTS), ("class_weight", RARE)):
        runs = [run for run in found["runs"] if run["setting"].startswith(f"{setting}=")]
        values = list(dict.fromkeys(run["setting"].partition("=")[2] for run in runs))
        shown = " | ".join(f"`{value}`" for value in values)
        lines += [
            "",
            f"| `{setting}` | seeds | | {shown} |",
            f"|---|--:|---|{'--:|' * len(values)}",
        ]
        for database, task, model in dict.fromkeys(
            (run["database"], run["task"], run["model"]) for run in runs
        ):
            mine = [
                run for run in runs
                if (run["database"], run["task"], run["model"]) == (database, task, model)
            ]  # fmt: skip
            for metric, about in metrics.items():
                lines.append(
                    f"| {database}, {task}, {model} | {_seeds(mine)} | {about[0]} | "
                    f"{' | '.join(_loss_cells(mine, values, metric, about))} |"
                )
    return "\n".join(lines)


def _seeds(runs: list[dict[str, Any]]) -> str:
    counts = {}
    for run in runs:
        counts.setdefault(run["setting"], set()).add(run["seed"])
    least, most = (choose(len(seeds) for seeds in counts.values()) for choose in (min, max))
    return f"{least}" if least == most else f"{least} or {most}"


def _loss_cells(
    runs: list[dict[str, Any]], values: list[str], metric: str, about: tuple[str, int, int]
) -> list[str]:
    _, scale, digits = about
    means = {}
    for value in values:
        scores = [run["val"][metric] for run in runs if run["setting"].endswith(f"={value}")]
        if scores:
            means[value] = scale * statistics.fmean(scores)
    best = (max if metric in RARE else min)(means.values())
    texts = {value: f"{mean:.{digits}f}" for value, mean in means.items()}
    return [
        "" if value not in texts
        else f"**{texts[value]}**" if means[value] == best else texts[value]
        for value in values
    ]  # fmt: skip


def time_budget() -> str:
    """The minutes that were asked for, and what the whole command took."""
    found = json.loads((HERE / "time_budget.json").read_text(encoding="utf-8"))
    lines = [
        f"`relfrog train` without `--model`, from the start of the command to its end, the report "
        f"included (`{found['command']}`). The load of the machine, which has "
        f"{found['machine']['cores']} cores, is that before and after.",
        "",
        "| | minutes asked | taken | of which members | processor time | load |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for run in found["runs"]:
        load = " and ".join(f"{one:.0f}" for one in run["load"])
        lines.append(
            f"| {run['database']}, {run['task']} | {run['minutes']} | {run['seconds'] / 60:.1f} | "
            f"{sum(run['members'].values()) / 60:.1f} | {run['cpu_seconds'] / 60:.1f} | {load} |"
        )
    return "\n".join(lines)
