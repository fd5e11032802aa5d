"""A run in a line; and runs and roles as a table and a picture, for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from markupsafe import Markup

from relfrog.errors import RelFrogError
from relfrog.support.notebook import Bar, bars, html_table

if TYPE_CHECKING:
    from relfrog.runs.run import Run

__all__ = ["Roles", "run_html", "run_line"]


def run_line(run: Run) -> str:
    """Task, dataset, model and main test score of a run."""
    name = type(run).__name__
    return f"{name}({str(run.folder)!r}: {_what(run)}{_score(run)})"


def _what(run: Run) -> str:
    return f"{run.about['task']} on {Path(run.about['dataset']).name}, model {run.config.model}"


def _score(run: Run) -> str:
    try:
        metric = run.kind.metric
        return f", test {metric} {run.metrics['test']['rolling'][metric]:.4f}"
    except (RelFrogError, KeyError):  # a folder that is gone must not break a repr
        return ""


def run_html(run: Run) -> str:
    """Scores by split and regime, and the main one beside those of simple answers."""
    head = Markup("<p><b>{}</b> <code>{}</code></p>").format(_what(run), run.folder)
    try:
        metrics = run.metrics
        simple = run.quick_scores()
        metric = run.kind.metric
    except (RelFrogError, KeyError):
        return head
    names = list(metrics["test"]["rolling"])
    rows = [
        [split, regime, *(f"{values.get(name, float('nan')):.4f}" for name in names)]
        for split in ("test", "val")
        for regime, values in metrics[split].items()
    ]
    scores = {run.config.model: metrics["test"]["rolling"].get(metric)}
    scores |= {
        name: found.get("test", {}).get("rolling", {}).get(metric) for name, found in simple.items()
    }
    shown = [
        Bar(name, value, f"{value:.4f}", "first" if name == run.config.model else "plain")
        for name, value in scores.items()
        if value is not None
    ]
    picture = Markup("<p>Test {}, rolling:</p>{}").format(metric, bars(shown))
    return head + html_table(["split", "regime", *names], rows) + picture


class Roles(pd.DataFrame):  # type: ignore[misc]
    """The learned role of each route; a notebook shows the gates as bars, too."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # a part of it is a plain frame

    def _repr_html_(self) -> str:
        table = pd.DataFrame(self)._repr_html_()
        shown = [
            Bar(str(route), float(gate), f"{gate:.2f}", "second" if gate > 0.5 else "first")
            for route, gate in zip(self["route"], self["gate"], strict=True)
        ]
        words = "Gates, from 0 (the middle table is a node) to 1 (an edge):"
        return f"{table}<p>{words}</p>{bars(shown, high=1.0)}"
