"""Explanations of what looks at earlier labels alone: means, medians, popularity, past visits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.explained import Explanation, answer_words, row_keys
from relfrog.analysis.feature_explanation import Part, assemble
from relfrog.errors import TaskError
from relfrog.graph.references import children_at
from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.sources import FeatureSource
from relfrog.models.contributions import booster_contributions
from relfrog.models.past_labels import PastModel
from relfrog.models.rankers import BoostedRanker, PastVisitRanker, Ranker
from relfrog.runs.run import Run
from relfrog.training.seeds import Seeds

__all__ = ["explain_past_labels", "explain_ranker"]

Ints = NDArray[np.int64]


def explain_past_labels(
    run: Run, model: PastModel, row: int, time: pd.Timestamp, most: int, output: int | None = None
) -> Explanation:
    """The earlier labels behind a mean or a median; the effect of one is measured by hiding it."""
    seeds = Seeds.one(row, time)
    limits = model.limits(seeds, None)
    said = np.asarray(run.predict_seeds(seeds, None, alone=True))
    column = int(said[0].argmax()) if said.ndim > 1 and output is None else output
    prediction = float(said[0] if column is None else said[0, column])
    past, at = model.past, column or 0
    begin, end = (int(part[0]) for part in past.own(seeds.rows, limits))
    count = int(past.all(limits)[0])
    middle, name = (np.median, "median") if model.median else (np.mean, "mean")
    everyone = past.in_time[:count, at]

    def answer(own: NDArray[Any], others: NDArray[Any]) -> float:
        own = own if model.last is None else own[-model.last :]
        if model.own and len(own):
            return float(middle(own))
        return float(middle(others)) if len(others) else float(model.constant[at])

    own = past.values[begin:end, at]
    table = run.prepared.history
    assert table is not None
    if model.own and len(own):
        used = len(own) if model.last is None else min(model.last, len(own))
        rows, base = past.rows[end - used : end], answer(own[:0], everyone)
        words = f"{name} of its {'last ' if used < len(own) else ''}{used} earlier label"
        kept, hops = range(len(own) - used, len(own)), 1
        each = [prediction - answer(np.delete(own, i), everyone) for i in kept]
    else:
        used, rows = count, past.rows_in_time[:count]
        base, hops = float(model.constant[at]), 2
        words = f"{name} of all {used} earlier label"
        # Of many labels only the latest are shown.
        late = range(max(0, used - most), used)
        rows = rows[late.start :] if used else rows
        each = [prediction - answer(own[:0], np.delete(everyone, i)) for i in late]
    words += "" if used == 1 else "s"
    source = FeatureSource(words, table, rows, hops)
    part = Part(source, prediction, prediction - base, np.array(each))
    return assemble(
        run, row, time, prediction, answer_words(run, column), base, [part] if used else [], most,
        measured="hidden",
    )  # fmt: skip


def explain_ranker(run: Run, model: Ranker, row: int, time: pd.Timestamp, most: int) -> Explanation:
    """What the first target of a list owes its place to."""
    seeds = Seeds.one(row, time)
    first = np.asarray(run.predict_seeds(seeds, None, alone=True))[0, 0]
    target = int(first[0])
    if target < 0:
        raise TaskError("nothing can be recommended at that time.")
    name = row_keys(run, [model.target], [target])[0]
    limits = model.limits(seeds, None)
    history = run.prepared.history
    assert history is not None
    if isinstance(model, BoostedRanker):
        return _explain_boosted(run, model, row, time, target, float(first[1]), most)
    _, label = children_at(model.graph, model.of_source, seeds.rows, limits)
    mine = label[model.graph.parent(model.of_target)[label] == target]
    if isinstance(model, PastVisitRanker) and len(mine):
        rows, hops, words = mine, 1, f"number of its earlier labels that name {name}"
    else:
        _, rows = children_at(model.graph, model.of_target, np.array([target]), limits)
        hops, words = 2, f"number of all earlier labels that name {name}"
    answer = f"earlier labels that name {model.target} {name}, the first of the list"
    part = Part(FeatureSource(words, history, np.sort(rows), hops), len(rows), float(len(rows)))
    return assemble(run, row, time, float(len(rows)), answer, 0.0, [part], most)


def _explain_boosted(
    run: Run, model: BoostedRanker, row: int, time: pd.Timestamp, target: int, score: float,
    most: int,
) -> Explanation:  # fmt: skip
    """The contributions of the features of one pair; its score is a raw score, so they add up."""
    seeds = Seeds.one(row, time)
    limits = model.limits(seeds, None)
    x = model.pair_features(seeds.rows, limits, np.zeros(1, np.int64), np.array([target]))
    base, added = booster_contributions(model.model, x)
    sources = list(_pair_sources(run, model, row, target, limits))
    parts = [
        Part(source, None if np.isnan(value) else float(value), float(effect))
        for source, value, effect in zip(sources, x[0], added[0], strict=True)
        if effect
    ]
    key = row_keys(run, [model.target], [target])[0]
    answer = f"score of {model.target} {key}, the first of the list"
    return assemble(run, row, time, score, answer, float(base[0]), parts, most)


def _pair_sources(run: Run, model: BoostedRanker, row: int, target: int, limits: Ints) -> Any:
    """Where the features of a pair come from, in the order of `BoostedRanker.pair_features`."""
    graph, one = model.graph, np.array([target])

    def called(key: ForeignKey) -> str:
        return "earlier labels" if key.table == run.prepared.history else str(key.table)

    for key in model.popularity.keys:
        _, rows = children_at(graph, key, one, limits)
        for words in ("number of {} that name it", "number of {} that name it in the last horizon",
                      "time since the latest {} that names it"):  # fmt: skip
            yield FeatureSource(words.format(called(key)), key.table, rows, 2)
    yield FeatureSource(f"age of the row of {model.target}", model.target, one, 2)
    for first, second in model.joins():
        _, child = children_at(graph, first, np.array([row]), limits)
        rows = child[graph.parent(second)[child] == target]
        for words in ("number of its {} that name it", "share of its {} that name it",
                      "time since its latest {} that names it"):  # fmt: skip
            yield FeatureSource(words.format(called(first)), first.table, rows, 1)
    for table, at in ((model.source, row), (model.target, target)):
        for name in run.prepared.columns.tables[table].dense_columns:
            hops = 0 if table == model.source else 2
            yield FeatureSource(f"{table}.{name}", table, np.array([at]), hops)
