"""RelGNN: attention along atomic routes against loops, and as a model like the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

import relfrog
from helpers import examples
from oracles.network_cases import (
    Case,
    assert_close,
    cases,
    fill,
    fit_features,
    gradients,
    make_network,
    random_states,
)
from oracles.slow_network import States, slow_children, slow_matches, slow_norm, slow_parents
from relfrog.nn.atomic_layer import AtomicLayer, AttentionMessage
from relfrog.nn.batch_plan import make_plan
from small_store import fit

SIZE = 8


def slow_attention(
    module: AttentionMessage, matches: Sequence[tuple[Tensor | None, Tensor]], h_w: Tensor
) -> Tensor:
    """One row: every match scored, weighed and added up, head by head."""
    sent, scores = [], []
    query = module.query.weight @ h_w + module.query.bias
    each = len(h_w) // module.heads
    for h_u, h_v in matches:
        key = module.key_v.weight @ h_v
        value = module.value_v.weight @ h_v + module.value_v.bias
        if h_u is not None:
            key = key + module.key_u.weight @ h_u
            value = value + module.value_u.weight @ h_u
        sent.append(value)
        scores.append(
            [
                torch.exp(query[i : i + each] @ key[i : i + each] / each**0.5)
                for i in range(0, len(h_w), each)
            ]
        )
    total = torch.zeros_like(h_w)
    for value, score in zip(sent, scores, strict=True):
        parts = []
        for head in range(module.heads):
            share = score[head] / sum(other[head] for other in scores)
            parts.append(share * value[head * each : (head + 1) * each])
        total = total + torch.cat(parts)
    return module.out.weight @ total


def slow_atomic(layer: AtomicLayer, h: States, case: Case) -> States:
    """One layer for every row of a batch, route by route."""
    batch = case.batch
    total = {
        name: [x + own.weight @ x + own.bias for x in h[name]]
        for name, own in zip(layer.tables, layer.self, strict=True)
    }
    for key, project in zip(layer.keys, layer.down, strict=True):
        for child, parent in slow_parents(batch, key):
            sent = project.weight @ h[key.parent][parent]
            total[key.table][child] = total[key.table][child] + sent
    per_table = [key.table for key in layer.keys]
    singles = iter(layer.up)
    for key in layer.keys:
        if per_table.count(key.table) == 1:
            module = next(singles)
            links = slow_children(batch, key)
            for w, h_w in enumerate(h[key.parent]):
                mine = [(None, h[key.table][v]) for v, into in links if into == w]
                total[key.parent][w] = total[key.parent][w] + slow_attention(module, mine, h_w)
    for route, module in zip(layer.routes, layer.through, strict=True):
        a, b, c = route.tables
        matches = slow_matches(batch, route)
        for w, h_w in enumerate(h[c]):
            mine = [(h[a][i], h[b][j]) for i, j, k in matches if k == w]
            total[c][w] = total[c][w] + slow_attention(module, mine, h_w)
    return {
        name: [torch.relu(slow_norm(norm, x)) for x in total[name]]
        for name, norm in zip(layer.tables, layer.norms, strict=True)
    }


@examples(40)
@given(cases())
def test_layer_is_a_loop_over_rows(case: Case) -> None:
    some = case.routes("none")
    layer = fill(
        AtomicLayer(tuple(case.batch.tables), case.graph.foreign_keys, some, SIZE).double()
    )
    h = random_states(case.batch, SIZE, grad=True)
    (plan,) = make_plan(case.batch, 1, some, trim=False).layers
    found = layer(h, plan)
    looped = slow_atomic(layer, h, case)
    weights = {**dict(layer.named_parameters()), **{f"h {name}": x for name, x in h.items()}}
    for name, x in found.items():
        if len(x):
            expected = torch.stack(list(looped[name]))
            assert_close(x, expected)
            assert_close(gradients(x, weights), gradients(expected, weights), 1e-8)


@examples(25)
@given(cases(), st.integers(1, 3))
def test_trimming_changes_nothing(case: Case, layers: int) -> None:
    some = case.routes("none")
    tables, features = fit_features(case.db)
    network = make_network(
        case.graph, tables, case.sampler.table, some, layers=layers, channels=SIZE, atomic=True
    )
    assert network.roles is None
    found = []
    for trim in (True, False):
        out = network(make_plan(case.batch, layers, some, trim=trim), features)
        found.append((out.seeds, gradients(out.seeds, network)))
    assert_close(found[0][0], found[1][0], 1e-6)
    assert_close(found[0][1], found[1][1], 1e-5)


def test_large_scores_stay_finite() -> None:
    """A softmax of large numbers: the largest takes it all."""
    from relfrog.nn.atomic_layer import _matches, attention
    from relfrog.nn.batch_plan import link

    matches = _matches(link(torch.arange(3).numpy(), torch.tensor([0, 0, 1]).numpy(), 3, 3))
    queries = torch.full((3, 1, 4), 1e3)
    keys = torch.tensor([1.0, 2.0, -5.0]).view(3, 1, 1).expand(3, 1, 4)
    assert attention(queries, keys, matches).squeeze(1).tolist() == [0, 1, 1]


@pytest.mark.slow
def test_relgnn_is_a_model(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", model="relgnn", epochs=1)
    assert run.roles().empty
    assert run.evaluate("test") == run.metrics["test"]["rolling"]
    sage = fit(store, tmp_path / "sage", model="sage", epochs=1)
    assert run.metrics != sage.metrics
    again = fit(store, tmp_path / "again", model="relgnn", epochs=1)
    assert run.metrics == again.metrics


@pytest.mark.slow
def test_recommendations(shop: Path, store: Path, tmp_path: Path) -> None:
    run = fit(shop, tmp_path / "relgnn", "list", model="relgnn", epochs=1)
    assert set(run.metrics["test"]["rolling"]) >= {"map", "recall"}
    named = fit(shop, tmp_path / "id-gnn", "list", model="id-gnn", epochs=1)
    same = fit(shop, tmp_path / "sage", "list", model="sage", ranking="sampled", epochs=1)
    assert named.config.ranking == "sampled"
    assert named.metrics == same.metrics
    with pytest.raises(relfrog.errors.UsageError, match="ranking must be sampled"):
        fit(shop, tmp_path / "no", "list", model="id-gnn", ranking="both")
    with pytest.raises(relfrog.errors.UsageError, match="id-gnn is for recommendations"):
        fit(store, tmp_path / "no", "buys", model="id-gnn")
