"""Models that are no networks: what they answer, and that their runs are like all others."""

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
from relfrog.datasets.label_history import known_labels
from relfrog.datasets.tasks import load_task
from relfrog.errors import RelFrogWarning, RunError, TaskError, UsageError
from relfrog.kinds import MODELS, TASK_KINDS, models_for
from relfrog.models.boosting import BoostedTrees, QuickBoostedTrees
from relfrog.models.model import Model
from relfrog.models.past_labels import RecentMean
from relfrog.runs.train import RunInterrupted
from relfrog.training.opened_task import OpenedTask
from small_store import HORIZON, TEST, change, copied, fit, truncate, without_sql

KINDS = {
    "buys": "binary_classification", "spends": "regression", "wants": "multiclass_classification",
    "sorts": "multilabel_classification",
}  # fmt: skip
#: Every model with every type of task that it is for.
PAIRS = [
    (t, m)
    for t, kind in KINDS.items()
    for m, one in MODELS.items()
    if one.baseline and kind in one.homes
]
TRIALS = {"trials": 2}


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """A run of each, that tests only look at."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoostedTrees, "ROUNDS", 30)
        return {
            (t, m): relfrog.train(store, t, folder / f"{t}-{m}", model=m, settings=TRIALS)
            for t, m in PAIRS
        }


def test_each_name_has_its_class() -> None:
    for name, model in MODELS.items():
        assert model.name == name
        for kind in model.task_kinds:
            assert issubclass(model.load(kind), Model)
            assert model in models_for(kind)
    assert {kind for model in MODELS.values() for kind in model.task_kinds} == set(TASK_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_a_run_keeps_its_word(task: str, model: str, runs: dict[tuple[str, str], Any]) -> None:
    """Saved and loaded: the same scores and predictions, in the shape of all runs."""
    run = load_run(runs[task, model].folder)
    for split in ("val", "test"):
        for regime in ("frozen", "rolling"):
            again = run.evaluate(split, regime)
            np.testing.assert_equal(again, run.metrics[split][regime])
    frame = run.predict(TEST)
    assert len(frame) == 20
    values = frame.select_dtypes("number")
    assert np.isfinite(values).all(axis=None)
    if KINDS[task] != "regression":
        chances = frame[[c for c in frame if c.startswith("prob")] or ["prediction"]]
        if task != "wants":
            assert ((chances >= 0) & (chances <= 1)).all(axis=None)
        else:
            np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    some = run.predict(TEST, ["P03", "P01"])
    assert some["code"].tolist() == ["P03", "P01"]
    both = frame.set_index("code").loc[["P03", "P01"]].reset_index()
    pd.testing.assert_frame_equal(some, both, check_exact=True)
    assert not len(run.roles())
    assert len(run.history()) == {"recent": 8, "lightgbm": 2}.get(model, 0)


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["frozen", "rolling"])
@pytest.mark.parametrize("task", ["buys", "spends", "sorts"])
def test_answers_from_labels_are_those_of_a_loop(
    task: str, regime: str, store: Path, runs: dict[tuple[str, str], Any]
) -> None:
    dataset = relfrog.open_dataset(store)
    loaded = load_task(dataset, task)
    labels = known_labels(dataset, loaded, dataset.get_db(upto_test_timestamp=False))
    closed = pd.to_datetime(labels[loaded.time_col]) + HORIZON
    seeds = OpenedTask(loaded.dataset, loaded).seeds("test")
    for model in [m for t, m in PAIRS if t == task and m != "lightgbm"]:
        run = runs[task, model]
        found = run.predict_seeds(seeds, TEST if regime == "frozen" else None)
        for i, (row, time) in enumerate(zip(seeds.rows, seeds.times, strict=True)):
            seen = labels[closed <= (TEST if regime == "frozen" else time)]
            own = seen[seen[loaded.entity_col] == row]
            some = own if len(own) and not model.startswith("global") else seen
            if model == "recent" and len(own):
                some = own.iloc[-run.model.last :] if run.model.last else own
            values = np.array([np.asarray(v, float) for v in some[loaded.target_col]])
            middle = np.median if "median" in model else np.mean
            np.testing.assert_allclose(found[i], middle(values, axis=0), rtol=1e-9)


@pytest.mark.slow
def test_recent_takes_the_number_that_validates_best(
    store: Path, runs: dict[tuple[str, str], Any]
) -> None:
    run = runs["spends", "recent"]
    tried = run.history()
    assert tried["last"].tolist()[:-1] == list(RecentMean.TRIED[:-1])
    scores = [entry["mae"] for entry in tried["val"]]
    best = RecentMean.TRIED[int(np.argmin(scores))]
    assert run.model.last == best
    assert run.metrics["val"]["rolling"]["mae"] == pytest.approx(min(scores))


@pytest.mark.slow
def test_later_rows_change_nothing(store: Path, tmp_path: Path) -> None:
    """Removed or not, what comes after the time of a prediction has no part in it."""
    copy = copied(store, tmp_path)
    models = ["mean", "recent", "lightgbm"]
    runs = {m: fit(copy, tmp_path / m, "buys", model=m, trials=1) for m in models}
    before = {m: run.predict(TEST) for m, run in runs.items()}
    frozen = {m: run.metrics["val"]["frozen"] for m, run in runs.items()}
    change(copy, "orders", lambda f: f.assign(amount=f["amount"].where(f["ordered_at"] <= TEST, 9)))
    for model in models:
        pd.testing.assert_frame_equal(load_run(runs[model].folder).predict(TEST), before[model])
        assert load_run(runs[model].folder).evaluate("val", "frozen") == frozen[model]
    truncate(copy, TEST)
    for model in models:
        again = load_run(runs[model].folder).predict(TEST)
        pd.testing.assert_frame_equal(again, before[model], check_exact=True)


@pytest.mark.slow
def test_before_any_label(runs: dict[tuple[str, str], Any]) -> None:
    """Nobody has a history: the mean of the training labels."""
    for (task, model), run in runs.items():
        frame = run.predict("2019-12-01")
        assert len(frame)
        assert np.isfinite(frame.select_dtypes("number")).all(axis=None), (task, model)
    mean = runs["buys", "mean"]
    share = mean.about["labels"]["positive"]
    with pytest.warns(RelFrogWarning, match="before the first row"):
        found = mean.predict("2018-01-01", ["P01"])["prediction"]
    expected = mean.postprocessing.apply(np.array([share]))
    np.testing.assert_allclose(found, expected)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trees(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoostedTrees, "ROUNDS", 20)
    texts = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(store, tmp_path / name, "spends", model="lightgbm", trials=2, seed=seed)
        files = sorted((tmp_path / name).glob("lightgbm-*.txt"))
        assert files
        texts.append([path.read_bytes() for path in files])
    assert texts[0] == texts[1] != texts[2]


def test_own_columns_alone(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", "buys", model="lightgbm", features="own", trials=1)
    names = run.model.maker.names
    assert names == ["city", "age", "own age"]
    assert set(run.model.importance()["feature"]) == set(names)


@pytest.mark.slow
def test_awkward_data(store: Path, tmp_path: Path) -> None:
    """An empty child table, columns of NULL alone, labels of one class."""
    copy = copied(store, tmp_path)
    change(copy, "reviews", lambda f: f.iloc[:0])
    keys = copy / "keys" / "reviews.parquet"
    pd.read_parquet(keys).iloc[:0].to_parquet(keys)
    path = copy / "tasks" / "buys" / "manifest.yaml"
    text = path.read_text(encoding="utf-8")
    assert "> 2" in text
    path.write_text(text.replace("> 2", "> -1"), encoding="utf-8")
    for stored in path.parent.glob("*.parquet"):
        stored.unlink()
    change(copy, "people", lambda f: f.assign(age=None, note=None, city="<script>"))
    with pytest.raises(TaskError, match="labels are equal"):
        fit(copy, tmp_path / "run", "buys", model="mean")
    labels = {split: load_task(relfrog.open_dataset(copy), "buys").get_table(split, mask_input_cols=False).df
              for split in ("val", "test")}  # fmt: skip
    path.write_text(text, encoding="utf-8")
    labels["train"] = load_task(relfrog.open_dataset(copy), "buys").get_table("train").df
    without_sql(copy, "buys")
    for split, frame in labels.items():  # one class where it is scored
        frame.to_parquet(path.parent / f"{split}.parquet")
    for model in ("mean", "recent", "lightgbm"):
        run = fit(copy, tmp_path / model, "buys", model=model, trials=1)
        assert np.isnan(run.metrics["test"]["rolling"]["roc_auc"])
        assert run.predict(TEST)["prediction"].between(0, 1).all()


@pytest.mark.slow
def test_what_is_gone_is_named(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(store, tmp_path)
    run = fit(copy, tmp_path / "run", "buys", model="lightgbm", trials=1)
    change(copy, "things", lambda f: f.drop(columns="price"))
    with pytest.raises(RunError, match=r"things\.price is no longer there"):
        load_run(run.folder).predict(TEST)
    change(copy, "things", lambda f: f.assign(price=1.0, colour="red"))
    assert len(load_run(run.folder).predict(TEST)) == 20
    files = list(run.folder.glob("lightgbm-*.txt"))
    assert files
    for file in files:
        file.write_text("nonsense")
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))  # no predictions of before
    with pytest.raises(RunError, match="damaged"):
        load_run(run.folder).predict(TEST)


@pytest.mark.slow
def test_an_interrupted_one_goes_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BoostedTrees, "fit", interrupt)
        with pytest.raises(RunInterrupted, match="--resume"):
            fit(store, tmp_path / "run", "buys", model="lightgbm", trials=1)
    with pytest.raises(RunError, match="has not ended"):
        load_run(tmp_path / "run")
    run = relfrog.train(store, "buys", tmp_path / "run", resume=True)
    whole = fit(store, tmp_path / "whole", "buys", model="lightgbm", trials=1)
    assert run.metrics == whole.metrics


def test_models_that_do_not_fit_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="median is for regression"):
        relfrog.train(store, "buys", tmp_path / "run", model="median")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_roles_say_that_there_are_none(runs: dict[tuple[str, str], Any]) -> None:
    folder = str(runs["buys", "mean"].folder)
    said = CliRunner().invoke(cli, ["roles", folder])
    assert "mean is no network: it has no roles" in said.output
    said = CliRunner().invoke(cli, ["roles", folder, "--json"])
    assert json.loads(said.output) == []


# Beside a network.


@pytest.mark.slow
def test_baselines_stand_beside_a_network(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: dict[tuple[str, str], Any]
) -> None:
    run = fit(store, tmp_path / "run", "spends", epochs=1, baselines=True)
    found = json.loads((run.folder / "baselines.json").read_text(encoding="utf-8"))
    assert set(found) == {"models", "seconds"}
    assert set(found["models"]) == {m for t, m in PAIRS if t == "spends"}
    for model in ("mean", "median", "recent"):
        assert found["models"][model] == runs["spends", model].metrics
    assert run.baselines == found["models"]
    assert "baselines.json" not in {
        path.name for path in fit(store, tmp_path / "none", "spends", epochs=1).folder.iterdir()
    }

    def fail(*_: Any) -> None:
        raise ValueError("no trees today")

    monkeypatch.setattr(QuickBoostedTrees, "fit", fail)
    run = fit(store, tmp_path / "failing", "spends", epochs=1, baselines=True)
    assert "lightgbm" not in run.baselines
    assert "recent" in run.baselines

    def interrupt(*_: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(QuickBoostedTrees, "fit", interrupt)
    run = fit(store, tmp_path / "interrupted", "spends", epochs=1, baselines=True)
    assert run.baselines == {}
    assert load_run(run.folder).metrics["test"]
