"""Explanations by features: what each contributes, and the rows that it is computed from.

For LightGBM, on one label per entity and on lists, and for counts and means of earlier labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.explained import (
    Explanation,
    FeatureShare,
    Reason,
    TableShare,
    answer_words,
    row_cells,
    row_keys,
)
from relfrog.models.aggregates.sources import CALENDAR, FeatureSource, feature_sources
from relfrog.models.boosting import BoostedTrees
from relfrog.models.contributions import tree_contributions
from relfrog.runs.run import Run
from relfrog.support.times import MISSING
from relfrog.training.seeds import Seeds

__all__ = ["Part", "assemble", "explain_trees"]


@dataclass(frozen=True, eq=False)
class Part:
    """A feature of one prediction.

    Attributes:
        source: where it comes from.
        value: its value; None if it is missing.
        effect: what it contributes.
        each: what each of its rows carries; by default the contribution, shared evenly.
    """

    source: FeatureSource
    value: float | None
    effect: float
    each: NDArray[np.float64] | None = None


def explain_trees(
    run: Run,
    model: BoostedTrees,
    row: int,
    time: pd.Timestamp,
    rows: int,
    output: int | None = None,
) -> Explanation:
    """The contributions of LightGBM's features, in the unit of the prediction."""
    seeds = Seeds.one(row, time)
    said = np.asarray(run.predict_seeds(seeds, None, alone=True))
    column = int(said[0].argmax()) if said.ndim > 1 and output is None else output
    prediction = float(said[0] if column is None else said[0, column])
    found = tree_contributions(model, seeds, None, column or 0)
    limit = int(model.limits(seeds, None)[0])
    sources = feature_sources(model.maker, row, limit, model.labels.get("classes"))
    parts = [
        Part(source, None if np.isnan(value) else float(value), float(effect))
        for source, value, effect in zip(sources, found.features, found.values, strict=True)
        if effect
    ]
    return assemble(run, row, time, prediction, answer_words(run, column), found.base, parts, rows)


def assemble(
    run: Run,
    row: int,
    time: pd.Timestamp,
    prediction: float,
    answer: str,
    base: float | None,
    parts: list[Part],
    most: int,
    *,
    measured: str = "shared",
) -> Explanation:
    """An explanation from the contributions of features.

    Args:
        run: the run that predicts.
        row: of the entity table.
        time: when the prediction is made.
        prediction: the number that is explained.
        answer: what it is, in words.
        base: what it would be without any feature.
        parts: the features.
        most: rows to show, at most.
        measured: see `Explanation.measured`.
    """
    graph, entity = run.prepared.graph, run.prepared.task.entity_table
    carried: dict[str, NDArray[np.float64]] = {}
    seen: dict[str, NDArray[np.bool_]] = {}
    hops: dict[str, NDArray[np.int64]] = {}
    up: dict[tuple[str, int], tuple[str, int]] = {}
    for part in parts:
        source = part.source
        if source.table == CALENDAR:
            continue
        count = graph.num_rows[source.table]
        own = carried.setdefault(source.table, np.zeros(count))
        flags = seen.setdefault(source.table, np.zeros(count, bool))
        near = hops.setdefault(source.table, np.full(count, 99))
        if len(source.rows):
            each = part.effect / len(source.rows) if part.each is None else part.each
            own[source.rows] += each
            flags[source.rows] = True
            near[source.rows] = np.minimum(near[source.rows], source.hops)
            if source.leads_to is not None and source.middle is not None:
                pairs = zip(source.rows.tolist(), source.leads_to.tolist(), strict=True)
                up |= {(source.table, a): (source.middle, b) for a, b in pairs}
    effects: dict[str, float] = {}
    for part in parts:
        effects[part.source.table] = effects.get(part.source.table, 0.0) + part.effect
    tables = [
        TableShare(
            name, int(seen[name].sum()) if name in seen else 0,
            _newest(run, name, np.flatnonzero(seen[name])) if name in seen else None, effect,
        )
        for name, effect in effects.items()
    ]  # fmt: skip
    if entity not in effects:
        tables.append(TableShare(entity, 1, _newest(run, entity, np.array([row])), None))
    looked_at = 1 + sum(
        int(flags.sum()) - bool(name == entity and flags[row]) for name, flags in seen.items()
    )
    if entity in seen:
        seen[entity][row] = False  # the seed itself is drawn as such
    chosen = [(name, int(at)) for name, flags in seen.items() for at in np.flatnonzero(flags)]
    chosen.sort(key=lambda spot: (-abs(carried[spot[0]][spot[1]]), spot))
    reasons = _reasons(run, chosen[:most], carried, hops, up)
    shares = [_share(run, part) for part in parts]
    return Explanation(
        entity, row_keys(run, [entity], [row])[0], time, prediction, answer,
        tuple(sorted(tables, key=lambda share: -abs(share.effect or 0.0))), reasons, looked_at,
        tuple(sorted(shares, key=lambda share: -abs(share.effect))), base, measured,
    )  # fmt: skip


def _share(run: Run, part: Part) -> FeatureShare:
    source = part.source
    when = _when(run, source.table, source.rows)
    return FeatureShare(
        source.words, source.table, part.value, len(source.rows),
        when.min() if len(when) else None, when.max() if len(when) else None, part.effect,
    )  # fmt: skip


def _when(run: Run, table: str, rows: NDArray[np.int64]) -> pd.DatetimeIndex:
    """The times of rows, of those that have one."""
    graph = run.prepared.graph
    known = graph.time(table) if table in graph.num_rows else None
    ticks = np.empty(0, np.int64) if known is None else known[rows]
    return pd.DatetimeIndex(ticks[ticks != MISSING].astype(f"datetime64[{graph.unit}]"))


def _newest(run: Run, table: str, rows: NDArray[np.int64]) -> pd.Timestamp | None:
    when = _when(run, table, rows)
    return when.max() if len(when) else None


def _reasons(
    run: Run,
    chosen: list[tuple[str, int]],
    carried: dict[str, NDArray[np.float64]],
    hops: dict[str, NDArray[np.int64]],
    up: dict[tuple[str, int], tuple[str, int]],
) -> tuple[Reason, ...]:
    keys = row_keys(run, [name for name, _ in chosen], [at for _, at in chosen])
    number = {spot: place for place, spot in enumerate(chosen)}
    found = []
    for (name, at), key in zip(chosen, keys, strict=True):
        when = _when(run, name, np.array([at]))
        far = int(hops[name][at])
        leads = (-1,) if far <= 1 else ()
        if (name, at) in up and up[name, at] in number:
            leads = (number[up[name, at]],)
        found.append(
            Reason(
                name, key, when[0] if len(when) else None, far, float(carried[name][at]),
                row_cells(run.prepared.db.table_dict[name], at, key), leads,
            )
        )  # fmt: skip
    return tuple(found)


def weighted(found: Explanation, weight: float, member: str) -> Explanation:
    """The same explanation with all effects times a weight, marked as a member's."""
    return replace(
        found,
        tables=tuple(
            replace(t, effect=None if t.effect is None else weight * t.effect) for t in found.tables
        ),
        rows=tuple(replace(r, effect=weight * r.effect) for r in found.rows),
        features=tuple(replace(f, effect=weight * f.effect, member=member) for f in found.features),
    )
