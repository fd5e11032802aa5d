"""Adding tasks, and the sandbox in which their SQL runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import relbench
import yaml

from bare_shop import BUYS, LIST
from relfrog import add_task, check, open_dataset
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.labels import seed_times
from relfrog.datasets.tasks import load_task
from relfrog.errors import DatasetError, TaskError, UsageError


def test_an_entity_task_is_completed_from_its_sql(bare_shop: Path) -> None:
    added = add_task(
        bare_shop, "buys", BUYS, type="binary", entity="people", horizon="20 days", eval_times=2,
        overwrite=True,
    )  # fmt: skip
    assert (added.manifest.entity_col, added.manifest.target_col) == ("id", "buys")
    assert added.stats["val"].rows == 60
    assert added.stats["val"].seed_times == 2
    assert 0 < added.stats["train"].label["positive"] < 1
    task = relbench.load_dataset(bare_shop).load_task("buys")
    stored = task.get_table("test", mask_input_cols=False).df
    made = relbench.load_dataset(bare_shop).load_task("buys", regenerate=True)
    pd.testing.assert_frame_equal(
        stored, made.get_table("test", mask_input_cols=False).df, check_dtype=False
    )


@pytest.mark.slow
def test_an_empty_first_table_does_no_harm(bare_shop: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bare_shop, tmp_path / "ds"))
    manifest = yaml.safe_load((copy / "manifest.yaml").read_text())
    early = {name: {"pkey": None, "fkeys": {}, "time_col": "at"} for name in ("aaa", "aab")}
    manifest["tables"] = early | manifest["tables"]
    (copy / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    times = pd.Series(pd.to_datetime(["2020-11-20"]))  # one that begins in the test split
    pd.DataFrame({"at": times[:0]}).to_parquet(copy / "db" / "aaa.parquet")
    pd.DataFrame({"at": times}).to_parquet(copy / "db" / "aab.parquet")
    options = {"type": "binary", "entity": "people", "horizon": "20 days", "overwrite": True}
    both = [add_task(where, "early", BUYS, **options) for where in (bare_shop, copy)]  # type: ignore[arg-type]
    assert both[0].stats == both[1].stats
    dataset = open_dataset(copy)
    task, full = load_task(dataset, "early"), dataset.get_db(upto_test_timestamp=False)
    assert len(seed_times(dataset, task, "train", full)) == both[0].stats["train"].seed_times


def test_a_recommendation_task(bare_shop: Path) -> None:
    added = add_task(
        bare_shop, "list", LIST, type="recommendation", source="people", target="things.thing",
        horizon="20 days", k=5, overwrite=True,
    )  # fmt: skip
    task = relbench.load_dataset(bare_shop).load_task("list")
    assert task.eval_k == 5
    assert added.stats["test"].label["targets"] > 1


SORTS = BUYS.replace(
    "CAST(count(o.id) > 2 AS INTEGER)",
    "[1, CAST(count(o.id) > 2 AS INTEGER), 0, CAST(count(o.id) = 2 AS INTEGER)]",
)


@pytest.mark.slow
def test_a_multilabel_task_keeps_its_labels_in_their_places(bare_shop: Path) -> None:
    added = add_task(
        bare_shop, "sorts", SORTS, type="multilabel", entity="people", horizon="20 days", overwrite=True
    )  # fmt: skip
    assert added.stats["train"].label["classes"] == 4
    for stored in (False, True):
        task = load_task(open_dataset(bare_shop), "sorts", regenerate=not stored)
        for split in ("train", "val", "test"):
            frame = task.get_table(split, mask_input_cols=False).df
            lists = frame["buys"].map(list)
            assert all(v[0] == 1 and v[2] == 0 for v in lists)
            assert {v[1] for v in lists} == {0, 1}
    assert check(bare_shop, "sorts").findings == []
    path = bare_shop / "tasks" / "sorts" / "val.parquet"
    frame = pd.read_parquet(path)
    frame["buys"] = frame["buys"].map(sorted)
    frame.to_parquet(path)
    assert "differ from what the SQL gives" in check(bare_shop, "sorts").findings[0].text
    add_task(
        bare_shop, "sorts", SORTS, type="multilabel", entity="people", horizon="20 days", overwrite=True
    )  # fmt: skip
    for wrong, words in {
        "[1, 2]": "must hold 0 and 1", "[NULL, 1]": "NULL in them",
        "range(count(o.id))": "must all have one length", "1": "must be a list",
    }.items():  # fmt: skip
        sql = BUYS.replace("CAST(count(o.id) > 2 AS INTEGER)", wrong)
        with pytest.raises(TaskError, match=words):
            add_task(bare_shop, "bad", sql, type="multilabel", entity="people", horizon="20 days")


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        ("SELEC 1", {}, r"(?s)syntax error.*\^"),
        ("SELECT t.timestamp, p.idd FROM timestamps t, people p", {}, r"(?s)idd.*LINE 1"),
        ("SELECT 1 AS x; SELECT 2", {}, "must be one SELECT"),
        ("DROP TABLE people", {}, "must be one SELECT"),
        (BUYS.replace("buys", "a, 1 AS b"), {}, "which column is the label"),
        (BUYS.replace("t.timestamp, p.id", "t.timestamp, p.id AS x"), {}, "no column 'id'"),
        (BUYS.replace("t.timestamp, p.id", "p.id"), {}, "no column 'timestamp'"),
        (BUYS.replace("> 2", "> 2000"), {}, "labels of the train split are equal"),
        (BUYS.replace("GROUP BY ALL", "WHERE false GROUP BY ALL"), {}, "no label in the train split"),
        (BUYS.replace("CAST(count(o.id) > 2 AS INTEGER)", "count(o.id)"), {}, "must be 0 and 1"),
        (BUYS.replace("CAST(count(o.id) > 2 AS INTEGER)", "max(o.price)"),
         {"type": "regression", "horizon": "1 hour"}, "labels are NULL"),
        (BUYS.replace("p.id, CAST", "p.id / 7.0 AS id, CAST"), {}, "are no keys of people"),
        (BUYS.replace("p.id, CAST", "p.name AS id, CAST"), {}, "30 of 30 values of id are no keys of people, such as .p"),
        (BUYS.replace("p.id, CAST", "p.id - 5 AS id, CAST"), {}, "5 of 30 values of id are no keys"),
        (BUYS.replace("GROUP BY ALL", "GROUP BY ALL UNION ALL " + BUYS), {}, "repeat a seed time"),
        (BUYS.replace("CAST(count(o.id) > 2 AS INTEGER)", "NULL::INTEGER"), {}, "labels are NULL"),
        (BUYS.replace("CAST(count(o.id) > 2 AS INTEGER)", "'yes'"), {}, "must be a number"),
        (BUYS.replace("t.timestamp, p.id", "t.timestamp + INTERVAL 1 DAY AS timestamp, p.id"), {},
         "no seed time"),
        (BUYS.replace("AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'", "")
         .replace("> 2", "% 2 = 0"), {}, "after their window"),
        (BUYS, {"hide": ("people.nam",)}, "did you mean 'name'"),
        (BUYS, {"horizon": "200 days"}, "timedelta cannot be larger|horizon"),
        (BUYS, {"entity": "persons"}, "no table 'persons'"),
        (BUYS, {"label": "late"}, "no column 'late'"),
    ],
)  # fmt: skip
def test_wrong_tasks_are_refused(
    sql: str, options: dict[str, str], words: str, bare_shop: Path
) -> None:
    settings: dict[str, str] = {
        "type": "binary",
        "entity": "people",
        "horizon": "20 days",
        **options,
    }
    with pytest.raises(TaskError, match=words):
        add_task(bare_shop, "wrong", sql, **settings)  # type: ignore[arg-type]
    assert not list((bare_shop / "tasks").glob("*wrong*"))


def test_a_list_that_repeats_itself_is_refused(bare_shop: Path) -> None:
    with pytest.raises(TaskError, match="names a target twice"):
        add_task(
            bare_shop, "twice", LIST.replace("DISTINCT o.thing)", "o.thing) || LIST(o.thing)"),
            type="recommendation", source="people", target="things.thing", horizon="20 days",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"type": "banana"}, "unknown task type"),
        ({"horizon": "soon"}, "write it as '30 days'"),
        ({"horizon": "-3 days"}, "longer than nothing"),
        ({"entity": None}, "needs --entity"),
        ({"type": "recommendation"}, "needs --source"),
        ({"k": 3}, "no --source, --target or --k"),
        ({"horizon": "30"}, "write it as '30 days'"),
        ({"horizon": "NaT"}, "write it as '30 days'"),
        ({"horizon": "1 second"}, "seed times between"),
        ({"hide": ("people",)}, "TABLE.COLUMN"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], words: str, bare_shop: Path) -> None:
    settings = {"type": "binary", "entity": "people", "horizon": "20 days", **options}
    with pytest.raises(UsageError, match=words):
        add_task(bare_shop, "wrong", BUYS, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", ".."])
def test_a_task_cannot_escape_its_folder(name: str, bare_shop: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a task's name"):
        add_task(bare_shop, name, BUYS, type="binary", entity="people", horizon="20 days")


def test_an_existing_task_is_kept(bare_shop: Path) -> None:
    options = {"type": "binary", "entity": "people", "horizon": "20 days"}
    add_task(bare_shop, "kept", BUYS, overwrite=True, **options)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="--overwrite"):
        add_task(bare_shop, "kept", BUYS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '{file}'",
        "ATTACH '{file}.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SELECT * FROM frame",
    ],
)
def test_sql_cannot_leave_the_sandbox(sql: str, bare_shop: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1]})  # must not be found by its Python name
    assert len(frame) == 1
    secret = tmp_path / "secret.csv"
    secret.write_text("s3cret\n1\n")
    db = open_dataset(bare_shop).get_db()
    with pytest.raises(TaskError) as caught:
        run_sql(sql.replace("{file}", str(secret)), db, [pd.Timestamp("2020-05-01")], "1 day")
    assert "s3cret" not in str(caught.value)
    assert secret.read_text() == "s3cret\n1\n"


def test_sql_that_never_ends_is_stopped(bare_shop: Path) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    db = open_dataset(bare_shop).get_db()
    with pytest.raises(TaskError, match="stopped after 1 s"):
        run_sql(endless, db, [pd.Timestamp("2020-05-01")], "1 day", seconds=1)


def test_seed_times_are_relbenchs(shared_data: Path) -> None:
    dataset = open_dataset(shared_data / "rel-f1")
    full = dataset.get_db(upto_test_timestamp=False)
    task = load_task(dataset, "driver-top3")
    for split in ("train", "val", "test"):
        made = task.get_table(split, mask_input_cols=False, db=full).df
        seeds = seed_times(dataset, task, split, task._split_db(split, full))
        assert set(made[task.time_col]) <= set(seeds)


def test_tasks_that_are_not_there(store: Path, bare_shop: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no task 'bys'"):
        load_task(open_dataset(store), "bys")
    with pytest.raises(TaskError, match="has no tasks"):
        load_task(open_dataset(bare_shop), "bys")
    with pytest.raises(DatasetError, match="does not exist"):
        add_task("./nowhere", "x", BUYS, type="binary", entity="people", horizon="20 days")
    with pytest.raises(DatasetError, match=r"manifest\.yaml is missing"):
        add_task(tmp_path, "x", BUYS, type="binary", entity="people", horizon="20 days")
