"""Links: sorted both ways, by the rule that is written down, and none too many or too few."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from helpers import examples
from oracles.network_cases import (
    AGGREGATIONS,
    COMPLETION,
    Case,
    assert_close,
    cases,
    normal,
    pairs_of,
)
from oracles.slow_network import (
    slow_aggregate,
    slow_children,
    slow_matches,
    slow_pairs,
    slow_parents,
)
from relfrog.nn.aggregation import Aggregation, _products, aggregate, linked_sum, matched_sum
from relfrog.nn.batch_plan import Links, RouteLinks, link, make_plan


@st.composite
def links(draw: st.DrawFn, least: int = 0) -> tuple[list[tuple[int, int]], Links]:
    """Links between a few rows, some of them twice, and the same sorted."""
    sources, targets = draw(st.integers(max(least, 1), 6)), draw(st.integers(max(least, 1), 6))
    one = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    pairs = draw(st.lists(one, min_size=least, max_size=12))
    source = np.array([s for s, _ in pairs], np.int64)
    target = np.array([t for _, t in pairs], np.int64)
    return pairs, link(source, target, sources, targets)


def pairs_back(some: Links) -> list[tuple[int, int]]:
    """(source, target), read from the second order."""
    out_of = torch.repeat_interleave(some.begin_back.diff()).tolist()
    return list(zip(out_of, some.target.tolist(), strict=True))


def matches_of(some: RouteLinks) -> list[tuple[int, int, int]]:
    assert torch.equal(some.u.begin, some.v.begin)
    return [(u, v, w) for (u, w), (v, _) in zip(pairs_of(some.u), pairs_of(some.v), strict=True)]


def check_orders(some: Links) -> None:
    """Both orders are sorted and hold the same links, and `position` leads from one to the other."""
    forth, back = pairs_of(some), pairs_back(some)
    assert forth == sorted(forth, key=lambda pair: pair[1])
    assert back == sorted(back, key=lambda pair: pair[0])
    assert back == [forth[i] for i in some.position.tolist()]
    assert sorted(some.position.tolist()) == list(range(len(some)))
    assert all(0 <= s < some.sources and 0 <= t < some.targets for s, t in forth)


@given(links())
def test_links_are_sorted_both_ways(case) -> None:
    pairs, some = case
    check_orders(some)
    # Links into one target keep their order: u and v of a match stay side by side.
    assert pairs_of(some) == sorted(pairs, key=lambda pair: pair[1])
    counted = Counter(target for _, target in pairs)
    assert some.counts.tolist() == [counted[i] for i in range(some.targets)]


# Sums over links.


@pytest.mark.parametrize("how", AGGREGATIONS)
@given(links())
def test_aggregates_are_those_of_a_loop(how: Aggregation, case) -> None:
    pairs, some = case
    # More rows than may send: the rest is not looked at.
    x = normal(some.sources + 2, 3, grad=True)
    found = aggregate(x, some, how)
    rows = [[x[s] for s, t in pairs if t == into] for into in range(some.targets)]
    expected = torch.stack([slow_aggregate(sent, how, x[0]) for sent in rows])
    assert_close(found, expected)
    along = normal(*found.shape, seed=1)
    (one,) = torch.autograd.grad(found + 0 * x.sum(), x, along)
    (two,) = torch.autograd.grad(expected + 0 * x.sum(), x, along)
    assert_close(one, two)


@given(links())
def test_weighted_sum_is_that_of_a_loop(case) -> None:
    pairs, some = case
    x = normal(some.sources, 3)
    weight = normal(len(some), seed=1)
    expected = torch.zeros(some.targets, 3, dtype=torch.float64)
    # The weights stand in the order of `source`.
    for (s, t), factor in zip(sorted(pairs, key=lambda pair: pair[1]), weight, strict=True):
        expected[t] += factor * x[s]
    assert_close(linked_sum(x, some, weight), expected)


@examples(25)
@given(links(least=2), st.booleans())
def test_gradients_of_sums(case, more: bool) -> None:
    _, some = case
    x = normal(some.sources + more, 2, grad=True)
    weight = normal(len(some), seed=1, grad=True)
    assert torch.autograd.gradcheck(lambda x: linked_sum(x, some), x)
    assert torch.autograd.gradcheck(lambda x, w: linked_sum(x, some, w), (x, weight))
    # Only one of the two may be asked for.
    assert torch.autograd.gradcheck(lambda x: linked_sum(x, some, weight.detach()), x)
    assert torch.autograd.gradcheck(lambda w: linked_sum(x.detach(), some, w), weight)
    for how in AGGREGATIONS:
        assert torch.autograd.gradcheck(lambda x, how=how: aggregate(x, some, how), x)


@st.composite
def matches(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], Links, Links]:
    """Matches of a route, (u, v, w), and the links from u and from v to w."""
    sizes = [draw(st.integers(1, 5)) for _ in range(3)]
    one = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    found = draw(st.lists(one, max_size=12))
    u, v, w = (np.array([match[i] for match in found], np.int64) for i in range(3))
    return found, link(u, w, sizes[0], sizes[2]), link(v, w, sizes[1], sizes[2])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@examples(60)
@given(matches(), st.booleans())
def test_matched_sum_is_that_of_a_loop(kind: torch.dtype, case, gated: bool) -> None:
    found, u, v = case
    x = normal(u.sources + 1, 3).to(kind).requires_grad_()
    weight = normal(v.sources, 3, seed=1).to(kind).requires_grad_()
    gate = normal(len(found), seed=2).to(kind).requires_grad_() if gated else None
    ordered = sorted(found, key=lambda match: match[2])  # the order of the links
    expected = torch.zeros(u.targets, 3, dtype=kind)
    for number, (a, b, c) in enumerate(ordered):
        sent = x[a] * weight[b] * (1 if gate is None else gate[number])
        expected = expected.index_add(0, torch.tensor([c]), sent.unsqueeze(0))
    total = matched_sum(x, weight, u, v, gate)
    torch.testing.assert_close(total, expected)
    leaves = [x, weight] if gate is None else [x, weight, gate]
    along = normal(*total.shape, seed=3).to(kind)
    both = []
    for some in (total, expected):
        for leaf in leaves:  # so that there is a way to each of them
            some = some + 0 * leaf.sum()
        both.append(torch.autograd.grad(some, leaves, along))
    for got, wanted in zip(*both, strict=True):
        torch.testing.assert_close(got, wanted)


@examples(40)
@given(matches())
def test_matched_sums_are_those_of_other_devices(case) -> None:
    """Where the compiled loop does not run, PyTorch's own functions do: here by the types."""
    _, u, v = case
    x, weight = normal(u.sources, 3).float(), normal(v.sources, 3, seed=1).float()
    fast = _products(x, u.source, weight, v.source, u.begin)
    plain = _products(x, u.source, weight.double(), v.source, u.begin)
    torch.testing.assert_close(fast, plain)


