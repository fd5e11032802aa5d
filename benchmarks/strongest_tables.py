"""The table of the strongest answers: what users get, on every task that has been measured."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
EXPERIMENTS = HERE.parent / "experiments"
#: Studies of all models, by dataset; tasks that `databases.json` has as well are taken from there.
STUDIES = ("rel-f1", "olist-sample", "flights", "travel-exchange")
METRICS = {"roc_auc": ("ROC-AUC", 100, 1), "map": ("MAP", 100, 1), "mae": ("MAE", 1, 3),
           "rmse": ("RMSE", 1, 2)}  # fmt: skip
NAMES = {"auto": "`auto`", "lightgbm": "LightGBM", "frog": "FROG", "sage": "plain GNN",
         "relgnn": "RelGNN"}  # fmt: skip
#: Models of which ranks are compared: those that ran on every task.
RANKED = ("auto", "lightgbm", "frog", "sage")


class Measured(NamedTuple):
    """Test scores of all models on one task, by seed, and the range of the answer, if known."""

    title: str
    metric: str
    scores: dict[str, list[float]]
    range: tuple[float, float] | None

    @property
    def higher(self) -> bool:
        """Whether a higher score is better."""
        return self.metric in ("roc_auc", "map")

    def mean(self, model: str) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.scores[model])

    def order(self, models: Any) -> list[str]:
        """Models from best to worst."""
        return sorted(models, key=self.mean, reverse=self.higher)

    def shown(self, model: str) -> str:
        """Mean and deviation."""
        _, scale, digits = METRICS[self.metric]
        values = self.scores[model]
        digits = 1 if statistics.fmean(values) > 100 else digits
        text = f"{scale * statistics.fmean(values):.{digits}f}"
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{text} ± {scale * spread:.{digits}f}" if spread else text

    def shown_range(self) -> str:
        """The 95 % range over entities."""
        if self.range is None:
            return ""
        _, scale, digits = METRICS[self.metric]
        digits = 1 if self.range[1] > 100 else digits
        return " to ".join(f"{scale * end:.{digits}f}" for end in self.range)


def measured() -> list[Measured]:
    """All tasks."""
    found: dict[tuple[str, str], Measured] = {}
    runs = json.loads((HERE / "databases.json").read_text(encoding="utf-8"))["runs"]
    for run in runs:
        at = run["database"], run["task"]
        one = found.setdefault(at, Measured(", ".join(at), run["metric"], {}, tuple(run["range"])))
        for model, scores in run["scores"].items():
            one.scores.setdefault(model, []).append(scores["test"])
    for dataset in STUDIES:
        path = EXPERIMENTS / dataset / "main" / "results.json"
        others: dict[tuple[str, str], Measured] = {}
        for run in json.loads(path.read_text(encoding="utf-8"))["runs"]:
            at = dataset, run["task"]
            if run["regime"] != "rolling" or at in found or run["variant"].endswith("-refit"):
                continue
            metric = next(name for name in METRICS if name in run["metrics"])
            if "roc_auc" not in run["metrics"]:
                metric = "mae"
            one = others.setdefault(at, Measured(", ".join(at), metric, {}, None))
            one.scores.setdefault(run["variant"], []).append(run["metrics"][metric])
        found |= others
    for (database, task), runs in latest("rolling").items():
        one = found[database, task]
        one.scores["auto"] = [run["test"] for run in runs]
        first = next((run for run in runs if run["seed"] == 0), runs[0])
        found[database, task] = one._replace(
            title=f"{one.title} *", range=(first["range"][0], first["range"][1])
        )
    return list(found.values())


def latest(regime: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The runs of `strongest.json` in a regime, by database and task."""
    path = HERE / "strongest.json"
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else []:
        if run["regime"] == regime:
            found.setdefault((run["database"], run["task"]), []).append(run)
    return found


def rank(task: Measured, model: str) -> float:
    """The place of a model among those that are ranked; the level share theirs."""
    own, means = task.mean(model), [task.mean(name) for name in RANKED]
    better = sum(mean > own if task.higher else mean < own for mean in means)
    return better + (means.count(own) + 1) / 2


