"""What models would have predicted before validation: what blends and refits are chosen by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relfrog
from relfrog.config import Config
from relfrog.datasets.tasks import load_task
from relfrog.errors import RunError
from relfrog.kinds import MODELS
from relfrog.models import backtest, tree_search
from relfrog.models.aggregates.features import FeatureMaker
from relfrog.models.backtest import Backtests, Comparison, known_by
from relfrog.models.boosting import BoostedTrees
from relfrog.models.out_of_time import FILE, Foretold, aligned, earlier_folds
from relfrog.models.past_labels import PastModel
from relfrog.training.budget import Budget
from relfrog.training.opened_task import OpenedTask
from small_store import fit


@pytest.fixture(autouse=True)
def _few_labels_make_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "FEWEST_LEARNED", 40)
    monkeypatch.setattr(backtest, "FEWEST_SCORED", 20)
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)


def opened(store: Path, task: str) -> OpenedTask:
    dataset = relfrog.open_dataset(store)
    return OpenedTask(dataset, load_task(dataset, task))


@pytest.mark.parametrize("regime", ["rolling", "frozen"])
@pytest.mark.parametrize(
    ("task", "name"),
    [("spends", "mean"), ("spends", "median"), ("spends", "recent"), ("wants", "mean"),
     ("sorts", "recent"), ("buys", "global-mean")],
)  # fmt: skip
def test_statistics_of_labels_are_those_of_the_time(
    task: str, name: str, regime: str, store: Path, tmp_path: Path
) -> None:
    """Each seed sees the labels that it would see if it were asked about."""
    ready = opened(store, task).prepare(Config(model=name, regime=regime), encode=False)
    train = ready.train_seeds
    assert train is not None
    made: Any = MODELS[name].load(ready.kind)
    model: PastModel = made(ready, ready.describe_labels(train))
    model.fit(tmp_path)
    folds = earlier_folds(ready)
    assert len(folds) >= 2
    for fold, found in zip(folds, model.foretell(folds), strict=True):
        asked = train.take(fold.scored)
        cutoff = fold.cut if regime == "frozen" else None
        np.testing.assert_array_equal(found, model.predict(asked, cutoff))


def test_before_any_label_is_known_only_labels_of_the_fold_count(
    store: Path, tmp_path: Path
) -> None:
    ready = opened(store, "spends").prepare(Config(model="mean"), encode=False)
    train = ready.train_seeds
    assert train is not None
    made: Any = MODELS["mean"].load(ready.kind)
    model: PastModel = made(ready, ready.describe_labels(train))
    model.fit(tmp_path)
    model.past.values, model.past.in_time = model.past.values[:0], model.past.in_time[:0]
    model.past._places = model.past._places[:0]
    model.past._ends = model.past._ends[:0]
    folds = earlier_folds(ready)
    for fold, found in zip(folds, model.foretell(folds), strict=True):
        known = np.asarray(train.labels, float)[fold.learned]
        assert found == pytest.approx(np.full(len(fold.scored), known.mean()))


def test_a_window_that_closes_later_is_not_known(store: Path) -> None:
    task = opened(store, "buys")
    train = task.seeds("train")
    for cut in np.unique(train.times):
        found = known_by(train, task.task.timedelta, cut)
        known = train.times + task.task.timedelta.to_timedelta64() <= cut
        assert (found == np.flatnonzero(known)).all()
    at_once = known_by(train, pd.Timedelta(0), train.times.max())
    assert (at_once == np.flatnonzero(train.times < train.times.max())).all()


@pytest.mark.parametrize("regime", ["rolling", "frozen"])
def test_trees_leave_what_they_predicted_in_backtests(
    regime: str, store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "run", model="lightgbm", trials=2, refit="off", regime=regime)
    model = run.model
    assert isinstance(model, BoostedTrees)
    again = relfrog.load_run(run.folder).model
    assert isinstance(again, BoostedTrees)
    kept, train = again.foretold, run.prepared.opened.seeds("train")
    assert kept is not None
    assert len(kept.folds) >= 2
    evidence = model.evidence or relfrog.io.read_json(run.folder / "backtests.json")
    assert [str(fold.cut) for fold in kept.folds] == evidence["cuts"][:-1]
    tests = Backtests(model.kind, [model.truth(train.take(f.scored)) for f in kept.folds])
    assert tests.scores(kept.predicted) == pytest.approx(evidence["chosen"][:-1])
    assert again.foretell(kept.folds) is kept.predicted
    assert again.foretell(kept.folds[:-1]) is None
    for fold in kept.folds:
        assert not set(fold.learned.tolist()) & set(fold.scored.tolist())


def test_a_damaged_file_is_refused(store: Path, tmp_path: Path) -> None:
    ready = opened(store, "buys").prepare(Config(model="mean"), encode=False)
    folds = earlier_folds(ready)
    assert Foretold.load(tmp_path, ready) is None
    Foretold(folds, [np.arange(len(fold.scored)) / 7 for fold in folds]).save(tmp_path)
    again = Foretold.load(tmp_path, ready)
    assert again is not None
    assert aligned(again.folds, folds)
    assert all((a.learned == b.learned).all() for a, b in zip(again.folds, folds, strict=True))
    content = bytearray((tmp_path / FILE).read_bytes())
    content[-1] ^= 1
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(RunError, match="cannot be read"):
        Foretold.load(tmp_path, ready)
    far = [backtest.Fold(f.cut, f.learned, f.scored + 10**6) for f in folds]
    Foretold(far, [np.zeros(len(fold.scored)) for fold in folds]).save(tmp_path)
    with pytest.raises(RunError, match="not those of the task"):
        Foretold.load(tmp_path, ready)


def newer(sure: float) -> Any:
    """Backtests that are so sure that newer labels help."""
    return lambda *_: Comparison(0.01, sure, 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("sure", [0.1, 0.9])
def test_a_refit_is_chosen_by_backtests_for_all_members(
    sure: float, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_search.TreeSearch, "newer_labels", newer(sure))
    helps = sure > 0.5
    run = fit(store, tmp_path / "auto", model="auto", trials=1, epochs=2, networks=1)
    members = {
        name: relfrog.load_run(run.folder / "members" / name) for name in run.blend["members"]
    }
    assert {name for name, one in members.items() if one.refitted} == (
        {"lightgbm", "frog"} if helps else set()
    )
    for name in ("lightgbm", "frog"):
        assert (members[name].folder / "chosen").is_dir() == helps
        assert members[name].config.refit == "auto"
    assert run.refitted == (helps and bool({"lightgbm", "frog"} & {*run.blend["weights"]}))
    again = relfrog.load_run(run.folder)
    assert again.evaluate("val") == run.metrics["val"]["rolling"]
    assert again.evaluate("test") == run.metrics["test"]["rolling"]


@pytest.mark.slow
def test_a_network_alone_is_refitted_only_if_it_is_asked_for(store: Path, tmp_path: Path) -> None:
    plain = fit(store, tmp_path / "plain", epochs=1)
    assert plain.config.refit == "auto"
    assert not plain.refitted
    assert not (plain.folder / "chosen").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"epochs": 2, "refit": "on"}, {"model": "lightgbm", "trials": 1, "refit": "auto"}],
    ids=["network", "trees"],
)
def test_a_refit_for_which_there_is_no_time_is_left_out(
    settings: dict[str, Any], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_search.TreeSearch, "newer_labels", newer(0.9))
    monkeypatch.setattr(Budget, "over_in", lambda self, seconds: seconds > 0)
    run = fit(store, tmp_path / "run", **settings)
    assert not run.refitted
    assert not (run.folder / "chosen").exists()
    assert run.metrics_before_refit == run.metrics["test"]
    assert relfrog.load_run(run.folder).evaluate("val") == run.metrics["val"]["rolling"]


def test_backtests_look_at_the_database_as_predictions_do(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if training seeds see an older one."""
    asked: list[tuple[bytes, bytes]] = []
    make = FeatureMaker.make

    def recorded(maker: FeatureMaker, rows: Any, limits: Any, times: Any) -> Any:
        asked.append((np.asarray(rows).tobytes(), np.asarray(limits).tobytes()))
        return make(maker, rows, limits, times)

    monkeypatch.setattr(FeatureMaker, "make", recorded)
    run = fit(store, tmp_path / "run", model="lightgbm", trials=1, refit="off", staleness=1.0)
    model = run.model
    assert isinstance(model, BoostedTrees)
    assert model.foretold is not None
    assert len(model.foretold.folds) >= 2
    for fold in model.foretold.folds:
        part = run.prepared.opened.seeds("train").take(fold.scored)
        assert (part.rows.tobytes(), model.limits(part, None).tobytes()) in asked
