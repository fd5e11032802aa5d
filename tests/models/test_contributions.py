"""Contributions of features: they add up, in raw scores and in predictions."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from helpers import examples
from relfrog.models.boosting import BoostedTrees
from relfrog.models.contributions import _carried, booster_contributions, tree_contributions
from small_store import fit


@pytest.mark.slow
@pytest.mark.parametrize("task", ["buys", "spends", "wants", "sorts"])
def test_contributions_add_up(task: str, store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", task, model="lightgbm", trials=2)
    model = run.model
    assert isinstance(model, BoostedTrees)
    seeds = run.prepared.seeds("test")
    said = model.predict(seeds, None).reshape(len(seeds), -1)
    x = model.maker.make(seeds.rows, model.limits(seeds, None), seeds.times)
    for number in (0, 7, len(seeds) - 1):
        one = seeds.take(np.array([number]))
        for booster in model.models[0]:
            base, added = booster_contributions(booster, x[number : number + 1])
            raw = booster.predict(x[number : number + 1], raw_score=True).reshape(-1)
            np.testing.assert_allclose(base + added.sum(1), raw, rtol=1e-6, atol=1e-9)
        for output in range(said.shape[1]):
            found = tree_contributions(model, one, None, output)
            assert found.total == pytest.approx(said[number, output], rel=1e-6)
            np.testing.assert_array_equal(found.features, x[number])
    assert np.abs(found.values).max() > 0


@examples(100)
@given(
    link=st.sampled_from(["identity", "sigmoid", "exp", "softmax"]), seed=st.integers(0, 1000),
    scale=st.sampled_from([0.0, 1e-12, 0.1, 3.0]),
)  # fmt: skip
def test_every_link_keeps_the_sum_and_the_signs(link: str, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    outputs = 3 if link == "softmax" else 1
    base, added = rng.normal(size=outputs), scale * rng.normal(size=(outputs, 5))
    chosen = outputs - 1

    def predict(z):
        if link == "softmax":
            return np.exp(z[chosen]) / np.exp(z).sum()
        return {"identity": z[0], "sigmoid": 1 / (1 + np.exp(-z[0])), "exp": np.exp(z[0])}[link]

    start, values = _carried(link, base, added, chosen)
    assert start == pytest.approx(predict(base))
    assert start + values.sum() == pytest.approx(predict(base + added.sum(1)), rel=1e-9, abs=1e-9)
    if outputs == 1:
        np.testing.assert_array_equal(np.sign(values), np.sign(added[0]))
