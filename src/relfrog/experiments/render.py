"""Render the results of an experiment as Markdown tables and SVG charts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from relfrog.datasets.metrics import REGIMES
from relfrog.experiments.paper import citation, published_scores
from relfrog.experiments.score_tables import (
    ScoreSummary,
    escape_cell,
    main_metric,
    markdown_table,
    score_tables,
    summarize,
)
from relfrog.experiments.studies import Study
from relfrog.experiments.study_charts import (
    compare_values,
    compare_variants,
    plot_pairs,
    plot_shares,
)
from relfrog.nn.roles import UNDECIDED

__all__ = ["render", "role_shares"]


#: Questions about the learned structure, and their possible answers.
QUESTIONS = {
    "co-occurrence": ("node", "edge", "undecided"),
    "completion": ("node", "edge", "undecided"),
    "directions": ("same", "different"),
}


def render(study: Study, results: Mapping[str, Any]) -> dict[str, str]:
    """Render the files of a study: `table.md` and charts, by file name.

    Args:
        study: the study.
        results: the content of `results.json`.
    """
    runs = results["runs"]
    figures = published_scores(study.published) if study.published else {}
    files: dict[str, str] = {}
    if study.name == "structure":
        files |= _structure(results)
    elif study.name == "fd-space":
        files |= _space(results)
    elif study.name == "sensitivity":
        files |= _sensitivity(runs)
    else:
        files |= _compared(study, runs)
    if study.name == "transfer":
        figures = {
            task: {f"roles of {source}": figure for source, figure in row.items()}
            for task, row in figures.items()
        }
    names = list(dict.fromkeys([*(v.name for v in study.variants), *(r["variant"] for r in runs)]))
    there = {f"{run['dataset']}/{run['task']}" for run in runs}
    mine = {task: row for task, row in figures.items() if task in there}
    lines = [
        f"# {study.title}", "",
        f"In the paper: {study.paper}. Made by:", "", "```sh", results["command"], "```", "",
        "Test scores of the weights with the best validation score: mean and standard deviation "
        f"over seeds ({_seeds(runs)}). frozen: the database stops at the split's time; rolling: "
        "each seed sees everything up to its own. The best of a row is **bold**, the second in "
        "_italics_.", "",
    ]  # fmt: skip
    if mine:
        lines += [f"The paper's figures: {citation()}", ""]
    if study.name != "fd-space" and runs:
        lines += [score_tables(runs, names, mine)]
    lines += [files.pop("more.md", "")]
    lines += [f"![{study.title}]({name})\n" for name in files]
    for word in ("skipped", "failed"):
        if results.get(word):
            said = [escape_cell(text.removeprefix("skipped: ")) for text in results[word]]
            lines += [f"{word.capitalize()}:", "", *(f"- {text}" for text in said), ""]
    files["table.md"] = "\n".join(lines).rstrip() + "\n"
    return files


def _seeds(runs: Sequence[Mapping[str, Any]]) -> str:
    counts: dict[tuple[Any, ...], set[int]] = {}
    for run in runs:
        counts.setdefault((run["dataset"], run["task"], run["variant"]), set()).add(run["seed"])
    sizes = sorted({len(seeds) for seeds in counts.values()})
    return "none" if not sizes else str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"


def _summaries(runs: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str, str], ScoreSummary]:
    """Score summaries by dataset, task, regime and variant."""
    values: dict[tuple[str, str, str, str], list[Any]] = {}
    percent = {}
    for run in runs:
        metric = main_metric(run["task_type"])
        at = run["dataset"], run["task"], run["regime"], run["variant"]
        values.setdefault(at, []).append(run["metrics"].get(metric.name))
        percent[at] = metric.percent
    return {at: summarize(some, percent[at]) for at, some in values.items()}


def _shown_metric(runs: Sequence[Mapping[str, Any]], dataset: str, task: str) -> str:
    kind = next(r["task_type"] for r in runs if (r["dataset"], r["task"]) == (dataset, task))
    metric = main_metric(kind)
    return f"{metric.name}{' %' if metric.percent else ''}"


def _compared(study: Study, runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A chart per regime that compares the variants of each task."""
    panels: dict[str, dict[str, dict[str, ScoreSummary]]] = {}
    for (dataset, task, regime, variant), score in _summaries(runs).items():
        title = f"{dataset} {task}, {_shown_metric(runs, dataset, task)}"
        panels.setdefault(regime, {}).setdefault(title, {})[variant] = score
    return {
        f"{study.name}-{regime}.svg": compare_variants(f"{study.title}, {regime}", panels[regime])
        for regime in REGIMES if regime in panels
    }  # fmt: skip


