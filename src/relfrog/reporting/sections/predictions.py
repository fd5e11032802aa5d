"""Test predictions: calibration and curves, scores by time and by history, worst mistakes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.bootstrap import Scorer, resample
from relfrog.reporting.charts import axis, chart, layers
from relfrog.reporting.html import (
    BLUE,
    GREY,
    Markup,
    amount,
    columns,
    figure,
    join,
    metric_name,
    missing,
    tag,
)
from relfrog.reporting.kind_parts import KIND_PARTS
from relfrog.reporting.material import Answers, Material

__all__ = ["predictions"]


def predictions(m: Material) -> Markup:
    """The section."""
    answers = m.answers
    if answers is None:
        return missing(m.why.get("answers", "There are no predictions on test."))
    parts: list[Any] = [
        tag("p", f"{len(answers.truth):,} predictions on test at "
            f"{_times(len(np.unique(answers.seeds.times)))}, for "
            f"{len(np.unique(answers.seeds.rows)):,} entities, "
            "each from what was known at its own time (rolling).")
    ]  # fmt: skip
    kind = KIND_PARTS[m.kind]
    figures = [*kind.figures(m, answers), _by_time(m, answers), _by_past(m, answers)]
    parts += [columns(*figures), kind.examples(m, answers)]
    return join(parts)


def _times(count: int) -> str:
    return "one time" if count == 1 else f"{count:,} times"


def _part_scores(
    m: Material, answers: Answers, groups: list[tuple[str, NDArray[Any]]]
) -> list[dict[str, Any]]:  # fmt: skip
    metric = m.metric[0]
    data = []
    for name, at in groups:
        if len(at):
            score = Scorer(m.kind, metric, answers.truth[at], answers.predicted[at], m.quantile)
            found = resample(np.asarray(answers.seeds.rows)[at], score, times=60)
            low, high = (found.low, found.high) if found.low == found.low else (None, None)
            data.append({"name": f"{name}|{len(at):,}", "n": len(at), "low": low, "high": high,
                         "score": None if np.isnan(found.value) else found.value})  # fmt: skip
    return data


def _scores(m: Material, data: list[dict[str, Any]], title: str, caption: str) -> Markup | None:
    known = [row for row in data if row["score"] is not None]
    if not known:
        return None
    metric = metric_name(m.metric[0], ((m.database or {}).get("task") or {}).get("k"))
    order = [row["name"] for row in data]
    # Labels side by side need about 6 pixels a letter, of 270 that there are.
    crowded = len(order) > 5 or len(order) * max(len(n.split("|")[0]) + 2 for n in order) > 45
    x = {"field": "name", "type": "nominal", "title": title, "sort": order,
         "axis": {"labelAngle": -35 if crowded else 0, "labelLimit": 150, "grid": False,
                  "labelExpr": "split(datum.label, '|')[0]" if crowded
                  else "split(datum.label, '|')"}}  # fmt: skip
    y = axis("score", metric, zero=False)
    whisker = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    spec = layers(
        {"mark": {"type": "line", "color": GREY, "strokeWidth": 1.5}, "encoding": {"x": x, "y": y}},
        {"transform": [{"filter": "isValid(datum.low)"}], "mark": {"type": "rule", "color": BLUE,
         "opacity": 0.5, "strokeWidth": 2.5}, "encoding": {"x": x} | whisker},
        {"mark": {"type": "point", "size": 75}, "encoding": {"x": x, "y": y}},
        data=known,
    )  # fmt: skip
    alt = f"{metric} by {title}: " + "; ".join(
        f"{r['name'].split('|')[0]} {amount(r['score'])} ({r['n']:,} labels)" for r in known
    )
    counted = "" if crowded else "; below, the number of labels"
    return figure(chart(spec, alt), f"{metric} {caption}, with 95 % ranges{counted}.")


def _by_time(m: Material, answers: Answers) -> Markup | None:
    times = answers.seeds.times
    moments = np.unique(times)
    if len(moments) == 1:
        return None
    if len(moments) <= 12:
        groups = [(f"{pd.Timestamp(t):%d %b %y}", np.flatnonzero(times == t)) for t in moments]
        if len({name for name, _ in groups}) < len(groups):
            groups = [
                (f"{pd.Timestamp(t):%m-%d %H:%M}", np.flatnonzero(times == t)) for t in moments
            ]
    else:
        groups = [
            (f"{pd.Timestamp(part[0]):%d %b %y}", np.flatnonzero(np.isin(times, part)))
            for part in np.array_split(moments, 10)
        ]
    return _scores(m, _part_scores(m, answers, groups), "time of the prediction", "by time")


def _by_past(m: Material, answers: Answers) -> Markup | None:
    past = answers.past
    edges = np.unique(np.quantile(past, [0, 0.2, 0.4, 0.6, 0.8, 1]).astype(int))
    groups = []
    for number, (low, high) in enumerate(pairwise(edges)):
        last = number == len(edges) - 2
        at = np.flatnonzero((past >= low) & ((past <= high) if last else (past < high)))
        top = high if last else high - 1
        groups.append((f"{low:,}" if low == top else f"{low:,}–{top:,}", at))
    if len(edges) == 1:
        groups = [(f"{edges[0]:,}", np.arange(len(past)))]
    return _scores(m, _part_scores(m, answers, groups), "rows that refer to the entity by then",
                   "by how much history an entity had")  # fmt: skip
