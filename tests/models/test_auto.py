"""Several models, and what validation makes of them."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from click.testing import CliRunner

import relfrog
from relfrog import load_run
from relfrog.cli import cli
from relfrog.config import Config
from relfrog.models import auto
from relfrog.models.auto import member_settings
from relfrog.models.boosting import BoostedTrees
from relfrog.runs.agreement import other_seeds
from relfrog.runs.train import RunInterrupted
from relfrog.training.budget import Budget
from relfrog.training.callbacks import Callback
from small_store import QUICK, VAL


@pytest.mark.slow
def test_auto_holds_its_members_and_goes_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    given = {**QUICK, "epochs": 1, "trials": 1}

    def interrupt(*_: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BoostedTrees, "fit", interrupt)
        with pytest.raises(RunInterrupted, match=r"--out \S*auto --resume"):
            relfrog.train(store, "buys", tmp_path / "auto", model="auto", settings=given)
    kept = (tmp_path / "auto/members/recent/run.json").stat().st_mtime_ns
    run = relfrog.train(store, "buys", tmp_path / "auto", resume=True)
    assert (tmp_path / "auto/members/recent/run.json").stat().st_mtime_ns == kept
    assert set(run.blend["members"]) == {"mean", "global-mean", "recent", "lightgbm", "frog"}
    assert sum(run.blend["weights"].values()) == pytest.approx(1)
    scores = {n: m["val"]["rolling"]["roc_auc"] for n, m in run.blend["members"].items()}
    quick = max(score for name, score in scores.items() if name != "frog")
    assert run.metrics["val"]["rolling"]["roc_auc"] >= quick - 1e-9
    assert load_run(run.folder).evaluate("test", "frozen") == run.metrics["test"]["frozen"]
    assert len(run.predict(VAL)) == 20
    said = CliRunner().invoke(cli, ["roles", str(run.folder)]).output
    assert said.startswith("Roles of the member frog")
    assert ("weight in the blend is 0: " in said) == ("frog" not in run.blend["weights"])
    own = load_run(run.folder / "members/frog").roles()
    assert run.roles().equals(own)
    assert len(own)


@pytest.mark.slow
def test_auto_answers_with_the_mean_of_several_networks(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 1)
    given = {**QUICK, "trials": 1, "networks": 3, "channels": 16, "epochs": 4}
    run = relfrog.train(store, "buys", tmp_path / "auto", model="auto", settings=given)
    names = ["frog", "frog-2", "frog-3"]
    assert [name for name in run.blend["members"] if name.startswith("frog")] == names
    weights = run.blend["weights"]
    assert sum(weights.values()) == pytest.approx(1)
    assert len({weights[name] for name in names}) == 1
    seeds, cutoff = run.prepared.seeds("test"), None
    parts = {name: load_run(run.folder / "members" / name) for name in weights}
    assert len({parts[name].config.seed for name in names}) == 3
    mean = sum(weights[name] * one.predict_seeds(seeds, cutoff) for name, one in parts.items())
    assert run.predict_seeds(seeds, cutoff) == pytest.approx(mean, abs=1e-6)
    assert load_run(run.folder).evaluate("test", "rolling") == run.metrics["test"]["rolling"]
    assert [other.folder for other in other_seeds(run, 3)] == [parts[n].folder for n in names]
    assert len(other_seeds(run, 2)) == 2
    report = run.report(tmp_path / "report.html").read_text()
    assert "FROG, seed 2" in report


def test_networks_of_runs_with_neighbouring_seeds_have_other_seeds() -> None:
    seeds = [
        member_settings(name, Config(model="auto", seed=seed)).seed
        for seed in range(9) for name in ("frog", "frog-2", "frog-3")
    ]  # fmt: skip
    assert len(set(seeds)) == len(seeds)
    assert member_settings("frog-2", Config(model="auto", seed=(1 << 62) - 1)).model == "frog"


def test_auto_trains_no_more_networks_than_there_is_time_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 1)
    given = {**QUICK, "trials": 1, "networks": 3, "channels": 16, "epochs": 4}
    # As if each network had taken longer than there is time for.
    real = auto.fit_member

    def fit_member(*args: Any, **options: Any) -> Any:
        model, record = real(*args, **options)
        return model, {**record, "seconds": 1e6}

    monkeypatch.setattr(auto, "fit_member", fit_member)
    run = relfrog.train(store, "buys", tmp_path / "auto", model="auto", settings=given)
    assert "frog" in run.blend["weights"]
    assert "frog-2" not in run.blend["members"]


def test_auto_keeps_to_its_time(store: Path, tmp_path: Path) -> None:
    given = {**QUICK, "minutes": 0.01}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relfrog.training.budget.time.monotonic", iter(range(0, 10**6, 100)).__next__)
        run = relfrog.train(store, "buys", tmp_path / "auto", model="auto", settings=given)
    assert list(run.blend["members"]) == ["mean", "global-mean", "recent"]
    assert list(run.blend["skipped"]) == ["lightgbm", "frog"]


@pytest.mark.slow
def test_auto_leaves_time_for_the_network(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search may use half of what is left, and ends when that is over."""
    ends: dict[str, float] = {}
    real = BoostedTrees.fit

    def fit(self: Any, folder: Path, budget: Budget, callbacks: Any, *, resume: bool) -> None:
        ends["lightgbm"] = budget.until
        real(self, folder, Budget(0.0), callbacks, resume=resume)  # it is over at once

    monkeypatch.setattr(BoostedTrees, "fit", fit)
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    given = {**QUICK, "epochs": 30, "patience": 30, "trials": 5, "minutes": 600.0}
    began = monotonic()

    class Watch(Callback):
        def on_epoch(self, trainer: Any, record: Any) -> None:
            ends.setdefault("frog", monotonic() + trainer.budget.left)
            if record.epoch == 1:
                trainer.budget = Budget(0.0)

    auto = relfrog.train(store, "buys", tmp_path / "auto", model="auto", settings=given,
                         callbacks=[Watch()])  # fmt: skip
    # A tenth of the 600 minutes is for the scores and the report.
    assert 260 * 60 < ends["lightgbm"] - began < 280 * 60
    assert 530 * 60 < ends["frog"] - began < 541 * 60
    assert len(load_run(auto.folder / "members" / "lightgbm").history()) == 1
    assert load_run(auto.folder / "members" / "frog").about["epochs"] == 2


@pytest.mark.slow
def test_auto_takes_finished_runs_over(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**QUICK, "epochs": 1, "trials": 1, "refit": "off"}
    runs = {
        name: relfrog.train(store, "buys", tmp_path / name, model=name, settings=given).folder
        for name in ("frog", "recent")
    }
    other = relfrog.train(store, "buys", tmp_path / "m", model="mean", settings={**given, "lr": 1})
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    auto = relfrog.train(
        store, "buys", tmp_path / "auto", model="auto", settings=given,
        members={**runs, "mean": other.folder, "lightgbm": tmp_path / "nowhere"},
    )  # fmt: skip
    for name, folder in runs.items():
        taken = auto.folder / "members" / name / "run.json"
        assert taken.read_bytes() == (folder / "run.json").read_bytes()
    # Other settings, or nothing there: it trains its own.
    assert load_run(auto.folder / "members" / "mean").config.lr == auto.config.lr != other.config.lr
    assert "lightgbm" in auto.blend["members"]
    assert auto.about["seconds"] >= load_run(runs["frog"]).about["seconds"]
