"""Runs: what a seed may see in either regime, predictions in the order asked, damaged folders."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import relfrog
from relfrog import load_run
from relfrog.datasets import source_keys
from relfrog.errors import (
    DatasetError,
    RelFrogWarning,
    RunError,
    SchemaError,
    TaskError,
    UsageError,
)
from relfrog.features.columns import NewColumnWarning
from relfrog.support.files import write_json
from relfrog.testing import random_database
from relfrog.training.seeds import Seeds
from small_store import HORIZON, TEST, VAL, change, copied, fit, truncate

TIMES = [start + i * HORIZON for start in (VAL, TEST) for i in range(3)]


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    """A run that tests only look at."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(store, folder)
    return load_run(folder)


def moved(run: relfrog.Run, dataset: Path, folder: Path) -> relfrog.Run:
    """The same run on another copy of its dataset."""
    out = folder / "run"
    if not out.exists():
        shutil.copytree(run.folder, out)
    write_json(out / "run.json", {**run.about, "dataset": str(dataset)})
    return load_run(out)


# What a seed may see.


@pytest.mark.parametrize("history", ["on", "off"])
def test_frozen_scores_do_not_know_what_came_after_the_split(
    history: str, store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "trained", history=history, epochs=1)
    changed = copied(store, tmp_path)
    assert run.evaluate("test", "rolling") != run.evaluate("test", "frozen")
    for split, time in {"test": TEST, "val": VAL}.items():
        truncate(changed, time)
        cut = moved(run, changed, tmp_path)
        assert cut.evaluate(split, "frozen") == run.evaluate(split, "frozen")
        assert cut.evaluate(split, "rolling") != run.evaluate(split, "rolling")


def test_where_the_database_stops_rows_are_as_old_as_they_were_there(
    store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "run", "spends", layers=2)
    rows, months = np.arange(20), [pd.Timedelta(days, "D") for days in (0, 31, 365)]
    with torch.no_grad():  # what a seed is told beside the rows: the season, how much is missing
        run.network.seed_encoder.context.weight.zero_()
    then = run.predict_seeds(Seeds(rows, pd.Series([TEST] * 20)), None)
    for later in months:
        seeds = Seeds(rows, pd.Series([TEST + later] * 20))
        assert np.array_equal(run.predict_seeds(seeds, TEST), then)
    assert not np.array_equal(run.predict_seeds(seeds, None), then)


