"""Messages: the fast sums against PyTorch Geometric and against loops over matches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from relbench.base import Database
from torch import Tensor

from helpers import examples
from oracles.network_cases import (
    AGGREGATIONS,
    Case,
    assert_close,
    cases,
    fill,
    gradients,
    in_double,
    normal,
    pairs_of,
    random_states,
)
from oracles.relational_databases import START, table
from oracles.slow_network import slow_edge_message, slow_matches, slow_node_message, slow_parents
from relfrog.graph.relational import build_graph
from relfrog.graph.routes import Completion, CompletionAgainst, CoOccurrence, Paradigm, find_routes
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.aggregation import Aggregation, linked_sum, matched_sum
from relfrog.nn.batch_plan import RouteLinks, link, make_plan
from relfrog.nn.messages import CompletionMessage, CoOccurrenceMessage, NodeMessage, message_for
from relfrog.nn.pair_message import PairMessage, pair_sum

SIZE = 4
KINDS = ("linear", "pair")


@pytest.mark.parametrize("how", AGGREGATIONS)
@examples(25)
@given(cases())
def test_node_message_is_sage(how: Aggregation, case: Case) -> None:
    conv = pytest.importorskip("torch_geometric.nn", reason="needs torch-geometric").SAGEConv
    h = random_states(case.batch, SIZE)
    (layer,) = make_plan(case.batch, 1, trim=False).layers
    node = fill(NodeMessage(SIZE, how).double())
    # Where no row has a time, none counts more than another.
    named = "mean" if how is Aggregation.RECENT else how.value
    sage = conv((SIZE, SIZE), SIZE, aggr=named).double()
    sage.lin_l.load_state_dict(node.neighbor.state_dict())
    sage.lin_r.load_state_dict(node.self.state_dict())
    for key in case.graph.foreign_keys:
        for links, v, w in (
            (layer.up[key], key.table, key.parent),
            (layer.down[key], key.parent, key.table),
        ):
            edges = torch.tensor(pairs_of(links), dtype=torch.int64).reshape(-1, 2).T
            found = node(h[v], h[w], links)
            assert_close(found, sage((h[v], h[w]), edges, size=(len(h[v]), len(h[w]))))
            looped = [
                slow_node_message(node, [h[v][s] for s, t in pairs_of(links) if t == i], row)
                for i, row in enumerate(h[w])
            ]
            if looped:
                assert_close(found, torch.stack(looped))
                assert_close(gradients(found, node), gradients(torch.stack(looped), node))


@pytest.mark.parametrize("how", AGGREGATIONS)
@pytest.mark.parametrize("few", [True, False], ids=["few senders", "many senders"])
def test_projecting_before_or_after_the_sum(how: Aggregation, few: bool) -> None:
    """Whichever side has fewer rows is projected, and nothing else changes."""
    senders, receivers = (2, 7) if few else (7, 2)
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, senders, 9), rng.integers(0, receivers, 9)
    links = link(source, target, senders, receivers)
    h_v, h_w = normal(senders, SIZE, seed=1, grad=True), normal(receivers, SIZE, seed=2, grad=True)
    h_u = normal(senders, SIZE, seed=3, grad=True)
    both = RouteLinks(link(source[::-1].copy(), target, senders, receivers), links)
    matches = list(zip(source[::-1].tolist(), source.tolist(), target.tolist(), strict=True))
    node = fill(NodeMessage(SIZE, how).double())
    looped = [
        slow_node_message(node, [h_v[s] for s, t in zip(source, target) if t == w], h_w[w])
        for w in range(receivers)
    ]
    compare(node, node(h_v, h_w, links), torch.stack(looped), {"h_v": h_v, "h_w": h_w})
    for kind in (CoOccurrenceMessage, CompletionMessage):
        edge = fill(kind(SIZE, how).double())
        looped = [
            slow_edge_message(edge, [(h_u[i], h_v[j]) for i, j, k in matches if k == w], h_w[w])
            for w in range(receivers)
        ]
        inputs = {"h_u": h_u, "h_v": h_v, "h_w": h_w}
        compare(edge, edge(h_u, h_v, h_w, both), torch.stack(looped), inputs)


def test_weighted_mean() -> None:
    """Weights by sender and channel; equal ones give the mean, and the count is told besides."""
    source, target = np.array([0, 1, 2, 3, 3]), np.array([0, 0, 2, 2, 2])
    links = link(source, target, 5, 3)
    h_v, h_w = normal(6, SIZE, seed=1, grad=True), normal(3, SIZE, seed=2, grad=True)
    weights = normal(6, SIZE, seed=3).exp().requires_grad_()
    node = in_double(fill(NodeMessage(SIZE, Aggregation.RECENT)))
    looped = []
    for w in range(3):
        mine = [s for s, t in zip(source, target) if t == w]
        sent, own = [h_v[s] for s in mine], [weights[s] for s in mine]
        looped.append(slow_node_message(node, sent, h_w[w], own))
    inputs = {"h_v": h_v, "h_w": h_w, "weights": weights}
    compare(node, node(h_v, h_w, links, weights), torch.stack(looped), inputs)

    equal = node(h_v, h_w, links, torch.full_like(weights, 0.3))
    plain = node(h_v, h_w, links) + node.count(links.counts.log1p().unsqueeze(1))
    assert_close(equal, plain, 1e-7)


def compare(
    module: torch.nn.Module, found: Tensor, expected: Tensor, inputs: dict[str, Tensor]
) -> None:
    """Values, and gradients by weights and by rows."""
    assert_close(found, expected)
    named = {**dict(module.named_parameters()), **inputs}
    assert_close(gradients(found, named), gradients(expected, named))


@pytest.mark.parametrize("how", AGGREGATIONS)
@examples(25)
@given(cases())
def test_edge_messages_are_those_of_a_loop_over_matches(how: Aggregation, case: Case) -> None:
    """Eq. (10) and (11), along and against, with two keys to one table, and within one table."""
    h = random_states(case.batch, SIZE, grad=True)
    all_routes = case.routes("both")
    (layer,) = make_plan(case.batch, 1, all_routes, trim=False).layers
    for route, kind in ((route, kind) for route in all_routes for kind in KINDS):
        u, v, w = route.tables
        module = fill(message_for(route.paradigm, kind)(SIZE, how).double())
        found = module(h[u], h[v], h[w], layer.routes[route])
        matches = slow_matches(case.batch, route)
        looped = [
            slow_edge_message(module, [(h[u][i], h[v][j]) for i, j, k in matches if k == at], h_w)
            for at, h_w in enumerate(h[w])
        ]
        if looped:
            compare(module, found, torch.stack(looped), {name: h[name] for name in route.tables})


@examples(25)
@given(cases())
def test_weighted_edge_messages_are_those_of_a_loop_over_matches(case: Case) -> None:
    """Each match counts as its v does, channel by channel."""
    h = random_states(case.batch, SIZE, grad=True)
    all_routes = case.routes("both")
    (layer,) = make_plan(case.batch, 1, all_routes, trim=False).layers
    for route, kind in ((route, kind) for route in all_routes for kind in KINDS):
        u, v, w = route.tables
        module = fill(message_for(route.paradigm, kind)(SIZE, Aggregation.RECENT).double())
        weights = normal(len(h[v]), SIZE, seed=5).exp().requires_grad_()
        found = module(h[u], h[v], h[w], layer.routes[route], None, weights)
        matches = slow_matches(case.batch, route)
        looped = []
        for at, h_w in enumerate(h[w]):
            mine = [(i, j) for i, j, k in matches if k == at]
            own = [weights[j] for _, j in mine]
            looped.append(
                slow_edge_message(module, [(h[u][i], h[v][j]) for i, j in mine], h_w, own)
            )
        if looped:
            inputs = {name: h[name] for name in route.tables} | {"weights": weights}
            compare(module, found, torch.stack(looped), inputs)


def racing(results: int = 20) -> Database:
    """One race at one circuit with so many results."""
    return Database(
        {
            "circuits": table({"x": [0]}),
            "races": table({"circuit": [0], "when": [START]}, {"circuit": "circuits"}, "when"),
            "results": table(
                {"race": [0] * results, "when": [START] * results}, {"race": "races"}, "when"
            ),
        }
    )


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_every_match_counts(how: Aggregation) -> None:
    """One race has twenty results: all twenty take part."""
    graph = build_graph(racing())
    (route,) = find_routes(graph.foreign_keys, [Completion()])
    assert str(route) == "results -> races -> circuits"
    batch = TemporalSampler(graph, "circuits", [-1, -1]).sample([0], [START])
    (layer,) = make_plan(batch, 1, [route]).layers
    links = layer.routes[route]
    assert sorted(links.u.source.tolist()) == list(range(20))
    assert links.v.source.tolist() == [0] * 20
    h = random_states(batch, SIZE, grad=True)
    module = fill(CompletionMessage(SIZE, how).double())
    found = module(h["results"], h["races"], h["circuits"], links)
    each = [slow_edge_message(module, [(u, h["races"][0])], h["circuits"][0]) for u in h["results"]]
    stacked = torch.stack(each)
    expected = {"sum": stacked.sum(0), "max": stacked.amax(0)}.get(how.value, stacked.mean(0))
    assert_close(found[0], expected)
    if how is not Aggregation.MAX:
        (grad,) = torch.autograd.grad(found.sum(), h["results"])
        assert (grad.abs().sum(1) > 0).all()


def test_a_grandparent_reaches_every_grandchild() -> None:
    graph = build_graph(racing())
    (route,) = find_routes(graph.foreign_keys, [CompletionAgainst()])
    assert str(route) == "circuits <- races <- results"
    batch = TemporalSampler(graph, "circuits", [-1, -1]).sample([0], [START])
    (layer,) = make_plan(batch, 1, [route], trim=False).layers
    assert layer.routes[route].u.counts.tolist() == [1.0] * 20
    assert len(slow_parents(batch, route.second)) == 20


def test_which_message_a_paradigm_has() -> None:
    class Third(CoOccurrence):
        """A paradigm made of another one."""

    class Own(Paradigm):
        """A paradigm that names no message."""

        def pairs(self, keys):
            return iter(())

        def match(self, route, parents):
            raise NotImplementedError

    assert message_for(CoOccurrence()) is CoOccurrenceMessage
    assert message_for(Completion()) is message_for(CompletionAgainst()) is CompletionMessage
    assert message_for(Third()) is CoOccurrenceMessage
    assert message_for(Own()) is CoOccurrenceMessage
    assert message_for(Third(), "pair") is message_for(Own(), "pair") is PairMessage
    assert message_for(Completion(), "pair") is CompletionMessage


def test_only_the_pair_message_hears_u_with_v() -> None:
    """Exchange the rows u of two matches of one w: Eq. (10) is the same, the pair message not."""
    links = RouteLinks(link(np.array([0, 1]), np.array([0, 0]), 2, 1),
                       link(np.array([0, 1]), np.array([0, 0]), 2, 1))  # fmt: skip
    h_u, h_v, h_w = (normal(count, SIZE, seed=count) for count in (2, 2, 1))
    for kind, same in (("linear", True), ("pair", False)):
        module = fill(message_for(CoOccurrence(), kind)(SIZE, Aggregation.SUM).double())
        one, two = module(h_u, h_v, h_w, links), module(h_u.flip(0), h_v, h_w, links)
        assert torch.allclose(one, two) is same


def test_pair_sums_are_the_same_with_and_without_the_fused_kernel() -> None:
    """Half precision and other devices take the plain way."""
    rng = np.random.default_rng(0)
    u, v, w = rng.integers(0, 5, 20), rng.integers(0, 7, 20), rng.integers(0, 3, 20)
    links = RouteLinks(link(u, w, 5, 3), link(v, w, 7, 3))
    h_u, h_v = normal(5, SIZE, seed=1).float(), normal(7, SIZE, seed=2).float()
    for weights in (None, normal(9, SIZE, seed=3).exp().float()):
        fast = pair_sum(h_u, h_v, links, weights)
        plain = pair_sum(h_u.bfloat16(), h_v.bfloat16(), links, weights)
        assert_close(fast, plain.float(), 0.2)
        assert pair_sum(h_u[:0], h_v[:0], _nothing(), weights).shape == (3, SIZE)


def sums_of_matches(weighted: bool) -> tuple[list[Tensor], list[Callable[..., Tensor]]]:
    """Rows u and v, weights of v, a gate per match; and sums that are computed of them."""
    rng = np.random.default_rng(0)
    u, v, w = rng.integers(0, 5, 20), rng.integers(0, 7, 20), rng.integers(0, 3, 20)
    links = RouteLinks(link(u, w, 5, 3), link(v, w, 7, 3))
    given = [normal(n, SIZE, seed=n, grad=True) for n in (5, 7)]
    given += [normal(7, SIZE, seed=3, grad=True), normal(1, 20, seed=4, grad=True)]
    return given, [
        lambda u, v, weight, gate: pair_sum(u, v, links, weight if weighted else None),
        lambda u, v, weight, gate: matched_sum(
            u, weight, links.u, links.v, gate[0] if weighted else None
        ),
        lambda u, v, weight, gate: linked_sum(u, links.u, gate[0] if weighted else None),
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_gradients_are_those_of_finite_differences(which: int, weighted: bool) -> None:
    """In any layout, and of each input alone."""
    given, sums = sums_of_matches(weighted)
    assert torch.autograd.gradcheck(sums[which], given)
    turned = [x.detach().T.contiguous().requires_grad_() for x in given]
    assert torch.autograd.gradcheck(lambda *all_: sums[which](*(x.T for x in all_)), turned)
    for number in range(len(given)):
        fixed = [x.detach().requires_grad_(at == number) for at, x in enumerate(given)]
        if sums[which](*fixed).requires_grad:
            assert torch.autograd.gradcheck(sums[which], fixed)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("which", range(2))
def test_no_gradient_of_a_gradient_is_made_up(which: int, weighted: bool) -> None:
    """Where there is none, asking for it is an error, and not zero."""
    given, sums = sums_of_matches(weighted)
    first = torch.autograd.grad(sums[which](*given).square().sum(), given[0], create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (first.sum() + given[0].sum()).backward()


def _nothing() -> RouteLinks:
    none = np.zeros(0, np.int64)
    return RouteLinks(link(none, none, 0, 3), link(none, none, 0, 3))
