"""Explain one prediction: the effect of each row of the past on it.

In a network, the effect of a row is measured: the row is hidden from the sampled past of the
entity, and the prediction is repeated. If there are too many rows, those with the largest gradients
are tried. Other models are explained in `other_explanations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from relfrog.analysis.explained import (
    Explanation,
    FeatureShare,
    MemberShare,
    Reason,
    TableShare,
    answer_words,
    row_cells,
    row_keys,
)
from relfrog.datasets.entities import key_frame, read_entities
from relfrog.errors import TaskError, UsageError
from relfrog.graph.batch import Batch
from relfrog.graph.popularity import ListRequest
from relfrog.graph.relational import ForeignKey
from relfrog.models.network_model import NetworkModel
from relfrog.nn.batch_plan import Plan
from relfrog.runs.run import Run, load_run
from relfrog.support.threads import thread_limit
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

#: An occurrence of a row: its table, and its position there.
Spot: TypeAlias = tuple[str, int]
#: Copies of a subgraph that are computed together, each without other rows.
COPIES = 32

__all__ = [
    "Explanation", "FeatureShare", "MemberShare", "Reason", "TableShare", "explain", "explain_row",
]  # fmt: skip


def explain(run: Run | str | Path, entity: Any, at: Any = None, *, rows: int = 40) -> Explanation:
    """Explain the prediction for one entity.

    Args:
        run: a run, or its folder.
        entity: its key in the source: one value, or a tuple for a key of several columns. Text
            is converted to the type of the key; for several columns it is split at commas.
        at: the time of the prediction; by default the newest time in the database.
        rows: the most rows whose effects are measured.

    Raises:
        TaskError: There is no such entity.
    """
    run = run if isinstance(run, Run) else load_run(run)
    prepared = run.prepared
    table = prepared.task.entity_table
    primary = prepared.dataset.manifest.tables[table].pkey
    where = prepared.dataset.dataset_dir
    count = prepared.graph.num_rows[table]
    names = list(key_frame(where, table, primary, []).columns)
    parts = [entity] if len(names) == 1 else _parts(entity)
    if len(parts) != len(names):
        raise UsageError(
            f"a row of {table} is named by {len(names)} columns ({', '.join(names)}); got "
            f"{entity!r}. Give one value for each: --entity {','.join('KEY' for _ in names)}"
        )
    asked = pd.DataFrame({name: [part] for name, part in zip(names, parts, strict=True)})
    found = read_entities(where, table, primary, count, asked)
    return explain_row(run, int(found.rows[0]), run.moment(at), rows=rows)


def explain_row(
    run: Run, row: int, time: pd.Timestamp, *, rows: int = 40, output: int | None = None
) -> Explanation:
    """Explain the prediction for a row of the entity table; see `explain`.

    Args:
        run: any run.
        row: row number in the entity table.
        time: the time of the prediction.
        rows: the most rows whose effects are measured, or shown.
        output: the class or label to explain; by default the likeliest.
    """
    found = _explain_raw(run, row, time, rows, output)
    if run.postprocessing.calibration is None:
        return found
    seeds = Seeds.one(row, time)
    raw = run.predict_seeds(seeds, None, alone=True)
    calibrated = run.postprocessing.apply(raw)
    if raw.ndim > 1:
        calibrated = calibrated[:, raw[0].argmax() if output is None else output]
    return replace(found, calibrated=float(calibrated[0]))


def _explain_raw(
    run: Run, row: int, time: pd.Timestamp, rows: int, output: int | None
) -> Explanation:
    """Explain the prediction before calibration, which members of a blend have in common."""
    if not isinstance(run.model, NetworkModel):
        from relfrog.analysis.other_explanations import explain_other

        return explain_other(run, row, time, rows, output)
    prepared = run.prepared
    seeds = Seeds.one(row, time)
    loader = prepared.loader(seeds, alone=True)
    plan: Plan = next(iter(loader))
    asked = _ListQuestion if prepared.target_table is not None else _Question
    question = asked(run, plan, output)
    before = float(question.answers(plan)[0])
    if prepared.target_table is None:  # to the last digit what `predict` says
        said = run.predict_seeds(seeds, None, alone=True)
        before = float(said[0] if said.ndim == 1 else said[0, question.column])
    same = _occurrences(plan.batch)
    spots = sorted({same[spot][0] for spot in _reachable(plan)})
    seed = (prepared.task.entity_table, int(plan.batch.seeds[0]))
    others = [spot for spot in spots if spot != seed]
    chosen = others
    if len(others) > rows:
        with thread_limit(run.config.threads):
            weight = question.weights()
        bearing = {spot: sum(weight[n][at] for n, at in same[spot] if at < len(weight[n]))
                   for spot in others}  # fmt: skip
        chosen = sorted(others, key=lambda spot: -bearing[spot])[:rows]

    by_table: dict[str, list[int]] = {}
    for spot in others:
        by_table.setdefault(spot[0], []).extend(position for _, position in same[spot])
    single = [{spot[0]: [position for _, position in same[spot]]} for spot in chosen]
    effect = _lost_without(prepared, question, seeds, plan, single)
    # Not together with rows: the last digits must not depend on how many are tried.
    whole = [{name: positions} for name, positions in by_table.items()]
    of_table = _lost_without(prepared, question, seeds, plan, whole)
    by_row = dict(zip(chosen, effect.tolist(), strict=True))
    table_effect = dict(zip(by_table, of_table.tolist(), strict=True))
    shares = tuple(
        TableShare(
            name, sum(spot[0] == name for spot in spots), _newest(run, plan, name),
            table_effect.get(name),
        )
        for name in sorted({*by_table, seed[0]})
    )  # fmt: skip
    ordered = sorted(chosen, key=lambda spot: (-abs(by_row[spot]), spot))
    return Explanation(
        seed[0], row_keys(run, [seed[0]], [row])[0], time, before, question.words,
        tuple(sorted(shares, key=lambda share: -abs(share.effect or 0.0))),
        _reasons(run, plan, ordered, by_row, seed, same), len(spots),
    )  # fmt: skip


def _lost_without(
    prepared: Prepared,
    question: _Question,
    seeds: Seeds,
    plan: Plan,
    hidden: list[dict[str, list[int]]],
) -> NDArray[np.float64]:
    """The number minus the number without some rows, for each choice of rows. Shape [choices].

    The past of the seed is sampled once for each choice, and each copy loses its rows: one pass of
    the network for many choices. The first copy of a pass is whole, so that what is subtracted was
    computed, and rounded, in the same way.
    """
    apart = replace(prepared, config=replace(prepared.config, sharing="separate"))
    found = []
    for first in range(0, len(hidden), COPIES):
        some = [{}, *hidden[first : first + COPIES]]
        many = Seeds(np.repeat(seeds.rows, len(some)), np.tile(seeds.times, len(some)))
        loader = apart.loader(many, alone=True)
        assert loader.prepare is not None
        numbers = np.arange(len(many))
        batch = loader.sampler.sample(many.rows, many.times, 0, numbers)
        together: dict[str, list[int]] = {}
        for name, rows in batch.tables.items():
            # The copies of a subgraph hold the same rows in the same order.
            order = torch.argsort(rows.group, stable=True).reshape(len(some), -1)
            assert order.shape[1] == len(plan.batch.tables[name]), "not the same subgraph"
            for copy, chosen in enumerate(some):
                if name in chosen:
                    together.setdefault(name, []).extend(order[copy, chosen[name]].tolist())
        answers = question.answers(loader.prepare(_hide(batch, together))).astype(float)
        found.append(answers[0] - answers[1:])
    return np.concatenate([np.zeros(0), *found])


class _Question:
    """The number to explain: which output of the network, and how to compute it for a plan."""

    request: ListRequest | None = None

    def __init__(self, run: Run, plan: Plan, output: int | None = None) -> None:
        self.asked = output
        self.network, self.plan, self.threads = run.network, plan, run.config.threads
        self.device = torch.device(run.device)
        self.features = {n: part.to(self.device) for n, part in run.prepared.features.items()}
        self.column = 0
        self.words = self._choose(run, self._predict(plan))

    def _choose(self, run: Run, output: NDArray[Any]) -> str:
        """Choose the number, the likeliest class where there are several; what it is, in words."""
        if output.ndim == 1:
            return answer_words(run, None)
        self.column = int(output[0].argmax()) if self.asked is None else self.asked
        return answer_words(run, self.column)

    def _predict(self, plan: Plan) -> NDArray[Any]:
        with torch.no_grad(), thread_limit(self.threads):
            plan = plan.to(self.device)
            output = self.network(plan, self.features)
            found = self.network.head.batch_predict(output.seeds, plan, self.features, self.request)
        return np.asarray(found.cpu().numpy())

    def answers(self, plan: Plan) -> NDArray[Any]:
        """The number, for each seed of the plan. Shape [seeds]."""
        found = self._predict(plan)
        return found if found.ndim == 1 else found[:, self.column]

    def _aim(self, answer: Any) -> Tensor:
        """The raw output behind the number, to differentiate."""
        aim: Tensor = answer[0, self.column]
        return aim

    def weights(self) -> dict[str, NDArray[Any]]:
        """Gradient-times-input saliency of each row, per table. Shapes [rows]."""
        output = self.network(self.plan.to(self.device), self.features)
        tables = list(output.states[0])
        states = [output.states[0][name] for name in tables]
        found = torch.autograd.grad(self._aim(output.seeds), states, allow_unused=True)
        return {
            name: _bearing(state, slope)
            for name, state, slope in zip(tables, states, found, strict=True)
        }


class _ListQuestion(_Question):
    """The score of the first target of a recommended list."""

    def _choose(self, run: Run, output: NDArray[Any]) -> str:
        self.target = int(output[0, 0, 0])
        if self.target < 0:
            raise TaskError("nothing can be recommended at that time.")
        table = run.prepared.target_table
        assert table is not None
        allowed = np.zeros(run.prepared.graph.num_rows[table], bool)
        allowed[self.target] = True
        self.request = ListRequest(1, allowed)
        named = row_keys(run, [table], [self.target])[0]
        return f"score of {table} {named}, the first of the list"

    def answers(self, plan: Plan) -> NDArray[Any]:
        """The score, for each seed of the plan. Shape [seeds]."""
        return self._predict(plan)[:, 0, 1]

    def _aim(self, answer: Any) -> Tensor:
        here = answer.row == self.target
        aim: Tensor = answer.sampled[here].sum() + answer.seeds.pow(2).sum()
        return aim


def _bearing(state: Tensor, slope: Tensor | None) -> NDArray[Any]:
    if slope is None:
        return np.zeros(len(state))
    return np.asarray((state * slope).detach().abs().sum(1).cpu().numpy())


def _parts(entity: Any) -> list[Any]:
    if isinstance(entity, tuple | list):
        return list(entity)
    return [part.strip() for part in str(entity).split(",")]


def _occurrences(batch: Batch) -> dict[Spot, list[Spot]]:
    """For each occurrence of a row all of its occurrences, the one closest to the seed first."""
    found: dict[Spot, list[Spot]] = {}
    for name, rows in batch.tables.items():
        by_row: dict[int, list[Spot]] = {}
        for position, row in enumerate(rows.index.tolist()):
            found[name, position] = by_row.setdefault(row, [])
            by_row[row].append((name, position))
    return found


def _pointers(batch: Batch) -> Iterator[tuple[ForeignKey, Tensor]]:
    """All pointers from children to parents, whichever of them sends."""
    yield from batch.parents.items()
    yield from (batch.brought or {}).items()


def _reachable(plan: Plan) -> list[Spot]:
    """The rows connected to the seed, as pairs of table and position."""
    found = {(plan.batch.seed_table, int(plan.batch.seeds[0]))}
    joined: dict[Spot, list[Spot]] = {}
    for key, pointers in _pointers(plan.batch):
        for child, parent in enumerate(pointers[: plan.sizes[key.table]].tolist()):
            if 0 <= parent < plan.sizes[key.parent]:
                joined.setdefault((key.table, child), []).append((key.parent, parent))
                joined.setdefault((key.parent, parent), []).append((key.table, child))
    waiting = list(found)
    while waiting:
        for spot in joined.get(waiting.pop(), ()):
            if spot not in found:
                found.add(spot)
                waiting.append(spot)
    return sorted(found)


def _hide(batch: Batch, hidden: Mapping[str, list[int]]) -> Batch:
    """A copy of the batch with some rows disconnected."""

    def cut(key: ForeignKey, pointers: Tensor) -> Tensor:
        own, above = hidden.get(key.table), hidden.get(key.parent)
        if own or above:
            pointers = pointers.clone()
            if own:
                pointers[torch.tensor(own)] = -1
            if above:
                pointers[torch.isin(pointers, torch.tensor(above))] = -1
        return pointers

    brought = batch.brought
    return replace(
        batch,
        parents={key: cut(key, pointers) for key, pointers in batch.parents.items()},
        brought=brought and {key: cut(key, pointers) for key, pointers in brought.items()},
    )


def _times(run: Run, plan: Plan, table: str) -> NDArray[Any] | None:
    """Exact times of the occurrences of a table. Shape [occurrences]."""
    known = run.prepared.graph.time(table)
    if known is None:
        return None
    rows = plan.batch.tables[table]
    ticks = known[rows.rows.numpy()][rows.index.numpy()[: plan.sizes[table]]]
    # The smallest integer marks a missing time, and is NaT as datetime64.
    return np.asarray(ticks.astype(f"datetime64[{run.prepared.graph.unit}]"))


def _newest(run: Run, plan: Plan, table: str) -> pd.Timestamp | None:
    times = _times(run, plan, table)
    hidden = plan.batch.hidden()
    if times is not None and table == plan.batch.seed_table and bool(hidden.any()):
        times = np.delete(times, plan.batch.seeds[hidden].numpy())  # predicted for, but not read
    if times is None or np.isnat(times).all():
        return None
    return pd.Timestamp(times[~np.isnat(times)].max())


def _reasons(
    run: Run,
    plan: Plan,
    spots: list[Spot],
    effect: Mapping[Spot, float],
    seed: Spot,
    same: Mapping[Spot, list[Spot]],
) -> tuple[Reason, ...]:
    tables = run.prepared.db.table_dict
    number = {seed: -1} | {spot: i for i, spot in enumerate(spots)}
    hops = {name: rows.hop.tolist() for name, rows in plan.batch.tables.items()}
    closer: dict[Spot, set[int]] = {}
    for key, pointers in _pointers(plan.batch):
        for child, parent in enumerate(pointers[: plan.sizes[key.table]].tolist()):
            if parent < 0:
                continue
            ends = same[key.table, child][0], same[key.parent, parent][0]
            if ends[0] in number and ends[1] in number:
                near, far = sorted(ends, key=lambda spot: (hops[spot[0]][spot[1]], spot))
                if hops[near[0]][near[1]] < hops[far[0]][far[1]]:
                    closer.setdefault(far, set()).add(number[near])
    times = {name: _times(run, plan, name) for name in {name for name, _ in spots}}
    rows = [
        int(plan.batch.tables[table].rows[plan.batch.tables[table].index[position]])
        for table, position in spots
    ]
    keys = row_keys(run, [table for table, _ in spots], rows)
    found = []
    for spot, row, name in zip(spots, rows, keys, strict=True):
        table, position = spot
        when = times[table]
        known = when is not None and not np.isnat(when[position])
        found.append(
            Reason(
                table, name, pd.Timestamp(when[position]) if when is not None and known else None,
                hops[table][position], effect[spot], row_cells(tables[table], row, name),
                tuple(sorted(closer.get(spot, ()))),
            )
        )  # fmt: skip
    return tuple(found)