@pytest.mark.slow
@pytest.mark.parametrize("history", ["on", "off"])
def test_rolling_predictions_are_those_of_a_database_that_ends_at_the_seed(
    history: str, store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "trained", history=history, epochs=1)
    changed = copied(store, tmp_path)
    every = {}
    for split in ("val", "test"):
        seeds = run.prepared.seeds(split)
        found = run.model.answer(seeds, None)
        every |= dict(zip(zip(seeds.rows, seeds.times), found))
    keys = source_keys(store, "people")["code"].to_numpy()
    assert {time for _, time in every} == set(TIMES)
    for time in reversed(TIMES):
        rows = [row for row, at in every if at == time]
        truncate(changed, time)
        cut = moved(run, changed, tmp_path)
        assert cut.prepared.newest == time
        asked = keys[rows].tolist()
        here, there = (r.predict(time, asked)["prediction"] for r in (run, cut))
        assert here.tolist() == there.tolist()
        assert here.to_numpy() == pytest.approx([every[row, time] for row in rows], abs=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* unknown to the run")
def test_later_rows_may_be_altered_as_one_likes(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)

    def spoil(frame: pd.DataFrame) -> pd.DataFrame:
        later = frame["ordered_at"] > TEST
        assert later.any()
        frame.loc[later, "amount"] = 1e9
        frame.loc[later, "thing"] = frame.loc[later, "thing"].iloc[::-1].to_numpy()
        frame.loc[later, "channel"] = "pigeon"
        return frame

    change(changed, "orders", spoil)
    other = moved(run, changed, tmp_path)
    pd.testing.assert_frame_equal(run.predict(TEST), other.predict(TEST), check_exact=True)
    assert run.evaluate("test", "frozen") == other.evaluate("test", "frozen")
    assert run.evaluate("val") == other.evaluate("val")
    assert run.evaluate("test") != other.evaluate("test")


@pytest.mark.slow
def test_what_the_task_hides_is_not_seen(store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    sql = yaml.safe_load((store / "tasks" / "buys" / "manifest.yaml").read_text())["sql"]
    # The label is made of what is hidden, as in a task that completes a column.
    sql = sql.replace("count(o.id) > 2", "count(o.id) > 2 AND min(p.age) > 30")
    for name, hide in {"open": (), "shut": ("people.age", "orders.thing")}.items():
        relfrog.add_task(
            changed, name, sql, type="binary", entity="people", horizon="20 days", hide=hide
        )
    relfrog.add_task(
        changed, "time", sql, type="binary", entity="people", horizon="20 days",
        hide=("orders.ordered_at",),
    )  # fmt: skip
    with pytest.raises(TaskError, match=r"orders\.ordered_at cannot be hidden.*time column"):
        fit(changed, tmp_path / "no", "time")
    both = [
        fit(changed, tmp_path / name, name, epochs=1, history="off") for name in ("open", "shut")
    ]
    columns = [{c.name for c in r.prepared.columns.tables["people"].columns} for r in both]
    assert columns[0] - columns[1] == {"age"}
    assert len(both[0].prepared.graph.foreign_keys) == len(both[1].prepared.graph.foreign_keys) + 1
    before = [r.predict() for r in both]
    change(changed, "people", lambda frame: frame.assign(age=99 - frame["age"]))
    after = [load_run(r.folder).predict() for r in both]
    assert not before[0].equals(after[0])
    pd.testing.assert_frame_equal(before[1], after[1], check_exact=True)
    # Its labels, those of the rows as they were, are still known once their windows have closed.
    change(changed, "people", lambda frame: frame.assign(age=99 - frame["age"]))
    assert fit(changed, tmp_path / "past", "shut", epochs=1).prepared.history is not None


# Predictions.


def test_by_default_everyone_at_the_newest_time(run: relfrog.Run, store: Path) -> None:
    found = run.predict()
    keys = source_keys(store, "people")
    assert list(found) == ["code", "time", "prediction", "decision"]
    assert found["code"].tolist() == keys["code"].tolist()
    newest = relfrog.open_dataset(store).get_db(upto_test_timestamp=False).max_timestamp
    assert set(found["time"]) == {newest}
    assert found["prediction"].between(0, 1).all()
    assert found["prediction"].nunique() > 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* lies before the first row")
def test_only_those_who_exist_then(run: relfrog.Run, store: Path) -> None:
    people = pd.read_parquet(store / "db" / "people.parquet")
    keys = source_keys(store, "people")["code"]
    assert people["joined"].is_monotonic_increasing
    for time in people["joined"].iloc[[0, 7, -1]]:
        found = run.predict(time)
        assert found["code"].tolist() == keys[people["joined"] <= time].tolist()
        just_before = run.predict(time - pd.Timedelta("1s"))
        assert len(just_before) < len(found)
    with pytest.warns(RelFrogWarning, match="before the first row"):
        nobody = run.predict("1999-01-01")
    assert list(nobody) == ["code", "time", "prediction", "decision"]
    assert len(nobody) == 0


@pytest.mark.parametrize(
    ("at", "time"),
    [
        ("2020-11-11", "2020-11-11"),
        (pd.Timestamp("2020-11-11T12:00"), "2020-11-11 12:00"),
        ("2020-11-11T12:00+02:00", "2020-11-11 10:00"),
        (np.datetime64("2020-11-11"), "2020-11-11"),
        ("2020-11-11T00:00:00.000000001", "2020-11-11T00:00:00.000000001"),
        ("2500-01-01", "2500-01-01"),
        ("9999-12-31", "9999-12-31"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* lies .* after the newest row")
def test_times_are_taken_as_they_are(run: relfrog.Run, at: Any, time: str) -> None:
    found = run.predict(at, ["P07"])
    assert found["time"].tolist() == [pd.Timestamp(time)]
    assert found["prediction"].between(0, 1).all()


@pytest.mark.parametrize("at", ["", "soon", "2020-13-01", "NaT", float("nan"), [1]])
def test_what_is_no_time_is_refused(run: relfrog.Run, at: Any) -> None:
    with pytest.raises(UsageError, match="is no time"):
        run.predict(at)


@pytest.mark.filterwarnings("ignore:.* lies .* after the newest row")
def test_a_later_time_makes_the_database_older(run: relfrog.Run) -> None:
    first, second = run.predict("2021-03-01"), run.predict("2022-03-01")
    assert first["code"].tolist() == second["code"].tolist()
    assert first["prediction"].tolist() != second["prediction"].tolist()


@pytest.fixture(scope="module")
def separate(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    """A run in which seeds do not share what they see."""
    return fit(store, tmp_path_factory.mktemp("separate") / "run", sharing="separate", epochs=1)


def test_an_answer_does_not_depend_on_who_else_is_asked(separate: relfrog.Run) -> None:
    everyone = separate.predict(TEST).set_index("code")["prediction"]
    for asked in (["P07"], ["P01", "P19", "P07"], ["P07", "P07"]):
        found = separate.predict(TEST, asked)
        assert found["prediction"].to_numpy() == pytest.approx(everyone[asked], abs=1e-6)


def test_entities_come_in_the_order_asked(run: relfrog.Run, tmp_path: Path) -> None:
    asked = ["P07", "P01", "P19", "P07", "P00"]
    (tmp_path / "asked.csv").write_text("code,remark\n" + "".join(f"{a},x\n" for a in asked))
    frame = pd.DataFrame({"code": asked, "remark": 1})
    frame.to_parquet(tmp_path / "asked.parquet")
    for entities in (asked, tmp_path / "asked.csv", str(tmp_path / "asked.parquet"), frame):
        found = run.predict(TEST, entities)
        assert found["code"].tolist() == asked
        assert found["prediction"].iloc[0] == found["prediction"].iloc[3]
        assert found["prediction"].nunique() == 4
    back = run.predict(TEST, asked[::-1])
    assert back["prediction"].to_numpy()[::-1] == pytest.approx(found["prediction"], abs=1e-6)
    assert len(run.predict(TEST, [])) == 0


def test_each_row_may_have_its_own_time(separate: relfrog.Run, tmp_path: Path) -> None:
    run = separate
    asked = pd.DataFrame({"code": ["P03", "P03", "P04"], "time": [TEST, VAL, TEST]})
    found = run.predict("2001-01-01", asked)
    assert found["time"].tolist() == asked["time"].tolist()
    for code, time, value, _ in found.itertuples(index=False):
        alone = run.predict(time, [code])["prediction"].iloc[0]
        assert value == pytest.approx(alone, abs=1e-6)
    assert found["prediction"].iloc[0] != found["prediction"].iloc[1]
    (tmp_path / "asked.csv").write_text("code,timestamp\nP03,2020-08-01T00:00\n")
    assert run.predict(None, tmp_path / "asked.csv")["time"].tolist() == [VAL]


@pytest.mark.filterwarnings("ignore:.* unknown to the run")
def test_who_does_not_exist_yet_gets_an_answer_that_knows_nothing_of_him(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    people = pd.read_parquet(store / "db" / "people.parquet")
    keys = source_keys(store, "people")["code"]
    time = people["joined"].iloc[-1] - pd.Timedelta("1 day")
    late = keys[people["joined"] > time].tolist()
    found = run.predict(time, late)
    changed = copied(store, tmp_path)
    change(changed, "people", lambda f: f.assign(
        age=f["age"].where(f["joined"] <= time, 1), city=f["city"].where(f["joined"] <= time, "X")
    ))  # fmt: skip
    other = moved(run, changed, tmp_path).predict(time, late)
    pd.testing.assert_frame_equal(found, other, check_exact=True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["P01", "P77"], r"1 of 2 keys are not in table people, such as code=P77"),
        ([None], "no value for code"),
        (pd.DataFrame({"a": ["P01"], "b": ["P02"]}), "no column 'code'"),
        (pd.DataFrame({"code": ["P01"], "time": ["soon"]}), "not times, such as 'soon'"),
        ("none.csv", "no file"),
    ],
)
def test_wrong_entities_are_refused(run: relfrog.Run, asked: Any, words: str) -> None:
    with pytest.raises((TaskError, UsageError), match=words):
        run.predict(TEST, asked)


@pytest.mark.slow
def test_keys_of_several_columns_on_an_awkward_database(tmp_path: Path) -> None:
    database = random_database(3, size=90)
    source = database.to_sqlite(tmp_path / "a.db")
    relfrog.import_database(source, tmp_path / "ds", val="2020-02-10", test="2020-02-25")
    keys = source_keys(tmp_path / "ds", "order")
    assert keys is not None
    assert list(keys) == ["customer_id", "number"]
    key = relfrog.open_dataset(tmp_path / "ds").manifest.tables["order"].pkey
    relfrog.add_task(
        tmp_path / "ds", "lines",
        f"""SELECT t.timestamp, o."{key}", CAST(hash(max(l.at), o."{key}") % 2 AS INTEGER) AS y FROM timestamps t CROSS JOIN "order" o
        LEFT JOIN "order lines" l ON l.at > t.timestamp AND l.at <= t.timestamp +
        INTERVAL '{{timedelta}}' WHERE o.placed_at <= t.timestamp GROUP BY 1, 2""",
        type="binary", entity="order", horizon="5 days",
    )  # fmt: skip
    run = fit(tmp_path / "ds", tmp_path / "run", "lines")
    found = run.predict()
    assert list(found) == ["customer_id", "number", "time", "prediction", "decision"]
    assert found[["customer_id", "number"]].equals(keys)
    assert load_run(run.folder).evaluate() == run.metrics["test"]["rolling"]
    asked = [tuple(map(int, row)) for row in keys.iloc[::-5].itertuples(index=False)]
    some = run.predict(entities=asked)
    assert list(some[["customer_id", "number"]].itertuples(index=False, name=None)) == asked


# The database as it has become.


@pytest.mark.filterwarnings("ignore:.* unknown to the run")
def test_what_training_never_saw_does_no_harm(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    change(changed, "people", lambda f: f.assign(city="Ulan Bator 🐸", note=None, age=10**9))
    change(changed, "things", lambda f: f.assign(title="неизвестно", price=np.inf))
    change(changed, "orders", lambda f: f.assign(channel="", amount=np.nan))
    change(changed, "reviews", lambda f: f.assign(words="完全に新しい " * 50, stars=-5))
    found = moved(run, changed, tmp_path).predict()
    assert found["prediction"].between(0, 1).all()
    assert found["prediction"].tolist() != run.predict()["prediction"].tolist()


def test_new_columns_and_tables_are_ignored_and_named(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    change(changed, "people", lambda f: f.assign(shoe_size=40, hat="top"))
    manifest = yaml.safe_load((changed / "manifest.yaml").read_text())
    manifest["tables"]["shops"] = {"pkey": "id", "fkeys": {"owner": "people"}, "time_col": None}
    manifest["tables"]["orders"]["fkeys"]["shop"] = "shops"
    (changed / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    pd.DataFrame({"id": [0, 1], "owner": [0, 1]}).to_parquet(changed / "db" / "shops.parquet")
    change(changed, "orders", lambda f: f.assign(shop=1))
    other = moved(run, changed, tmp_path)
    with pytest.warns(NewColumnWarning) as caught:
        found = other.predict()
    texts = [str(warning.message) for warning in caught]
    assert any("people" in text and "2 columns (shoe_size, hat)" in text for text in texts)
    assert any("table shops is new" in text for text in texts)
    pd.testing.assert_frame_equal(found, run.predict(), check_exact=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NewColumnWarning)
        assert other.evaluate() == run.evaluate()


def test_a_table_that_is_empty_does_no_harm(run: relfrog.Run, store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    manifest = yaml.safe_load((changed / "manifest.yaml").read_text())
    early = {"archive": {"pkey": None, "fkeys": {"who": "people"}, "time_col": "at"}}
    manifest["tables"] = early | manifest["tables"]
    (changed / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    empty = pd.DataFrame({"who": pd.Series([], dtype="Int64"), "at": pd.to_datetime([])})
    empty.to_parquet(changed / "db" / "archive.parquet")
    trained = fit(changed, tmp_path / "trained", epochs=1)
    assert trained.prepared.newest == run.prepared.newest
    history = [r.prepared.graph.num_rows["labels of the task"] for r in (run, trained)]
    assert history[0] == history[1] > 0
    assert len(trained.predict()) == 20


def test_a_new_key_between_old_tables_is_ignored_and_named(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    manifest = yaml.safe_load((changed / "manifest.yaml").read_text())
    manifest["tables"]["people"]["fkeys"]["likes"] = "things"
    (changed / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    change(changed, "people", lambda f: f.assign(likes=1))
    with pytest.warns(NewColumnWarning, match=r"people: new and ignored: 1 column \(likes\)"):
        found = moved(run, changed, tmp_path).predict()
    pd.testing.assert_frame_equal(found, run.predict(), check_exact=True)


def test_a_column_that_has_become_a_key_is_named(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    manifest = yaml.safe_load((changed / "manifest.yaml").read_text())
    manifest["tables"]["people"]["fkeys"]["age"] = "things"
    (changed / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    change(changed, "people", lambda f: f.assign(age=f["age"] % 8))
    with pytest.raises(SchemaError, match=r"foreign keys now.* \(people\.age\)"):
        moved(run, changed, tmp_path).predict()


def test_a_column_of_which_nothing_was_learned_may_become_a_key(
    store: Path, tmp_path: Path
) -> None:
    before = copied(store, tmp_path / "before")
    change(before, "people", lambda f: f.assign(likes=1))
    trained = fit(before, tmp_path / "trained", epochs=1)
    assert "likes" in trained.prepared.columns.tables["people"].skipped
    after = copied(before, tmp_path / "after")
    manifest = yaml.safe_load((after / "manifest.yaml").read_text())
    manifest["tables"]["people"]["fkeys"]["likes"] = "things"
    (after / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    with pytest.warns(NewColumnWarning, match=r"people: new and ignored: 1 column \(likes\)"):
        found = moved(trained, after, tmp_path).predict()
    pd.testing.assert_frame_equal(found, trained.predict(), check_exact=True)


def test_a_key_that_is_gone_says_that_the_weights_do_not_fit(
    run: relfrog.Run, store: Path, tmp_path: Path
) -> None:
    changed = copied(store, tmp_path)
    manifest = yaml.safe_load((changed / "manifest.yaml").read_text())
    del manifest["tables"]["orders"]["fkeys"]["thing"]
    (changed / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    with pytest.raises(RunError, match=r"tables or keys have changed: train again"):
        moved(run, changed, tmp_path).predict()


def test_a_column_that_is_gone_is_named(run: relfrog.Run, store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)
    change(changed, "people", lambda f: f.drop(columns="age"))
    with pytest.raises(SchemaError, match=r"people\.age"):
        moved(run, changed, tmp_path).predict()
    change(changed, "people", lambda f: f.assign(age="forty"))
    with pytest.raises(SchemaError, match=r"people\.age"):
        moved(run, changed, tmp_path).predict()
    change(changed, "people", lambda f: f.assign(age=None))
    assert len(moved(run, changed, tmp_path).predict()) == 20


def test_a_dataset_or_task_that_is_gone(run: relfrog.Run, store: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="nowhere"):
        moved(run, tmp_path / "nowhere", tmp_path).predict()
    changed = copied(store, tmp_path)
    shutil.rmtree(changed / "tasks" / "buys")
    with pytest.raises(TaskError, match="no task 'buys'"):
        moved(run, changed, tmp_path).evaluate()


# Run folders.


def test_wrong_questions_are_refused(run: relfrog.Run) -> None:
    with pytest.raises(UsageError, match="split must be val or test"):
        run.evaluate("train")
    with pytest.raises(UsageError, match="regime must be frozen or rolling"):
        run.evaluate("test", "warm")
    with pytest.raises(UsageError, match="device 'abacus'"):
        load_run(run.folder, device="abacus")
    assert (run.count("val"), run.count("test")) == (60, 60)


def test_roles_and_history_as_tables(run: relfrog.Run) -> None:
    roles = run.roles()
    assert list(roles) == ["route", "paradigm", "u", "v", "w", "gate", "role"]
    assert (roles["gate"][roles["role"] == "edge"] > 0.5).all()
    assert (roles["gate"][roles["role"] == "node"] < 0.5).all()
    assert set(roles["v"]) == {"orders"}
    assert run.history()["val"].iloc[-1].keys() == run.metrics["val"]["rolling"].keys()


def test_a_folder_that_is_no_run(tmp_path: Path, run: relfrog.Run) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text('{"name": "a run of something else"}')
    for name in ("none", "file", "other", "."):
        with pytest.raises(RunError, match=r"is no run folder.*relfrog train"):
            load_run(tmp_path / name)
    future = shutil.copytree(run.folder, tmp_path / "future")
    write_json(future / "run.json", {**run.about, "format": 99})
    with pytest.raises(RunError, match="of format 99; this version reads 1"):
        load_run(future)


def test_a_run_that_has_not_ended_says_how_to_go_on(tmp_path: Path, run: relfrog.Run) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "a run")
    write_json(copy / "run.json", {**run.about, "status": "training", "task": "it's"})
    with pytest.raises(RunError) as caught:
        load_run(copy)
    assert str(caught.value).endswith(
        f"relfrog train {run.about['dataset']} 'it'\"'\"'s' --out '{copy}' --resume"
    )


FILES = ["run.json", "config.yaml", "columns.json", "columns.safetensors", "model.safetensors",
         "roles.json", "history.jsonl", "metrics.json"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_run_is_a_clear_error(name: str, run: relfrog.Run, tmp_path: Path) -> None:
    def everything(folder: Path) -> None:
        opened = load_run(folder)
        _ = opened.metrics["test"]["rolling"]
        opened.roles()
        opened.history()
        if name in ("config.yaml", "columns.json", "columns.safetensors", "model.safetensors"):
            opened.predict(TEST, ["P01"])

    copy = shutil.copytree(run.folder, tmp_path / "run")
    whole = (copy / name).read_bytes()
    everything(copy)
    for content in (
        None, b"", b"\xff\xfe\x00garbage", b"{}", b"[]", b"7", b'{"a": 1}', b"[1]", b"null",
        whole[: len(whole) // 3] + b"}",
    ):  # fmt: skip
        (copy / name).unlink(missing_ok=True)
        if content is not None:
            (copy / name).write_bytes(content)
        if content in {
            "roles.json": [b"[]"],
            "history.jsonl": [b"", b"{}", b'{"a": 1}'],
        }.get(name, []):
            everything(copy)
            continue
        with pytest.raises((RunError, DatasetError)) as caught:
            everything(copy)
        text = str(caught.value)
        assert "\n" not in text, (name, content)
        assert any(words in text for words in ("rain again", "relfrog train", "Fit them again"))


def test_opening_a_run_runs_no_code(run: relfrog.Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "run")
    evil = f"!!python/object/apply:os.mkdir [{tmp_path / 'owned'}]\n"
    (copy / "config.yaml").write_text(evil)
    with pytest.raises(RunError, match="damaged"):
        load_run(copy)
    assert not (tmp_path / "owned").exists()
    for path in run.folder.iterdir():
        assert path.suffix in (".json", ".jsonl", ".yaml", ".safetensors", ""), path.name


def test_a_run_folder_may_be_moved(run: relfrog.Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "else where")
    assert load_run(copy).evaluate() == run.evaluate()
    about = json.loads((copy / "run.json").read_text())
    assert {"dataset", "task", "task_type", "labels", "schema", "versions", "seconds"} <= set(about)


def test_new_categories_are_named_and_those_of_before_are_not(store: Path, tmp_path: Path) -> None:
    changed = copied(store, tmp_path)

    def late(frame: pd.DataFrame, word: str) -> pd.DataFrame:
        frame.loc[frame.index[-3:], "channel"] = word
        return frame

    change(changed, "orders", lambda frame: late(frame, "fax"))  # after the validation time
    run = fit(changed, tmp_path / "run", epochs=1)
    assert json.loads((run.folder / "unseen.json").read_text()) == {"orders.channel": ["fax"]}
    load_run(run.folder).predict()  # nothing is new
    change(changed, "orders", lambda frame: late(frame, "<b>pigeon</b>"))
    with pytest.warns(NewColumnWarning, match=r"orders.channel: 1 category .*pigeon") as said:
        load_run(run.folder).predict()
    assert len(said) == 1
    (run.folder / "unseen.json").write_text("[1]")
    with pytest.raises(relfrog.errors.RunError, match="damaged"):
        load_run(run.folder).predict()


def test_a_run_that_a_killed_process_was_replacing_is_still_there(
    store: Path, tmp_path: Path
) -> None:
    """Killed between the two renames of an overwrite: the old run was moved aside."""
    run = fit(store, tmp_path / "run", model="mean")
    expected = run.evaluate()
    run.folder.rename(tmp_path / ".run.partial-1-old")
    assert load_run(tmp_path / "run").evaluate() == expected
