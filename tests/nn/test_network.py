"""The network as a whole: nothing trimmed away that counts, nothing of the future."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from relbench.base import Database, Table
from torch import Tensor, nn

from helpers import examples
from oracles.every_column import cut_of, imported
from oracles.network_cases import (
    AGGREGATIONS,
    COMPLETION,
    SHAPES,
    Case,
    assert_close,
    cases,
    fill,
    fit_features,
    gradients,
    learn,
    made_for_a_role,
    make_network,
    toy,
)
from oracles.relational_databases import DAY, START, seeded, table
from oracles.slow_network import slow_forward
from relfrog.features.columns import fit_columns
from relfrog.graph.relational import build_graph
from relfrog.graph.routes import find_routes
from relfrog.graph.sampler import TemporalSampler
from relfrog.kinds import ENTITY_KINDS
from relfrog.nn.batch_plan import farthest, make_plan
from relfrog.nn.network import dependency_pairs
from relfrog.training.trainer import Trainer

# Plans.

SETTINGS = {
    "completion": st.sampled_from([None, *COMPLETION]),
    "how": st.sampled_from(AGGREGATIONS),
    "layers": st.integers(1, 3),
}


@examples(15)
@given(cases(hops=(1, 2)), st.integers(1, 2), SETTINGS["completion"], SETTINGS["how"])
def test_network_is_a_loop_over_rows(case: Case, layers: int, completion: str | None, how) -> None:
    """From the columns to the seeds, with trimmed plans."""
    some = () if completion is None else case.routes(completion)
    tables, features = fit_features(case.db)
    network = make_network(
        case.graph, tables, case.sampler.table, some, layers=layers, aggregation=how
    ).eval()
    output = network(make_plan(case.batch, layers, some), features)
    slow = slow_forward(network, case.batch, features)
    for fast_state, slow_state in zip(output.states, slow, strict=True):
        for name, x in fast_state.items():
            if len(x):
                assert_close(x, torch.stack(list(slow_state[name])[: len(x)]), 1e-6)
    h = torch.stack([slow[-1][case.sampler.table][i] for i in case.batch.seeds.tolist()])
    assert_close(output.seeds, network.head(h), 1e-6)
    assert_close(gradients(output.seeds, network), gradients(network.head(h), network), 1e-5)


@examples(40)
@given(cases(hops=(1, 4)), SETTINGS["layers"], SETTINGS["completion"], st.booleans())
def test_hops_that_no_layer_reads_change_no_bit(
    case: Case, layers: int, completion: str | None, unrolled: bool
) -> None:
    """So they need not be sampled."""
    some = () if completion is None else case.routes(completion)
    tables, features = fit_features(case.db)
    network = make_network(case.graph, tables, case.sampler.table, some, layers=layers).eval()
    asked = {"routes": some, "whole": farthest(layers, some), "unrolled": unrolled}
    fanouts = case.sampler.fanouts
    whole, cut = (
        network(make_plan(case.sample(fanouts=own, **asked), layers, some), features).states
        for own in (fanouts, fanouts[: farthest(layers + 1, some)])
    )
    for one, two in zip(whole, cut, strict=True):
        for name, x in one.items():
            assert torch.equal(x, two[name])


@examples(50)
@given(cases(), SETTINGS["layers"], SETTINGS["completion"], SETTINGS["how"], st.booleans())
def test_trimming_changes_nothing(
    case: Case, layers: int, completion: str | None, how, training: bool
) -> None:
    """Neither for the seeds nor for what is learned from them."""
    some = () if completion is None else case.routes(completion)
    tables, features = fit_features(case.db)
    # In training the average gate of one layer is used by the next, and it is an average over
    # the rows that are computed: it is the one thing that may differ, so alpha is 0.
    network = make_network(
        case.graph, tables, case.sampler.table, some, layers=layers, aggregation=how, alpha=0.0
    ).train(training)
    found = []
    for trim in (True, False):
        out = network(make_plan(case.batch, layers, some, trim=trim), features)
        found.append((out.seeds, gradients(out.seeds, network)))
    assert_close(found[0][0], found[1][0])
    assert_close(found[0][1], found[1][1], 1e-8)


def hops_needed(layers: int, completion: str | None) -> int:
    """So many hops must be sampled that the layers miss nothing.

    Routes reach two hops. The sampler brings parents along beyond its last hop, so a route whose
    far end is a parent needs one hop less.
    """
    if completion is None:
        return layers
    return 2 * layers if completion in ("along", "both") else 2 * layers - 1


@pytest.mark.slow
@examples(60)
@given(
    cases(modes=("shared",), hops=(0, 0)), SETTINGS["layers"], SETTINGS["completion"],
    SETTINGS["how"], st.booleans(),
)  # fmt: skip
def test_who_else_is_asked_about_changes_nothing(
    case: Case, layers: int, completion: str | None, how, training: bool
) -> None:
    """With all children sampled: in one subgraph, in several, or in batches of one.

    Neither for the seeds nor for what is learned from them; alpha is 0 as above, for a row that
    seeds share is counted once or several times by the average gate.
    """
    some = () if completion is None else case.routes(completion)
    tables, features = fit_features(case.db)
    network = make_network(
        case.graph, tables, case.sampler.table, some, layers=layers, aggregation=how, alpha=0.0
    ).train(training)
    fanouts = [-1] * hops_needed(layers, completion)
    batches = [case.sample(mode=mode, fanouts=fanouts) for mode in ("shared", "separate")]
    shared, separate = (
        network(make_plan(batch, layers, some), features).seeds for batch in batches
    )
    assert_close(shared, separate)
    assert_close(gradients(shared, network), gradients(separate, network), 1e-8)
    each = []
    for number in range(len(case.rows)):
        alone = case.one(number).sample(fanouts=fanouts)
        each.append(network(make_plan(alone, layers, some), features).seeds[0])
        assert_close(each[-1], shared[number])
    if each:
        alone_all = gradients(torch.stack(each), network)
        assert_close(gradients(shared, network), alone_all, 1e-8)


@examples(30)
@given(cases(modes=("separate",)), SETTINGS["completion"])
def test_separate_subgraphs_are_separate(case: Case, completion: str | None) -> None:
    """However few children are sampled."""
    some = () if completion is None else case.routes(completion)
    tables, features = fit_features(case.db)
    network = make_network(case.graph, tables, case.sampler.table, some).eval()
    together = network(make_plan(case.batch, 2, some), features).seeds
    for number in range(len(case.rows)):
        alone = network(make_plan(case.one(number).sample(), 2, some), features).seeds
        assert_close(alone[0], together[number])


# The future.


def with_another_future(db: Database, at: pd.Timestamp, seed: int) -> Database:
    """The same up to a time; later rows have other contents, times and parents, and there are more.

    Rows without a time are always there and stay as they are.
    """
    rng = np.random.default_rng(seed)
    tables = {}
    for name, old in db.table_dict.items():
        frame = old.df
        if old.time_col is not None:
            late = np.flatnonzero((frame[old.time_col] > at).to_numpy())
            frame = frame.copy()
            for column in frame:
                if column == old.pkey_col:
                    continue
                frame[column] = shuffled(frame[column], late, rng, column == old.time_col)
            more = frame.iloc[np.repeat(late, 2)].copy()
            if old.pkey_col is not None:
                more[old.pkey_col] = [10_000 + i for i in range(len(more))]
            frame = pd.concat([frame, more.astype(frame.dtypes)], ignore_index=True)
        tables[name] = Table(frame, old.fkey_col_to_pkey_table, old.pkey_col, old.time_col)
    return Database(tables)


def shuffled(
    values: pd.Series, late: np.ndarray, rng: np.random.Generator, time: bool
) -> pd.Series:
    """Late values are replaced: times by later ones, others by any other value of the column."""
    values = values.copy()
    if time:
        values.iloc[late] = values.iloc[late] + pd.to_timedelta(rng.integers(0, 99, len(late)), "D")
    elif len(late):
        values.iloc[late] = values.iloc[rng.integers(0, len(values), len(late))].to_numpy()
    return values


def check_future(db: Database, name: str, rows, at: pd.Timestamp, times, seed: int) -> int:
    """Outputs on the database and on one with another future, bit for bit; late seeds among it."""
    columns = fit_columns(db, before=at, text_channels=4)
    outputs = []
    for version in (db, with_another_future(db, at, seed)):
        graph = build_graph(version)
        features = columns.encode(version)
        for mode, layers in (("shared", 2), ("separate", 1)):
            sampler = TemporalSampler(graph, name, [3, 2], mode)
            batch = sampler.sample(rows, times, cutoffs=[at] * len(rows))
            some = find_routes(graph.foreign_keys, COMPLETION["both"])
            network = make_network(
                graph, columns.tables, name, some, double=False, layers=layers,
                aggregation="recent",
            )  # fmt: skip
            for training in (True, False):
                with torch.no_grad():
                    out = network.train(training)(make_plan(batch, layers, some), features)
                outputs.append((out.seeds, batch.hidden()))
    for (one, hidden), (two, also) in zip(outputs[:4], outputs[4:], strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, two)
        assert torch.equal(hidden, also)
    return int(outputs[0][1].sum())


@examples(25)
@given(seeded(), st.integers(0, 4), st.integers(0, 99))
def test_the_future_does_not_exist(case, day: int, seed: int) -> None:
    db, name, rows, times = case
    at = START + day * DAY
    check_future(db, name, rows, at, times.clip(lower=at), seed)


@pytest.mark.parametrize("number", [1, 7])
@pytest.mark.parametrize("name", ["customers", "order lines", "staff"])
def test_the_future_does_not_exist_whatever_the_columns(number: int, name: str) -> None:
    db = imported(number)
    at = cut_of(db)
    rows = np.arange(len(db.table_dict[name]))
    assert len(rows)
    # Also seeds that are later than what they see, and even than their own time.
    late = check_future(db, name, rows, at, [at + DAY] * len(rows), 0)
    assert late > 0


def test_a_seed_that_does_not_exist_yet_is_any_such_seed() -> None:
    """All that is known of it is that it was asked about, and who names it."""
    db = Database(
        {
            "t": table({"x": [1.0, 2.0, 3.0], "when": [START, START + DAY, START + DAY]},
                       time="when"),
            "early": table({"t": [0, 0, 2], "y": [5.0, 6.0, 7.0]}, {"t": "t"}),
        }
    )  # fmt: skip
    tables, features = fit_features(db)
    graph = build_graph(db)
    network = make_network(graph, tables, "t", layers=1).eval()
    batch = TemporalSampler(graph, "t", [-1]).sample([0, 1, 2], [START] * 3)
    assert batch.hidden().tolist() == [False, True, True]
    first, second, third = network(make_plan(batch, 1), features).seeds
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)  # a row that names it was there before it
    again = TemporalSampler(graph, "t", [0]).sample([1, 2], [START] * 2)
    one, two = network(make_plan(again, 1), features).seeds
    assert torch.equal(one, two)


@pytest.mark.parametrize("completion", [None, *COMPLETION])
def test_others_do_not_see_a_seed_that_does_not_exist_yet(completion: str | None) -> None:
    """Rows that name it are there before it; asking about it must not show it to them."""
    db = Database(
        {
            "t": table({"x": [1.0, 2.0], "when": [START, START + DAY]}, time="when"),
            "link": table({"a": [0, 0], "b": [1, 1], "y": [1.0, 2.0]}, {"a": "t", "b": "t"}),
            "leaf": table({"link": [0, 1, 1]}, {"link": "link"}),
        }
    )
    tables, features = fit_features(db)
    graph = build_graph(db)
    some = () if completion is None else find_routes(graph.foreign_keys, COMPLETION[completion])
    network = make_network(graph, tables, "t", some, layers=2).eval()
    sampler = TemporalSampler(graph, "t", [-1] * 4)
    one, both = sampler.sample([0], [START]), sampler.sample([0, 1], [START] * 2)
    assert both.hidden().tolist() == [False, True]
    alone, together = (network(make_plan(b, 2, some), features).seeds for b in (one, both))
    assert_close(alone[0], together[0])
    # It does hear of them.
    cut_off = TemporalSampler(graph, "t", [0]).sample([1], [START])
    assert not torch.allclose(network(make_plan(cut_off, 2, some), features).seeds[0], together[1])


# One pass for both phases.


@pytest.mark.parametrize(
    "settings", [{}, {"fd_final": True, "fd_pairs": 0}, {"layers": 1}], ids=str
)
def test_one_pass_gives_the_gradients_of_two(tmp_path: Path, settings: dict) -> None:
    """The model's of L_task + L_FD, and the regulariser's of L_FD, as from passes of their own."""
    prepared = toy("regression", **{"clip": 0.0, "beta": 0.5, "fd_pairs": 5, **settings})
    trainer = Trainer(prepared, tmp_path)
    network, dependencies = trainer.network, trainer.dependencies
    assert dependencies is not None
    assert network.roles is not None
    fill(network), fill(dependencies, 1)
    keys, config = prepared.graph.foreign_keys, prepared.config
    (plan,) = list(trainer.loader)
    target = trainer.targets[plan.batch.seed_ids]
    gates = network.roles.average.clone()

    def forward():
        network.roles.average.copy_(gates)
        return network.train()(plan, trainer.features)

    # Three passes: the task, the regulariser for the model, the model for the regulariser.
    task = gradients_of(network.head.loss(forward().seeds, target), network)
    torch.manual_seed(5)
    losses = dependencies(dependency_pairs(forward(), plan, keys, config.fd_pairs))
    own = gradients_of(config.beta * losses.emb + config.gamma * losses.pair, network)
    assert any((grad != 0).any() for grad in own.values())
    torch.manual_seed(5)
    with torch.no_grad():
        pairs = dependency_pairs(forward(), plan, keys, config.fd_pairs)
    losses = dependencies(pairs)
    apart = gradients_of(config.beta * losses.emb + config.gamma * losses.pair, dependencies)

    # One pass, as in training.
    forward()
    network.roles.average.copy_(gates)
    kept = {name: x.clone() for name, x in dependencies.state_dict().items()}
    torch.manual_seed(5)
    _, pairs, _, _ = trainer.fit_model(plan)
    for name, p in network.named_parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        assert_close(grad, task[name] + own[name], 1e-4)
    assert all(torch.equal(x, kept[name]) for name, x in dependencies.state_dict().items())

    # The second phase draws other negatives unless it is told not to; it leaves the model alone.
    kept = {name: x.clone() for name, x in network.state_dict().items()}
    torch.manual_seed(5)
    dependency_pairs(network.eval()(plan, trainer.features), plan, keys, config.fd_pairs)
    trainer.fit_regulariser(pairs)
    for name, p in dependencies.named_parameters():
        assert_close(p.grad, apart[name], 1e-4)
    assert all(torch.equal(x, kept[name]) for name, x in network.state_dict().items())


def gradients_of(loss: Tensor, module: nn.Module) -> dict[str, Tensor]:
    named = dict(module.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(named[name]) if grad is None else grad
        for name, grad in zip(named, found, strict=True)
    }


# What can be learned.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model"), [*((kind, "frog") for kind in ENTITY_KINDS), ("regression", "sage")]
)
def test_one_batch_can_be_learned_by_heart(kind: str, model: str, tmp_path: Path) -> None:
    # The regulariser is there to hinder this.
    layers = 1 if model == "frog" else 2
    prepared = toy(kind, model=model, lr=0.01, layers=layers, beta=0.0, gamma=0.0)
    trainer = Trainer(prepared, tmp_path)
    (plan,) = list(trainer.loader)
    losses = []
    for steps in (120, 80, 40):
        losses += [trainer.fit_model(plan)[0] for _ in range(steps)]
        for group in trainer.optimizer.param_groups:
            group["lr"] /= 10
    assert losses[0] > 0.5
    assert np.mean(losses[-10:]) < 0.05
    _, scores = trainer.validate(trainer.network)
    metric, higher = trainer.kind.metric, trainer.kind.higher
    assert scores[metric] > 0.99 if higher else scores[metric] < 3.0


def test_all_tables_as_nodes_is_the_plain_network(tmp_path: Path) -> None:
    settings = {"beta": 0.0, "gamma": 0.0, "layers": 2}
    node = Trainer(toy("regression", model="frog", roles="node", **settings), tmp_path)
    sage = Trainer(toy("regression", model="sage", **settings), tmp_path)
    assert node.dependencies is None
    assert sage.dependencies is None
    assert node.network.roles is None
    state = node.network.state_dict()
    assert state.keys() == sage.network.state_dict().keys()
    fill(node.network)
    sage.network.load_state_dict(node.network.state_dict())
    (one,), (two,) = list(node.loader), list(sage.loader)
    assert torch.equal(
        node.network(one, node.features).seeds, sage.network(two, sage.features).seeds
    )
    for _ in range(3):
        assert node.fit_model(one)[0] == sage.fit_model(two)[0]
    assert all(
        torch.equal(x, sage.network.state_dict()[name])
        for name, x in node.network.state_dict().items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_that_must_be_an_edge_becomes_one(shape: str) -> None:
    """The label hangs on what is behind the table in the middle: one layer sees it along routes."""
    found = []
    for seed in (1, 4):
        db, labels = made_for_a_role(shape, "u", seed)
        score, gates = learn(db, labels, COMPLETION["both"], seed)
        assert score > 0.95
        found.append(gates[shape])
    assert min(found) > 0.55, found
    assert np.mean(found) > 0.65, found
    plain, gates = learn(db, labels, (), seed)
    assert not gates
    assert plain < score - 0.1
    if shape != "u <- v <- w":  # there the few rows of v can be told apart, and learned by heart
        assert plain < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_a_table_that_must_be_a_node_stays_one(shape: str) -> None:
    """The label hangs on the table in the middle alone, and what is behind it is noise.

    Not so for u <- v <- w: there one row of v comes with one of u, the edge's message holds all
    that is known of both, and either role will do.
    """
    found = []
    for seed in (1, 4):
        db, labels = made_for_a_role(shape, "v", seed)
        score, gates = learn(db, labels, COMPLETION["both"], seed)
        assert score > 0.95
        found.append(gates[shape])
    assert max(found) < 0.5, found
    assert np.mean(found) < 0.4, found
