"""From a dataset and a task to what a network reads: the database as graph and as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from relbench.base import Database, Table

from relfrog.config import Config
from relfrog.datasets.label_history import history_name, with_history
from relfrog.datasets.labels import timed_first
from relfrog.errors import TaskError
from relfrog.features.columns import Columns, Features, fit_columns
from relfrog.features.novelty import unseen_categories
from relfrog.graph.loader import Loader
from relfrog.graph.popularity import Popularity
from relfrog.graph.relational import RelationalGraph, build_graph
from relfrog.graph.routes import (
    Completion,
    CompletionAgainst,
    CoOccurrence,
    Paradigm,
    Route,
    routes,
)
from relfrog.graph.sampler import TemporalSampler, halving
from relfrog.nn.batch_plan import farthest, make_plan
from relfrog.nn.heads import HEADS, Head
from relfrog.nn.network import Network
from relfrog.nn.ranking_head import RankingHead
from relfrog.support.threads import computing

__all__ = ["Prepared", "Seeds", "prepare", "seeds_of", "shown_database", "with_validation"]


@dataclass(frozen=True)
class Seeds:
    """Rows to be predicted for, each at its time.

    Attributes:
        rows: rows of the entity table. Shape [seeds].
        times: their times. Shape [seeds].
        labels: what became of them, where that is known. Shape [seeds].
    """

    rows: NDArray[np.int64]
    times: pd.Series
    labels: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)


def seeds_of(task: Any, split: str) -> Seeds:
    """The labelled seeds of a split."""
    return _seeds(task, task.get_table(split, mask_input_cols=False).df)


def _seeds(task: Any, frame: pd.DataFrame) -> Seeds:
    return Seeds(
        frame[task.entity_col].to_numpy(np.int64),
        pd.Series(pd.to_datetime(frame[task.time_col])),
        frame[task.target_col].to_numpy(),
    )


def with_validation(prepared: Prepared, train: Seeds) -> Seeds:
    """Training seeds, and those of validation whose windows have closed by the test time."""
    task, val = prepared.task, seeds_of(prepared.task, "val")
    closed = (val.times + task.timedelta <= prepared.dataset.test_timestamp).to_numpy()
    assert train.labels is not None
    assert val.labels is not None
    return Seeds(
        np.concatenate([train.rows, val.rows[closed]]),
        pd.concat([train.times, val.times[closed]], ignore_index=True),
        np.concatenate([train.labels, val.labels[closed]]),
    )


def training_seeds(dataset: Any, task: Any, db: Any, density: int) -> Seeds:
    """The training seeds of a task, or several times as many, with times between its own."""
    if density == 1 or not hasattr(task, "_sql"):
        return seeds_of(task, "train")
    step = task.timedelta / density
    times = pd.date_range(dataset.val_timestamp - task.timedelta, db.min_timestamp, freq=-step)
    frame = task.make_table(db, times).df
    frame = frame[frame[task.entity_col] < len(db.table_dict[task.entity_table])]
    first = task.get_table("train").df[task.time_col].min()
    frame = frame[frame[task.time_col] >= first]
    # SQL gives its rows in another order every time.
    return _seeds(task, frame.sort_values([task.time_col, task.entity_col], kind="stable"))


def allowed(task: Any, db: Any) -> Any:
    """The database without the columns that the task must not see, such as those of its label.

    Raises:
        TaskError: One of them is a primary key or a time column: without it rows would lose
            their names, or be visible from the beginning.
    """
    tables = dict(db.table_dict)
    for name, column in task.hidden_columns():
        table = tables.get(name)
        if table is None or column not in table.df:
            continue
        if column in (table.pkey_col, table.time_col):
            what = "primary key" if column == table.pkey_col else "time column"
            raise TaskError(f"{name}.{column} cannot be hidden: it is the {what} of its table.")
        keys = {c: parent for c, parent in table.fkey_col_to_pkey_table.items() if c != column}
        frame = table.df.drop(columns=[column])
        tables[name] = Table(frame, keys, table.pkey_col, table.time_col)
    return Database(tables)


def _known(db: Any, columns: Columns) -> Any:
    """The database without tables and foreign keys that have come since columns were fitted."""
    tables = {}
    for name, known in columns.tables.items():
        table = db.table_dict[name]
        keys = {
            column: parent
            for column, parent in table.fkey_col_to_pkey_table.items()
            if parent in columns.tables and known.had_key(column)
        }
        tables[name] = Table(table.df, keys, table.pkey_col, table.time_col)
    return Database({name: tables[name] for name in db.table_dict if name in tables})


def routes_of(config: Config, graph: RelationalGraph) -> tuple[Route, ...]:
    """The routes that the network of these settings has."""
    if config.model == "relgnn":
        return routes(graph.foreign_keys, [CoOccurrence()])
    if config.model != "frog" or config.roles == "node":
        return ()
    paradigms: list[Paradigm] = [CoOccurrence()]
    if config.completion in ("along", "both"):
        paradigms.append(Completion())
    if config.completion in ("against", "both"):
        paradigms.append(CompletionAgainst())
    return routes(graph.foreign_keys, paradigms)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A database and a task, ready for a network.

    Attributes:
        dataset: RelBench's dataset.
        task: RelBench's task.
        config: the settings.
        columns: types and statistics of the columns, from rows before the validation cut.
        graph: the relational graph, with the label history if there is one.
        features: the columns as numbers, per table.
        routes: along which tables may act as edges.
        history: the name of the table of earlier labels, if there is one.
        newest: the newest time in the database.
        train_seeds: what the network learns from; None where it has learned already.
        db: the tables themselves with the label history, for models that read them.
        unseen: per column the categories that were not there when the columns were fitted.
    """

    dataset: Any
    task: Any
    config: Config
    columns: Columns
    graph: RelationalGraph
    features: dict[str, Features]
    routes: tuple[Route, ...]
    history: str | None
    newest: pd.Timestamp | None
    train_seeds: Seeds | None = None
    db: Any = None
    unseen: dict[str, list[str]] = field(default_factory=dict)

    def describe_labels(self, seeds: Seeds) -> dict[str, Any]:
        """What head and metrics must know of the training labels, for JSON."""
        assert seeds.labels is not None
        kind = self.task.task_type.value
        if kind == "recommendation":
            about = RankingHead.describe(seeds.labels)
            return about | {"k": int(self.task.eval_k), "parts": self.config.ranking}
        about = HEADS[kind].describe(seeds.labels)
        if kind == "regression":
            about["std"] = float(np.std(seeds.labels.astype(float), ddof=1))
        return about

    def cutoff(self, split: str, regime: str) -> pd.Timestamp | None:
        """Where the database stops for all seeds of a split; None if each has its own time."""
        if regime != "frozen":
            return None
        return {"val": self.dataset.val_timestamp, "test": self.dataset.test_timestamp}[split]

    def network(self, about: dict[str, Any], roles: dict[str, float] | None = None) -> Network:
        """A network with fresh weights.

        Args:
            about: of the labels, as the head describes them.
            roles: the gates, where they are fixed.
        """
        config = self.config
        ranks = self.task.task_type.value == "recommendation"
        head = (
            self._ranking_head(about)
            if ranks
            else HEADS[self.task.task_type.value].build(about, config.channels, config.dropout)
        )
        timed = [name for name in self.graph.num_rows if self.graph.time(name) is not None]
        return Network(
            self.columns.tables, timed, self.graph.foreign_keys, self.routes,
            self.task.entity_table, head, channels=config.channels, layers=config.layers,
            aggregation=config.aggregation, dropout=config.dropout,
            encoder_depth=config.encoder_depth, bins=config.bins,
            column_dropout=config.column_dropout,
            mode=config.roles, alpha=config.alpha, roles=roles, unit=self.graph.unit,
            marked=ranks, atomic=config.model == "relgnn",
        )  # fmt: skip

    def _ranking_head(self, about: dict[str, Any]) -> Head:
        config, table = self.config, self.task.dst_entity_table
        joined = [key for key in self.graph.foreign_keys if key.table == self.history]
        popularity = Popularity(
            self.graph, table, self.task.timedelta.total_seconds(),
            next((key for key in joined if key.column == "label"), None),
        )  # fmt: skip
        return RankingHead(
            config.channels, about, self.columns.tables[table], table, popularity,
            dropout=config.dropout, bins=config.bins, column_dropout=config.column_dropout,
        )  # fmt: skip

    def loader(
        self, seeds: Seeds, *, cutoff: pd.Timestamp | None = None, staleness: float = 0.0
    ) -> Loader:
        """Batches of seeds with a plan of what each layer computes.

        Args:
            seeds: what to run through.
            cutoff: where the database stops for all of them; by default at each one's own time.
            staleness: see `Loader`.
        """
        config = self.config
        ranks = self.task.task_type.value == "recommendation"
        answers = self.task.dst_entity_table if ranks else None
        hops = config.hops or config.layers + bool(self.routes)
        sampler = TemporalSampler(
            self.graph, self.task.entity_table, halving(config.neighbors, hops),
            mode=config.sharing, strategy=config.strategy, seed=config.seed, routes=self.routes,
            # Where every layer computes all rows, all of them have to be whole.
            whole=hops + 1 if config.fd_final or ranks else farthest(config.layers, self.routes),
        )  # fmt: skip
        return Loader(
            sampler, seeds.rows, seeds.times, config.batch_size, config.times_per_batch,
            cutoffs=None if cutoff is None else [cutoff] * len(seeds), staleness=staleness,
            prepare=lambda batch: make_plan(
                batch, config.layers, self.routes, trim=not config.fd_final, answers=answers
            ),
        )  # fmt: skip


