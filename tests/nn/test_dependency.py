"""Functional dependencies: both losses against loops, the true pairs, and the two phases."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from helpers import examples
from oracles.network_cases import Case, assert_close, cases, fill, gradients, normal
from oracles.reference_sampler import Reference
from oracles.slow_network import slow_emb, slow_pair
from relfrog.graph.relational import ForeignKey
from relfrog.nn.batch_plan import Plan, make_plan
from relfrog.nn.dependency import Dependencies, DependencyOptions, Pairs
from relfrog.nn.network import Output, dependency_pairs

SIZE = 8
KEYS = (ForeignKey("a", "x", "b"), ForeignKey("a", "y", "b"), ForeignKey("c", "z", "c"))


def build(orthonormal: bool = False, negatives: int = 5, tau: float = 0.5) -> Dependencies:
    options = DependencyOptions(negatives, tau, orthonormal)
    return fill(Dependencies(KEYS, SIZE, options).double(), 3)


def some_pairs(count: int = 7, parents: int = 4, seed: int = 0) -> Pairs:
    """Pairs of which several share a parent."""
    rows = torch.arange(count) * 3 % parents
    return Pairs(
        normal(count, SIZE, seed=seed, grad=True),
        normal(parents, SIZE, seed=seed + 1, grad=True)[rows],
        rows,
    )


@pytest.mark.parametrize("orthonormal", [False, True])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_emb_is_the_equation_pair_by_pair(key: ForeignKey, orthonormal: bool) -> None:
    """Eq. (13)."""
    dependencies, pairs = build(orthonormal), some_pairs()
    found, expected = dependencies.emb(key, pairs), slow_emb(dependencies, key, pairs)
    assert_close(found, expected)
    named = {**dict(dependencies.named_parameters()), "child": pairs.child, "parent": pairs.parent}
    assert_close(gradients(found, named), gradients(expected, named), 1e-8)


def test_an_orthonormal_subspace_leaves_the_variance_outside_of_it() -> None:
    """Never more than the whole, nothing inside the subspace, and no matter what scale P has."""
    dependencies, key = build(orthonormal=True), KEYS[0]
    with torch.no_grad():
        dependencies.shift.zero_()
        pairs = some_pairs()
        whole = (pairs.parent - pairs.child).square().sum(1).mean()
        loss = dependencies.emb(key, pairs)
        assert 0 < loss < whole
        dependencies.subspace.mul_(-17.0)
        assert_close(dependencies.emb(key, pairs), loss)
        inside = normal(5, SIZE // 4, seed=5) @ dependencies.subspace[0].T
        pairs = Pairs(torch.zeros(5, SIZE, dtype=torch.float64), inside, torch.arange(5))
        assert_close(dependencies.emb(key, pairs), torch.zeros((), dtype=torch.float64), 1e-12)
        # As the paper has it, the scale does matter.
        free = build(orthonormal=False)
        before = free.emb(key, some_pairs())
        free.subspace.mul_(3.0)
        assert free.emb(key, some_pairs()) > before


def test_subspaces_start_orthonormal() -> None:
    for basis in Dependencies(KEYS, SIZE).subspace:
        assert basis.shape == (SIZE, SIZE // 4)
        assert_close(basis.T @ basis, torch.eye(SIZE // 4), 1e-5)


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_pair_is_the_equation_pair_by_pair(key: ForeignKey, tau: float) -> None:
    """Eq. (15), with the negatives that were drawn."""
    dependencies, pairs = build(tau=tau), some_pairs()
    found = dependencies.pair(key, pairs, torch.Generator().manual_seed(4))
    drawn = torch.randint(7, (7, 5), generator=torch.Generator().manual_seed(4))
    assert (pairs.parent_row[drawn] == pairs.parent_row.unsqueeze(1)).any()
    expected = slow_pair(dependencies, key, pairs, drawn)
    assert_close(found, expected)
    named = {**dict(dependencies.named_parameters()), "child": pairs.child, "parent": pairs.parent}
    assert_close(gradients(found, named), gradients(expected, named), 1e-8)


def test_the_true_parent_is_never_a_negative() -> None:
    dependencies, key = build(), KEYS[0]
    # One parent for all, in several subgraphs: there is nothing to tell apart.
    child, parent = normal(6, SIZE, grad=True), normal(6, SIZE, seed=1, grad=True)
    pairs = Pairs(child, parent, torch.zeros(6, dtype=torch.int64))
    loss = dependencies.pair(key, pairs)
    assert loss == 0
    for grad in gradients(loss, {"child": child, "parent": parent}).values():
        assert (grad == 0).all()
    # One other parent: its distance alone counts, however often the own one was drawn.
    pairs = Pairs(child, parent, torch.tensor([0, 0, 0, 0, 0, 1]))
    drawn = torch.tensor([[1, 2, 5]] * 6)
    allowed = pairs.parent_row[drawn] != pairs.parent_row.unsqueeze(1)
    loss = dependencies.pair_against(key, pairs, drawn, allowed)
    assert_close(loss, slow_pair(dependencies, key, pairs, drawn))
    (grad,) = torch.autograd.grad(loss, parent)
    assert (grad[5] != 0).any()


def test_a_negative_may_be_the_true_parent_if_asked() -> None:
    """With one pair alone, the only negative that can be drawn is the true parent: log 2."""
    key, pairs = KEYS[0], some_pairs(1)
    never = Dependencies(KEYS, SIZE, DependencyOptions(negatives=1)).double()
    maybe = Dependencies(KEYS, SIZE, DependencyOptions(negatives=1, true_negatives=False)).double()
    assert_close(never.pair(key, pairs), torch.zeros((), dtype=torch.float64))
    assert_close(maybe.pair(key, pairs), torch.tensor(2.0, dtype=torch.float64).log())


def test_both_directions_are_relations_of_their_own() -> None:
    """Twice the weights; the losses are means over both, the second with the ends exchanged."""
    both = fill(Dependencies(KEYS, SIZE, DependencyOptions(both=True)).double(), 3)
    assert len(both.subspace) == len(both.hidden) == 2 * len(KEYS)
    pairs = {KEYS[0]: some_pairs(), KEYS[2]: some_pairs(5, 3, seed=9)}
    losses = both(pairs, torch.Generator().manual_seed(0))
    expected = []
    for key, some in pairs.items():
        back = Pairs(some.parent, some.child, some.parent_row)
        expected += [slow_emb(both, key, some), slow_emb(both, (key, "down"), back)]
    assert_close(losses.emb, torch.stack(expected).mean())
    one = Dependencies(KEYS, SIZE)
    assert len(one.subspace) == len(KEYS)


def test_a_normal_start_makes_the_first_loss_a_thousand_times_larger() -> None:
    """|P P^T x|^2 is about r (c + r + 1) |x|^2 for P of shape [c, r] and variance 1."""
    torch.manual_seed(0)
    channels, rank = 64, 16
    pairs = Pairs(torch.randn(500, channels), torch.randn(500, channels), torch.arange(500))
    with torch.no_grad():
        small = Dependencies(KEYS, channels).emb(KEYS[0], pairs)
        large = Dependencies(KEYS, channels, DependencyOptions(normal=True)).emb(KEYS[0], pairs)
    assert float(small) == pytest.approx(2 * (channels - rank), rel=0.2)
    about = rank * (channels + rank + 1) - 2 * rank + 1
    assert float(large) == pytest.approx(3 * channels * about, rel=0.3)


def test_pair_of_a_scorer_that_knows_nothing() -> None:
    """All scores the same: -log(1 / (1 + negatives))."""
    dependencies, key = build(), KEYS[1]
    with torch.no_grad():
        dependencies.score[1].weight.zero_()
    pairs = some_pairs(count=5, parents=5)
    drawn = torch.tensor([[(i + 1) % 5, (i + 2) % 5, i] for i in range(5)])
    allowed = pairs.parent_row[drawn] != pairs.parent_row.unsqueeze(1)
    found = dependencies.pair_against(key, pairs, drawn, allowed)
    assert_close(found, torch.tensor(3.0, dtype=torch.float64).log())


def test_losses_are_means_over_keys() -> None:
    dependencies = build()
    pairs = {key: some_pairs(seed=10 * i) for i, key in enumerate(KEYS[:2])}
    found = dependencies(pairs, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    emb = [slow_emb(dependencies, key, some) for key, some in pairs.items()]
    pair = [dependencies.pair(key, some, generator) for key, some in pairs.items()]
    assert_close(found.emb, sum(emb) / 2)
    assert_close(found.pair, sum(pair) / 2)
    nothing = dependencies({})
    assert nothing.emb == nothing.pair == 0


def test_learning_lowers_both_losses() -> None:
    """On pairs that follow a rule the subspace and the scorer find it."""
    torch.manual_seed(0)
    child = normal(200, SIZE)
    direction = normal(2, SIZE, seed=1)
    parent = child + normal(1, SIZE, seed=2) + normal(200, 2, seed=3) @ direction
    pairs = {KEYS[0]: Pairs(child, parent, torch.arange(200))}
    dependencies = Dependencies(KEYS, SIZE, DependencyOptions(orthonormal=True)).double()
    before = dependencies(pairs)
    optimizer = torch.optim.Adam(dependencies.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        losses = dependencies(pairs)
        (losses.emb + losses.pair).backward()
        optimizer.step()
    after = dependencies(pairs)
    assert after.emb < 0.05 * before.emb
    assert after.pair < 0.8 * before.pair


# Which pairs.


def random_output(plan: Plan) -> Output:
    """States of the sizes that the layers of a plan have."""
    sizes = [plan.sizes, *(layer.targets for layer in plan.layers)]
    states = [
        {
            name: normal(count, 3, seed=100 * depth + number, grad=True)
            for number, (name, count) in enumerate(counts.items())
        }
        for depth, counts in enumerate(sizes)
    ]
    return Output(torch.zeros(0), states)


@examples(60)
@given(cases(), st.integers(1, 3), st.booleans(), st.booleans())
def test_pairs_are_true_and_from_the_deepest_layer_of_both(
    case: Case, layers: int, with_routes: bool, trim: bool
) -> None:
    plan = make_plan(case.batch, layers, case.routes() if with_routes else (), trim=trim)
    output = random_output(plan)
    found = dependency_pairs(output, plan, case.graph.foreign_keys, 0)
    slow, tables = Reference(case.db), case.batch.tables
    for key in case.graph.foreign_keys:
        expected = []
        for child, parent in enumerate(case.batch.parents[key].tolist()):
            if parent < 0 or child >= plan.sizes[key.table] or parent >= plan.sizes[key.parent]:
                continue
            deepest = max(
                depth
                for depth, state in enumerate(output.states)
                if child < len(state[key.table]) and parent < len(state[key.parent])
            )
            state = output.states[deepest]
            expected.append((child, parent, state[key.table][child], state[key.parent][parent]))
        if not expected:
            assert key not in found
            continue
        pairs = found[key]
        assert_close(pairs.child, torch.stack([h for _, _, h, _ in expected]))
        assert_close(pairs.parent, torch.stack([h for _, _, _, h in expected]))
        for (child, _, _, _), row in zip(expected, pairs.parent_row.tolist(), strict=True):
            own = int(tables[key.table].rows[tables[key.table].index[child]])
            assert slow.parents[key][own] == int(tables[key.parent].rows[row])
        # Gradients go to the rows that were taken.
        states = {f"{d} {n}": x for d, s in enumerate(output.states) for n, x in s.items()}
        looped = torch.stack([p - c for _, _, c, p in expected])
        assert_close(gradients(pairs.parent - pairs.child, states), gradients(looped, states))
        assert not pairs.detach().child.requires_grad
        assert not pairs.detach().parent.requires_grad


@examples(30)
@given(cases(fanouts=(-1, 2)), st.integers(1, 3))
def test_some_pairs_are_some_of_all(case: Case, most: int) -> None:
    plan = make_plan(case.batch, 2)
    output = random_output(plan)
    whole = dependency_pairs(output, plan, case.graph.foreign_keys, 0)
    some = dependency_pairs(
        output, plan, case.graph.foreign_keys, most, torch.Generator().manual_seed(1)
    )
    assert some.keys() == whole.keys()
    for key, pairs in some.items():
        assert len(pairs.child) == min(most, len(whole[key].child))
        known = {
            (*child.tolist(), *parent.tolist(), row)
            for child, parent, row in zip(*map(list, (*whole[key][:2], whole[key][2].tolist())))
        }
        for child, parent, row in zip(pairs.child, pairs.parent, pairs.parent_row.tolist()):
            assert (*child.tolist(), *parent.tolist(), row) in known


@pytest.mark.slow
def test_two_threads_add_up_gradients_in_the_same_order() -> None:
    """What users have by default; a gradient that threads add up as they come is another one."""
    torch.manual_seed(0)
    key = ForeignKey("child", "key", "parent")
    module = Dependencies([key], 64, DependencyOptions(negatives=64))
    rows = torch.randint(40, (300,))
    child, parent = torch.randn(300, 64), torch.randn(40, 64)[rows]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = set()
        for _ in range(40):
            torch.manual_seed(1)
            ends = [child.clone().requires_grad_(), parent.clone().requires_grad_()]
            losses = module({key: Pairs(ends[0], ends[1], rows)})
            (losses.emb + losses.pair).backward()
            found.add(tuple(end.grad.numpy().tobytes() for end in ends))
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1
