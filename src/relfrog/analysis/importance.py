"""Permutation importance of tables and columns: the loss of score if hidden or shuffled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.analysis.bootstrap import Interval, Scorer, resample
from relfrog.analysis.changed_tables import ChangedTask, run_on, value_columns
from relfrog.graph.relational import ForeignKey
from relfrog.runs.run import Run
from relfrog.training.seeds import Seeds

__all__ = ["Importance", "TableImportance", "importance"]

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
        unmeasured: tables for which there was no time, the nearest to the entities first.
    """

    metric: str
    score: float
    seeds: int
    of: int
    tables: tuple[TableImportance, ...]
    columns: tuple[TableImportance, ...] = ()
    unmeasured: tuple[str, ...] = ()


def importance(
    run: Run,
    *,
    deep: bool = False,
    seconds: float = math.inf,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Importance:
    """Hide and shuffle each table in turn, and score again in the rolling regime.

    A positive number is a loss of score: the table matters. Intervals are bootstraps over entities
    of the difference on the same seeds. It is the same for every model: it predicts again on the
    changed database; see `ChangedTask`.

    Args:
        run: any run.
        deep: use more seeds, five shuffles instead of one, and also shuffle single columns.
        seconds: the time after which no other table is begun; those next to the entities come
            first.
        seed: random seed.
        progress: called with a line about each step.
    """
    prepared, started = run.prepared, time.monotonic()
    every = prepared.seeds("test")
    known = _tables(run)
    tables = _nearest_first(prepared.graph.foreign_keys, prepared.task.entity_table, list(known))
    most = DEEP if deep else max(FEWEST, CHEAP // (2 * len(tables) + 1))
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(every))
    if len(every) > most:
        chosen = np.sort(rng.choice(len(every), most, replace=False))
    assert every.labels is not None
    seeds = every if len(chosen) == len(every) else every.take(chosen)
    trial = _Trial(run, seeds)
    entity, opened = prepared.task.entity_table, prepared.opened

    def shuffled(table: str, column: str | None) -> Interval | None:
        if not known[table] or prepared.graph.num_rows[table] < 2:
            return None
        parts = []
        for _ in range(SHUFFLES if deep else 1):
            order = rng.permutation(prepared.graph.num_rows[table])
            parts.append(trial.predict(ChangedTask(opened, table, order, column)))
        return trial.lost(parts)

    found: list[TableImportance] = []
    unmeasured: list[str] = []
    for table in tables:
        if found and time.monotonic() - started > seconds:
            unmeasured.append(table)
            continue
        progress(f"which tables matter: {table}")
        hidden = None
        if table != entity:
            hidden = trial.lost([trial.predict(ChangedTask(opened, table))])
        found.append(TableImportance(table, None, hidden, shuffled(table, None)))
    columns = []
    if deep:
        for table in tables:
            for name in known[table] if len(known[table]) > 1 else ():
                progress(f"which columns matter: {table}.{name}")
                columns.append(TableImportance(table, name, None, shuffled(table, name)))
    return Importance(
        trial.metric, trial.scorer(trial.before)(np.arange(len(seeds))), len(seeds), len(every),
        tuple(sorted(found, key=_worth)), tuple(sorted(columns, key=_worth)), tuple(unmeasured),
    )  # fmt: skip


def _worth(entry: TableImportance) -> tuple[float, str]:
    values = [part.value for part in (entry.hidden, entry.shuffled) if part is not None]
    return -max([v for v in values if not np.isnan(v)], default=0.0), entry.table


def _nearest_first(keys: Iterable[ForeignKey], entity: str, tables: list[str]) -> list[str]:
    """Tables by their number of foreign keys from the entities; those out of reach last."""
    hops, front = {entity: 0}, {entity}
    pairs = [(key.table, key.parent) for key in keys]
    while front:
        near = {b for one, two in pairs for a, b in ((one, two), (two, one)) if a in front}
        front = near - hops.keys()
        hops |= dict.fromkeys(front, max(hops.values()) + 1)
    return sorted(tables, key=lambda name: (hops.get(name, len(tables)), name))


def _tables(run: Run) -> dict[str, list[str]]:
    """The tables that the model can see, with the columns whose values it may read."""
    models = run.model.members or {"": run.model}
    found: dict[str, list[str]] = {}
    for model in models.values():
        prepared = model.prepared
        for name in prepared.graph.num_rows:
            columns = value_columns(prepared.db.table_dict[name])
            if model.encoded:
                encoded = {c.name for c in prepared.columns.tables[name].columns}
                columns = [column for column in columns if column in encoded]
            found[name] = list(dict.fromkeys([*found.get(name, []), *columns]))
    return dict(sorted(found.items()))


class _Trial:
    """Predicts and scores the same seeds on changed databases."""

    def __init__(self, run: Run, seeds: Seeds) -> None:
        self.run, self.seeds = run, seeds
        self.metric, self.higher = run.kind.metric, run.kind.higher
        self.truth = run.model.truth(seeds)
        self.before = run.predict_seeds(seeds, None)

    def predict(self, opened: ChangedTask) -> NDArray[Any]:
        """Predictions on a changed database."""
        return run_on(self.run, opened).predict_seeds(self.seeds, None)

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
