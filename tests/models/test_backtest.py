"""Backtests: folds that know nothing of their future, and comparisons that do not lie."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from sklearn.metrics import roc_auc_score

from helpers import examples
from relfrog.kinds import TASK_KINDS
from relfrog.models.backtest import (
    FEWEST_LEARNED,
    FEWEST_SCORED,
    LEAST_SHARE,
    MOST_FOLDS,
    Backtests,
    Comparison,
    _roc_auc,
    plan_folds,
)
from relfrog.training.seeds import Seeds

CUT = pd.Timestamp("2020-01-01")


def seeds_at(days: Any) -> Seeds:
    """Seeds that many days after the validation time."""
    times = CUT + pd.to_timedelta(np.asarray(days, float), unit="D")
    return Seeds(np.zeros(len(times), np.int64), pd.Series(times))


@examples(60)
@given(
    st.integers(1, 60), st.integers(1, 30), st.integers(0, 40), st.integers(1, 12),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_fold_learns_from_closed_windows_and_is_scored_on_what_follows(
    times: int, step: int, window: int, val_times: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    each = rng.integers(1, 200, times)
    days = -window - step * np.repeat(np.arange(times), each)
    train = seeds_at(rng.permutation(days))
    val = seeds_at(np.repeat(step * np.arange(val_times), 30))
    folds = plan_folds(train, val, pd.Timedelta(days=window), CUT)
    assert 1 <= len(folds) <= MOST_FOLDS + 1
    *earlier, last = folds
    assert last.cut == CUT
    assert (last.learned == np.arange(len(train))).all()
    assert (last.scored == len(train) + np.arange(len(val))).all()
    when = train.times
    span = val.times.max() - CUT
    for fold in earlier:
        closed = when[fold.learned] + np.timedelta64(window, "D")
        assert (closed <= fold.cut).all()
        assert (when[fold.scored] >= fold.cut).all()
        assert (when[fold.scored] <= fold.cut + span).all()
        assert len(fold.learned) >= max(FEWEST_LEARNED, LEAST_SHARE * len(train))
        assert len(fold.scored) >= FEWEST_SCORED
        assert not np.intersect1d(fold.learned, fold.scored).size
        # Nothing is left out of either.
        before = (when + np.timedelta64(window, "D") <= fold.cut) & (when < fold.cut)
        assert len(fold.learned) == before.sum()
    for one, after in pairwise(folds):
        assert one.cut + span < after.cut  # no seed is scored twice


def test_few_times_make_few_folds() -> None:
    window = pd.Timedelta(days=30)
    val = seeds_at([0.0] * 100)
    assert len(plan_folds(seeds_at([-30.0] * 1000), val, window, CUT)) == 1
    two = seeds_at([-30.0] * 300 + [-60.0] * 300)
    assert [len(fold.learned) for fold in plan_folds(two, val, window, CUT)] == [300, 600]
    assert len(plan_folds(two, val, window, CUT, most=0)) == 1
    many = seeds_at(np.repeat(-30.0 * np.arange(1, 20), 100))
    assert len(plan_folds(many, val, window, CUT)) == MOST_FOLDS + 1
    assert len(plan_folds(many, seeds_at([]), window, CUT)[-1].scored) == 0


@examples(50)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=30))
def test_the_quick_auc_is_that_of_sklearn(rows: list[tuple[bool, int]]) -> None:
    truth, values = np.array([r[0] for r in rows]), np.array([r[1] for r in rows], float)
    if truth.all() or not truth.any():
        assert np.isnan(_roc_auc(truth, values))
    else:
        assert _roc_auc(truth, values) == pytest.approx(roc_auc_score(truth, values))


@pytest.mark.parametrize("kind", ["regression", "binary_classification"])
def test_a_better_model_is_surely_better_and_an_equal_one_is_not(kind: str) -> None:
    rng = np.random.default_rng(0)
    signal = [rng.normal(size=300) for _ in range(3)]
    truth = signal if kind == "regression" else [(part > 0).astype(float) for part in signal]
    good = [part + 0.3 * rng.normal(size=300) for part in signal]
    bad = [part + 3.0 * rng.normal(size=300) for part in signal]
    tests = Backtests(TASK_KINDS[kind], truth)
    better, worse = tests.compare(good, bad), tests.compare(bad, good)
    assert better.gain > 0 > worse.gain
    assert (better.sure, better.won, better.folds) == (1.0, 3, 3)
    assert (worse.sure, worse.won) == (0.0, 0)
    same = tests.compare(good, good)
    assert (same.gain, same.sure, same.won) == (0.0, 0.5, 0)


def test_folds_with_one_class_count_for_nothing() -> None:
    kind = TASK_KINDS["binary_classification"]
    truth = [np.zeros(80), np.tile([0.0, 1.0], 40)]
    right = [np.zeros(80), np.tile([0.0, 1.0], 40)]
    wrong = [np.zeros(80), np.tile([1.0, 0.0], 40)]
    found = Backtests(kind, truth).compare(right, wrong)
    assert found.gain == 1.0
    assert found.sure == 1.0
    assert np.isnan(Backtests(kind, truth[:1]).mean([float("nan")]))


def test_how_sure_in_words() -> None:
    assert Comparison(0.1, 0.97, 4, 4).words == "almost surely; better in 4 of 4 backtests"
    assert Comparison(0.1, 0.7, 2, 4).words == "perhaps; better in 2 of 4 backtests"
    assert Comparison(-0.1, 0.2, 1, 4).words == "probably not; better in 1 of 4 backtests"
    assert Comparison(0.0, 0.5, 0, 1).words == "as likely as not"
    assert Comparison(0.0, 0.9, 1, 1).words == "probably; better in the one backtest"
