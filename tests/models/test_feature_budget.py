"""Features of as many seeds as there is time for: which, and how many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relfrog
from relfrog.models import feature_budget
from relfrog.models.boosting import BoostedTrees
from relfrog.models.feature_budget import make_in_time
from relfrog.models.tree_search import TreeSearch
from relfrog.training.budget import Budget
from relfrog.training.callbacks import Callback
from small_store import QUICK

Make = Callable[[np.ndarray], np.ndarray]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], Make]:
    """Makes features that take some seconds, and more for each seed, of a clock that is not real."""
    now = [0.0]
    monkeypatch.setattr(feature_budget.time, "monotonic", lambda: now[0])

    def maker(fixed: float, each: float) -> Make:
        def make(some: np.ndarray) -> np.ndarray:
            assert (np.diff(some) > 0).all()
            now[0] += fixed + each * len(some)
            return np.column_stack([some, some**2])

        return make

    return maker


@pytest.mark.parametrize("fixed", [0.0, 5.0, 30.0])
@pytest.mark.parametrize("each", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("seconds", [60.0, 200.0, 1e9])
def test_the_time_is_kept_and_used(
    fixed: float, each: float, seconds: float, clock: Callable[[float, float], Make]
) -> None:
    make, count, before = clock(fixed, each), 100_000, 2_000
    rng = np.random.default_rng(0)
    x, some = make_in_time(make, count, seconds, (before, fixed + each * before), rng)
    np.testing.assert_array_equal(x, np.column_stack([some, some**2]))
    assert (np.diff(some) > 0).all()
    took = 2 * fixed + each * len(some) if len(some) < count else fixed + each * count
    probe = 2 * fixed + each * 8_000
    assert took <= max(seconds, probe) * 1.01
    if len(some) < count:  # no more than a seed would have fitted in
        assert took + each >= min(seconds, probe) or len(some) >= 8_000
        assert 2 * fixed + each * (len(some) + 2) > seconds


def test_few_seeds_are_all_used(clock: Callable[[float, float], Make]) -> None:
    _, some = make_in_time(clock(100, 1), 5_000, 0.0, (10, 100.0), np.random.default_rng(0))
    assert len(some) == 5_000


def test_lightgbm_learns_from_the_seeds_there_is_time_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_budget, "FEWEST", 50)
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    real, said = BoostedTrees.fit, []

    def fit(self: Any, folder: Path, budget: Budget, callbacks: Any, *, resume: bool) -> None:
        real(self, folder, Budget(0.0), callbacks, resume=resume)

    class Listen(Callback):
        def on_message(self, text: str) -> None:
            said.append(text)

    real_trial, left = TreeSearch.trial, []

    def trial(search: TreeSearch, settings: Any, own: Budget) -> Any:
        left.append(own.left)
        return real_trial(search, settings, own)

    monkeypatch.setattr(BoostedTrees, "fit", fit)
    monkeypatch.setattr(TreeSearch, "trial", trial)
    run = relfrog.train(store, "buys", tmp_path / "run", model="lightgbm",
                        settings={**QUICK, "trials": 3}, baselines=False, callbacks=[Listen()])  # fmt: skip
    (words,) = [text for text in said if "there is time for" in text]
    assert f"of {len(run.prepared.seeds('train')):,} training seeds" in words
    assert run.predict().notna().all().all()
    # Whatever the features took, trees of one round would have been for nothing.
    assert left[0] > BoostedTrees.FIRST_SECONDS - 1
