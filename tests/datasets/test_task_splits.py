"""Splits that fit the question: a task's own, and what is said where none fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import relbench
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import csv_folder
from relfrog import add_task, check, import_database, inspect, load_run, open_dataset, train
from relfrog.cli.data_summaries import inspection, task_summary
from relfrog.datasets.label_events import LabelEvents, label_events
from relfrog.datasets.task_splits import place_windows
from relfrog.datasets.tasks import load_task
from relfrog.errors import TaskError, UsageError
from relfrog.training.opened_task import open_task
from small_store import QUICK
from young_shop import BUYS, TASK, young_shop

DAY = 86_400_000_000


@pytest.fixture(scope="module")
def badly_split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Validation before the first order, and test among the first."""
    folder = tmp_path_factory.mktemp("young")
    return young_shop(folder, val="2019-06-01", test="2020-02-01")


@pytest.fixture
def shop(badly_split: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(badly_split, tmp_path / "ds"))


@pytest.mark.slow
def test_a_task_gets_splits_of_its_own_where_the_datasets_do_not_suit(shop: Path) -> None:
    added = add_task(shop, "buys", BUYS, **TASK)
    assert any("splits of its own, where rows of orders lie" in note for note in added.notes)
    assert added.warnings == ()
    rates = [added.stats[split].label["positive"] for split in ("train", "val", "test")]
    assert max(rates) < 1.5 * min(rates)
    manifest = added.manifest
    assert "2021-06-01" < str(manifest.val_timestamp) < str(manifest.test_timestamp) < "2021-12-31"
    # No training time lies before the first order.
    times = pd.read_parquet(added.folder / "train.parquet")["timestamp"]
    assert times.min() >= pd.Timestamp("2020-01-01")
    assert "note: the dataset's splits do not" in task_summary(str(shop), added)
    assert check(shop, "buys").ok
    assert "buys has splits of its own" in inspection(inspect(shop))


def test_suitable_splits_of_the_dataset_stay(tmp_path: Path) -> None:
    folder = young_shop(tmp_path)
    added = add_task(folder, "buys", BUYS, **TASK)
    assert added.manifest.val_timestamp is None
    task = relbench.load_dataset(folder).load_task("buys", regenerate=True)
    made = task.get_table("test", mask_input_cols=False).df
    assert (made["timestamp"] == open_dataset(folder).test_timestamp).all()