def shown_database(
    dataset: Any,
    task: Any,
    config: Config,
    db: Any = None,
    change: Callable[[Any], Any] | None = None,
    closed_by: pd.Timestamp | None = None,
) -> tuple[Any, str | None]:
    """The database as a network sees it, and the name of its table of earlier labels, if any.

    Args:
        dataset: RelBench's dataset.
        task: RelBench's task.
        config: the settings.
        db: the database, if it has been read already.
        change: what to make of the table of earlier labels; see `prepare`.
        closed_by: see `relfrog.datasets.label_history.known_labels`.
    """
    if db is None:
        db = timed_first(dataset.get_db(upto_test_timestamp=False))
    name = None
    if config.history == "on":
        name = history_name(db)
        db = with_history(dataset, task, db, name, closed_by)
        if change is not None:
            earlier = change(Database({name: db.table_dict[name]}))
            db = Database({**db.table_dict, **earlier.table_dict})
    return allowed(task, db), name


def prepare(
    dataset: Any,
    task: Any,
    config: Config,
    columns: Columns | None = None,
    db: Any = None,
    change: Callable[[Any], Any] | None = None,
    closed_by: pd.Timestamp | None = None,
    *,
    encode: bool = True,
) -> Prepared:
    """Read the database and make graph and features of it.

    Args:
        dataset: RelBench's dataset.
        task: RelBench's task.
        config: the settings.
        columns: those of an earlier run; by default they are fitted.
        db: the database, if it has been read already.
        change: what to make of the database, and of the table of earlier labels, before anything
            else looks at it; see `relfrog.analysis.altered_future`.
        closed_by: see `relfrog.datasets.label_history.known_labels`.
        encode: whether to make numbers of the columns; otherwise the tables themselves are kept.
    """
    if db is None:
        db = dataset.get_db(upto_test_timestamp=False)
    if change is not None:
        db = change(db)
    db = timed_first(db)
    newest = db.max_timestamp
    seeds = None
    if columns is None:
        seeds = training_seeds(dataset, task, db, config.density)
    db, name = shown_database(dataset, task, config, db, change, closed_by)
    with computing(config.threads):  # models of texts compute as networks do
        if not encode:
            columns = Columns({}, dataset.val_timestamp)
        elif columns is None:
            size = config.text_channels
            columns = fit_columns(
                db, before=dataset.val_timestamp, text=config.text, text_channels=size
            )
        features = columns.encode(db) if encode else {}
    graph = build_graph(_known(db, columns) if encode else db)
    return Prepared(
        dataset,
        task,
        config,
        columns,
        graph,
        features,
        routes_of(config, graph),
        name,
        None if newest is None or newest is pd.NaT else newest,
        seeds,
        None if encode else db,
        unseen_categories(columns, db) if encode else {},
    )
