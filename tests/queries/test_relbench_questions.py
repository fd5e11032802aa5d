"""RelBench's tasks asked in words have the labels of their SQL, on made-up rows of its databases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paper_databases import NAMES, read_schema, write
from relbench_questions import QUESTIONS, REASONS, SCALES, compare

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_questions_have_the_labels_of_the_sql(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / name, SCALES[name] / 5)
    for record in compare(name, tmp_path / name):
        if record["question"] is not None:
            assert record["same"], record
            assert record["labels"], record


def test_every_task_has_a_question_or_a_reason() -> None:
    tasks = {f"{name}/{task}" for name in NAMES for task in read_schema(name).tasks}
    assert tasks == set(QUESTIONS)
    assert {task for task, question in QUESTIONS.items() if question is None} == set(REASONS)


def test_what_was_measured_is_what_the_guide_says() -> None:
    found = json.loads((ROOT / "benchmarks" / "relbench-questions.json").read_text())["tasks"]
    assert {record["task"]: record["question"] for record in found} == QUESTIONS
    assert all(record.get("same", True) for record in found)
    page = (ROOT / "docs" / "ask.md").read_text(encoding="utf-8")
    for record in found:
        assert record["task"].split("/")[1] in page
