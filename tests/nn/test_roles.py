"""Roles: the gate and its average, what is saved, what moves it, and the roles that do not move."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oracles.network_cases import COMPLETION, assert_close, fill, gradients, normal
from oracles.schemas import RACING
from oracles.slow_network import slow_gates
from relfrog.graph.relational import foreign_keys
from relfrog.graph.routes import Route, find_routes
from relfrog.nn.roles import GateOptions, RoleMode, Roles, role_of, saturated

SIZE = 4
ROUTES = find_routes(foreign_keys(RACING), COMPLETION["both"])
FIXED = {str(route): 0.1 + 0.2 * number for number, route in enumerate(ROUTES)}


def make(mode: str = "learned", alpha: float = 0.9, **options) -> Roles:
    roles = Roles(ROUTES, SIZE, RoleMode(mode), alpha, **options)
    fill(roles)
    return roles.double()


def messages(seed: int = 0, rows: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """h^N, h^E and which rows are matched."""
    node = normal(rows, SIZE, seed=seed, grad=True)
    edge = normal(rows, SIZE, seed=seed + 1, grad=True)
    return node, edge, normal(rows, seed=seed + 2) > 0


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_gate_is_the_equation_row_by_row(route: Route, alpha: float) -> None:
    """Eq. (6) and (7), twice, so that the average has moved once."""
    fast, slow = make(alpha=alpha), make(alpha=alpha)
    for step in range(2):
        node, edge, matched = messages(step)
        found = fast(route, node, edge, matched)
        looped = torch.stack(slow_gates(slow, route, list(node), list(edge), matched.tolist()))
        assert found.shape == (6, 1)
        assert_close(found, looped)
        assert_close(fast.average, slow.average)
        assert_close(
            gradients(found, {**dict(fast.named_parameters()), "node": node, "edge": edge}),
            gradients(looped, {**dict(slow.named_parameters()), "node": node, "edge": edge}),
        )


def test_average_is_over_matched_rows() -> None:
    route = ROUTES[0]
    node, edge, matched = messages()
    assert 0 < matched.sum() < len(matched)
    roles = make()
    gate = roles(route, node, edge, matched)
    number = roles.number[route]
    assert_close(roles.average[number], gate[matched].mean().detach())
    others = [i for i in range(len(ROUTES)) if i != number]
    assert (roles.average[others] == 0.5).all()

    # Where the route reaches nobody there is nothing to average.
    before = roles.average.clone()
    roles(route, node, edge, torch.zeros_like(matched))
    assert torch.equal(roles.average, before)
    empty = node[:0]
    assert roles(route, empty, empty, matched[:0]).shape == (0, 1)
    assert torch.equal(roles.average, before)


def test_average_follows_the_gate_slowly() -> None:
    """Gbar <- (1 - alpha) mean(g~) + alpha gbar: it gets there, and at the pace of alpha."""
    node, edge, matched = messages()
    roles = make(alpha=0.9)
    with torch.no_grad():
        raw = make(alpha=0.0)(ROUTES[0], node, edge, matched)[matched].mean()
        gap = abs(0.5 - raw)
        for step in range(1, 60):
            roles(ROUTES[0], node, edge, matched)
            assert_close(abs(roles.average[0] - raw), gap * 0.9**step)


def test_average_is_saved_loaded_and_moved_with_the_model() -> None:
    roles = make()
    node, edge, matched = messages()
    roles(ROUTES[0], node, edge, matched)
    state = roles.state_dict()
    assert torch.equal(state["average"], roles.average)
    assert "average" not in dict(roles.named_parameters())
    assert not roles.average.requires_grad

    other = make()
    other.load_state_dict(state)
    assert torch.equal(other.average, roles.average)
    assert other.average[0] != 0.5
    assert roles.float().average.dtype == torch.float32
    assert roles.to("meta").average.device.type == "meta"


def test_only_training_moves_the_average() -> None:
    roles = make().eval()
    node, edge, matched = messages()
    gate = roles(ROUTES[0], node, edge, matched)
    assert gate.shape == ()
    assert gate == roles.average[0] == 0.5
    assert not gate.requires_grad
    roles.train()
    roles(ROUTES[0], node, edge, matched)
    after = roles.average.clone()
    assert after[0] != 0.5
    assert roles.eval()(ROUTES[0], node, edge, matched) == after[0]
    assert torch.equal(roles.average, after)


def test_no_gradient_goes_through_the_average() -> None:
    """The second step must not reach back into the first."""
    roles = make(alpha=0.5)
    first = messages(0)
    roles(ROUTES[0], *first)
    second = messages(10)
    gate = roles(ROUTES[0], *second)
    found = torch.autograd.grad(gate.sum(), [first[0], first[1]], allow_unused=True)
    assert found == (None, None)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mode", ["node", "edge", "random", "fixed"])
def test_roles_that_are_not_learned(mode: str, training: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    roles = make(mode, fixed=FIXED, generator=generator).train(training)
    assert not list(roles.parameters())
    before = roles.average.clone()
    node, edge, matched = messages()
    for route in ROUTES:
        gate = roles(route, node, edge, matched)
        assert gate.shape == ()
        assert gate == before[roles.number[route]]
    assert torch.equal(roles.average, before)
    expected = {
        "node": [0.0] * len(ROUTES),
        "edge": [1.0] * len(ROUTES),
        "fixed": [FIXED[str(route)] for route in ROUTES],
    }
    if mode in expected:
        assert_close(before, torch.tensor(expected[mode]).double(), 1e-6)
    else:
        assert set(before.tolist()) <= {0.0, 1.0}


def test_random_roles_are_a_draw_per_route() -> None:
    def draw(seed: int) -> list[float]:
        generator = torch.Generator().manual_seed(seed)
        return make("random", generator=generator).average.tolist()

    assert draw(1) == draw(1)
    assert len({tuple(draw(seed)) for seed in range(20)}) > 5
    assert {gate for seed in range(20) for gate in draw(seed)} == {0.0, 1.0}


def test_fixed_roles_need_every_route() -> None:
    with pytest.raises(KeyError):
        Roles(ROUTES, SIZE, RoleMode.FIXED, fixed={str(ROUTES[0]): 0.5})


def test_learned_roles_start_undecided() -> None:
    assert Roles(ROUTES, SIZE).average.tolist() == [0.5] * len(ROUTES)


def test_a_gate_at_its_bound_says_nothing() -> None:
    """An MLP that is saturated from the first step on: the average follows the clock, alone."""
    node, edge, matched = messages()
    for bias, last in ((-1e4, "lowest"), (1e4, "highest"), (0.0, "free")):
        roles = make(alpha=0.99)
        with torch.no_grad():
            roles.last[0].bias.fill_(bias)
            for _ in range(100):
                roles(ROUTES[0], node, edge, matched)
        gate, bound = float(roles.average[0]), float(roles.bound[0])
        assert bound == pytest.approx(0.5 * 0.99**100, rel=1e-5)
        assert saturated(gate, bound) is (last != "free")
        assert (role_of(gate, bound) == "undecided") or last == "free"
        if last != "free":
            assert min(gate, 1 - gate) == pytest.approx(bound, rel=1e-3)
            assert role_of(gate) == {"lowest": "node", "highest": "edge"}[last]
    # A route that was never trained is at no bound, nor is one of an older run.
    assert roles.bound[1:].tolist() == [0.5] * (len(ROUTES) - 1)
    assert not saturated(0.5, 0.5)
    older = {name: value for name, value in roles.state_dict().items() if name != "bound"}
    again = make()
    again.load_state_dict(older)
    assert again.bound.tolist() == [0.0] * len(ROUTES)
    assert not saturated(0.0, 0.0)


def test_normalised_messages_do_not_saturate_the_gate() -> None:
    """Messages a thousand times as large, as sums are: only normalised ones give the same gate."""
    node, edge, matched = messages()
    for normalise in (False, True):
        roles = make(alpha=0.0, options=GateOptions(normalise=normalise))
        small, large = (roles(ROUTES[0], node * s, edge * s, matched) for s in (1.0, 1000.0))
        assert torch.allclose(small, large, atol=1e-3) is normalise


def test_gates_of_rows_in_evaluation() -> None:
    """Those of training, and the average stays where it is."""
    node, edge, matched = messages()
    roles = make(options=GateOptions(row_wise=True))
    before = roles.average.clone()
    roles.eval()
    gates = roles(ROUTES[0], node, edge, matched)
    assert torch.equal(roles.average, before)
    assert_close(roles.train()(ROUTES[0], node, edge, matched), gates)
    assert len(gates) == len(node)


def test_random_roles_between_node_and_edge() -> None:
    gates = Roles(ROUTES, SIZE, RoleMode.RANDOM, options=GateOptions(uniform=True)).average
    assert ((gates > 0) & (gates < 1)).all()
    assert len(set(gates.tolist())) == len(ROUTES)


def test_role_in_a_word() -> None:
    said = {0.0: "node", 0.44: "node", 0.56: "edge", 1.0: "edge"}
    said |= dict.fromkeys((0.45, 0.49, 0.5, 0.51, 0.55), "undecided")
    assert {gate: role_of(gate) for gate in said} == said
