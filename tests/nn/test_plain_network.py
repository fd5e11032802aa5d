"""The plain network that the benchmark compares with computes what ours does."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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


@contextmanager
def double_precision() -> Iterator[None]:
    """All numbers of a network that are float32 are float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


@pytest.mark.slow
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
    features = {
        name: replace(table, dense=table.dense.double())
        for name, table in columns.encode(db).items()
    }
    if dependencies is not None:
        dependencies.double()
    # In float32 a seed's output may be a sum that cancels to near zero, of which rounding leaves
    # few digits (1e-4 was seen, where all embeddings agree to 1e-7): that would hide a mistake.
    with double_precision():
        apart = plain_network.differences(ours.double(), batch, features, dependencies)
    assert max(apart.values()) < 1e-9, apart
