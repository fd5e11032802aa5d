"""Damaged questions: one that runs, or a QueryError; the same sample each time."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fuzz_questions import BOUND, damage, draw, tables, try_question


def test_damaged_questions_are_answered_or_refused() -> None:
    found = {"success": 0, "error": 0}
    connection = tables()
    for number in range(150):
        rng = random.Random(f"sample {number}")
        text = damage(rng, draw(rng))
        found[try_question(text, connection if number % BOUND == 0 else None)] += 1
    assert min(found.values()) > 10
    connection.close()


@pytest.mark.parametrize(
    "text", ["", "\0", "PREDICT", "PREDICT " * 2000, "'" * 999, "(" * 5000, "PREDICT 1 FOR EACH users.id WHERE " + "1 = 1 AND " * 499 + "1 = 1", "\ud83d", "PREDICT COUNT(orders.*, 0, 1) FOR EACH users.id WHERE " + "NOT " * 3000 + "users.vip"]
)  # fmt: skip
def test_extreme_questions(text: str) -> None:
    assert try_question(text) == "error"


def test_a_long_condition_compiles() -> None:
    text = "PREDICT COUNT(orders.*, 0, 1) FOR EACH users.id WHERE " + " OR ".join(
        f"users.age = {i}" for i in range(500)
    )
    connection = tables()
    assert try_question(text, connection) == "success"
    connection.close()


def test_many_inputs_were_tried() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "fuzz-questions.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["inputs"] >= 100_000
    assert found["defects"] == []
    assert found["success"] + found["error"] == found["inputs"]
