"""RelBench's tasks asked in words have the labels of its SQL, on made-up rows of its databases."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from relbench.base import Database

from paper_databases import NAMES, read_schema, write
from relbench_questions import QUESTIONS, REASONS, SCALES, compare
from relbench_sql import open_wheel, published_tasks

ROOT = Path(__file__).parents[2]
#: A wheel of RelBench 2, which has SQL, or the folder of its files; "download" fetches one.
WHEEL = os.environ.get("RELFROG_RELBENCH_WHEEL")
#: A module of tasks as in such a wheel.
MODULE = '''
import duckdb
import pandas as pd
from relbench.base import RecommendationTask, Table, TaskType
from relbench.metrics import link_prediction_map

class Visits(RecommendationTask):
    task_type = TaskType.LINK_PREDICTION
    src_entity_table, src_entity_col = "people", "who"
    dst_entity_table, dst_entity_col = "places", "where"
    time_col, timedelta, metrics = "timestamp", pd.Timedelta(days=3), [link_prediction_map]

    def make_table(self, db, timestamps):
        t = pd.DataFrame({"timestamp": timestamps})
        df = duckdb.sql("""
            SELECT timestamp, 1 AS who, [4, NULL] AS "where" FROM t
            UNION SELECT timestamp, 2, [NULL] FROM t
            UNION SELECT timestamp, NULL, [5] FROM t
        """).df()
        return Table(df, {}, None, "timestamp")
'''


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    if WHEEL is None:
        pytest.skip("RELFROG_RELBENCH_WHEEL names no wheel of RelBench 2; nothing is downloaded")
    try:
        with open_wheel(None if WHEEL == "download" else Path(WHEEL)) as folder:
            yield folder
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_questions_have_the_labels_of_relbenchs_sql(name: str, wheel: Path, tmp_path: Path) -> None:
    write(name, tmp_path / name, SCALES[name] / 5)
    for record in compare(name, tmp_path / name, published_tasks(wheel, name)):
        if record["question"] is not None:
            assert record["labels"], record
            assert record["same"] or (set(record["differs"]) == {"train"} and record["why"]), record


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_questions_have_the_labels_of_sql_of_the_same_meaning(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / name, SCALES[name] / 5)
    for record in compare(name, tmp_path / name):
        if record["question"] is not None:
            assert record["same"], record
            assert record["labels"], record


def test_tasks_are_read_from_a_wheel(tmp_path: Path) -> None:
    tasks = tmp_path / "relbench" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "__init__.py").write_text(
        "from relbench.tasks import shop\n"
        'register_task("rel-shop", "visits", shop.Visits)\n'
        'register_task("rel-shop", "filled-in", AutoCompleteTask)\n'
    )
    (tasks / "shop.py").write_text(MODULE)
    with open_wheel(tmp_path) as folder:
        (task,) = published_tasks(folder, "rel-shop").values()
    frame = task.labels(Database({}), [pd.Timestamp("2024-01-01")])
    assert (task.name, task.table, task.lists) == ("rel-shop/visits", "people", True)
    assert frame[["who", "where"]].to_numpy().tolist() == [[1, [4]]]


def test_a_folder_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="holds no relbench/tasks"), open_wheel(tmp_path):
        pass


def test_every_task_has_a_question_or_a_reason() -> None:
    tasks = {f"{name}/{task}" for name in NAMES for task in read_schema(name).tasks}
    assert tasks == set(QUESTIONS) - {"rel-f1/driver-circuit-compete"}  # not of the paper
    assert {task for task, question in QUESTIONS.items() if question is None} <= set(REASONS)


def test_what_was_measured_is_what_is_asked() -> None:
    found = json.loads((ROOT / "benchmarks" / "relbench-questions.json").read_text())["tasks"]
    assert {record["task"]: record["question"] for record in found} == QUESTIONS
    assert all(record["same"] or record["why"] for record in found if record["question"])
