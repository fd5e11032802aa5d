"""The plain network that the benchmark compares with computes what ours does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from oracles.relational_databases import seeded
from relfrog.features.columns import fit_columns
from relfrog.graph.relational import build_graph
from relfrog.graph.routes import Completion, CompletionAgainst, CoOccurrence, find_routes
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.dependency import Dependencies
from relfrog.nn.network import Network
from relfrog.nn.task_heads import HEADS

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def plain_network() -> ModuleType:
    pytest.importorskip("torch_geometric", reason="needs PyTorch Geometric: relfrog[pyg]")
    name = "plain_network"
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("aggregation", ["sum", "mean", "recent"])
@pytest.mark.parametrize("layers", [1, 2])
@examples(10)
@given(seeds=seeded(), fanout=st.sampled_from([-1, 1, 2]), with_routes=st.booleans())
def test_same_outputs_and_gradients(
    plain_network: ModuleType, aggregation: str, layers: int, seeds, fanout: int, with_routes: bool
) -> None:
    db, table, rows, times = seeds
    graph = build_graph(db)
    paradigms = [CoOccurrence(), Completion(), CompletionAgainst()] if with_routes else []
    found = find_routes(graph.foreign_keys, paradigms)
    columns = fit_columns(db, before=pd.Timestamp("2100-01-01"), text_channels=4)
    head_type = HEADS["binary_classification"]
    torch.manual_seed(0)
    ours = Network(
        columns.tables, [name for name in graph.num_rows if graph.time(name) is not None],
        graph.foreign_keys, found, table,
        head_type.build(head_type.describe(np.array([0, 1])), 8, 0.0),
        channels=8, layers=layers, aggregation=aggregation, unit=graph.unit,
    )  # fmt: skip
    dependencies = Dependencies(graph.foreign_keys, 8) if graph.foreign_keys else None
    plain_network.stir(ours)
    sampler = TemporalSampler(graph, table, [fanout] * 3, "separate", routes=found)
    batch = sampler.sample(rows, times)
    apart = plain_network.differences(ours, batch, columns.encode(db), dependencies)
    # Relative to the largest value; sums of float32 in another order may cancel to a few digits.
    assert max(apart.values()) < 1e-3, apart
