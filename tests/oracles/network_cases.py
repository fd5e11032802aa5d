"""Random batches, networks for them, and databases of which it is known what must be learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from relbench.base import Database, TaskType
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from oracles.relational_databases import DAY, START, seeded, table
from relfrog.config import Config
from relfrog.features.columns import Features, fit_columns
from relfrog.graph.batch import Batch
from relfrog.graph.relational import RelationalGraph, build_graph
from relfrog.graph.routes import (
    Completion,
    CompletionAgainst,
    CoOccurrence,
    Paradigm,
    Route,
    find_routes,
)
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.aggregation import Aggregation
from relfrog.nn.batch_plan import Links, Plan, make_plan
from relfrog.nn.heads import Head
from relfrog.nn.network import Network
from relfrog.nn.task_heads import HEADS
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared

#: What `completion` can be set to.
COMPLETION: dict[str, tuple[Paradigm, ...]] = {
    "none": (CoOccurrence(),),
    "along": (CoOccurrence(), Completion()),
    "against": (CoOccurrence(), CompletionAgainst()),
    "both": (CoOccurrence(), Completion(), CompletionAgainst()),
}
AGGREGATIONS = list(Aggregation)


@dataclass(frozen=True)
class Case:
    """A batch and where it is from."""

    db: Database
    graph: RelationalGraph
    sampler: TemporalSampler
    rows: Any
    times: Any
    cutoffs: Any
    batch: Batch

    def routes(self, completion: str = "both") -> tuple[Route, ...]:
        """All routes of the database."""
        return find_routes(self.graph.foreign_keys, COMPLETION[completion])

    def sample(self, **changes: Any) -> Batch:
        """The same seeds, sampled otherwise."""
        return replace(self.sampler, **changes).sample(self.rows, self.times, cutoffs=self.cutoffs)

    def one(self, number: int) -> Case:
        """One of the seeds by itself."""
        own = slice(number, number + 1)
        cutoffs = None if self.cutoffs is None else self.cutoffs[own]
        return replace(self, rows=self.rows[own], times=self.times[own], cutoffs=cutoffs)


def dense_database(rng: np.random.Generator) -> Database:
    """Tables in which most keys name a row, so that there are many ways between any two rows.

    Children that are earlier than their parents, parallel keys, self-references and cycles are
    the rule; NULLs, values that name no row, missing times and an empty table occur.
    """
    names = ["a", "b", "c"][: rng.integers(2, 4)]
    sizes = {name: int(rng.integers(3, 8)) for name in names}
    if rng.random() < 0.2:
        sizes[names[-1]] = 0
    tables = {}
    for name, size in sizes.items():
        keys = {f"k{i}": str(rng.choice(names)) for i in range(rng.integers(1, 3))}
        columns: dict[str, Any] = {"x": rng.normal(size=size)}
        timed = rng.random() < 0.6
        if timed:
            days = START + pd.to_timedelta(rng.integers(0, 6, size), unit="D")
            columns["when"] = pd.Series(days).mask(rng.random(size) < 0.1)
        for column, parent in keys.items():
            values = rng.integers(0, max(1, sizes[parent]), size).astype(float)
            values[rng.random(size) < 0.1] = 99
            values[rng.random(size) < 0.1] = np.nan
            columns[column] = pd.array(values, dtype="Int64")
        tables[name] = table(columns, keys, "when" if timed else None)
    return Database(tables)


@st.composite
def dense(draw: st.DrawFn) -> tuple[Database, str, Any, pd.Series]:
    """As `seeded`, with a denser database."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    db = dense_database(rng)
    name = str(rng.choice([name for name, some in db.table_dict.items() if len(some)]))
    rows = rng.integers(0, len(db.table_dict[name]), rng.integers(1, 5))
    return db, name, rows, pd.Series(START + pd.to_timedelta(rng.integers(0, 6, len(rows)), "D"))


