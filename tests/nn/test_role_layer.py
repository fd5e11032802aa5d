"""The layer: fusion against a loop, and what holds of it whatever the weights."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from relbench.base import Database
from torch import Tensor

from helpers import examples
from oracles.network_cases import (
    AGGREGATIONS,
    COMPLETION,
    Case,
    assert_close,
    cases,
    fill,
    gradients,
    in_double,
    random_states,
)
from oracles.relational_databases import START, table
from oracles.slow_network import slow_layer, slow_matches, slow_norm
from relfrog.graph.relational import build_graph
from relfrog.graph.routes import Route, find_routes
from relfrog.graph.sampler import TemporalSampler
from relfrog.nn.age_pieces import age_pieces
from relfrog.nn.aggregation import Aggregation
from relfrog.nn.batch_plan import make_plan
from relfrog.nn.encoders import KNOTS, age_parts
from relfrog.nn.role_layer import LayerOptions, RoleLayer
from relfrog.nn.roles import GateOptions, RoleMode, Roles

SIZE = 4
#: As by default, as the paper's authors have it, and what neither has.
LAYERS = (LayerOptions(), LayerOptions(relu=False, edge_bias=True), LayerOptions(message="pair"))
GATES = (GateOptions(), GateOptions(all_rows=True), GateOptions(normalise=True, row_wise=True))


def build(
    case: Case,
    some: tuple[Route, ...],
    how: Aggregation,
    mode: str = "learned",
    alpha: float = 0.5,
    options: LayerOptions | None = None,
    gates: GateOptions | None = None,
) -> tuple[RoleLayer, Roles | None]:
    """A layer and roles whose averages are all different."""
    timed = [name for name, rows in case.batch.tables.items() if rows.age is not None]
    layer = RoleLayer(
        tuple(case.batch.tables),
        case.graph.foreign_keys,
        some,
        SIZE,
        how,
        timed=timed,
        options=options,
    )
    in_double(fill(layer))
    roles = None
    if some:
        # At both ends, where one of the messages is left out, and between them.
        fixed = {str(route): (0.0, 1.0, 0.3)[number % 3] for number, route in enumerate(some)}
        roles = Roles(some, SIZE, RoleMode(mode), alpha, fixed, options=gates).double()
        fill(roles, 1)
        if mode == "learned":
            roles.average.copy_(torch.linspace(0.1, 0.9, len(some)))
    return layer, roles


def ages_of(case: Case) -> dict[str, Tensor]:
    """The ages of all rows of tables with times, as a layer takes them."""
    tables = case.batch.tables.items()
    return {name: age_parts(rows.age) for name, rows in tables if rows.age is not None}


def stacked(states, like: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.stack(list(x)) if len(x) else like[name] for name, x in states.items()}


@pytest.mark.parametrize("how", AGGREGATIONS)
@examples(30)
@given(
    cases(),
    st.sampled_from([None, *COMPLETION]),
    st.sampled_from(["learned", "learned", "node", "edge", "fixed"]),
    st.booleans(),
    st.sampled_from(LAYERS),
    st.sampled_from(GATES),
)
def test_layer_is_a_loop_over_rows(
    how: Aggregation, case: Case, completion: str | None, mode: str, training: bool,
    options: LayerOptions, gates: GateOptions,
) -> None:  # fmt: skip
    """Eq. (8), with its gradients and with where the gates move to."""
    some = () if completion is None else case.routes(completion)
    h = random_states(case.batch, SIZE, grad=True)
    layer, roles = build(case, some, how, mode, options=options, gates=gates)
    _, again = build(case, some, how, mode, options=options, gates=gates)
    if roles is not None and again is not None:
        roles.train(training), again.train(training)
    (plan,) = make_plan(case.batch, 1, some, trim=False).layers
    found = layer(h, plan, roles, ages_of(case))
    looped = stacked(slow_layer(layer, h, case.batch, again), h)
    assert_close(found, looped)
    weights = {**dict(layer.named_parameters()), **{f"h {name}": x for name, x in h.items()}}
    one, two = ({**weights} for _ in range(2))
    if roles is not None and again is not None:
        assert_close(roles.average, again.average)
        one |= dict(roles.named_parameters())
        two |= dict(again.named_parameters())
    for name in found:
        assert_close(gradients(found[name], one), gradients(looped[name], two), 1e-8)


@examples(30)
@given(cases(), st.integers(1, 3), st.sampled_from([None, "both"]))
def test_a_layer_computes_what_it_is_asked_for(
    case: Case, layers: int, completion: str | None
) -> None:
    """A trimmed plan gives the first rows of an untrimmed one's output."""
    some = () if completion is None else case.routes(completion)
    plan = make_plan(case.batch, layers, some)
    (whole,) = make_plan(case.batch, 1, some, trim=False).layers
    h = random_states(case.batch, SIZE)
    layer, roles = build(case, some, Aggregation.RECENT)
    if roles is not None:
        roles.eval()
    ages = ages_of(case)
    everything = layer(h, whole, roles, ages)
    first = plan.layers[0]
    h = {name: x[: plan.sizes[name]] for name, x in h.items()}
    found = layer(h, first, roles, {name: x[: plan.sizes[name]] for name, x in ages.items()})
    for name, count in first.targets.items():
        assert_close(found[name], everything[name][:count])


