"""A prepared task: graph, encoded columns and seeds, for one set of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relfrog.config import Config
from relfrog.datasets.protocols import Dataset, Task
from relfrog.features.columns import Columns, Features
from relfrog.graph.loader import Loader
from relfrog.graph.popularity import Popularity
from relfrog.graph.relational import RelationalGraph
from relfrog.graph.routes import (
    Completion,
    CompletionAgainst,
    CoOccurrence,
    Paradigm,
    Route,
    find_routes,
)
from relfrog.graph.sampler import TemporalSampler, halving
from relfrog.kinds import MODELS, TASK_KINDS
from relfrog.nn.batch_plan import farthest, make_plan
from relfrog.nn.network import Network
from relfrog.nn.role_layer import LayerOptions
from relfrog.nn.roles import GateOptions
from relfrog.nn.task_heads import HEADS, Targets
from relfrog.support.relbench import Database
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

    from relfrog.training.opened_task import OpenedTask

__all__ = ["Prepared", "routes_of"]


def routes_of(config: Config, graph: RelationalGraph) -> tuple[Route, ...]:
    """The routes of the network with these settings."""
    if config.model == "relgnn":
        return find_routes(graph.foreign_keys, [CoOccurrence()])
    kind = MODELS[config.model]
    if not (kind.network and kind.roles) or config.roles == "node":
        return ()
    paradigms: list[Paradigm] = [CoOccurrence()]
    if config.completion in ("along", "both"):
        paradigms.append(Completion())
    if config.completion in ("against", "both"):
        paradigms.append(CompletionAgainst())
    return find_routes(graph.foreign_keys, paradigms)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A database and a task, ready for a model.

    Attributes:
        opened: the task and its database.
        config: the settings.
        columns: types and statistics of the columns, from rows before the validation time; empty
            if nothing is encoded.
        graph: the relational graph, with the label history if it is used.
        features: the columns as tensors, per table.
        routes: routes along which tables can act as edges.
        history: the name of the label history's table, if it is used.
        train_seeds: the training seeds; None for a model that is already trained.
        unseen: categories outside the fitted vocabulary, per column.
    """

    opened: OpenedTask
    config: Config
    columns: Columns
    graph: RelationalGraph
    features: dict[str, Features]
    routes: tuple[Route, ...]
    history: str | None
    train_seeds: Seeds | None
    unseen: dict[str, list[str]]

    @property
    def dataset(self) -> Dataset:
        """RelBench's dataset."""
        return self.opened.dataset

    @property
    def task(self) -> Task:
        """RelBench's task."""
        return self.opened.task

    @property
    def kind(self) -> str:
        """RelBench's name of the task type."""
        return self.opened.kind

    @property
    def db(self) -> Database:
        """The tables, with the label history if it is used."""
        return self.opened.shown(self.history is not None)

    @property
    def newest(self) -> pd.Timestamp | None:
        """The newest time in the database."""
        return self.opened.newest

    @property
    def target_table(self) -> str | None:
        """The table of the targets of a recommendation; None for other task types."""
        return self.task.dst_entity_table if TASK_KINDS[self.kind].ranks else None

    def seeds(self, split: str) -> Seeds:
        """The labelled seeds of a split."""
        return self.opened.seeds(split)

    def describe_labels(self, seeds: Seeds) -> dict[str, Any]:
        """Statistics of the training labels for head and metrics, as JSON values."""
        assert seeds.labels is not None
        head = HEADS[self.kind]
        about = head.describe(
            seeds.labels, **{name: getattr(self.config, name) for name in head.settings}
        )
        if self.target_table is not None:
            about |= {"k": int(self.task.eval_k), "parts": self.config.ranking}
        return about

    def cutoff(self, split: str, regime: str) -> pd.Timestamp | None:
        """The cut-off for all seeds of a split; None if each has its own time."""
        if regime != "frozen":
            return None
        return {"val": self.dataset.val_timestamp, "test": self.dataset.test_timestamp}[split]

    def network(self, about: dict[str, Any], roles: Mapping[str, float] | None = None) -> Network:
        """Create a network with initial weights.

        Args:
            about: description of the labels, from `describe_labels`.
            roles: fixed gates by route, if roles are not learned.
        """
        config = self.config
        head = HEADS[self.kind].build(about, config.channels, config.dropout, self._targets())
        if config.head == "linear":
            head.make_linear()
        timed = [name for name in self.graph.num_rows if self.graph.time(name) is not None]
        return Network(
            self.columns.tables, timed, self.graph.foreign_keys, self.routes,
            self.task.entity_table, head, channels=config.channels, layers=config.layers,
            aggregation=config.aggregation, dropout=config.dropout,
            encoder=config.encoder, encoder_depth=config.encoder_depth,
            encoder_dropout=config.encoder_dropout, bins=config.bins,
            column_dropout=config.column_dropout,
            gates=GateOptions(
                normalise=config.gate_norm, all_rows=config.gate_mean == "all",
                row_wise=config.gate_at == "row", uniform=config.random_gates == "uniform",
            ),
            layer=LayerOptions(
                relu=config.activation == "relu", message=config.message,
                edge_bias=config.edge_bias,
            ),
            ages_from=config.ages_from, seed_context=config.seed_context,
            mode=config.roles, alpha=config.alpha, roles=roles, unit=self.graph.unit,
            marked=self.target_table is not None, atomic=config.model == "relgnn",
        )  # fmt: skip

    def _targets(self) -> Targets | None:
        """The targets of a recommendation, for its head."""
        table = self.target_table
        if table is None:
            return None
        joined = [key for key in self.graph.foreign_keys if key.table == self.history]
        popularity = Popularity(
            self.graph, table, self.task.timedelta.total_seconds(),
            next((key for key in joined if key.column == "label"), None),
        )  # fmt: skip
        return Targets(
            table, self.columns.tables[table], popularity, self.config.bins,
            self.config.column_dropout,
        )  # fmt: skip

    def loader(
        self,
        seeds: Seeds,
        *,
        cutoff: pd.Timestamp | None = None,
        staleness: float = 0.0,
        alone: bool = False,
        every_row: bool | None = None,
        batch_size: int | None = None,
    ) -> Loader:
        """A loader of batch plans for seeds.

        Args:
            seeds: the seeds to iterate over.
            cutoff: where the database ends for all seeds; by default at each seed's own time.
            staleness: see `Loader`.
            alone: whether what is sampled for a seed must not depend on other seeds, as in
                predictions; with strategy "uniform" or for a recommendation, as in training.
            every_row: whether all rows pass through all layers, not only those that the seeds
                depend on; by default as the settings say.
            batch_size: seeds of a batch; by default as the settings say.
        """
        config = self.config
        if every_row is None:
            every_row = config.fd_final and not config.fd_seeds
        target_table = self.target_table
        hops = config.hops or config.layers + bool(self.routes)
        whole = farthest(config.layers, self.routes)
        if every_row or target_table:
            whole = hops + 1  # every layer computes all rows, so all of them have to be complete
        else:
            # No layer reads what is further out; the rest of the past is the same without it.
            hops = min(hops, farthest(config.layers + 1, self.routes))
        sampler = TemporalSampler(
            self.graph, self.task.entity_table, halving(config.neighbors, hops),
            mode="separate" if config.sharing == "separate" else "shared",
            strategy=config.strategy, seed=config.seed, routes=self.routes, whole=whole,
            unrolled=config.sharing == "unrolled"
            or (alone and config.strategy != "uniform" and target_table is None),
        )  # fmt: skip
        return Loader(
            sampler, seeds.rows, seeds.times, batch_size or config.batch_size,
            1 if batch_size else config.times_per_batch,
            cutoffs=None if cutoff is None else [cutoff] * len(seeds), staleness=staleness,
            prepare=lambda batch: make_plan(
                batch, config.layers, self.routes, trim=not every_row,
                target_table=target_table,
            ),
        )  # fmt: skip
