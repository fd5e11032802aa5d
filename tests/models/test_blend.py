"""Weights of the members of an ensemble."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from relfrog.kinds import TASK_KINDS
from relfrog.models.blend import LEAST, choose

REGRESSION, BINARY = TASK_KINDS["regression"], TASK_KINDS["binary_classification"]


def made_up(count: int, noise: list[float], seed: int = 0) -> tuple[NDArray, dict[str, NDArray]]:
    """Labels, and models that err independently of each other."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=count)
    models = {f"m{n}": truth + scale * rng.normal(size=count) for n, scale in enumerate(noise)}
    return truth, models


def test_equals_have_nearly_equal_weights() -> None:
    truth, models = made_up(2000, [1.0, 1.0])
    blend = choose(REGRESSION, truth, models)
    assert blend.weights == pytest.approx({"m0": 0.5, "m1": 0.5}, abs=0.1)
    assert sum(blend.weights.values()) == pytest.approx(1)
    assert blend.sure > 0.9
    assert "of samples" in blend.words


def test_a_worse_model_that_errs_otherwise_has_a_smaller_weight() -> None:
    """It is worth less, not nothing; also for labels that nobody has seen."""
    truth, models = made_up(20_000, [1.0, 1.5])
    seen = {name: values[:600] for name, values in models.items()}
    blend = choose(REGRESSION, truth[:600], seen)
    assert list(blend.weights) == ["m0", "m1"]
    assert 0.15 < blend.weights["m1"] < 0.45
    mixed = sum(weight * models[name][600:] for name, weight in blend.weights.items())
    errors = [np.abs(part - truth[600:]).mean() for part in (mixed, models["m0"][600:])]
    assert errors[0] < errors[1]


def test_what_adds_nothing_has_no_weight() -> None:
    truth, models = made_up(2000, [1.0, 0.1, 3.0])
    assert choose(REGRESSION, truth, models).weights == {"m1": 1.0}
    truth, models = made_up(2000, [1.0, 1.0, 9.0])
    assert set(choose(REGRESSION, truth, models).weights) == {"m0", "m1"}
    assert all(w >= LEAST for w in choose(REGRESSION, truth, models).weights.values())


def test_the_blend_is_never_worse_than_the_best_quick_model() -> None:
    rng = np.random.default_rng(0)
    truth, error = rng.normal(size=200), rng.normal(size=200)
    factor = np.where(rng.permutation(200) < 100, 0.5, 1.55)  # errs like the best, a little more
    near = {"best": truth + error, "second": truth + factor * error}
    blend = choose(REGRESSION, truth, near)
    assert np.abs(error).mean() < blend.score  # not clearly worse, so samples disagree
    assert blend.best == "best"
    assert blend.weights["best"] > blend.weights["second"] > 0
    assert choose(REGRESSION, truth, near, quick=["best"]).weights == {"best": 1.0}


def test_labels_that_say_nothing() -> None:
    few = choose(BINARY, np.array([0, 1]), {"a": np.zeros(2), "b": np.ones(2)})
    assert sum(few.weights.values()) == pytest.approx(1)
    never = choose(BINARY, np.ones(3), {"a": np.zeros(3), "b": np.ones(3)})
    assert np.isnan(never.score)


def test_a_constant_has_no_weight_where_ranks_are_scored() -> None:
    rng = np.random.default_rng(0)
    truth = (rng.random(400) < 0.3).astype(float)
    models = {"good": truth + rng.normal(size=400), "constant": np.full(400, 0.3)}
    assert choose(BINARY, truth, models).weights == {"good": 1.0}
