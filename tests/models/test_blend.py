"""Weights of the members of an ensemble."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from relfrog.kinds import TASK_KINDS
from relfrog.models.blend import LEAST, DatedLabels, choose

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


def dated(seed: int, noise: dict[str, list[float]], count: int = 400) -> list[DatedLabels]:
    """Times, with models whose noise changes from time to time."""
    rng = np.random.default_rng(seed)
    found = []
    for scales in zip(*noise.values(), strict=True):
        truth = rng.normal(size=count)
        models = {n: truth + s * rng.normal(size=count) for n, s in zip(noise, scales, strict=True)}
        found.append(DatedLabels(truth, models))
    return found


def test_who_was_best_once_is_not_taken_for_the_best() -> None:
    """On validation alone "lucky" would answer; at all earlier times "steady" was better."""
    *earlier, val = dated(0, {"steady": [0.5, 0.5, 0.5, 0.6], "lucky": [2.0, 2.0, 2.0, 0.3]})
    alone = choose(REGRESSION, val.truth, val.predicted)
    assert max(alone.weights, key=lambda name: alone.weights[name]) == "lucky"
    blend = choose(REGRESSION, val.truth, val.predicted, earlier=earlier)
    assert blend.weights["steady"] > 0.5
    # But what answers is never worse on validation than a quick model: then validation decides.
    held = choose(REGRESSION, val.truth, val.predicted, earlier=earlier, quick=["steady", "lucky"])
    assert held.score <= np.abs(val.truth - val.predicted["lucky"]).mean()
    assert held.weights == alone.weights
    assert len(blend.backtests["steady"]) == 4
    means = {name: np.mean(scores) for name, scores in blend.backtests.items()}
    assert means["together"] <= means["steady"] + 1e-9
    assert blend.best == "steady"


def test_a_model_without_backtests_is_weighed_on_validation_against_the_others_together() -> None:
    *earlier, val = dated(1, {"a": [1.0] * 4, "b": [1.0] * 4, "network": [1.0] * 4}, 2000)
    past = [
        DatedLabels(t.truth, {n: p for n, p in t.predicted.items() if n != "network"})
        for t in earlier
    ]
    blend = choose(REGRESSION, val.truth, val.predicted, earlier=past, quick=["a", "b"])
    assert set(blend.weights) == {"a", "b", "network"}
    assert sum(blend.weights.values()) == pytest.approx(1)
    assert 0.2 < blend.weights["network"] < 0.5
    assert set(blend.backtests) == {"a", "b", "together"}
    noise = 9 * np.random.default_rng(0).normal(size=len(val.truth))
    useless = {**val.predicted, "network": val.truth + noise}
    assert "network" not in choose(REGRESSION, val.truth, useless, earlier=past).weights
    quick = {n: p for n, p in val.predicted.items() if n != "network"}
    together = choose(REGRESSION, val.truth, quick, earlier=past)
    assert together.weights == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.15)
    right = {**val.predicted, "network": val.truth}
    alone = choose(REGRESSION, val.truth, right, earlier=past)
    assert alone.weights == {"network": 1.0}
    assert alone.words == "network answers"
    # How sure it is comes from validation, the only time at which there are all of them.
    assert blend.words.endswith("of samples")
    assert together.words.endswith("of samples of 4 backtests")


def test_how_sure_a_blend_is_is_said_of_the_best_model_alone() -> None:
    """Not of what the models with backtests answer together, of which it is one."""
    rng = np.random.default_rng(0)
    truth, error, left, other = rng.normal(size=(4, 40))
    quick = {"a": truth + error, "b": truth - error + 0.02 * left}
    tests = [DatedLabels(truth, quick)] * 4
    network = truth + 0.01 * (0.9 * left + 0.7 * other)  # errs much as a and b do together
    blend = choose(REGRESSION, truth, {**quick, "network": network}, earlier=tests[:3])
    assert set(blend.weights) == {"a", "b", "network"}
    assert blend.best == "a"
    assert blend.sure == 1.0


def test_errors_of_a_stormy_time_do_not_drown_the_others() -> None:
    """A time at which everybody errs ten times as much counts as much as any other."""
    rng = np.random.default_rng(0)
    tests = []
    for number in range(4):
        storm = 10.0 if number == 0 else 1.0
        truth = storm * rng.normal(size=500)
        good, bad = (0.8, 1.0) if number == 0 else (1.0, 0.5)
        tests.append(DatedLabels(truth, {
            "storms": truth + storm * good * rng.normal(size=500),
            "calm": truth + storm * bad * rng.normal(size=500),
        }))  # fmt: skip
    *earlier, val = tests
    blend = choose(REGRESSION, val.truth, val.predicted, earlier=earlier)
    assert blend.best == "calm"
