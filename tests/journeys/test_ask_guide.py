"""The guide to questions: all of its examples run on the demo's database."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from helpers import blocks
from relfrog.datasets.dataset import open_dataset
from relfrog.datasets.demo import DEMO_TASKS
from relfrog.datasets.key_views import find_source_keys
from relfrog.datasets.label_sql import run_sql
from relfrog.datasets.tasks import load_task
from relfrog.queries.new_task import plan_query

PAGE = Path(__file__).parents[2] / "docs" / "ask.md"


@pytest.mark.slow
def test_the_twenty_questions_have_labels(demo: Path) -> None:
    questions = blocks(PAGE, "pql")
    assert len(questions) == 20
    dataset = open_dataset(demo / "flights")
    db, keys = dataset.get_db(upto_test_timestamp=False), find_source_keys(dataset)
    assert keys is not None
    kinds = set()
    for question in questions:
        plan = plan_query(dataset, question)
        kinds.add(plan.question.kind)
        compiled = plan.compiled[-1]
        frame = run_sql(
            compiled.sql, keys.view(db, compiled.sql), [dataset.val_timestamp], plan.horizons[-1]
        )
        assert len(frame) >= 3, question
        assert not frame[compiled.label].isna().any()
    assert kinds == {"binary", "regression", "recommendation", "multilabel"}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(DEMO_TASKS)))
def test_the_demos_questions_have_the_labels_of_its_sql(demo: Path, number: int) -> None:
    dataset = open_dataset(demo / "flights")
    told = DEMO_TASKS[number]
    task = load_task(dataset, told.name)
    plan = plan_query(dataset, told.options["query"])
    assert plan.horizons == (task.timedelta,)
    db, keys = dataset.get_db(upto_test_timestamp=False), find_source_keys(dataset)
    assert keys is not None
    compiled = plan.compiled[0]
    theirs = task.get_table("val", mask_input_cols=False).df
    times = sorted(theirs[task.time_col].unique())[:4]
    frame = run_sql(compiled.sql, keys.view(db, compiled.sql), times, task.timedelta)
    ours = keys.to_rows(frame, [(compiled.entity, task.entity_table)])
    if task.dst_entity_table:
        ours = keys.to_rows(ours, [(compiled.label, task.dst_entity_table)])
    theirs = theirs[theirs[task.time_col].isin(times)]
    mine = _plain(ours, "timestamp", compiled.entity, compiled.label)
    assert mine == _plain(theirs, task.time_col, task.entity_col, task.target_col)


def _plain(frame: pd.DataFrame, time: str, entity: str, label: str) -> dict[object, object]:
    values = [
        tuple(sorted(v)) if hasattr(v, "__len__") else round(float(v), 9) for v in frame[label]
    ]
    keys = zip(pd.to_datetime(frame[time]), frame[entity].astype(int), strict=True)
    return dict(zip(keys, values, strict=True))
