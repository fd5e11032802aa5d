"""Explanations of models that are no networks: by features, by earlier labels, by members."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from relfrog.analysis.changed_tables import ChangedTask, run_on
from relfrog.analysis.explained import (
    Explanation,
    MemberShare,
    Reason,
    TableShare,
    answer_words,
    row_keys,
)
from relfrog.analysis.explanation import explain_row
from relfrog.analysis.feature_explanation import explain_trees, weighted
from relfrog.analysis.label_explanation import explain_past_labels, explain_ranker
from relfrog.models.boosting import BoostedTrees
from relfrog.models.past_labels import PastModel
from relfrog.models.rankers import Ranker
from relfrog.runs.run import Run
from relfrog.support.times import MISSING
from relfrog.training.seeds import Seeds

__all__ = ["explain_other"]


def explain_other(
    run: Run, row: int, time: pd.Timestamp, rows: int, output: int | None = None
) -> Explanation:
    """Explain the prediction of a model that is no network.

    Args:
        run: the run.
        row: of the entity table.
        time: when the prediction is made.
        rows: how many rows of the past are shown, at most.
        output: of several classes or labels, which; by default the likeliest.
    """
    model = run.model
    if model.members:
        return _explain_blend(run, row, time, rows)
    if isinstance(model, BoostedTrees):
        return explain_trees(run, model, row, time, rows, output)
    if isinstance(model, Ranker):
        return explain_ranker(run, model, row, time, rows)
    if isinstance(model, PastModel):
        return explain_past_labels(run, model, row, time, rows, output)
    return _explain_by_tables(run, row, time, output)


def _explain_blend(run: Run, row: int, time: pd.Timestamp, rows: int) -> Explanation:
    """The explanations of all members, weighted as their predictions are."""
    weights, output = run.blend["weights"], None
    if len(run.model.members) > 1:  # what is likeliest to the blend may not be so to a member
        seeds = Seeds.one(row, time)
        said = np.asarray(run.predict_seeds(seeds, None, alone=True))
        output = None if said.ndim == 1 else int(said[0].argmax())
    found = {
        name: explain_row(run.member(name), row, time, rows=rows, output=output)
        for name in run.model.members
    }
    first = next(iter(found.values()))
    members = tuple(
        MemberShare(name, float(weights[name]), one.prediction, one.base, one.measured)
        for name, one in found.items()
    )
    if len(found) == 1:
        ((name, only),) = found.items()
        features = tuple(replace(share, member=name) for share in only.features)
        return replace(only, features=features, members=members)
    parts = [weighted(one, float(weights[name]), name) for name, one in found.items()]
    shares = (share for part in parts for share in part.features)
    return Explanation(
        first.table, first.key, first.time,
        sum(member.weight * member.prediction for member in members), first.answer,
        _tables(parts), _rows(parts)[:rows], max(one.looked_at for one in found.values()),
        tuple(sorted(shares, key=lambda share: -abs(share.effect))), None, "blended", members,
    )  # fmt: skip


def _tables(parts: list[Explanation]) -> tuple[TableShare, ...]:
    found: dict[str, TableShare] = {}
    for share in (share for part in parts for share in part.tables):
        before = found.get(share.table)
        if before is not None:
            effects = [one.effect for one in (before, share) if one.effect is not None]
            newest = [one.newest for one in (before, share) if one.newest is not None]
            share = TableShare(
                share.table, max(before.rows, share.rows), max(newest, default=None),
                sum(effects) if effects else None,
            )  # fmt: skip
        found[share.table] = share
    return tuple(sorted(found.values(), key=lambda share: -abs(share.effect or 0.0)))


def _rows(parts: list[Explanation]) -> tuple[Reason, ...]:
    """The rows of all parts; one that several have carries what it carries in each."""
    place: dict[tuple[str, str], int] = {}
    merged: list[Reason] = []
    leads: list[set[int]] = []
    for part in parts:
        spots = [(row.table, row.key) for row in part.rows]
        for row, spot in zip(part.rows, spots, strict=True):
            at = place.setdefault(spot, len(merged))
            if at == len(merged):
                merged.append(row)
                leads.append(set())
            else:
                effect, hops = merged[at].effect + row.effect, min(merged[at].hops, row.hops)
                merged[at] = replace(merged[at], effect=effect, hops=hops)
        for row, spot in zip(part.rows, spots, strict=True):
            leads[place[spot]] |= {to if to < 0 else place[spots[to]] for to in row.leads_to}
    order = sorted(range(len(merged)), key=lambda at: (-abs(merged[at].effect), at))
    number = {old: new for new, old in enumerate(order)} | {-1: -1}
    return tuple(
        replace(merged[at], leads_to=tuple(sorted(number[to] for to in leads[at])))
        for at in order
    )  # fmt: skip


def _explain_by_tables(run: Run, row: int, time: pd.Timestamp, output: int | None) -> Explanation:
    """What the prediction would be without each table: all that is known of any model."""
    prepared = run.prepared
    seeds = Seeds.one(row, time)
    said = np.asarray(run.predict_seeds(seeds, None, alone=True))
    which = int(said[0].argmax()) if said.ndim > 1 and output is None else output
    at = (0,) if which is None else (0, which)
    prediction, entity, shares = float(said[at]), prepared.task.entity_table, []
    for table, count in prepared.graph.num_rows.items():
        seen = np.ones(count, bool)
        known, newest = prepared.graph.time(table), None
        if known is not None:
            seen = known <= prepared.graph.ticks(seeds.times)[0]
            dated = known[seen & (known != MISSING)].astype(f"datetime64[{prepared.graph.unit}]")
            newest = pd.Timestamp(dated.max()) if len(dated) else None
        effect = None
        if table != entity:
            other = run_on(run, ChangedTask(prepared.opened, table))
            effect = prediction - float(
                np.asarray(other.predict_seeds(seeds, None, alone=True))[at]
            )
        shares.append(TableShare(table, int(seen.sum()), newest, effect))
    answer = answer_words(run, which)
    return Explanation(
        entity, row_keys(run, [entity], [row])[0], time, prediction, answer,
        tuple(sorted(shares, key=lambda share: -abs(share.effect or 0.0))), (),
        sum(share.rows for share in shares),
    )  # fmt: skip
