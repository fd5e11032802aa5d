"""A run in a line, and as a small table for notebooks."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from relfrog.errors import RelFrogError
from relfrog.kinds import TASK_KINDS

if TYPE_CHECKING:
    from relfrog.runs.run import Run

__all__ = ["run_html", "run_line"]


def run_line(run: Run) -> str:
    """Task, dataset, model and main test score of a run."""
    name = type(run).__name__
    return f"{name}({str(run.folder)!r}: {_what(run)}{_score(run)})"


def _what(run: Run) -> str:
    return f"{run.about['task']} on {Path(run.about['dataset']).name}, model {run.config.model}"


def _score(run: Run) -> str:
    metric = TASK_KINDS[run.about["task_type"]].metric
    try:
        return f", test {metric} {run.metrics['test']['rolling'][metric]:.4f}"
    except (RelFrogError, KeyError):  # a folder that is gone must not break a repr
        return ""


def run_html(run: Run) -> str:
    """Scores by split and regime, for a notebook."""
    head = f"<p><b>{escape(_what(run))}</b> <code>{escape(str(run.folder))}</code></p>"
    try:
        metrics = run.metrics
    except RelFrogError:
        return head
    names = list(metrics["test"]["rolling"])
    titles = "".join(f"<th>{escape(name)}</th>" for name in ("split", "regime", *names))
    rows = "".join(
        f"<tr><td>{split}</td><td>{regime}</td>"
        + "".join(f"<td>{values.get(name, float('nan')):.4f}</td>" for name in names)
        + "</tr>"
        for split in ("test", "val")
        for regime, values in metrics[split].items()
    )
    return f"{head}<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
