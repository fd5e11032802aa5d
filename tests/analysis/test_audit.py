"""Audits: honest predictions pass, leaking ones do not, and files of both forms are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relfrog
from helpers import inside
from relfrog.analysis.audit import Audit, audit
from relfrog.analysis.audit.signs import beyond_the_past, copied, spike
from relfrog.datasets.entities import key_frame
from relfrog.errors import DatasetError, TaskError
from relfrog.training.opened_task import OpenedTask, open_task
from relfrog.training.seeds import Seeds


def predictions(opened: OpenedTask, values: Any, split: str = "test") -> pd.DataFrame:
    """A table of predictions for the seeds of a split, with the keys of the source."""
    seeds, table = opened.seeds(split), opened.task.entity_table
    pkey = opened.dataset.manifest.tables[table].pkey
    keys = key_frame(opened.dataset.dataset_dir, table, pkey, seeds.rows)
    return keys.assign(time=seeds.times, prediction=values)


def levels(found: Audit) -> set[tuple[str, str]]:
    return {(finding.level, finding.place) for finding in found.report.findings}


@pytest.fixture(scope="module")
def buys(shop: Path) -> OpenedTask:
    return open_task(shop, "buys")


@pytest.fixture(scope="module")
def noise(buys: OpenedTask) -> np.ndarray:
    return np.random.default_rng(0).random(len(buys.seeds("test")))


@pytest.mark.slow
def test_predictions_without_a_leak_pass(buys: OpenedTask, noise: np.ndarray, shop: Path) -> None:
    found = audit(predictions(buys, noise), shop, "buys")
    assert found.ok
    assert not found.report.findings
    assert found.predictions == found.numbers["seeds"]["predicted"] == len(noise)
    assert found.metrics["roc_auc"] == pytest.approx(found.numbers["score"]["value"], abs=1e-4)


@pytest.mark.slow
def test_labels_are_found_out(buys: OpenedTask, noise: np.ndarray, shop: Path) -> None:
    labels = np.asarray(buys.seeds("test").labels, float)
    found = audit(predictions(buys, labels + 1e-3 * noise), shop, "buys")
    assert ("error", "score") in levels(found)
    mixed = audit(predictions(buys, 0.6 * labels + noise), shop, "buys")
    assert mixed.ok
    assert ("warning", "labels") in levels(mixed)
    assert mixed.numbers["beyond_the_past"]["low"] > 0.2


@pytest.mark.slow
def test_copied_amounts_are_found_out(shop: Path) -> None:
    opened = open_task(shop, "spends")
    labels = np.asarray(opened.seeds("test").labels, float)
    rng = np.random.default_rng(1)
    some = np.where(rng.random(len(labels)) < 0.5, labels, rng.permutation(labels) + 0.5)
    found = audit(predictions(opened, some), shop, "spends")
    assert ("error", "labels") in levels(found)
    assert found.numbers["equal_to_label"]["share"] > 0.3


@pytest.mark.slow
def test_rows_out_of_their_time_and_seeds_that_are_missing(
    buys: OpenedTask, noise: np.ndarray, shop: Path
) -> None:
    frame = predictions(buys, noise)
    early = frame.iloc[:2].assign(time=pd.Timestamp("2000-01-01"))
    found = audit(pd.concat([frame.iloc[5:], frame.iloc[5:7], early]), shop, "buys")
    numbers = found.numbers["seeds"]
    assert (numbers["split"] - numbers["predicted"], numbers["outside"]) == (5, 2)
    assert numbers["repeated"] == 2
    assert found.numbers["not_there_yet"]["entities"] == 2
    assert {("error", "people"), ("error", "seeds"), ("warning", "seeds")} <= levels(found)
    assert not found.ok


@pytest.mark.slow
def test_files_of_the_leaderboard_have_row_numbers(
    buys: OpenedTask, noise: np.ndarray, shop: Path, tmp_path: Path
) -> None:
    seeds, task = buys.seeds("test"), buys.task
    file = tmp_path / "shop__buys.csv"
    columns = {task.entity_col: seeds.rows, task.time_col: seeds.times, task.target_col: noise}
    pd.DataFrame(columns).to_csv(file, index=False)
    theirs = audit(file, shop, "buys")
    assert theirs.metrics == audit(predictions(buys, noise), shop, "buys").metrics


@pytest.mark.slow
@pytest.mark.parametrize("task", ["wants", "sorts"])
def test_predictions_of_several_classes_are_read_as_predict_writes_them(
    task: str, shop: Path, tmp_path: Path
) -> None:
    run = relfrog.train(shop, task, tmp_path / "run", model="recent", quiet=True)
    opened = open_task(shop, task)
    seeds = opened.seeds("test")
    asked = predictions(opened, 0.0)[["code", "time"]]
    made = run.predict(entities=asked)
    found = audit(made, shop, task)
    assert found.numbers["seeds"]["predicted"] == len(seeds)
    name = run.kind.metric
    assert found.metrics[name] == pytest.approx(run.evaluate("test")[name], abs=0.02)


@pytest.mark.slow
def test_lists_are_read_in_both_forms(shop: Path, tmp_path: Path) -> None:
    run = relfrog.train(shop, "list", tmp_path / "run", model="past-visit", quiet=True)
    opened = open_task(shop, "list")
    asked = predictions(opened, 0.0)[["code", "time"]]
    ours = audit(run.predict(entities=asked), shop, "list")
    assert ours.ok
    assert ours.metrics["map"] == pytest.approx(run.evaluate("test")["map"])
    lists = run.predict_seeds(opened.seeds("test"), None)[:, :, 0].astype(int)
    theirs = predictions(opened, [json.dumps(row[row >= 0].tolist()) for row in lists])
    theirs = theirs.rename(columns={"prediction": str(opened.task.target_col)})
    assert audit(theirs, shop, "list").metrics == ours.metrics
    with pytest.raises(TaskError, match="no column with the key of"):
        audit(asked.assign(rank=1), shop, "list")
    with pytest.raises(TaskError, match="no column with the key of people"):
        audit(run.predict(entities=asked).drop(columns="code"), shop, "list")


@pytest.mark.slow
def test_the_command_says_what_it_found(
    buys: OpenedTask, noise: np.ndarray, shop: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    labels = np.asarray(buys.seeds("test").labels, float)
    good, bad = tmp_path / "good.csv", tmp_path / "bad.parquet"
    predictions(buys, noise).to_csv(good, index=False)
    predictions(buys, labels + 1e-3 * noise).to_parquet(bad)
    code, out, err = inside(capfd, "audit", str(good), "--task", str(shop), "buys")
    assert code == 0
    assert "0 errors" in out
    assert "never that there is none" in err
    code, out, _ = inside(capfd, "audit", str(bad), "--task", str(shop), "buys", "--json")
    assert code == 1
    assert json.loads(out)["ok"] is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.assign(prediction="x"), "are no numbers"),
        (lambda f: f.rename(columns={"prediction": "a"}).assign(b=1), "which column"),
        (lambda f: f.drop(columns="time"), "--time COLUMN"),
        (lambda f: f.assign(code="nobody"), "not in table people"),
        (lambda f: f.iloc[:0], "holds no prediction"),
        (lambda f: f.drop(columns="code"), "no column with the key of people"),
        (lambda f: f.assign(time=pd.Timestamp("2020-12-30")), "another --split"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_words(
    change: Any, words: str, buys: OpenedTask, noise: np.ndarray, shop: Path, untrained: None
) -> None:
    with pytest.raises(TaskError, match=words):
        audit(change(predictions(buys, noise)), shop, "buys")


class Trained(Exception):
    """A model was trained."""


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any) -> None:
        raise Trained

    monkeypatch.setattr("relfrog.analysis.audit.audited._quick_models", train)


def test_the_dataset_the_task_and_the_file_are_read_before_a_model_is_trained(
    buys: OpenedTask, noise: np.ndarray, shop: Path, tmp_path: Path, untrained: None
) -> None:
    file = tmp_path / "theirs.parquet"
    file.write_bytes(b"PAR1 is no table PAR1")
    with pytest.raises(DatasetError, match="nowhere"):
        audit(file, tmp_path / "nowhere", "sells")
    with pytest.raises(TaskError, match="sells"):
        audit(file, shop, "sells")
    with pytest.raises(TaskError, match=r"theirs\.parquet.* cannot be read"):
        audit(file, shop, "buys")
    predictions(buys, noise).to_parquet(file, index=False)
    with pytest.raises(Trained):
        audit(file, shop, "buys")


# The signs, on made-up numbers.


def test_a_spike_is_a_label_that_stands_out_among_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    step = pd.Timedelta("1 day")
    rows = np.repeat(np.arange(100), 3)
    times = pd.Series(np.tile(pd.date_range("2020-01-02", periods=3), 100))
    taste = rng.normal(size=100)
    labels: dict[tuple[int, int], float] = {}
    for row in range(100):
        for day in range(5):
            tick = (pd.Timestamp("2020-01-01") + day * step).value // 1000
            labels[row, tick] = taste[row] + rng.normal()
    own = np.array([labels[r, t.value // 1000] for r, t in zip(rows, times, strict=True)])
    seeds = Seeds(rows, times)
    honest, count = spike(taste[rows] + rng.normal(size=300), seeds, labels, step)
    leaking, _ = spike(own + rng.normal(size=300), seeds, labels, step)
    assert count == 300
    assert honest.low < 0 < leaking.low


def test_what_the_past_explains_is_no_sign() -> None:
    rng = np.random.default_rng(0)
    past, surprise = rng.normal(size=(2, 1000))
    truth, entities = past + surprise, np.arange(1000)
    features = past[:, None].astype(np.float32)
    honest = beyond_the_past(features, past, truth, past + rng.normal(size=1000), entities)
    leaking = beyond_the_past(features, past, truth, past + 0.5 * surprise, entities)
    assert honest.low < 0.05
    assert leaking.low > 0.5


def test_only_labels_that_a_constant_does_not_meet_count_as_copied() -> None:
    truth = np.array([0.0, 0.0, 0.0, 3.0, 5.0])
    assert copied(truth, np.zeros(5), np.zeros(5)) == (0.0, 0.0)
    assert copied(truth, np.array([9.0, 9.0, 9.0, 3.0, 4.0]), np.zeros(5)) == (0.5, 0.0)
