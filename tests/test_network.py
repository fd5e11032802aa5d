"""The network as a whole: nothing trimmed away that counts, nothing of the future."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from hypothesis import given, settings

from network_cases import (
    AGGREGATIONS,
    COMPLETION,
    Case,
    assert_close,
    cases,
    fit_features,
    gradients,
    make_network,
)
from relfrog.nn.links import make_plan
from slow_network import slow_forward

# Plans.

SETTINGS = {
    "completion": st.sampled_from([None, *COMPLETION]),
    "how": st.sampled_from(AGGREGATIONS),
    "layers": st.integers(1, 3),
}


@settings(max_examples=15, deadline=None)
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


@settings(max_examples=50, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(
    cases(modes=("shared",), hops=(0, 0)), SETTINGS["layers"], SETTINGS["completion"],
    SETTINGS["how"],
)  # fmt: skip
def test_who_else_is_asked_about_changes_nothing(
    case: Case, layers: int, completion: str | None, how
) -> None:
    """With all children sampled: in one subgraph, in several, or in batches of one."""
    some = () if completion is None else case.routes(completion)
    tables, features = fit_features(case.db)
    network = make_network(
        case.graph, tables, case.sampler.table, some, layers=layers, aggregation=how
    ).eval()
    fanouts = [-1] * hops_needed(layers, completion)
    batches = [case.sample(mode=mode, fanouts=fanouts) for mode in ("shared", "separate")]
    shared, separate = (
        network(make_plan(batch, layers, some), features).seeds for batch in batches
    )
    assert_close(shared, separate)
    for number in range(len(case.rows)):
        alone = case.one(number).sample(fanouts=fanouts)
        out = network(make_plan(alone, layers, some), features).seeds
        assert_close(out[0], shared[number])


@settings(max_examples=30, deadline=None)
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
