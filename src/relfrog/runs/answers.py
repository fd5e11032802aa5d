"""The answer to a question: predictions for whom it asks about, and under what it assumes."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from relfrog.datasets.dataset import open_dataset
from relfrog.queries.new_task import plan_query
from relfrog.runs.forecast import Forecast
from relfrog.runs.population import Population
from relfrog.runs.run import Run

__all__ = ["Answer", "answer"]


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        predictions: At the newest time, for those whom the question names, or for all.
        chosen: Whether the question names them.
        population: How they were found, if it does not.
        words: What is assumed, in a sentence.
    """

    predictions: pd.DataFrame
    chosen: bool
    population: Population | None = None
    words: str = ""


def answer(run: Run | Forecast, query: str) -> Answer:
    """Predict what a question asks.

    Args:
        run: The run that was trained for it.
        query: The question.
    """
    first = run if isinstance(run, Run) else run.runs[0]
    plan = plan_query(open_dataset(first.about["dataset"]), query)
    suppose = {f"{a.table}.{a.column}": a.value for a in plan.question.assumed}
    words = []
    if suppose:
        values = ", ".join(f"{name} = {value}" for name, value in suppose.items())
        words.append(
            f"Columns that end in _supposed assume {values} for everyone who is asked about."
        )
    if plan.question.condition is not None:
        words.append("Predictions assume that what follows ASSUMING happens.")
    frame = run.predict(entities=plan.keys, suppose=suppose or None)
    found = None
    if plan.keys is None and plan.question.column is None:
        found = first.population()
    return Answer(frame, plan.keys is not None, found, " ".join(words))