@pytest.mark.slow
@pytest.mark.parametrize("horizon", ["20 days", "100 days"])
def test_relbench_reads_the_labels_of_own_splits(horizon: str, shop: Path) -> None:
    """Also where RelBench would find the horizon longer than the dataset's validation."""
    manifest = yaml.safe_load((shop / "manifest.yaml").read_text())
    manifest |= {"val_timestamp": "2021-10-01", "test_timestamp": "2021-11-15"}
    (shop / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    chosen = {"val": "2021-03-01", "test": "2021-07-01"}
    sql = BUYS.replace("> 0", f"> {int(horizon[:-5]) // 20}")
    added = add_task(shop, "buys", sql, **{**TASK, "horizon": horizon}, **chosen)
    theirs = relbench.load_dataset(shop).load_task("buys")
    ours = load_task(open_dataset(shop), "buys")
    fresh = load_task(open_dataset(shop), "buys", regenerate=True)
    assert str(ours.timedelta) == f"{horizon} 00:00:00"
    assert (ours.dataset.val_timestamp, ours.dataset.test_timestamp) == (
        pd.Timestamp("2021-03-01"), pd.Timestamp("2021-07-01")
    )  # fmt: skip
    for split in ("train", "val", "test"):
        frames = [t.get_table(split, mask_input_cols=False).df for t in (theirs, ours, fresh)]
        for frame in frames[1:]:
            pd.testing.assert_frame_equal(frames[0], frame, check_dtype=False)
        assert len(frames[0]) == added.stats[split].rows
    with pytest.raises(ValueError, match="not regenerable"):
        relbench.load_dataset(shop).load_task("buys", regenerate=True)


@pytest.mark.slow
def test_everything_follows_the_tasks_own_splits(shop: Path, tmp_path: Path) -> None:
    add_task(shop, "buys", BUYS, **TASK, val="2021-03-01", test="2021-07-01")
    val, test = pd.Timestamp("2021-03-01"), pd.Timestamp("2021-07-01")
    opened = open_task(shop, "buys")
    assert (opened.dataset.val_timestamp, opened.dataset.test_timestamp) == (val, test)
    run = train(shop, "buys", tmp_path / "run", settings={**QUICK, "refit": True})
    run = load_run(run.folder)
    prepared = run.prepared
    assert prepared.columns.before == val  # statistics of columns
    assert [prepared.cutoff(split, "frozen") for split in ("val", "test")] == [val, test]
    assert (opened.training_seeds(3).times + opened.task.timedelta <= val).all()
    joined = opened.with_validation(opened.seeds("train"))
    assert (joined.times + opened.task.timedelta <= test).all()
    history = opened.shown(True).table_dict[opened.history].df
    assert val + opened.task.timedelta in set(history["window_end"])
    database = json.loads((run.folder / "database.json").read_text())
    assert (database["val_timestamp"], database["test_timestamp"]) == (str(val), str(test))
    assert (run.prepared.seeds("test").times == test).all()
    assert "2021-03-01" in run.report().read_text()


def test_where_training_begins_is_where_events_begin(tmp_path: Path) -> None:
    folder = young_shop(tmp_path)
    added = add_task(folder, "buys", BUYS, **TASK)
    assert added.manifest.train_from == "2020-01-01 00:00:00"
    assert added.stats["train"].label["positive"] > 0.3
    assert any("training begins at 2020-01-01" in note for note in added.notes)
    # Label history begins there, too.
    opened = open_task(folder, "buys")
    history = opened.shown(True).table_dict[opened.history].df
    assert history["window_end"].min() >= pd.Timestamp("2020-01-21")


def test_the_events_of_labels_are_found_by_leaving_them_out(shop: Path) -> None:
    add_task(shop, "buys", BUYS, **TASK)
    dataset = open_dataset(shop)
    full = dataset.get_db(upto_test_timestamp=False)
    found = label_events(load_task(dataset, "buys"), full)
    assert found.tables == ("orders",)  # though the SQL names people, who have a time as well
    assert found.counts.sum() == 1460
    assert found.within(pd.DatetimeIndex(["2020-01-10"]), pd.Timedelta("5 days")).tolist() == [10]


@pytest.mark.slow
def test_chosen_splits_are_taken_or_refused_in_words(shop: Path) -> None:
    with pytest.raises(UsageError, match="must lie before the test time"):
        add_task(shop, "buys", BUYS, **TASK, val="2021-07-01", test="2021-03-01")
    with pytest.raises(UsageError, match="write a date such as"):
        add_task(shop, "buys", BUYS, **TASK, val="soon")
    with pytest.raises(TaskError, match="all labels are equal in the train split: no row of orde"):
        add_task(shop, "buys", BUYS, **TASK, val="2012-01-01", test="2013-01-01")
    added = add_task(shop, "buys", BUYS, **TASK, val="2020-03-10", test="2021-07-01")
    assert added.manifest.split_reason == "chosen"


@pytest.mark.slow
def test_label_rates_far_apart_are_told(shop: Path) -> None:
    """People order in the second year only, so the first teaches the wrong thing."""
    sql = BUYS.replace("ON o.", "ON o.ordered_at > DATE '2021-02-01' AND o.")
    added = add_task(shop, "late", sql, **TASK, val="2021-03-01", test="2021-07-01")
    (warning,) = [w for w in added.warnings if "far apart" in w]
    assert "positive in train" in warning
    assert "--val TIME" in warning
    assert any("far apart" in f.text for f in check(shop, "late").findings)


@pytest.mark.slow
def test_windows_without_events_are_told(tmp_path: Path) -> None:
    """One day of orders each month, asked about three days ahead."""
    days = pd.date_range("2018-01-31", periods=48, freq="ME")
    address = csv_folder(
        tmp_path / "csv",
        people="person_id,town\n" + "".join(f"{i},t\n" for i in range(30)),
        orders="order_id,person_id,ordered_at\n"
        + "".join(
            f"{30 * i + j},{(j * (i + 3)) % 30},{day:%Y-%m-%d}\n"
            for i, day in enumerate(days)
            for j in range(30)
        ),
    )
    import_database(address, tmp_path / "ds")
    added = add_task(tmp_path / "ds", "buys", BUYS, **{**TASK, "horizon": "3 days"})
    assert any("training times have no row of orders in the 3 days" in w for w in added.warnings)
    assert any("Take a longer --horizon" in w for w in added.warnings)


@pytest.mark.slow
def test_seed_times_asked_for_are_there_or_missed_aloud(tmp_path: Path) -> None:
    folder = young_shop(tmp_path)
    for asked in (2, 5):
        added = add_task(folder, f"t{asked}", BUYS, **TASK, eval_times=asked)
        assert [added.stats[s].seed_times for s in ("val", "test")] == [asked, asked]
        assert added.warnings == ()
    assert "2 of the 5" in added.notes[0] or "3 of the 5" in added.notes[0]
    added = add_task(folder, "t30", BUYS, **TASK, eval_times=30)
    assert any(
        "of the 30 seed times asked for fit into the test split" in w for w in added.warnings
    )


def test_a_dataset_without_times_is_told_so(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", people="person_id,town\n1,a\n2,b\n")
    import_database(address, tmp_path / "ds")
    with pytest.raises(TaskError, match="no table of the dataset has a time column"):
        add_task(tmp_path / "ds", "buys", BUYS, **TASK)


def test_why_there_is_no_label(shop: Path, tmp_path: Path) -> None:
    chosen = {"val": "2021-03-01", "test": "2021-07-01"}
    filtered = BUYS.replace("GROUP BY", "WHERE p.town = 'nowhere' GROUP BY")
    with pytest.raises(TaskError, match="a condition of the SQL") as told:
        add_task(shop, "buys", filtered, **TASK, **chosen)
    assert "rows of orders in its windows" in str(told.value)
    assert "40 rows of people by then" in str(told.value)
    # Who is asked about comes after everything else.
    path = shop / "db" / "people.parquet"
    people = pd.read_parquet(path)
    people["joined"] = pd.Timestamp("2021-12-01") + pd.to_timedelta(people.index, unit="h")
    people.to_parquet(path)
    inner = BUYS.replace("GROUP BY", "WHERE p.joined <= t.timestamp GROUP BY")
    with pytest.raises(TaskError, match="none of the 40 rows of people is there yet"):
        add_task(shop, "buys", inner, **TASK, **chosen)


@st.composite
def layouts(draw: st.DrawFn) -> LabelEvents:
    """Events of some busy stretches with gaps between them."""
    days: list[int] = []
    at = 0
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(5, 200))
        days += range(at, at + length, draw(st.sampled_from([1, 1, 2, 7])))
        at += length + draw(st.integers(1, 900))
    counts = draw(st.lists(st.integers(1, 9), min_size=len(days), max_size=len(days)))
    return LabelEvents(("orders",), np.array(days) * DAY, np.array(counts), 3_600_000_000)


@given(layouts(), st.sampled_from([1, 7, 30]), st.integers(1, 3))
@settings(max_examples=100)
def test_windows_fit_and_hold_events(events: LabelEvents, days: int, windows: int) -> None:
    horizon = pd.Timedelta(days=days)
    found = place_windows(events, horizon, windows)
    if found is None:
        return
    val, test = found
    first, last = (pd.Timestamp(int(t), unit="us") for t in events.times[[0, -1]])
    assert first + 3 * horizon <= val
    assert val + windows * horizon <= test
    assert test + windows * horizon <= last
    for start in found:
        assert events.within(pd.DatetimeIndex([start]), windows * horizon)[0] > 0
    # RelBench asks for a row at the end of the windows or later, up to the test time.
    ends = events.within(
        pd.DatetimeIndex([val + windows * horizon - pd.Timedelta("1us")]),
        test - val - windows * horizon + pd.Timedelta("1us"),
    )
    assert ends[0] > 0
