"""Markdown tables of scores: mean and standard deviation over seeds, best and second marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from relfrog.datasets.metrics import REGIMES
from relfrog.kinds import TASK_KINDS

__all__ = [
    "METRICS",
    "Metric",
    "ScoreSummary",
    "main_metric",
    "marked",
    "score_tables",
    "summarize",
]


@dataclass(frozen=True)
class Metric:
    """The main metric of a task type.

    Attributes:
        name: its name in the metrics of a run.
        title: its title in tables.
        higher: whether higher is better.
        percent: whether it is shown times 100, as in the paper.
    """

    name: str
    title: str
    higher: bool = True
    percent: bool = True


METRICS = {
    name: Metric(kind.metric, kind.title, kind.higher, kind.percent)
    for name, kind in TASK_KINDS.items()
}


def main_metric(kind: str) -> Metric:
    """The main metric of a task type."""
    return METRICS[kind]


@dataclass(frozen=True)
class ScoreSummary:
    """A score over several random seeds.

    Attributes:
        mean: mean, in the unit in which it is shown.
        deviation: sample standard deviation; None for a single seed.
        seeds: number of seeds.
    """

    mean: float
    deviation: float | None
    seeds: int

    def text(self, percent: bool) -> str:
        """Format for a table: two decimals as in the paper, or five significant digits."""
        if math.isnan(self.mean):
            return "none"
        large = sum(abs(self.mean) >= size for size in (10, 100, 1000, 10000))
        digits = 2 if percent else 4 - large
        shown = f"{self.mean:.{digits}f}"
        return shown if self.deviation is None else f"{shown} ± {self.deviation:.{digits}f}"


def summarize(values: Iterable[float | None], percent: bool = False) -> ScoreSummary:
    """Mean and sample standard deviation of values, without undefined ones."""
    factor = 100.0 if percent else 1.0
    known = [factor * v for v in values if v is not None and not math.isnan(v)]
    if not known:
        return ScoreSummary(float("nan"), None, 0)
    return ScoreSummary(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def marked(texts: Sequence[str], values: Sequence[float | None], higher: bool) -> list[str]:
    """Mark the best in bold and the second in italics; equal texts are ties.

    Args:
        texts: the formatted values.
        values: the values; None or NaN if not compared.
        higher: whether higher is better.
    """
    shown = [text.split(" ±")[0] for text in texts]
    known = {
        text: value for text, value in zip(shown, values, strict=True)
        if value is not None and not math.isnan(value)
    }  # fmt: skip
    order = sorted(known, key=lambda text: known[text], reverse=higher)
    marks = dict(zip(order, ("**", "_"), strict=False)) if len(order) > 1 else {}
    return [
        f"{marks[short]}{text}{marks[short]}" if short in marks and value is not None else text
        for text, short, value in zip(texts, shown, values, strict=True)
    ]


def score_tables(
    runs: Sequence[Mapping[str, Any]],
    variants: Sequence[str],
    published: Mapping[str, Mapping[str, tuple[float, float | None]]],
) -> str:
    """A Markdown table per task type, with a row per task and regime, a column per variant.

    Args:
        runs: entries of `results.json`.
        variants: the columns; variants without scores are left out.
        published: the paper's scores, in rows of their own.
    """
    parts = []
    for kind, metric in METRICS.items():
        mine = [run for run in runs if run["task_type"] == kind]
        if not mine:
            continue
        tasks = list(dict.fromkeys((run["dataset"], run["task"]) for run in mine))
        names = [f"{dataset}/{task}" for dataset, task in tasks]
        there = {run["variant"] for run in mine}
        there |= {variant for name in names for variant in published.get(name, {})}
        columns = [variant for variant in variants if variant in there]
        rows = []
        for (dataset, task), name in zip(tasks, names, strict=True):
            for regime in REGIMES:
                own = [
                    summarize(
                        [
                            run["metrics"].get(metric.name) for run in mine
                            if (run["dataset"], run["task"], run["regime"], run["variant"])
                            == (dataset, task, regime, variant)
                        ],
                        metric.percent,
                    )
                    for variant in columns
                ]  # fmt: skip
                rows.append(_row(f"{dataset} {task}", regime, own, metric))
            if name in published:
                figures = [published[name].get(variant) for variant in columns]
                nothing = ScoreSummary(float("nan"), None, 0)
                paper = [nothing if f is None else ScoreSummary(f[0], f[1], 5) for f in figures]
                rows.append(_row(f"{dataset} {task}", "the paper, frozen", paper, metric))
        parts += [
            f"### {metric.title}",
            "",
            *markdown_table(["task", "regime", *columns], rows),
            "",
        ]
    return "\n".join(parts)


def _row(task: str, regime: str, summaries: Sequence[ScoreSummary], metric: Metric) -> list[str]:
    texts = [t.text(metric.percent) if t.seeds else "" for t in summaries]
    values = [t.mean if t.seeds else None for t in summaries]
    return [escape_cell(task), regime, *marked(texts, values, metric.higher)]


def escape_cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    safe = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return safe.replace("|", "\\|")


def markdown_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2
) -> list[str]:
    """The lines of a Markdown table; all but the first `left` columns are right-aligned."""
    line = ["---" if number < left else "--:" for number in range(len(headers))]
    return [
        f"| {' | '.join(map(escape_cell, headers))} |",
        f"|{'|'.join(line)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
