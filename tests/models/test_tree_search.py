"""The search for features and settings of boosted trees."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relfrog.kinds import TASK_KINDS, task_kind
from relfrog.models.backtest import Backtests
from relfrog.models.tree_learner import TreeLearner
from relfrog.models.tree_search import FIRST, FoldData, TreeSearch, Trial, common_rounds
from relfrog.training.budget import Budget

FAMILIES = {"useful": np.array([1]), "noise": np.arange(2, 30)}


@pytest.fixture(scope="module")
def search() -> TreeSearch:
    """Labels that a core feature and a useful one explain, beside much noise; two folds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 30)).astype(np.float32)
    y = (x[:, 0] + 1.5 * x[:, 1] + 0.5 * rng.normal(size=1500) > 0).astype(float)
    spans = [(np.arange(600), slice(600, 1000)), (np.arange(1000), slice(1000, 1500))]
    folds = [FoldData(known, known, x[some], y[some, None]) for known, some in spans]
    kind = TASK_KINDS["binary_classification"]
    tests = Backtests(kind, [fold.y[:, 0] for fold in folds])
    return TreeSearch(
        TreeLearner(kind, {"positive": 0.5}, 0), x[:1000], y[:1000, None], folds, tests, [],
        first=FIRST, rounds=60, patience=20,
    )  # fmt: skip


def test_rounds_are_those_that_are_best_on_average() -> None:
    early, late = np.array([3.0, 1.0, 2.0]), np.array([4.0, 3.0, 2.0, 1.0, 1.5])
    assert common_rounds([early], [1]) == 2
    assert common_rounds([early, late], [1, 1000]) == 4
    assert common_rounds([early, late], [1000, 1]) == 2
    assert common_rounds([np.zeros(0)], [5]) == 1


def test_families_that_help_are_kept(search: TreeSearch) -> None:
    said: list[str] = []
    dropped, known = search.drop_families(FAMILIES, [], dict(FIRST), tell=said.append)
    assert "useful" not in dropped
    assert known["useful"].sure == 1.0
    assert known["useful"].won == 2
    assert len(said) == 1
    search.use(np.arange(30))


def test_without_time_the_families_that_must_speak_for_themselves_go(search: TreeSearch) -> None:
    dropped, _ = search.drop_families(FAMILIES, ["noise"], dict(FIRST), Budget(0.0))
    assert dropped == ["noise"]
    search.use(np.arange(30))


def test_no_fold_takes_the_time_of_the_next(
    search: TreeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("relfrog.training.budget.time.monotonic", lambda: float(next(ticks)))
    trial = search.trial(dict(FIRST), Budget(60.0))
    assert trial.models[0].current_iteration() > 10
    assert next(ticks) < 80


def test_models_that_had_no_time_do_not_speak_for_newer_labels(search: TreeSearch) -> None:
    trial = search.trial(dict(FIRST))
    assert search.newer_labels(trial, Budget(time.monotonic() + 1e-3)) is None


def test_models_of_a_trial_have_learned_from_their_past_alone(search: TreeSearch) -> None:
    """Labels of scored seeds decide on the number of rounds, and on nothing else."""
    trial = search.trial(dict(FIRST))
    assert len(trial.predicted) == len(trial.scores) == 2
    assert trial.models[0].best_iteration <= trial.rounds[0]
    data = search.learner.data(search._x, search._y[:, 0], [])
    again, _ = search.learner.train(dict(FIRST), data, rounds=trial.models[0].best_iteration)
    seen = search._folds[-1].x
    np.testing.assert_allclose(search.learner.predict([[again]], seen), trial.predicted[-1])


def test_the_best_together_are_no_worse_than_the_best_alone(search: TreeSearch) -> None:
    rng = np.random.default_rng(1)
    trials = [search.trial(search.settings(number, rng)) for number in range(4)]
    best = search.best(trials)
    scores = [search.tests.mean(trial.scores) for trial in trials]
    assert best[0] == int(np.argmax(scores))
    together = search.tests.mean(search.tests.scores(search.mean_of([trials[n] for n in best])))
    assert together >= max(scores)


def test_what_newer_labels_are_worth(search: TreeSearch) -> None:
    """More labels of the same kind help; one fold says nothing of it."""
    trial = search.trial(dict(FIRST))
    found = search.newer_labels(trial)
    assert found is not None
    assert found.folds == 1
    assert found.sure > 0.5
    alone = TreeSearch(
        search.learner, search._x, search._y, search._folds[-1:],
        Backtests(search.tests.kind, search.tests.truth[-1:]), [], first=FIRST, rounds=9,
        patience=9,
    )  # fmt: skip
    assert alone.newer_labels(trial) is None


def test_newer_labels_are_all_that_older_models_lack(
    search: TreeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many labels each fold learns from some: those of the older models are among them."""
    known, some = np.arange(1000), np.arange(0, 1000, 2)
    last = replace(search._folds[1], known=known, learned=some)
    first = replace(search._folds[0], learned=np.arange(0, 600, 3))
    whole = TreeSearch(
        search.learner, search._x, search._y, [first, last], search.tests, [], first=FIRST,
        rounds=9, patience=9,
    )  # fmt: skip
    trial = whole.trial(dict(FIRST))
    learned: list[NDArray[np.int64]] = []

    def older(search: TreeSearch, *_: Any) -> Trial:
        learned.append(search.learned)
        return replace(trial, predicted=trial.predicted[1:])

    monkeypatch.setattr(TreeSearch, "trial", older)
    whole.newer_labels(trial)
    np.testing.assert_array_equal(learned[0], np.arange(0, 600, 2))


@pytest.mark.parametrize("objective", ["poisson", "tweedie"])
def test_amounts_that_are_all_zero_by_then_do_not_stop_the_search(objective: str) -> None:
    """Before the first event of a kind, every label of a backtest is zero: LightGBM refuses them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    y = np.where(np.arange(400) < 200, 0.0, rng.poisson(2, 400))
    spans = [(np.arange(200), slice(200, 300)), (np.arange(300), slice(300, 400))]
    folds = [FoldData(known, known, x[some], y[some, None]) for known, some in spans]
    kind = task_kind("regression", objective)
    about = {"low": 0.0, "high": 9.0, "scale": 1.0, "loss": objective}
    search = TreeSearch(
        TreeLearner(kind, about, 0), x[:300], y[:300, None], folds,
        Backtests(kind, [fold.y[:, 0] for fold in folds]), [], first=FIRST, rounds=9, patience=9,
    )  # fmt: skip
    trial = search.trial(search.settings(0, rng))
    assert (trial.predicted[0] == 0).all()
    assert trial.predicted[1].mean() > 0.1
