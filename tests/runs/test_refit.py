"""Refitting: what was chosen stays what it was, and what is used has seen all labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import relfrog
from relfrog import load_run
from relfrog.cli import cli
from relfrog.config import Config
from relfrog.datasets.tasks import load_task
from relfrog.errors import UsageError
from relfrog.models.boosting import BoostedTrees
from relfrog.models.rankers import BoostedRanker
from relfrog.runs.train import RunInterrupted
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask
from small_store import END, HORIZON, QUICK, TEST, VAL, change, copied, fit, weights


class Stop(Callback):
    """Ctrl-C after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, trainer: Any, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


SETTINGS: dict[str, Any] = {"epochs": 3, "average": 0.9, "dropout": 0.3}


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, relfrog.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "plain": fit(store, folder / "plain", **SETTINGS),
        "refit": fit(store, folder / "refit", refit=True, **SETTINGS),
    }


def test_all_labels_that_were_known_at_the_test_time_are_learned_from(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = relfrog.open_dataset(store)
    ready = OpenedTask(dataset, load_task(dataset, "buys")).prepare(Config(**QUICK))
    train, val = ready.train_seeds, ready.seeds("val")
    assert train is not None
    for at, windows in ((TEST, 3), (TEST - pd.Timedelta("5 days"), 2)):  # one is still open then
        monkeypatch.setattr(dataset, "test_timestamp", at)
        both = ready.opened.with_validation(train)
        assert len(both) == len(train) + windows * 20
        assert (both.times + HORIZON <= at).all()
    known = val.times + HORIZON <= at
    assert np.array_equal(both.labels[len(train) :], val.labels[known])
    assert np.array_equal(both.rows[: len(train)], train.rows)


@pytest.mark.slow
def test_what_was_chosen_is_what_it_would_be_without(runs: dict[str, relfrog.Run]) -> None:
    plain, refit = runs["plain"], runs["refit"]
    assert weights(refit.folder / "chosen") == weights(plain.folder)
    assert weights(refit.folder) != weights(plain.folder)
    assert refit.metrics["val"] == plain.metrics["val"]
    assert refit.metrics_before_refit == plain.metrics_before_refit == plain.metrics["test"]
    assert refit.about["best_epoch"] == plain.about["best_epoch"]
    assert refit.about["refit"]["epochs"] == plain.about["best_epoch"] + 1
    assert refit.history()["val"].tolist() == plain.history()["val"].tolist()
    assert sorted(path.name for path in (refit.folder / "chosen").iterdir()) == [
        "model.safetensors"
    ]
    assert not (refit.folder / "refit").exists()


@pytest.mark.slow
def test_scores_are_of_the_model_that_may_be_scored(runs: dict[str, relfrog.Run]) -> None:
    run = load_run(runs["refit"].folder)
    for regime in ("frozen", "rolling"):
        assert run.evaluate("val", regime) == runs["plain"].evaluate("val", regime)
        assert run.evaluate("test", regime) == run.metrics["test"][regime]
        assert run.selected.evaluate("test", regime) == runs["plain"].evaluate("test", regime)
    assert not run.predict(TEST).equals(runs["plain"].predict(TEST))
    certified = run.certify(times=1)
    assert certified.evaluate("val") == pytest.approx(run.evaluate("val"), abs=1e-6)
    assert certified.certificate.holds


@pytest.mark.slow
def test_validation_labels_decide_what_is_used_and_later_ones_do_not(
    store: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"refit": True, "epochs": 1}
    run = fit(store, tmp_path / "run", "spends", **given)
    for name, first, last in (("val", VAL, TEST), ("later", TEST, END)):

        def spend(frame: pd.DataFrame, low: Any = first, high: Any = last) -> pd.DataFrame:
            inside = (frame["ordered_at"] > low) & (frame["ordered_at"] <= high)
            return frame.assign(amount=frame["amount"].where(~inside, 100.0))

        changed = copied(store, tmp_path / name)
        change(changed, "orders", spend)
        for stored in (changed / "tasks" / "spends").glob("*.parquet"):
            stored.unlink()  # labels follow from the rows
        other = fit(changed, tmp_path / f"run-{name}", "spends", **given)
        assert weights(other.folder / "chosen") == weights(run.folder / "chosen")
        assert (weights(other.folder) == weights(run.folder)) == (name == "later")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 9, 14, 20])