@pytest.mark.parametrize("how", AGGREGATIONS)
@examples(20)
@given(cases(), st.sampled_from([None, *COMPLETION]), st.sampled_from(LAYERS))
def test_a_layer_computes_the_same_without_gradients(
    how: Aggregation, case: Case, completion: str | None, options: LayerOptions
) -> None:
    """Where compiled loops and ages as pieces take the place of PyTorch's operations."""
    some = () if completion is None else case.routes(completion)
    h = random_states(case.batch, SIZE, grad=True)
    layer, roles = build(case, some, how, options=options)
    if roles is not None:
        roles.eval()
    (plan,) = make_plan(case.batch, 1, some, trim=False).layers
    found = layer(h, plan, roles, ages_of(case))
    pieces = {
        name: age_pieces(rows.age.double().numpy(), KNOTS)
        for name, rows in case.batch.tables.items()
        if rows.age is not None
    }
    with torch.no_grad():
        assert_close(layer(h, plan, roles, ages_of(case)), found)
        assert_close(layer(h, plan, roles, pieces), found, 1e-5)


def shop() -> Database:
    """Two keys to one table, one to itself, and one on which no route is built."""
    return Database(
        {
            "airports": table({"x": [0, 1, 2]}),
            "flights": table(
                {"origin": [0, 0, 1, None], "dest": [1, 2, 2, 0]},
                {"origin": "airports", "dest": "airports"},
            ),
            "regions": table({"x": [0]}),
            "islands": table({"region": [0, 0]}, {"region": "regions"}),
        }
    )


def shop_case(seed_table: str) -> Case:
    graph = build_graph(shop())
    sampler = TemporalSampler(graph, seed_table, [-1, -1, -1])
    rows = list(range(graph.num_rows[seed_table]))
    times = [START] * len(rows)
    return Case(shop(), graph, sampler, rows, times, None, sampler.sample(rows, times))


def test_a_relation_without_a_route_adds_its_message_as_it_is() -> None:
    case = shop_case("regions")
    some = case.routes("both")
    assert {route.second.table for route in some} == {"flights"}
    h = random_states(case.batch, SIZE)
    layer, roles = build(case, some, Aggregation.SUM)
    (plan,) = make_plan(case.batch, 1, some, trim=False).layers
    found = layer(h, plan, roles)["regions"]
    number = next(i for i, key in enumerate(layer.keys) if key.table == "islands")
    key = layer.keys[number]
    message = layer.up[number](h["islands"], h["regions"], plan.up[key])
    norm = layer.norms[layer.tables.index("regions")]
    expected = torch.relu(slow_norm(norm, (h["regions"] + message)[0]))
    assert_close(found[0], expected)
    plain, _ = build(case, (), Aggregation.SUM)
    plain.load_state_dict(
        {name: x for name, x in layer.state_dict().items() if not name.startswith("edges")}
    )
    assert_close(plain(h, plan, None)["regions"], found)


def test_parallel_keys_are_two_relations() -> None:
    """Both directions of both keys have routes and weights of their own."""
    case = shop_case("airports")
    some = find_routes(case.graph.foreign_keys, COMPLETION["none"])
    assert len(some) == 2
    assert all(slow_matches(case.batch, route) for route in some)
    h = random_states(case.batch, SIZE)
    layer, roles = build(case, some, Aggregation.SUM)
    assert roles is not None
    roles.eval()
    (plan,) = make_plan(case.batch, 1, some, trim=False).layers
    before = layer(h, plan, roles)["airports"]
    for weights in (layer.edges[0], layer.edges[1], layer.up[0], layer.up[1]):
        kept = {name: x.clone() for name, x in weights.state_dict().items()}
        fill(weights, 7, 1.0)
        assert not torch.allclose(layer(h, plan, roles)["airports"], before)
        weights.load_state_dict(kept)
    assert torch.equal(layer(h, plan, roles)["airports"], before)


def test_gates_decide_between_the_two_messages() -> None:
    """With gates 0 and 1 the other message does not matter at all."""
    case = shop_case("airports")
    some = case.routes("none")
    h = random_states(case.batch, SIZE)
    (plan,) = make_plan(case.batch, 1, some, trim=False).layers
    for mode in ("node", "edge"):
        layer, roles = build(case, some, Aggregation.SUM, mode)
        before = layer(h, plan, roles)["airports"]
        unused = layer.edges if mode == "node" else layer.up
        used = layer.up if mode == "node" else layer.edges
        for number, key in enumerate(layer.keys):
            if key.table == "flights" and mode == "edge":
                fill(unused[number], 5, 10.0)
        if mode == "node":
            fill(unused, 5, 10.0)
        assert torch.equal(layer(h, plan, roles)["airports"], before)
        fill(used, 5, 1.0)
        assert not torch.allclose(layer(h, plan, roles)["airports"], before)


def test_dropout_only_in_training() -> None:
    case = shop_case("airports")
    h = random_states(case.batch, SIZE)
    (plan,) = make_plan(case.batch, 1, trim=False).layers
    layer = RoleLayer(tuple(case.batch.tables), case.graph.foreign_keys, (), SIZE, dropout=0.5)
    layer.double()
    torch.manual_seed(0)
    first, second = layer(h, plan, None), layer(h, plan, None)
    assert not torch.equal(first["airports"], second["airports"])
    layer.eval()
    first, second = layer(h, plan, None), layer(h, plan, None)
    assert torch.equal(first["airports"], second["airports"])
