"""A forecast: one run per window, and their predictions in one table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from relfrog.runs.run import Run
from relfrog.support.text import free_name

__all__ = ["Forecast"]


@dataclass(frozen=True, repr=False)
class Forecast:
    """The runs of the windows of a forecast, the nearest first."""

    runs: tuple[Run, ...]

    @property
    def folder(self) -> Path:
        """The folder that holds all runs."""
        return self.runs[0].folder.parent

    def predict(self, at: Any = None, entities: Any = None, **options: Any) -> pd.DataFrame:
        """Predictions for all windows: those of `Run.predict`, with a column `step` from 1.

        Rows are in the order of the entities, and of each the nearest window first.
        """
        frames = []
        for number, run in enumerate(self.runs, start=1):
            frame = run.predict(at, entities, **options)
            step = free_name("step", {str(name).lower() for name in frame})
            frame.insert(list(frame).index("time") + 1, step, number)
            frames.append(frame.assign(_row=range(len(frame)), _step=number))
        joined = pd.concat(frames, ignore_index=True)
        joined = joined.sort_values(["_row", "_step"], kind="stable", ignore_index=True)
        return joined.drop(columns=["_row", "_step"])

    def __repr__(self) -> str:
        return f"Forecast({len(self.runs)} windows, {str(self.folder)!r})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{number}</td><td>{escape(run.about['task'])}</td>"
            f"<td>{run.metrics['test']['rolling'][run.kind.metric]:.4f}</td></tr>"
            for number, run in enumerate(self.runs, start=1)
        )
        metric = escape(self.runs[0].kind.metric)
        head = f"<tr><th>step</th><th>task</th><th>test {metric}</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
