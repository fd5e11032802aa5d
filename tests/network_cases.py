"""Random batches, networks for them, and databases of which it is known what must be learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import torch
from relbench.base import Database
from torch import Tensor, nn

from relational_databases import DAY, START, seeded
from relfrog.columns import Features, fit_columns
from relfrog.graph import RelationalGraph, build_graph
from relfrog.nn.heads import HEADS, Head
from relfrog.nn.model import Network
from relfrog.nn.sums import Aggregation
from relfrog.routes import Completion, CompletionAgainst, CoOccurrence, Paradigm, Route, routes
from relfrog.sampling import Batch, TemporalSampler

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
        return routes(self.graph.foreign_keys, COMPLETION[completion])

    def sample(self, **changes: Any) -> Batch:
        """The same seeds, sampled otherwise."""
        return replace(self.sampler, **changes).sample(self.rows, self.times, cutoffs=self.cutoffs)

    def one(self, number: int) -> Case:
        """One of the seeds by itself."""
        own = slice(number, number + 1)
        cutoffs = None if self.cutoffs is None else self.cutoffs[own]
        return replace(self, rows=self.rows[own], times=self.times[own], cutoffs=cutoffs)


@st.composite
def cases(
    draw: st.DrawFn,
    modes: Sequence[str] = ("shared", "separate"),
    fanouts: Sequence[int] = (-1, 0, 1, 2),
    hops: tuple[int, int] = (0, 3),
    cut: bool = True,
) -> Case:
    """A batch of a random database; sometimes the database stops before the seeds do."""
    db, name, rows, times = draw(seeded())
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
    """Give a module weights that are the same each time, and nowhere 0 or 1."""
    with torch.no_grad():
        for number, weight in enumerate(module.parameters()):
            weight.copy_(size * normal(*weight.shape, seed=1000 * seed + number))
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
