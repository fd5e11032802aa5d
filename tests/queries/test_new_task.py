"""A question becomes a task like any other: labels, splits, files that RelBench reads."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from bare_shop import BUYS
from helpers import inside
from relfrog import add_task
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.tasks import load_task
from relfrog.errors import QueryError, UsageError
from relfrog.queries.new_task import add_tasks, plan_query

BUYS_QUERY = "PREDICT COUNT(orders.*, 0, 20, days) > 2 FOR EACH people.id"
#: What RelBench asks of rel-f1, in words.
REL_F1 = {
    "driver-dnf": "PREDICT COUNT(results.* WHERE results.statusId != 1, 0, 30, days) > 0 "
    "FOR EACH drivers.driverId ASSUMING COUNT(results.*, 0, 30, days) > 0",
    "driver-top3": "PREDICT MIN(qualifying.position, 0, 30, days) <= 3 FOR EACH drivers.driverId",
    "driver-position": "PREDICT AVG(results.positionOrder, 0, 60, days) FOR EACH drivers.driverId",
    "driver-circuit-compete": "PREDICT LIST_DISTINCT(races.circuitId VIA results.raceId, 0, 365, "
    "days) RANK TOP 10 FOR EACH drivers.driverId",
}


@pytest.mark.slow
def test_a_question_has_the_labels_of_the_sql_that_says_the_same(bare_shop: Path) -> None:
    asked = add_task(bare_shop, "asked", query=BUYS_QUERY, eval_times=1)
    told = add_task(bare_shop, "told", BUYS, type="binary", entity="people", horizon="20 days")
    assert asked.stats == told.stats
    for split in ("train", "val", "test"):
        one, other = (pd.read_parquet(t.folder / f"{split}.parquet") for t in (asked, told))
        other = other.rename(columns={"buys": "label"})
        by = ["timestamp", "id"]
        pd.testing.assert_frame_equal(
            one.sort_values(by, ignore_index=True), other.sort_values(by, ignore_index=True)
        )
    manifest = yaml.safe_load((asked.folder / "manifest.yaml").read_text())
    assert manifest["query"] == BUYS_QUERY
    assert "COUNT" in (manifest.get("sql") or manifest.get("source_sql"))


@pytest.mark.slow
def test_every_kind_of_task_can_be_added(bare_shop: Path) -> None:
    questions = {
        "regression": "PREDICT SUM(orders.price, NEXT 2 WEEKS) FOR EACH people",
        "recommendation": "PREDICT LIST_DISTINCT(orders.thing, 0, 30) RANK TOP 3 FOR EACH people.id",
        "multilabel_classification": "PREDICT LIST_DISTINCT(orders.thing, 0, 30) CLASSIFY FOR EACH people.id",
        "multiclass_classification": "PREDICT LAST(orders.n, 0, 30) CLASSIFY FOR EACH people.id",
    }
    for kind, question in questions.items():
        added = add_task(bare_shop, kind, query=question)
        assert added.manifest.task_type == kind
        assert added.stats["val"].rows
    assert load_task(open_dataset(bare_shop), "recommendation").eval_k == 3
    sorts = load_task(open_dataset(bare_shop), "multilabel_classification")
    assert sorted(map(int, sorts.classes)) == list(range(1, 13))


@pytest.mark.slow
def test_a_forecast_is_a_task_per_window(bare_shop: Path) -> None:
    question = "PREDICT COUNT(orders.*, 0, 7, days) FORECAST 2 TIMEFRAMES FOR EACH people.id"
    tasks = add_tasks(bare_shop, "weekly", question)
    assert [t.manifest.name for t in tasks] == ["weekly-1", "weekly-2"]
    assert [t.manifest.timedelta for t in tasks] == ["7 days", "14 days"]


def test_the_command_explains_and_adds(bare_shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["task", str(bare_shop), "buys", "--query", BUYS_QUERY]
    code, said, _ = inside(capfd, *arguments, "--explain")
    assert code == 0
    assert said.startswith("-- binary, for each row of people, 20 days ahead\nWITH")
    assert not (bare_shop / "tasks" / "buys").exists()
    _, said, _ = inside(capfd, *arguments, "--json")
    assert json.loads(said)["task_type"] == "binary_classification"
    wrong = BUYS_QUERY.replace("people.id", "people.idd")
    code, _, said = inside(capfd, "task", str(bare_shop), "x", "--query", wrong)
    assert code == 1
    assert "QueryError: people.idd: no such column; did you mean id?" in said
    assert said.splitlines()[-1].strip() == "^^^^^^^^^^"


def test_a_question_takes_nothing_that_it_says_itself(bare_shop: Path) -> None:
    with pytest.raises(UsageError, match="--horizon"):
        add_task(bare_shop, "x", query=BUYS_QUERY, horizon="3 days")
    with pytest.raises(QueryError):
        add_task(bare_shop, "x", query="PREDICT")


def test_dangerous_values_stay_values(bare_shop: Path) -> None:
    question = "PREDICT COUNT(orders.*, 0, 30) > 2 FOR EACH people.id WHERE people.name != '''; DROP TABLE orders; --'"
    dataset = open_dataset(bare_shop)
    (compiled,) = plan_query(dataset, question).compiled
    db = dataset.get_db(upto_test_timestamp=False)
    frame = run_sql(compiled.sql, db, [dataset.val_timestamp], pd.Timedelta(days=30))
    assert len(frame) == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", list(REL_F1))
def test_questions_for_rel_f1_have_relbenchs_labels(name: str, shared_data: Path) -> None:
    dataset = open_dataset(shared_data / "rel-f1")
    task = load_task(dataset, name, regenerate=True)
    plan = plan_query(dataset, REL_F1[name])
    assert plan.horizons == (task.timedelta,)
    db = dataset.get_db(upto_test_timestamp=False)
    for split in ("train", "val", "test"):
        theirs = task.get_table(split, mask_input_cols=False, db=db).df
        times = sorted(theirs[task.time_col].unique())
        ours = run_sql(plan.compiled[0].sql, db, times, task.timedelta)
        keys = ["timestamp", plan.compiled[0].entity]
        mine = ours.set_index(keys)[plan.compiled[0].label]
        want = theirs.set_index([task.time_col, task.entity_col])[task.target_col]
        assert _plain(mine) == _plain(want)
        assert len(mine) == len(theirs)


def _plain(labels: pd.Series) -> dict[object, object]:
    values = labels.map(lambda v: tuple(sorted(v)) if hasattr(v, "__len__") else round(float(v), 9))
    return dict(values.to_dict())