def test_gradients_through_a_stride() -> None:
    """What comes back may be no plain block of memory."""
    some = link(np.array([0, 1, 1]), np.array([1, 0, 1]), 2, 2)
    x = normal(2, 2, grad=True)
    assert torch.autograd.gradcheck(lambda x: linked_sum(x, some).T @ x, x)
    assert torch.autograd.gradcheck(lambda x: linked_sum(x, some).sum(), x)


# Plans.


def check_plan(case: Case, layers: int, completion: str | None, trim: bool) -> None:
    batch = case.batch
    routes = case.routes(completion) if completion is not None else ()
    plan = make_plan(batch, layers, routes, trim=trim)
    assert len(plan.layers) == layers
    reach = 2 if routes else 1
    everything = {name: len(part) for name, part in batch.tables.items()}

    def within(radius: int) -> dict[str, int]:
        return {
            name: sum(hop <= radius for hop in part.hop.tolist())
            for name, part in batch.tables.items()
        }

    assert plan.sizes == (within(reach * layers) if trim else everything)
    sources = plan.sizes
    for number, layer in enumerate(plan.layers, 1):
        assert layer.targets == (within(reach * (layers - number)) if trim else everything)
        for key in case.graph.foreign_keys:
            up, down = layer.up[key], layer.down[key]
            for some, sender, receiver in (
                (up, key.table, key.parent),
                (down, key.parent, key.table),
            ):
                check_orders(some)
                assert some.sources == sources[sender]
                assert some.targets == layer.targets[receiver]
            expected = Counter(
                (child, parent)
                for child, parent in slow_children(batch, key)
                if parent < layer.targets[key.parent]
            )
            assert Counter(pairs_of(up)) == expected
            expected = Counter(
                (parent, child)
                for child, parent in slow_parents(batch, key)
                if child < layer.targets[key.table]
            )
            assert Counter(pairs_of(down)) == expected
        assert layer.routes.keys() == set(routes)
        for route, some in layer.routes.items():
            from_u, from_v, into = route.tables
            for part, sender in ((some.u, from_u), (some.v, from_v)):
                check_orders(part)
                assert part.sources == sources[sender]
                assert part.targets == layer.targets[into]
            assert Counter(matches_of(some)) == Counter(
                match for match in slow_matches(batch, route) if match[2] < layer.targets[into]
            )
        sources = layer.targets
    assert sources[batch.seed_table] > int(batch.seeds.max())


