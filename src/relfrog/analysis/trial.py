"""The trial of a certificate: the same predictions on databases with other futures."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.altered_future import WAYS, Readings, Tampering
from relfrog.errors import TaskError
from relfrog.graph.popularity import ListRequest, joined_before
from relfrog.models.model import Model
from relfrog.runs.run import Run
from relfrog.training.altered_task import AlteredTask
from relfrog.training.seeds import Seeds

__all__ = ["Ask", "try_futures"]


class Ask(NamedTuple):
    """How predictions are asked for; see `Run.predict_seeds`."""

    cutoff: pd.Timestamp | None
    request: ListRequest | None
    alone: bool


def try_futures(
    run: Run, seeds: Seeds, ask: Ask, limits: NDArray[np.int64], most: int
) -> tuple[Any, dict[str, Any]]:
    """Predict, and check that predictions are identical for every altered future."""
    ticks = np.unique(limits)
    tried = ticks
    if 0 < most < len(ticks):
        # From the last time on, as it has the longest past.
        tried = ticks[np.linspace(len(ticks) - 1, 0, most).astype(int)]
    outcome: dict[str, dict[str, Any]] = {
        way: {"rows": 0, "identical": True, "different": 0} for way in WAYS
    }
    parts: list[tuple[NDArray[np.int64], Any]] = []
    readings = _readings(run)
    seeds_tried = 0
    for tick in ticks:
        at = np.flatnonzero(limits == tick)
        some = seeds.take(at)
        made = _again(run.model, some, ask)
        parts.append((at, made))
        if tick not in tried:
            continue
        seeds_tried += len(at)
        for way, found in outcome.items():
            for by_window in (False, True):
                again, rows = _on_another(run, readings, way, int(tick), some, by_window, ask)
                different = 0 if again is None else _different(made, again)
                if not different or not _remembers(run.model):
                    break
                # Label SQL may use other times than those of the rows it reads. Then each past
                # label has to be computed from the rows up to the end of its window.
                found["labels"] = "from rows up to the end of their windows"
            found["rows"] += rows
            found["different"] += different
            found["identical"] = found["identical"] and not different
    if not parts:
        return _again(run.model, seeds, ask), _sum_up(outcome, 0, 0, 0)
    whole = np.empty((len(seeds), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for at, made in parts:
        whole[at] = made
    return whole, _sum_up(outcome, len(ticks), len(tried), seeds_tried)


def _sum_up(
    outcome: dict[str, dict[str, Any]], times: int, tried: int, seeds: int
) -> dict[str, Any]:
    return {
        **outcome, "times": times, "times_tried": tried, "seeds_tried": seeds,
        "identical": all(found["identical"] for found in outcome.values()),
    }  # fmt: skip


def _readings(run: Run) -> Readings:
    """What is read of the database to alter it; its times are those of the graph."""
    graph = run.prepared.graph
    times = {name: graph.time(name) for name in run.prepared.opened.db.table_dict
             if name in graph.num_rows}  # fmt: skip
    return Readings(graph.unit, {name: found for name, found in times.items() if found is not None})


def _on_another(
    run: Run, readings: Readings, way: str, tick: int, seeds: Seeds, by_window: bool, ask: Ask
) -> tuple[Any, int]:
    """Predict on a database with an altered future; also return the number of altered rows.

    If there are none, it is the same database, and nothing is predicted.
    """
    ready = run.prepared
    time = pd.Timestamp(np.array([tick], np.int64).view(f"datetime64[{readings.unit}]")[0])
    for gentle in (False, True):
        asked = {ready.task.entity_table: seeds.rows}
        tamper = Tampering(way, tick, readings, asked, gentle=gentle)
        altered = AlteredTask(ready.opened, tamper, time if by_window else None)
        if not altered.is_changed and not _remembers(run.model):
            return None, 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings were given for the original database
            try:
                made = _again(Run.on(run, altered).model, seeds, ask)
            except TaskError:
                if gentle:
                    raise
                continue  # the label SQL fails on values that never occurred
        return made, sum(tamper.rows.values())
    raise AssertionError("unreachable")


def _remembers(model: Model) -> bool:
    """Whether the model uses the label history."""
    return any(one.prepared.history is not None for one in (model.members or {"": model}).values())


def _again(model: Model, seeds: Seeds, ask: Ask) -> Any:
    """Predict on the model's database, with the request adapted to its rows."""
    request = ask.request
    if request is not None:
        ready = next(iter(model.members.values()), model).prepared
        task, graph, table = ready.task, ready.graph, ready.task.dst_entity_table
        allowed = request.allowed
        if allowed is not None:
            fitting = np.zeros(graph.num_rows[table], bool)
            size = min(len(fitting), len(allowed))
            fitting[:size] = allowed[:size]
            allowed = fitting
        known = request.exclude
        if known is not None:
            known = joined_before(graph, task.entity_table, table, seeds.rows, seeds.times)
        request = replace(request, allowed=allowed, exclude=known)
    if ask.alone:
        return np.asarray(model.predict_alone(seeds, request))
    return np.asarray(model.predict(seeds, ask.cutoff, request))


def _different(one: NDArray[Any], other: NDArray[Any]) -> int:
    """The number of seeds whose predictions differ in any bit."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return len(one)
    if one.dtype == object:
        return sum(a != b for a, b in zip(one.tolist(), other.tolist(), strict=True))
    if not one.size:
        return 0
    sides = [np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1) for x in (one, other)]
    return int((sides[0] != sides[1]).any(1).sum())
