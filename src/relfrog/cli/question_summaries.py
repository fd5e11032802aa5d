"""Questions in words as the terminal shows them: what they become, and the SQL."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from relfrog.cli.terminal import table, wrapped
from relfrog.support.text import counted, horizon, percent

if TYPE_CHECKING:
    import pandas as pd

    from relfrog.queries.new_task import Plan
    from relfrog.queries.suggest import Suggestion
    from relfrog.runs.ask import FirstAnswer
    from relfrog.runs.forecast import Forecast
    from relfrog.runs.run import Run

__all__ = [
    "answer_lines", "answer_record", "first_answer", "frame_table", "plan_lines", "plan_record",
    "shown_rows", "suggestion_lines",
]  # fmt: skip


def plan_record(plan: Plan) -> dict[str, Any]:
    """What a question becomes, for JSON."""
    question = plan.question
    return {
        "query": " ".join(question.query.text.split()),
        "type": question.kind or "autocomplete",
        "entity": question.entity.name,
        "target": question.column,
        "horizons": [str(delta) for delta in plan.horizons],
        "sql": [compiled.sql for compiled in plan.compiled],
        "classes": list(plan.classes),
        "keys": plan.keys,
        "assumed": {f"{a.table}.{a.column}": a.value for a in question.assumed},
    }


def plan_lines(plan: Plan) -> str:
    """What a question becomes, in words, and the SQL."""
    question = plan.question
    if question.column is not None:
        return (
            f"Fills in {question.entity.name}.{question.column}: its values are the labels, and "
            "no SQL is needed."
        )
    lines = [
        f"-- {question.kind}, for each row of {question.entity.name}, "
        f"{', '.join(horizon(delta.total_seconds()) for delta in plan.horizons)} ahead"
    ]
    if question.steps > 1:
        lines.append(f"-- {question.steps} windows, each a task of its own; this is the first")
    if question.condition is not None:
        lines.append("-- learned from the cases in which what is assumed came true")
    if plan.classes:
        lines.append(f"-- one label each for: {', '.join(map(str, plan.classes))}")
    return "\n".join([*lines, plan.compiled[0].sql])


def first_answer(found: FirstAnswer) -> str:
    """What the quick models say, while the others still learn."""
    head = (
        f"\nFirst answer after {found.seconds:.0f} s, by {found.model} (validation {found.metric} "
        f"{found.score:.4f}):\n"
    )
    return f"{head}\n{frame_table(shown_rows(found.predictions, 3))}\n"


def answer_lines(found: Run | Forecast, question: str, rows: int) -> str:
    """The score beside those of simple answers, some predictions, and where everything is."""
    from relfrog.cli.run_summaries import population_words, run_summary
    from relfrog.runs.answers import answer

    runs = _runs(found)
    first = runs[0]
    lines = [run_summary(first).split("\nThe run is ")[0]]
    if len(runs) > 1:
        lines += [f"These are the scores of the first of {len(runs)} windows.", ""]
    said = answer(found, question)
    shown = shown_rows(said.predictions, rows, ranked=not said.chosen)
    part = f", of which {len(shown)} are shown" if len(shown) < len(said.predictions) else ""
    lines += [f"{counted(len(said.predictions), 'prediction')}{part}:", ""]
    lines += [frame_table(shown), ""]
    if said.population is not None and (said.population.others or said.population.rule != "sql"):
        lines += [population_words(said.population), ""]
    if said.words:
        lines += [wrapped(said.words), ""]
    where = shlex.quote(str(first.folder))
    page = first.folder / "report.html"
    report = f"; its report is {page}" if page.exists() else ""
    lines.append(f"The run is {where}{report}. Try next:")
    lines.append(f"  relfrog predict {where} --out predictions.csv")
    return "\n".join(lines)


def answer_record(found: Run | Forecast, question: str, rows: int) -> dict[str, Any]:
    """The same for JSON."""
    from relfrog.runs.answers import answer

    runs = _runs(found)
    said = answer(found, question)
    shown = shown_rows(said.predictions, rows, ranked=not said.chosen)
    return {
        "dataset": runs[0].about["dataset"],
        "tasks": [run.about["task"] for run in runs],
        "runs": [str(run.folder) for run in runs],
        "metrics": [run.metrics for run in runs],
        "baselines": [run.quick_scores() for run in runs],
        "predictions": shown.astype(object).where(shown.notna(), None).to_dict("records"),
        "rows": len(said.predictions),
        "report": str(runs[0].folder / "report.html"),
    }


def _runs(found: Run | Forecast) -> list[Run]:
    from relfrog.runs.forecast import Forecast

    return list(found.runs) if isinstance(found, Forecast) else [found]


def shown_rows(frame: pd.DataFrame, count: int, *, ranked: bool = True) -> pd.DataFrame:
    """Some predictions: the highest, or the first lists."""
    kept = [c for c in frame if c not in ("run", "horizon", "made_at")]
    frame = frame[kept]
    if ranked and "prediction" in frame and "step" not in frame:
        values = frame["prediction"]
        if values.dtype.kind in "fiu":
            frame = frame.sort_values("prediction", ascending=False, kind="stable")
    return frame.head(count)


def frame_table(frame: pd.DataFrame) -> str:
    """A frame as a table."""

    def text(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.4g}"
        return str(value)

    numeric = [i for i, c in enumerate(frame) if frame[c].dtype.kind in "fiu"]
    rows = [[text(v) for v in row] for row in frame.itertuples(index=False, name=None)]
    return table([str(c) for c in frame], rows, right=numeric)


def suggestion_lines(dataset: str, found: list[Suggestion]) -> str:
    """Questions worth asking, each with its labels and what is known at once."""
    if not found:
        return (
            "No question was found: there are no tables with times that refer to others, or too "
            "few of their rows. Write one: docs/ask.md"
        )
    lines = []
    for number, one in enumerate(found, start=1):
        counts = ", ".join(f"{count:,} {split}" for split, count in one.labels.items())
        share = "" if one.positive is None else f", {percent(one.positive)} yes"
        lines += [
            f"{number}. {one.words}",
            f"   {one.query}",
            f"   {one.type}; labels tried: {counts}{share}; {one.metric} of {one.baseline} "
            f"{one.score:.3f} (the same answer for all: {one.chance:.3f})",
            "",
        ]
    lines += ["Ask one:", f"  relfrog ask {shlex.quote(dataset)} {shlex.quote(found[0].query)}"]
    return "\n".join(lines)