@examples(80)
@given(cases(), st.integers(1, 3), st.sampled_from([None, *COMPLETION]), st.booleans())
def test_plans_are_those_of_the_rule(
    case: Case, layers: int, completion: str | None, trim: bool
) -> None:
    check_plan(case, layers, completion, trim)


@examples(40)
@given(cases())
def test_links_stay_inside_their_subgraph_and_reach_one_hop(case: Case) -> None:
    (layer,) = make_plan(case.batch, 1, case.routes(), trim=False).layers
    tables = case.batch.tables
    for key in case.graph.foreign_keys:
        for some, sender, receiver in (
            (layer.up[key], tables[key.table], tables[key.parent]),
            (layer.down[key], tables[key.parent], tables[key.table]),
        ):
            for s, t in pairs_of(some):
                assert sender.group[s] == receiver.group[t]
                assert sender.hop[s] <= receiver.hop[t] + 1
    for route, some in layer.routes.items():
        u, v, w = (tables[name] for name in route.tables)
        for i, j, k in matches_of(some):
            assert u.group[i] == v.group[j] == w.group[k]
            assert v.hop[j] <= w.hop[k] + 1
            assert u.hop[i] <= v.hop[j] + 1


@examples(40)
@given(cases(fanouts=(-1,)))
def test_with_all_children_sampled_no_link_is_left_out(case: Case) -> None:
    """The rule only ever leaves out children of rows whose children were not asked for."""
    hops = len(case.sampler.fanouts)
    for key in case.graph.foreign_keys:
        parent_hop = case.batch.tables[key.parent].hop.tolist()
        inner = {pair for pair in slow_pairs(case.batch, key) if parent_hop[pair[1]] < hops}
        assert inner <= set(slow_children(case.batch, key))


@examples(20)
@given(cases())
def test_only_some_keys(case: Case) -> None:
    keys = case.graph.foreign_keys
    whole = make_plan(case.batch, 2)
    some = make_plan(case.batch, 2, keys=keys[::2])
    for one, two in zip(whole.layers, some.layers, strict=True):
        assert two.up.keys() == two.down.keys() == set(keys[::2])
        for key in keys[::2]:
            assert pairs_of(one.up[key]) == pairs_of(two.up[key])
            assert pairs_of(one.down[key]) == pairs_of(two.down[key])


@examples(10)
@given(cases())
def test_plans_move_whole(case: Case) -> None:
    plan = make_plan(case.batch, 2, case.routes())
    assert plan.to("cpu") is plan
    moved = plan.to("meta")
    assert moved.sizes == plan.sizes
    assert moved.batch.seeds.device.type == "meta"
    for one, two in zip(plan.layers, moved.layers, strict=True):
        assert one.targets == two.targets
        both = [(one.up[key], two.up[key]) for key in one.up]
        both += [(one.down[key], two.down[key]) for key in one.down]
        both += [(one.routes[route].u, two.routes[route].u) for route in one.routes]
        both += [(one.routes[route].v, two.routes[route].v) for route in one.routes]
        for here, there in both:
            for name in ("source", "begin", "target", "begin_back", "position"):
                assert getattr(there, name).device.type == "meta"
                assert getattr(there, name).shape == getattr(here, name).shape