@st.composite
def cases(
    draw: st.DrawFn,
    modes: Sequence[str] = ("shared", "separate"),
    fanouts: Sequence[int] = (-1, 0, 1, 2),
    hops: tuple[int, int] = (0, 3),
    cut: bool = True,
) -> Case:
    """A batch of a random database; sometimes the database stops before the seeds do."""
    db, name, rows, times = draw(st.one_of(seeded(), dense()))
    cutoffs = None
    if cut and draw(st.booleans()):
        cutoffs = [START + draw(st.integers(0, 5)) * DAY] * len(rows)
    chosen = draw(st.lists(st.sampled_from(fanouts), min_size=hops[0], max_size=hops[1]))
    strategy = draw(st.sampled_from(["uniform", "last"]))
    graph = build_graph(db)
    sampler = TemporalSampler(graph, name, chosen, draw(st.sampled_from(modes)), strategy)
    batch = sampler.sample(rows, times, cutoffs=cutoffs)
    return Case(db, graph, sampler, rows, times, cutoffs, batch)


def normal(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    """Random numbers, the same each time, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def random_states(
    batch: Batch, channels: int = 4, seed: int = 0, grad: bool = False
) -> dict[str, Tensor]:
    """Random embeddings of all occurrences, in double precision."""
    return {
        name: normal(len(rows), channels, seed=seed + number, grad=grad)
        for number, (name, rows) in enumerate(batch.tables.items())
    }


def fit_features(db: Database) -> tuple[dict[str, Any], dict[str, Features]]:
    """Columns from everything that is there, and all rows encoded."""
    columns = fit_columns(db, before=pd.Timestamp("2100-01-01"), text_channels=4)
    return columns.tables, columns.encode(db)


def fill(module: nn.Module, seed: int = 0, size: float = 0.4) -> Any:
    """Give a module weights that are the same each time, and nowhere 0 or 1.

    Norms get some that leave most rectifiers after them open: a closed one hides mistakes.
    """
    with torch.no_grad():
        for number, weight in enumerate(module.parameters()):
            weight.copy_(size * normal(*weight.shape, seed=1000 * seed + number))
        for part in module.modules():
            if isinstance(part, nn.LayerNorm):
                part.weight.add_(1.0)
                part.bias.add_(1.0)
    return module


def in_double(module: nn.Module) -> nn.Module:
    """Compute everything in double precision, whatever precision the input has."""
    module.double()
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.register_forward_pre_hook(lambda own, given: (given[0].to(own.weight.dtype),))
    return module


def make_head(kind: str = "regression", channels: int = 4) -> Head:
    """A head for a few labels."""
    labels = {
        "binary_classification": np.array([0, 1, 1]),
        "regression": np.array([1.0, 2.0, 5.0]),
        "multiclass_classification": np.array(["a", "b", "c"]),
        "multilabel_classification": np.array([[0, 1], [1, 1], [0, 0]]),
    }[kind]
    return HEADS[kind].build(HEADS[kind].describe(labels), channels, 0.0)


def make_network(
    graph: RelationalGraph,
    tables: Mapping[str, Any],
    table: str,
    routes: Sequence[Route] = (),
    *,
    channels: int = 4,
    head: Head | None = None,
    double: bool = True,
    seed: int = 0,
    **options: Any,
) -> Network:
    """A network for a database with weights that are nowhere zero."""
    timed = [name for name in graph.num_rows if graph.time(name) is not None]
    head = make_head(channels=channels) if head is None else head
    options = {"layers": 2, **options}
    network = Network(
        tables, timed, graph.foreign_keys, routes, table, head,
        channels=channels, unit=graph.unit, **options,
    )  # fmt: skip
    fill(network, seed)
    return in_double(network) if double else network  # type: ignore[return-value]


def gradients(
    out: Tensor, of: nn.Module | Mapping[str, Tensor], seed: int = 0
) -> dict[str, Tensor]:
    """Gradients of a random linear function of the output, by name; zero where there is no way."""
    named = dict(of.named_parameters()) if isinstance(of, nn.Module) else dict(of)
    found: Sequence[Tensor | None] = [None] * len(named)
    if out.requires_grad:
        along = normal(*out.shape, seed=seed).to(out.dtype)
        found = torch.autograd.grad(
            out, list(named.values()), along, allow_unused=True, retain_graph=True
        )
    return {
        name: torch.zeros_like(weight) if grad is None else grad
        for (name, weight), grad in zip(named.items(), found, strict=True)
    }


def assert_close(one: Any, two: Any, tolerance: float = 1e-9) -> None:
    """Equal up to rounding in double precision; also of mappings."""
    if isinstance(one, Mapping):
        assert one.keys() == two.keys()
        for name in one:
            assert_close(one[name], two[name], tolerance)
        return
    torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


# Tasks without files.


@dataclass(frozen=True)
class ToyDataset:
    """A database with splits, as RelBench has it."""

    db: Database
    val_timestamp: pd.Timestamp = START + 10 * DAY
    test_timestamp: pd.Timestamp = START + 20 * DAY

    def get_db(self, upto_test_timestamp: bool = True) -> Database:
        """The database."""
        return self.db


@dataclass(frozen=True)
class ToyTask:
    """A task with the same labelled seeds in every split, as RelBench has it."""

    task_type: TaskType
    entity_table: str
    seeds: pd.DataFrame
    entity_col: str = "entity"
    time_col: str = "time"
    target_col: str = "label"
    timedelta: pd.Timedelta = 10 * DAY

    remove_columns: tuple[tuple[str, str], ...] = ()

    def get_table(self, split: str, mask_input_cols: bool | None = None, db: Any = None) -> Any:
        """The seeds, whatever the split."""
        return SimpleNamespace(df=self.seeds)

    def hidden_columns(self) -> list[tuple[str, str]]:
        """Nothing is to be hidden."""
        return []


def toy_labels(kind: str, count: int, rng: np.random.Generator) -> list[Any]:
    """Labels that nothing explains."""
    if kind == "binary_classification":
        return rng.integers(0, 2, count).tolist()
    if kind == "regression":
        return rng.normal(50, 20, count).tolist()
    if kind == "multiclass_classification":
        return rng.choice(["red", "green", "blue"], count).tolist()
    return rng.integers(0, 2, (count, 3)).tolist()


def toy(kind: str, count: int = 24, **config: Any) -> Prepared:
    """A small shop and a task on its customers, ready for a network."""
    rng = np.random.default_rng(0)
    days = pd.Series(START + pd.to_timedelta(np.sort(rng.integers(0, 9, 4 * count)), unit="D"))
    db = Database(
        {
            "customers": table({"x": rng.normal(size=count), "y": rng.normal(size=count)}),
            "products": table({"x": rng.normal(size=9), "boss": pd.array([None, *range(8)])},
                              {"boss": "products"}),
            "orders": table(
                {
                    "customer": rng.integers(0, count, 4 * count),
                    "product": rng.integers(0, 9, 4 * count),
                    "gift": rng.integers(0, 9, 4 * count),
                    "when": days,
                    "amount": rng.normal(size=4 * count),
                },
                {"customer": "customers", "product": "products", "gift": "products"},
                "when",
            ),
        }
    )  # fmt: skip
    seeds = pd.DataFrame({"entity": np.arange(count), "time": START + 9 * DAY})
    seeds["label"] = toy_labels(kind, count, rng)
    settings = {
        "history": "off", "channels": 16, "dropout": 0.0, "column_dropout": 0.0, "neighbors": -1,
        "batch_size": count,
    }  # fmt: skip
    task = ToyTask(TaskType(kind), "customers", seeds)
    return OpenedTask(ToyDataset(db), task, db=db).prepare(Config(**{**settings, **config}))


# Databases of which it is known what must be learned.

#: The paradigms, by how u, v and w are joined.
SHAPES = ("u <- v -> w", "u -> v -> w", "u <- v <- w")


def made_for_a_role(
    shape: str, where: str, seed: int, count: int = 2000
) -> tuple[Database, NDArray[np.int64]]:
    """Tables u, v and w of random numbers; the label of a row of w hangs on u or on v alone.

    If it hangs on `u`, the table v must act as an edge for w to learn of it in one layer; if it
    hangs on `v`, what comes from u is noise.
    """
    rng = np.random.default_rng(seed)

    def rows(size: int) -> NDArray[np.float64]:
        return rng.normal(size=(size, 3))

    def columns(values: NDArray[np.float64]) -> dict[str, Any]:
        return {f"x{i}": values[:, i] for i in range(3)}

    if shape == "u <- v -> w":
        v_w, v_u = np.repeat(np.arange(count), 5), rng.integers(0, 100, 5 * count)
        u, v, w = rows(100), rows(5 * count), rows(count)
        cause = np.bincount(v_w, u[v_u, 0] if where == "u" else v[:, 0], count)
        keys: dict[str, dict[str, Any]] = {"u": {}, "v": {"u": v_u, "w": v_w}, "w": {}}
    elif shape == "u -> v -> w":
        v_w, u_v = np.repeat(np.arange(count), 3), rng.integers(0, 3 * count, 6 * count)
        u, v, w = rows(6 * count), rows(3 * count), rows(count)
        of_u, of_v = np.bincount(v_w[u_v], u[:, 0], count), np.bincount(v_w, v[:, 0], count)
        cause = of_u if where == "u" else of_v
        keys = {"u": {"v": u_v}, "v": {"w": v_w}, "w": {}}
    else:
        w_v, v_u = rng.integers(0, 300, count), rng.integers(0, 150, 300)
        u, v, w = rows(150), rows(300), rows(count)
        cause = u[v_u[w_v], 0] if where == "u" else v[w_v, 0]
        keys = {"u": {}, "v": {"u": v_u}, "w": {"v": w_v}}
    made = {
        name: table({**columns(values), **keys[name]}, {parent: parent for parent in keys[name]})
        for name, values in (("u", u), ("v", v), ("w", w))
    }
    return Database(made), (cause > 0).astype(np.int64)


def learn(
    db: Database, labels: NDArray[np.int64], paradigms: Sequence[Paradigm], seed: int,
    steps: int = 200, batch_size: int = 200, alpha: float = 0.9,
) -> tuple[float, dict[str, float]]:  # fmt: skip
    """Train one layer on three quarters of w; ROC-AUC on the rest, and the gates."""
    graph = build_graph(db)
    tables, features = fit_features(db)
    some = find_routes(graph.foreign_keys, paradigms)
    torch.manual_seed(seed)
    head = HEADS["binary_classification"].build({"positive": 0.5}, 16, 0.0)
    network = Network(
        tables, [], graph.foreign_keys, some, "w", head,
        channels=16, layers=1, alpha=alpha, unit=graph.unit,
    )  # fmt: skip
    sampler = TemporalSampler(graph, "w", [-1, -1], routes=some)

    def plan(rows: NDArray[np.int64]) -> Plan:
        return make_plan(sampler.sample(rows, [START] * len(rows)), 1, some)

    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    rng, known = np.random.default_rng(seed), len(labels) * 3 // 4
    for _ in range(steps):
        chosen = rng.choice(known, batch_size, replace=False)
        out = network(plan(chosen), features).seeds
        optimizer.zero_grad()
        head.loss(out, head.targets(labels[chosen])).backward()
        optimizer.step()
    network.eval()
    held_out = np.arange(known, len(labels))
    with torch.no_grad():
        predicted = head.predict(network(plan(held_out), features).seeds)
    gates = {} if network.roles is None else {
        str(route): float(network.roles.average[i]) for route, i in network.roles.number.items()
    }  # fmt: skip
    return float(roc_auc_score(labels[held_out], predicted)), gates


def pairs_of(some: Links) -> list[tuple[int, int]]:
    """(source, target), read from the first order."""
    into = torch.repeat_interleave(some.begin.diff()).tolist()
    return list(zip(some.source.tolist(), into, strict=True))
