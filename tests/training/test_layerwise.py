"""Layer-wise inference: the same as a recursion over rows, whoever else is asked."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given

from helpers import examples
from oracles.network_cases import AGGREGATIONS, COMPLETION, Case, cases, fit_features, make_network
from oracles.reference_sampler import Reference
from oracles.slow_unrolled import SlowUnrolled
from relfrog.nn.batch_plan import farthest, make_plan
from relfrog.training import layerwise, row_states
from relfrog.training.layerwise import LayerwiseInference

COMPLETIONS = st.sampled_from([None, *COMPLETION])


def inference(case: Case, completion: str | None, strategy: str, **options) -> LayerwiseInference:
    """Layer-wise inference for the seeds of a case, with a network that tells its raw outputs."""
    routes = () if completion is None else case.routes(completion)
    if options.get("atomic"):
        routes = case.routes("none")
    tables, features = fit_features(case.db)
    network = make_network(case.graph, tables, case.sampler.table, routes, **options).eval()
    network.head.predict = lambda out: out
    sampler = replace(case.sampler, strategy=strategy, routes=routes)
    return LayerwiseInference(network, sampler, features, torch.device("cpu"))


def predict(found: LayerwiseInference, case: Case, which=slice(None)) -> np.ndarray:
    rows, ticks = found.sampler.check(case.rows, case.times)
    limits = None
    if case.cutoffs is not None:
        limits = np.minimum(case.graph.ticks(case.cutoffs), ticks)[which]
    return found.predict(rows[which], ticks[which], limits)


@examples(60)
@given(
    cases(), st.integers(1, 3), COMPLETIONS, st.sampled_from(AGGREGATIONS),
    st.sampled_from(["last", "events"]),
)  # fmt: skip
def test_passes_are_a_recursion_over_rows(case, layers, completion, how, strategy) -> None:
    found = inference(case, completion, strategy, layers=layers, aggregation=how)
    reference = Reference(case.db)
    slow = []
    for number, row in enumerate(case.rows):
        time = pd.Timestamp(case.times[number])
        end = time if case.cutoffs is None else pd.Timestamp(case.cutoffs[number])
        past = SlowUnrolled(
            found.network, reference, found.features, case.sampler.fanouts, strategy, time, end
        )
        with torch.no_grad():
            slow.append(past.predict((case.sampler.table, int(row))).numpy())
    np.testing.assert_allclose(predict(found, case), np.stack(slow), rtol=1e-6, atol=1e-6)


@examples(60)
@given(
    cases(), st.integers(1, 3), COMPLETIONS, st.sampled_from(AGGREGATIONS),
    st.sampled_from(["last", "events"]), st.booleans(),
)  # fmt: skip
def test_passes_are_unrolled_subgraphs(case, layers, completion, how, strategy, atomic) -> None:
    """What the network computes on batches of the sampler, for RelGNN's layers too."""
    if atomic:
        completion = None
    found = inference(case, completion, strategy, layers=layers, aggregation=how, atomic=atomic)
    routes = found.sampler.routes
    sampler = replace(found.sampler, unrolled=True, whole=farthest(layers, routes))
    batch = sampler.sample(case.rows, case.times, cutoffs=case.cutoffs)
    with torch.no_grad():
        expected = found.network(make_plan(batch, layers, routes), found.features).seeds
    np.testing.assert_allclose(predict(found, case), expected.numpy(), rtol=1e-6, atol=1e-6)


@examples(20)
@given(cases(), st.integers(1, 2), COMPLETIONS, st.integers(1, 3), st.booleans())
def test_nobody_depends_on_who_else_is_asked(case, layers, completion, block, dense) -> None:
    """Nor on the size of blocks, nor on how rows are indexed."""
    found = inference(case, completion, "events", layers=layers)
    alone = [predict(found, case, slice(i, i + 1)) for i in range(len(case.rows))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layerwise, "BLOCK", block)
        patch.setattr(layerwise, "MANY", 0 if dense else 1 << 30)
        patch.setattr(row_states, "IN_MEMORY", 0)
        together = predict(found, case)
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-6, atol=1e-6)
