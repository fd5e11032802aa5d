"""Which tables matter: the score that is lost when a table is hidden, or its columns shuffled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.analysis.bootstrap import Interval, Scorer, resample
from relfrog.analysis.changed_tables import ChangedTask, run_on, value_columns
from relfrog.kinds import TASK_KINDS
from relfrog.runs.run import Run
from relfrog.training.seeds import Seeds

__all__ = ["Importance", "TableImportance", "importance"]

#: Predictions that the cheap way makes, all in all, and seeds of each score at least.
CHEAP, FEWEST = 12_000, 200
#: Seeds that the thorough way scores at most, and how often it shuffles.
DEEP, SHUFFLES = 20_000, 5


@dataclass(frozen=True)
class TableImportance:
    """What a table, or a column of it, is worth.

    Attributes:
        table: its name.
        column: the column; None for the whole table.
        hidden: score that is lost without the table's rows; None where they cannot be hidden:
            the entities themselves.
        shuffled: score that is lost when its rows exchange their values; None where it has none.
    """

    table: str
    column: str | None
    hidden: Interval | None
    shuffled: Interval | None


@dataclass(frozen=True)
class Importance:
    """What every table is worth for a metric, on some test seeds.

    Attributes:
        metric: its name.
        score: of the model as it is, on these seeds.
        seeds: how many they are.
        of: how many there are in test.
        tables: one entry per table, the most important first.
        columns: one entry per column, if that was asked for.
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
    """Hide and shuffle one table after the other and score again, in the rolling regime.

    A positive number is score that is lost: the table matters. The range is a bootstrap over
    entities of the difference on the same seeds. That is the same for every model: it predicts
    again on the changed database; see `ChangedTask`.

    Args:
        run: any run.
        deep: more seeds, five shuffles instead of one, and every column by itself.
        seed: of what is drawn.
        progress: called with a line about what is being done.
    """
    prepared = run.prepared
    every = prepared.seeds("test")
    known = _tables(run)
    tables = list(known)
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

    found = []
    for table in tables:
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
        tuple(sorted(found, key=_worth)), tuple(sorted(columns, key=_worth)),
    )  # fmt: skip


def _worth(entry: TableImportance) -> tuple[float, str]:
    values = [part.value for part in (entry.hidden, entry.shuffled) if part is not None]
    return -max([v for v in values if not np.isnan(v)], default=0.0), entry.table


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
    """Seeds that are predicted and scored again and again."""

    def __init__(self, run: Run, seeds: Seeds) -> None:
        self.run, self.seeds = run, seeds
        kind = TASK_KINDS[run.prepared.kind]
        self.metric, self.higher = kind.metric, kind.higher
        self.truth = run.model.truth(seeds)
        self.before = run.predict_seeds(seeds, None)

    def predict(self, opened: ChangedTask) -> NDArray[Any]:
        """Predictions on a changed database."""
        return run_on(self.run, opened).predict_seeds(self.seeds, None)

    def scorer(self, predicted: NDArray[Any]) -> Scorer:
        """The metric of some predictions."""
        return Scorer(self.run.about["task_type"], self.metric, self.truth, predicted)

    def lost(self, parts: list[NDArray[Any]]) -> Interval:
        """Score that is lost on the average of some changed predictions, and how sure that is."""
        sign = 1.0 if self.higher else -1.0
        before, after = self.scorer(self.before), [self.scorer(part) for part in parts]

        def difference(at: NDArray[np.int64]) -> float:
            return sign * (before(at) - float(np.mean([one(at) for one in after])))

        return resample(self.seeds.rows, difference, times=100)