def strongest() -> str:
    """One row per task: what `relfrog train` answers, its range, and the best other model."""
    tasks = measured()
    lines = [
        "Test scores when rolling, mean ± standard deviation over seeds (3, but where a star says "
        "otherwise). Range: of seed 0, 95 %, over entities, where it was measured. The best other "
        "model is the best by test score, with hindsight, which nobody has; **bold**: `auto` is "
        f"ahead of it, or within a deviation. {_which_defaults()} ROC-AUC and MAP in %, higher is "
        "better; MAE and RMSE: lower is better. From `benchmarks/databases.json` and "
        "`experiments/*/main/results.json`, which hold the commands.",
        "",
        "| | metric | `auto` | range | best other model |",
        "|---|---|--:|--:|---|",
    ]
    level = 0
    for task in tasks:
        best = task.order(name for name in task.scores if name != "auto")[0]
        ahead = task.mean("auto") - task.mean(best)
        spread = max(
            statistics.stdev(task.scores[name]) if len(task.scores[name]) > 1 else 0.0
            for name in ("auto", best)
        )
        good = (ahead if task.higher else -ahead) >= -spread
        level += good
        shown = f"**{task.shown('auto')}**" if good else task.shown("auto")
        lines.append(
            f"| {task.title} | {METRICS[task.metric][0]} | {shown} | {task.shown_range()} | "
            f"{NAMES.get(best, best)} {task.shown(best)} |"
        )
    ranks = {model: statistics.fmean(rank(task, model) for task in tasks) for model in RANKED}
    said = ", ".join(f"{NAMES[model]} {ranks[model]:.1f}" for model in RANKED)
    lines += ["", f"`auto` is best, or within a deviation of the best, on {level} of {len(tasks)} "
              f"tasks. Mean rank among four over these tasks (1 is best): {said}."]  # fmt: skip
    return "\n".join(lines)


def _which_defaults() -> str:
    if latest("rolling"):
        return (
            "Tasks with a star are of the defaults as they are now, from "
            "`benchmarks/strongest.json`, with as many seeds as the next table says; all others of "
            "before quick members were weighed by backtests and the refit was chosen by them."
        )
    return (
        "All are of before quick members were weighed by backtests and the refit was chosen by "
        "them, which is the default now."
    )


def refits() -> str:
    """What backtests said of a refit, and what it gave on test, which they did not see."""
    if not latest("rolling") and not latest("frozen"):
        return (
            "Not run yet: `auto` with the defaults as they are now "
            "(`python benchmarks/strongest.py --data DATA --sources SOURCES`)."
        )
    lines = [
        "Is a refit worth it? What LightGBM's backtests say (the share of bootstrap samples in "
        "which newer labels help; the refit is chosen from 60 % on), what was chosen, and the test "
        "scores of `auto` before and after it: means over seeds, ± standard deviation. "
        "`python benchmarks/strongest.py --data DATA --sources SOURCES`; every run is in "
        "`benchmarks/strongest.json`.",
        "",
        "| | regime | metric | seeds | newer labels help | refit | test without | test of `auto` |",
        "|---|---|---|--:|--:|---|--:|--:|",
    ]
    for regime in ("rolling", "frozen"):
        for (database, task), runs in latest(regime).items():
            asked = [r["newer_labels"]["sure"] for r in runs if r.get("newer_labels")]
            sure = f"{min(asked):.0%} to {max(asked):.0%}" if asked else "not known"
            if asked and min(asked) == max(asked):
                sure = f"{asked[0]:.0%}"
            done = sum(run["refit"] for run in runs)
            chosen = "no" if not done else "yes" if done == len(runs) else f"{done} of {len(runs)}"
            both = Measured(
                "", runs[0]["metric"], {"before": [r["before_refit"] for r in runs],
                "auto": [r["test"] for r in runs]}, None,
            )  # fmt: skip
            lines.append(
                f"| {database}, {task} | {regime} | {METRICS[both.metric][0]} | {len(runs)} | "
                f"{sure} | {chosen} | {both.shown('before')} | {both.shown('auto')} |"
            )
    return "\n".join(lines)
