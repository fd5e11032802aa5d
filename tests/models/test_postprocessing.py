"""Calibration, decision thresholds and prediction intervals: laws on synthetic models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax
from scipy.stats import binom
from sklearn.metrics import f1_score, log_loss, roc_auc_score

from relfrog import load_run
from relfrog.config import Config
from relfrog.datasets.metrics import calibration_error, compute_metrics
from relfrog.errors import RunError, UsageError
from relfrog.kinds import parse_threshold
from relfrog.models.postprocessing.bundle import (
    FILE,
    Postprocessing,
    fit_postprocessing,
    load_postprocessing,
)
from relfrog.models.postprocessing.calibrators import fit_isotonic, fit_platt
from relfrog.models.postprocessing.choice import FOLDS, choose_calibrator, folds
from relfrog.models.postprocessing.intervals import choose_interval
from relfrog.models.postprocessing.thresholds import choose_threshold
from small_store import copied, fit, without_sql

BINARY, SEVERAL, LABELS = (
    f"{name}_classification" for name in ("binary", "multiclass", "multilabel")
)


def miscalibrated(
    seed: int, count: int, slope: float = 3.0, shift: float = -2.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels, and probabilities of a model that is too sure and too low."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=count)
    return (rng.random(count) < expit(score)).astype(int), expit(slope * score + shift)


# Calibration.


@pytest.mark.parametrize("count", [200, 5000])
@pytest.mark.parametrize(("slope", "shift"), [(3.0, -2.0), (0.3, 1.0), (1.0, 2.0)])
def test_a_miscalibrated_model_has_a_lower_log_loss_on_new_labels(
    count: int, slope: float, shift: float
) -> None:
    truth, raw = miscalibrated(0, count, slope, shift)
    fitted = fit_postprocessing(BINARY, truth, raw, np.arange(count), Config())
    later, raw_later = miscalibrated(1, 20_000, slope, shift)
    better = fitted.apply(raw_later)
    assert log_loss(later, better) < log_loss(later, raw_later)
    assert calibration_error(later, better) < calibration_error(later, raw_later) / 2
    expected = "isotonic" if count > 500 and fitted.calibration else "platt"
    assert fitted.evidence["calibration"]["chosen"] in {"platt", expected}


def test_a_curve_that_no_logistic_curve_fits_is_isotonic() -> None:
    rng = np.random.default_rng(0)
    raw = rng.random(6000)
    truth = (rng.random(6000) < np.where(raw < 0.5, 0.1, np.where(raw < 0.9, 0.15, 0.9))).astype(
        int
    )
    found, evidence = choose_calibrator(BINARY, truth, raw, np.arange(6000))
    assert evidence["chosen"] == "isotonic"
    assert found is not None
    assert evidence["log_loss"]["isotonic"] < evidence["log_loss"]["platt"]


def test_a_calibrated_model_is_left_nearly_as_it_is() -> None:
    truth, raw = miscalibrated(3, 4000, 1.0, 0.0)
    fitted = fit_postprocessing(BINARY, truth, raw, np.arange(4000), Config())
    later, raw_later = miscalibrated(4, 20_000, 1.0, 0.0)
    assert log_loss(later, fitted.apply(raw_later)) < log_loss(later, raw_later) + 1e-3


def test_noise_is_not_calibrated() -> None:
    """On labels that a curve cannot help with, raw probabilities stay."""
    kept = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = (rng.random(60) < 0.5).astype(int)
        found, evidence = choose_calibrator(BINARY, truth, np.full(60, truth.mean()), np.arange(60))
        kept += found is None
        if found is not None:
            assert evidence["log_loss"][evidence["chosen"]] < evidence["log_loss"]["none"]
    assert kept >= 15


def test_few_labels_say_why_nothing_is_calibrated() -> None:
    for truth in (np.zeros(500, int), np.r_[np.ones(3, int), np.zeros(500, int)], np.zeros(0, int)):
        found, evidence = choose_calibrator(BINARY, truth, np.full(len(truth), 0.2), truth)
        assert found is None
        assert "too few" in evidence["reason"]
    truth, raw = miscalibrated(0, 200)
    found, evidence = choose_calibrator(BINARY, truth, raw, np.arange(200) % (FOLDS - 1))
    assert found is None
    assert "entities" in evidence["reason"]


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
@given(seed=st.integers(0, 10_000), shift=st.floats(-4, 4), slope=st.floats(0.2, 4))
@example(seed=1377, shift=-3.125, slope=0.25)  # steep, and far to the right
def test_order_is_kept_without_new_ties(fit: Any, seed: int, shift: float, slope: float) -> None:
    truth, raw = miscalibrated(seed, 400, slope, shift)
    fitted = fit(raw.astype(np.float32), truth)
    below = np.nextafter(np.float32(1), np.float32(0))
    values = np.unique(
        np.r_[raw, 0, below, 1, np.random.default_rng(seed).random(300)].astype(np.float32)
    )
    found = fitted.apply(values)
    assert (np.diff(found) > 0).all()
    assert found.min() > 0
    assert found.max() < 1
    if 0 < truth.sum() < len(truth):
        some = raw.astype(np.float32)
        assert roc_auc_score(truth, fitted.apply(some)) == roc_auc_score(truth, some)


def test_several_classes_get_a_temperature_that_keeps_the_likeliest() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 4))
    truth = np.array([rng.choice(4, p=p) for p in softmax(logits, axis=1)])
    raw = softmax(3 * logits, axis=1)
    truth[:5] = -100  # classes that training did not have
    fitted = fit_postprocessing(SEVERAL, truth, raw, np.arange(3000), Config())
    found = fitted.apply(raw)
    assert fitted.calibration.temperature == pytest.approx(3, rel=0.1)  # type: ignore[union-attr]
    assert (found.argmax(1) == raw.argmax(1)).all()
    assert found.sum(1) == pytest.approx(1)
    assert fitted.thresholds == []


def test_several_labels_have_curves_of_their_own_where_labels_are_enough() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(size=(2000, 3))
    truth = (rng.random((2000, 3)) < expit(score)).astype(int)
    truth[:, 2] = 0
    truth[:4, 2] = 1  # too rare
    raw = expit(score * [1, 3, 1] + [2, 0, 2])
    lists = np.empty(2000, object)
    lists[:] = list(truth)
    fitted = fit_postprocessing(LABELS, lists, raw, np.arange(2000), Config())
    assert fitted.evidence["calibration"]["chosen"] == "per label"
    assert fitted.evidence["threshold"]["shared"] == 1
    assert len(fitted.thresholds) == 3
    found = fitted.apply(raw)
    for number in range(2):
        one, other = found[:, number], raw[:, number]
        assert log_loss(truth[:, number], one) < log_loss(truth[:, number], other)
        assert roc_auc_score(truth[:, number], one) == roc_auc_score(truth[:, number], other)
    assert set(fitted.columns(found)) == {"decision_0", "decision_1", "decision_2"}


def test_folds_keep_entities_together() -> None:
    groups = np.random.default_rng(0).integers(0, 40, 300)
    seen = []
    for rest, part in folds(groups, 0):
        assert not set(groups[rest]) & set(groups[part])
        assert len(rest) + len(part) == 300
        seen.extend(part)
    assert sorted(seen) == list(range(300))


# Kept in the run folder.


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    truth, raw = miscalibrated(0, 3000)
    value = np.random.default_rng(0).normal(size=500)
    cases: list[tuple[str, Any, Any]] = [(BINARY, truth, raw), ("regression", value * 2, value)]
    for kind, labels, predicted in cases:
        made = fit_postprocessing(kind, labels, predicted, np.arange(len(labels)), Config())
        made.save(tmp_path)
        again = load_postprocessing(tmp_path, {})
        assert again == made
        assert (again.apply(predicted) == made.apply(predicted)).all()


@pytest.mark.parametrize(
    "content",
    [
        {"calibration": {"type": "platt", "slope": -1, "shift": 0}},
        {"calibration": {"type": "platt", "slope": "__import__('os')", "shift": 0}},
        {"calibration": {"type": "isotonic", "raw": [0, 1], "calibrated": [1, 0]}},
        {"calibration": {"type": "isotonic", "raw": [0], "calibrated": [0]}},
        {"calibration": {"type": "temperature", "temperature": 2}},
        {"thresholds": [0.1, 0.2]},
        {"interval": {"share": 2, "down": 1, "up": 1}},
        {"other": 1},
        [],
    ],
)
def test_a_damaged_file_is_refused(content: Any, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(RunError, match="damaged"):
        load_postprocessing(tmp_path, {"positive": 0.5})


# Thresholds.


def slow_threshold(truth: NDArray[Any], predicted: NDArray[Any], text: str) -> float:
    """The best loss of all decisions that a threshold can make."""
    rule = parse_threshold(text)
    return min(
        slow_loss(truth, predicted >= at, rule.kind, rule.value)
        for at in [*predicted.tolist(), 2.0]
    )


def slow_loss(truth: NDArray[Any], chosen: NDArray[Any], kind: str, value: float) -> float:
    if kind == "f1":
        return -float(f1_score(truth, chosen, zero_division=0))
    if kind == "cost":
        return float(value * (truth & ~chosen).sum() + (~truth & chosen).sum())
    return float(abs(chosen.mean() - value))


@given(
    rows=st.lists(st.tuples(st.booleans(), st.integers(0, 12)), min_size=1, max_size=40),
    text=st.sampled_from(["f1", "cost:5", "cost:0.2", "cost:1", "top:10%", "top:50%"]),
)
def test_the_threshold_is_as_good_as_any(rows: list[tuple[bool, int]], text: str) -> None:
    truth = np.array([row[0] for row in rows])
    predicted = np.array([row[1] for row in rows]) / 12
    at, problem = choose_threshold(truth, predicted, parse_threshold(text))
    rule = parse_threshold(text)
    if problem:
        assert not truth.any()
        assert at == 0.5
        return
    made = slow_loss(truth, predicted >= at, rule.kind, rule.value)
    assert made == pytest.approx(slow_threshold(truth, predicted, text))


@pytest.mark.parametrize("text", ["", "f2", "cost:", "cost:0", "cost:-1", "top:0%", "top:200%",
                                  "1.5", "-0.1", "cost:5%", "nan"])  # fmt: skip
def test_other_rules_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="threshold must be"):
        Config(threshold=text)


def test_a_threshold_can_be_a_number() -> None:
    truth, raw = miscalibrated(0, 300)
    config = Config(threshold="0.3", calibration="none")
    fitted = fit_postprocessing(BINARY, truth, raw, np.arange(300), config)
    assert fitted.thresholds == [0.3]
    assert (fitted.columns(raw)["decision"] == (raw >= 0.3)).all()
    metrics = fitted.metrics(BINARY, truth, raw, None)
    assert metrics["f1"] == f1_score(truth, raw >= 0.3)


def test_f1_is_not_zero_where_positives_are_rare() -> None:
    """At 0.5 nobody would be chosen; the threshold of validation chooses some."""
    truth, raw = miscalibrated(0, 3000, 1.0, -4.0)
    fitted = fit_postprocessing(BINARY, truth, raw, np.arange(3000), Config(calibration="none"))
    later, raw_later = miscalibrated(1, 3000, 1.0, -4.0)
    assert compute_metrics(BINARY, later, raw_later)["f1"] < 0.1
    assert fitted.metrics(BINARY, later, raw_later, None)["f1"] > 0.4


# Intervals.


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("shape", ["normal", "skewed", "growing"])
@pytest.mark.parametrize("count", [60, 1000])
def test_intervals_cover_what_they_promise(share: float, shape: str, count: int) -> None:
    """On exchangeable data, within binomial bounds, over many repetitions."""
    covered = total = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        value = rng.gamma(2, 3, size=count + 200)
        noise = {"normal": rng.normal(size=len(value)), "skewed": rng.gamma(1, 2, len(value)) - 1,
                 "growing": value * rng.normal(size=len(value))}[shape]  # fmt: skip
        truth = value + noise
        found, _ = choose_interval(truth[:count], value[:count], np.arange(count), share)
        assert found is not None
        low, high = found.bounds(value[count:])
        assert (low <= value[count:]).all()
        assert (value[count:] <= high).all()
        covered += int(((low <= truth[count:]) & (truth[count:] <= high)).sum())
        total += 200
    # Coverage of a fitted interval varies with its own n labels as well: Beta(k, n + 1 - k).
    spread = np.sqrt(share * (1 - share) * (1 / total + 1 / (40 * count)))
    assert abs(covered / total - share) < 4 * spread + 1 / count + 0.004
    assert binom.cdf(covered, total, share - 0.03) > 1e-6


def test_intervals_grow_with_the_prediction_where_errors_do() -> None:
    rng = np.random.default_rng(0)
    value = rng.gamma(2, 3, size=2000)
    truth = value * (1 + 0.3 * rng.normal(size=2000))
    found, evidence = choose_interval(truth, value, np.arange(2000), 0.8)
    assert found is not None
    assert evidence["chosen"].startswith("scaled")
    assert found.factor > 0


def test_counts_are_never_predicted_to_be_negative() -> None:
    rng = np.random.default_rng(0)
    value = rng.gamma(1, 1, size=400)
    truth = rng.poisson(value).astype(float)
    fitted = fit_postprocessing("regression", truth, value, np.arange(400), Config(), floor=0.0)
    columns = fitted.columns(value)
    assert columns["low"].min() == 0
    assert (columns["low"] <= value).all()
    assert (value <= columns["high"]).all()
    metrics = fitted.metrics("regression", truth, value, 1.0)
    assert metrics["coverage"] >= 0.8
    assert metrics["interval_width"] == pytest.approx((columns["high"] - columns["low"]).mean())


def test_an_interval_from_three_labels_is_not_promised() -> None:
    found, evidence = choose_interval(np.arange(3), np.arange(3), np.arange(3), 0.8)
    assert found is None
    assert "too few" in evidence["reason"]
    nothing = fit_postprocessing(
        "regression", np.arange(9.0), np.arange(9.0), np.arange(9), Config(interval=0.0)
    )
    assert nothing == Postprocessing()


def test_the_calibration_error_is_the_mean_distance() -> None:
    truth = np.r_[np.zeros(50), np.ones(50)].astype(int)
    assert calibration_error(truth, np.full(100, 0.5)) == 0
    assert calibration_error(truth, np.full(100, 0.9)) == pytest.approx(0.4)
    assert calibration_error(truth, truth.astype(float)) == 0
    assert calibration_error(truth, expit(logit(np.full(100, 0.3)))) == pytest.approx(0.2)


# In runs.


def test_a_blend_is_calibrated_once_after_its_members_are_combined(
    store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "auto", model="auto", epochs=1, trials=1, minutes=0.01)
    seeds, _, found = run.answers("test", "rolling")
    blend = run.blend["weights"]
    raw = sum(
        weight * run.model.members[name].predict(seeds, None) for name, weight in blend.items()
    )
    assert (run.answers("test", "rolling", raw=True)[2] == raw).all()
    assert (found == run.postprocessing.apply(raw)).all()
    again = load_run(run.folder)
    assert (again.answers("test", "rolling")[2] == found).all()
    assert again.evaluate("test") == run.metrics["test"]["rolling"]


@pytest.mark.parametrize("task", ["buys", "spends", "sorts", "wants"])
def test_test_labels_play_no_part(task: str, store: Path, tmp_path: Path) -> None:
    other = copied(store, tmp_path)
    without_sql(other, task)
    first = fit(other, tmp_path / "first", task, model="mean")
    path = other / "tasks" / task / "test.parquet"
    frame = pd.read_parquet(path)
    label = first.prepared.task.target_col
    frame.assign(**{label: frame[label].to_numpy()[::-1]}).to_parquet(path)
    second = fit(other, tmp_path / "second", task, model="mean")
    assert second.postprocessing == first.postprocessing
    assert second.metrics["val"] == first.metrics["val"]
    assert second.metrics["test"] != first.metrics["test"]


def test_a_run_whose_calibration_is_gone_is_not_opened_without_it(
    store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "run", model="mean")
    (run.folder / FILE).unlink()
    with pytest.raises(RunError, match=FILE):
        load_run(run.folder).predict()