def test_an_interrupted_one_ends_as_if_nothing_had_happened(
    steps: int, store: Path, tmp_path: Path, runs: dict[str, relfrog.Run]
) -> None:
    out = tmp_path / "parts"
    try:
        fit(store, out, refit=True, callbacks=[Stop(steps)], **SETTINGS)
    except RunInterrupted:
        fit(store, out, refit=True, resume=True, **SETTINGS)
    for part in ("", "chosen"):
        assert weights(out / part) == weights(runs["refit"].folder / part)
    assert (out / "metrics.json").read_bytes() == (
        runs["refit"].folder / "metrics.json"
    ).read_bytes()
    assert not list(out.rglob("*checkpoint*"))


@pytest.mark.slow
def test_with_and_without_history(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", refit=True, history="auto", epochs=1)
    assert set(run.about["candidates"]) == {"history=on", "history=off"}
    alone = fit(store, tmp_path / "alone", refit=True, history=run.config.history, epochs=1)
    assert weights(run.folder) == weights(alone.folder)
    assert weights(run.folder / "chosen") == weights(alone.folder / "chosen")
    assert sorted(p.name for p in run.folder.iterdir() if p.is_dir()) == ["chosen"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["buys", "spends", "wants", "sorts"])
def test_trees_learn_once_more(
    task: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    found = {
        refit: fit(
            store, tmp_path / f"{refit}", task, model="lightgbm", trials=2, refit=refit, epochs=1
        )
        for refit in (False, True)
    }
    plain, run = found[False], load_run(found[True].folder)
    assert run.metrics["val"] == plain.metrics["val"]
    assert run.evaluate("val") == plain.evaluate("val")
    assert run.about["refit"]["before"] == plain.metrics["test"]
    assert run.evaluate("test") == run.metrics["test"]["rolling"]
    assert not run.predict(TEST).equals(plain.predict(TEST))


@pytest.mark.slow
def test_rankers_learn_once_more(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedRanker, "ROUNDS", 20)
    for model in ("lightgbm", "sage"):
        plain, run = (
            fit(shop, tmp_path / f"{model}-{refit}", "list", model=model, refit=refit, epochs=1)
            for refit in (False, True)
        )
        assert run.metrics["val"] == plain.metrics["val"]
        assert run.evaluate("val") == plain.evaluate("val")
        assert run.about["refit"]["before"] == plain.metrics["test"]
        assert run.evaluate("test") == run.metrics["test"]["rolling"]


@pytest.mark.slow
def test_auto_chooses_by_what_validation_may_see(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    plain, run = (
        fit(store, tmp_path / f"{refit}", model="auto", trials=1, refit=refit, epochs=1)
        for refit in (False, True)
    )
    assert run.blend["weights"] == plain.blend["weights"]
    assert run.metrics["val"] == plain.metrics["val"]
    assert run.metrics_before_refit == plain.metrics["test"]
    again = load_run(run.folder)
    assert again.evaluate("test") == run.metrics["test"]["rolling"]
    assert again.evaluate("val") == run.metrics["val"]["rolling"]


def test_what_does_not_learn_is_not_refitted(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mean knows all earlier labels.*leave refit out"):
        fit(store, tmp_path / "run", model="mean", refit=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_says_it(store: Path, tmp_path: Path) -> None:
    given = [f"--set={name}={value}" for name, value in {**QUICK, "refit": True}.items()]
    out = tmp_path / "run"
    call = ["train", str(store), "buys", "--out", str(out), "--model", "frog", "--no-report"]
    result = CliRunner().invoke(cli, [*call, *given])
    assert result.exit_code == 0, result.output
    assert "refit on training and validation labels ..." in result.stderr
    assert "before it learned from validation labels" in result.stdout
    assert json.loads((out / "run.json").read_text())["refit"]["epochs"] > 0
