"""Permutation importance of tables and columns: the loss of score if hidden or shuffled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relfrog.analysis.bootstrap import Interval, Scorer, resample
from relfrog.features.columns import Features
from relfrog.graph import _kernels
from relfrog.graph.relational import RelationalGraph
from relfrog.runs.run import Run
from relfrog.support.threads import thread_limit
from relfrog.training.inference import predict_seeds
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["Importance", "TableImportance", "importance", "without_rows"]

#: By default: total number of predictions, and the least seeds per score.
CHEAP, FEWEST = 12_000, 200
#: With `deep`: the most seeds per score, and the number of shuffles.
DEEP, SHUFFLES = 20_000, 5


@dataclass(frozen=True)
class TableImportance:
    """The importance of a table or column.

    Attributes:
        table: the table.
        column: the column; None for the whole table.
        hidden: loss of score without the rows of the table; None for the entity table, which
            cannot be hidden.
        shuffled: loss of score if the values are shuffled between rows; None if it has none.
    """

    table: str
    column: str | None
    hidden: Interval | None
    shuffled: Interval | None


@dataclass(frozen=True)
class Importance:
    """The importance of all tables for a metric, on a sample of test seeds.

    Attributes:
        metric: the metric.
        score: score of the unchanged model on these seeds.
        seeds: number of seeds.
        of: number of seeds in the test split.
        tables: one entry per table, the most important first.
        columns: one entry per column, with `deep`.
    """

    metric: str
    score: float
    seeds: int
    of: int
    tables: tuple[TableImportance, ...]
    columns: tuple[TableImportance, ...] = ()


def importance(
    run: Run,
    *,
    deep: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Importance:
    """Hide and shuffle each table in turn, and score again in the rolling regime.

    A positive number is a loss of score: the table matters. Intervals are bootstraps over entities
    of the difference on the same seeds.

    Args:
        run: a trained network.
        deep: use more seeds, five shuffles instead of one, and also shuffle single columns.
        seed: random seed.
        progress: called with a line about each step.

    Raises:
        RunError: The model is not a network.
    """
    run.need_network("no rows to hide or shuffle")
    prepared = run.prepared
    every = prepared.seeds("test")
    tables = list(prepared.graph.num_rows)
    most = DEEP if deep else max(FEWEST, CHEAP // (2 * len(tables) + 1))
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(every))
    if len(every) > most:
        chosen = np.sort(rng.choice(len(every), most, replace=False))
    assert every.labels is not None
    seeds = Seeds(every.rows[chosen], every.times.iloc[chosen], every.labels[chosen])
    trial = _Trial(run, seeds)
    entity = prepared.task.entity_table

    def shuffled(table: str, column: str | None) -> Interval | None:
        if not _has_values(run, table):
            return None
        parts = []
        for _ in range(SHUFFLES if deep else 1):
            order = torch.from_numpy(rng.permutation(prepared.graph.num_rows[table]))
            features = _shuffle(run, table, column, order)
            parts.append(trial.predict(prepared, {**prepared.features, table: features}))
        return trial.lost(parts)

    found = []
    for table in tables:
        progress(f"which tables matter: {table}")
        hidden = None
        if table != entity:
            without = replace(prepared, graph=without_rows(prepared.graph, table))
            hidden = trial.lost([trial.predict(without, prepared.features)])
        found.append(TableImportance(table, None, hidden, shuffled(table, None)))
    columns = []
    if deep:
        for table in tables:
            names = dict.fromkeys(c.name for c in prepared.columns.tables[table].columns)
            for name in names if len(names) > 1 else ():
                progress(f"which columns matter: {table}.{name}")
                columns.append(TableImportance(table, name, None, shuffled(table, name)))
    return Importance(
        trial.metric, trial.scorer(trial.before)(np.arange(len(seeds))), len(seeds), len(every),
        tuple(sorted(found, key=_worth)), tuple(sorted(columns, key=_worth)),
    )  # fmt: skip


def _worth(entry: TableImportance) -> tuple[float, str]:
    values = [part.value for part in (entry.hidden, entry.shuffled) if part is not None]
    return -max([v for v in values if not np.isnan(v)], default=0.0), entry.table


class _Trial:
    """Predicts and scores the same seeds on changed databases."""

    def __init__(self, run: Run, seeds: Seeds) -> None:
        self.run, self.seeds = run, seeds
        self.device = torch.device(run.device)
        self.metric, self.higher = run.kind.metric, run.kind.higher
        self.truth = run.model.truth(seeds)
        self.before = self.predict(run.prepared, run.prepared.features)

    def predict(self, prepared: Prepared, features: dict[str, Features]) -> NDArray[Any]:
        """Predictions on a changed database."""
        network = self.run.network
        if prepared.target_table is not None and prepared is not self.run.prepared:
            # The ranking head counts rows of the graph, so it has to be built for this one.
            roles = network.roles
            fixed = None
            if self.run.config.roles == "fixed" and roles is not None:
                values = roles.average.tolist()
                fixed = {str(route): values[i] for route, i in roles.number.items()}
            state = network.state_dict()
            network = prepared.network(self.run.about["labels"], fixed)
            network.load_state_dict(state)
            network.to(self.device).eval()
        moved = {name: part.to(self.device) for name, part in features.items()}
        with thread_limit(self.run.config.threads):
            return predict_seeds(network, prepared.loader(self.seeds), moved, self.device)

    def scorer(self, predicted: NDArray[Any]) -> Scorer:
        """A scorer of predictions."""
        return Scorer(self.run.kind.name, self.metric, self.truth, predicted, self.run.quantile)

    def lost(self, parts: list[NDArray[Any]]) -> Interval:
        """The mean loss of score of changed predictions, with its bootstrap interval."""
        sign = 1.0 if self.higher else -1.0
        before, after = self.scorer(self.before), [self.scorer(part) for part in parts]

        def difference(at: NDArray[np.int64]) -> float:
            return sign * (before(at) - float(np.mean([one(at) for one in after])))

        return resample(self.seeds.rows, difference, times=100)


def without_rows(graph: RelationalGraph, table: str) -> RelationalGraph:
    """A copy of the graph in which the rows of a table are disconnected."""
    number = graph.table_number[table]
    parents, keys = np.array(graph.parents), np.array(graph.keys)
    for key in keys:
        if number in (key[_kernels.CHILD], key[_kernels.PARENT]):
            above = graph.tables[key[_kernels.CHILD]]
            first, width = int(above[_kernels.POINTERS]), int(above[_kernels.WIDTH])
            count = int(above[_kernels.NUM_ROWS])
            own = parents[first : first + count * width].reshape(count, width)
            own[:, key[_kernels.COLUMN]] = -1
            key[_kernels.NUM_CHILDREN] = 0
    return replace(graph, parents=parents, keys=keys)


def _has_values(run: Run, table: str) -> bool:
    return (
        bool(run.prepared.columns.tables[table].columns) and len(run.prepared.features[table]) > 1
    )


def _shuffle(run: Run, table: str, column: str | None, order: torch.Tensor) -> Features:
    """Features of a table with one column, or all, permuted between rows."""
    old = run.prepared.features[table]
    columns = run.prepared.columns.tables[table]
    dense, codes, moments = old.dense.clone(), old.codes.clone(), old.moments.clone()
    places = [i for i, name in enumerate(columns.dense_columns) if column in (None, name)]
    coded = [i for i, c in enumerate(columns.categories) if column in (None, c.name)]
    timed = [i for i, name in enumerate(columns.moment_names) if column in (None, name)]
    for tensor, chosen in ((dense, places), (codes, coded), (moments, timed)):
        if chosen:
            tensor[:, chosen] = tensor[order][:, chosen]
    offsets, values = old.bag_offsets, old.bag_values
    lists = {c.name for c in columns.bags}
    if offsets is not None and values is not None and (column is None or lists == {column}):
        length = offsets.diff()[order]
        begin = torch.cat([length.new_zeros(1), length.cumsum(0)])
        within = torch.arange(int(begin[-1])) - begin[:-1].repeat_interleave(length)
        values = values[offsets[:-1][order].repeat_interleave(length) + within]
        offsets = begin
    return Features(dense, codes, moments, offsets, values)