def _sensitivity(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Curves over beta and gamma for each task."""
    found = {}
    for (dataset, task, regime, variant), score in _summaries(runs).items():
        setting, _, value = variant.partition("=")
        found[regime, dataset, task, setting, float(value)] = value, score
    panels: dict[str, dict[str, dict[str, ScoreSummary]]] = {}
    for (regime, dataset, task, setting, _), (value, score) in sorted(found.items()):
        title = f"{dataset} {task}, {_shown_metric(runs, dataset, task)} over {setting}"
        panels.setdefault(regime, {}).setdefault(title, {})[value] = score
    title = "Sensitivity to the weights of L_emb (beta) and L_pair (gamma)"
    return {
        f"sensitivity-{regime}.svg": compare_values(f"{title}, {regime}", panels[regime])
        for regime in REGIMES if regime in panels
    }  # fmt: skip


def _structure(results: Mapping[str, Any]) -> dict[str, str]:
    """Shares of roles per task, as a table and a chart."""
    entries: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for entry in results.get("structure", []):
        at = entry["dataset"], entry["task"], entry["task_type"]
        entries.setdefault(at, []).append(entry["shares"])
    if not entries:
        return {}
    rows, drawn = [], {}
    for (dataset, task, kind), several in entries.items():
        means: dict[str, dict[str, float]] = {}
        cells = []
        for question, answers in QUESTIONS.items():
            known = [found[question] for found in several if found.get(question)]
            means[question] = {a: fmean(f[a] for f in known) for a in answers} if known else {}
            cells += [
                summarize([100 * f[a] for f in known]).text(True) if known else "none"
                for a in answers
            ]
        drawn[f"{dataset} {task}"] = means
        rows.append([escape_cell(f"{dataset} {task}"), kind.split("_")[0], *cells])
    headers = ["task", "type", *(f"{q}: {a}" for q, answers in QUESTIONS.items() for a in answers)]
    lines = ["### Learned roles, shares in %", ""]
    lines += markdown_table(headers, rows)
    lines += [
        "", "Of routes of the database itself, by their gate after training: edge above "
        f"{UNDECIDED[1]}, node below {UNDECIDED[0]}, else undecided, as a route is that nothing "
        "was sent along. Directions: of pairs of co-occurrence routes that are each "
        "other's reverse, both decided, how many have the same role.", "",
    ]  # fmt: skip
    chart = plot_shares("Learned roles: shares of nodes and edges", drawn, QUESTIONS)
    return {"more.md": "\n".join(lines), "structure.svg": chart}


def _space(results: Mapping[str, Any]) -> dict[str, str]:
    """Separation of true from mismatched pairs per foreign key, and a chart per task."""
    entries = results.get("differences", [])
    if not entries:
        return {}
    lines = [
        "### Separation of true from mismatched pairs", "",
        "Area under the ROC curve of true against mismatched pairs, by the distance of h_parent - "
        "h_child from the key's mean: 0.5 for none, 1 for all. Silhouette: how far the true pairs "
        "of different keys stand apart, from -1 to 1.", "",
    ]  # fmt: skip
    variants = list(dict.fromkeys(entry["variant"] for entry in entries))
    files, rows = {}, []
    for dataset, task in dict.fromkeys((e["dataset"], e["task"]) for e in entries):
        mine = [e for e in entries if (e["dataset"], e["task"]) == (dataset, task)]
        keys = sorted({key for e in mine for key in e["separation"]})

        def over_seeds(variant: str, pick: Any, own: Any = mine) -> str:
            figure = summarize([pick(e) for e in own if e["variant"] == variant])
            if not figure.seeds:
                return "none"
            spread = "" if figure.deviation is None else f" ± {figure.deviation:.3f}"
            return f"{figure.mean:.3f}{spread}"

        for key in keys:
            cells = [over_seeds(v, lambda e, k=key: e["separation"].get(k)) for v in variants]
            rows.append([escape_cell(f"{dataset} {task}"), escape_cell(key), *cells])

        def average(entry: Any, by: str = "separation") -> float | None:
            values = entry.get(by, {}).values()
            known = [v for v in values if v is not None and not math.isnan(v)]
            return fmean(known) if known else None

        cells = [over_seeds(v, average) for v in variants]
        rows.append([escape_cell(f"{dataset} {task}"), "mean over keys", *cells])
        cells = [over_seeds(v, lambda e: average(e, "scored")) for v in variants]
        rows.append(
            [escape_cell(f"{dataset} {task}"), "mean over keys, by the learned score", *cells]
        )
        cells = [over_seeds(v, lambda e: e["silhouette"]) for v in variants]
        rows.append([escape_cell(f"{dataset} {task}"), "silhouette", *cells])
        seed = min(e["seed"] for e in mine)
        clouds = [e for e in mine if e["seed"] == seed and e.get("points")]
        said = "; ".join(f"{row[1]}: " + ", ".join(row[2:]) for row in rows[-len(keys) - 2 :])
        name = "".join(c if c.isalnum() or c in "-_" else "-" for c in f"{dataset}-{task}")
        title = f"h_parent - h_child, first two principal components: {dataset} {task}"
        note = f"Columns: {', '.join(variants)}. {said}"
        if clouds:
            files[f"fd-space-{name}.svg"] = plot_pairs(title, clouds, note)
    lines += markdown_table(["task", "foreign key", *variants], rows)
    files["more.md"] = "\n".join([*lines, ""])
    return files


def role_shares(roles: pd.DataFrame, tables: Collection[str]) -> dict[str, dict[str, float]]:
    """The share of each answer, per question; empty if the question does not apply.

    Args:
        roles: the result of `Run.roles`.
        tables: the tables of the database; routes through the label history are not counted.

    Returns:
        `co-occurrence` and `completion`: the shares of `node`, `edge` and `undecided`, by the rule
        of `relfrog.nn.roles.role_of`; `directions`: for pairs of co-occurrence routes that are
        each other's reverse, both decided, the shares of `same` and `different` roles.
    """
    known = roles[roles[["u", "v", "w"]].isin(list(tables)).all(axis=1)]
    role = dict(zip(known["route"], known["role"], strict=True))
    found = {}
    for paradigm in ("co-occurrence", "completion"):
        mine = known[known["paradigm"].str.startswith(paradigm)]["role"]
        found[paradigm] = _shares(mine.tolist(), ("node", "edge", "undecided"))
    both = []
    for entry in known[known["paradigm"] == "co-occurrence"].to_dict("records"):
        back = _reversed(entry)
        if back in role and entry["route"] <= back:
            roles_of = {role[entry["route"]], role[back]}
            if "undecided" not in roles_of:
                both.append("same" if len(roles_of) == 1 else "different")
    found["directions"] = _shares(both, ("same", "different"))
    return found


def _shares(answers: list[str], names: tuple[str, ...]) -> dict[str, float]:
    if not answers:
        return {}
    return {name: answers.count(name) / len(answers) for name in names}


def _reversed(entry: Mapping[str, Any]) -> str:
    """The reverse of a route: `w <-[b]- v -[a]-> u` for `u <-[a]- v -[b]-> w`."""
    u, v, w = entry["u"], entry["v"], entry["w"]
    middle = entry["route"][len(u) + 1 : len(entry["route"]) - len(w) - 1]
    between = f" {v} "
    at = middle.find(between)
    while at >= 0:
        left, right = middle[:at], middle[at + len(between) :]
        if left.startswith("<-") and left.endswith("-") and right.endswith("->"):
            return f"{w} <{right.removesuffix('>')} {v} {left.removeprefix('<')}> {u}"
        at = middle.find(between, at + 1)
    return ""
