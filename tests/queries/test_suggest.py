"""Suggested questions run, say what they are about, and come in the order of their worth."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from helpers import inside
from relfrog.queries.new_task import add_query_tasks, plan_query
from relfrog.queries.proposals import choose_window
from relfrog.queries.quick_scores import quick_score
from relfrog.queries.suggest import suggest

DAY = pd.Timedelta(days=1)
T = [pd.Timestamp("2020-01-01") + n * 10 * DAY for n in range(4)]


@pytest.mark.slow
def test_suggested_questions_become_tasks(bare_shop: Path) -> None:
    found = suggest(bare_shop, limit=20)
    assert {one.type for one in found} >= {"regression", "recommendation"}
    assert len({one.query for one in found}) == len(found)
    for one in found:
        assert plan_query(bare_shop, one.query).question.kind == one.type
        assert min(one.labels.values()) >= 20
    (added,) = add_query_tasks(bare_shop, "first", found[0].query)
    assert added.stats["val"].rows


@pytest.mark.slow
def test_the_command_prints_questions_to_ask(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = inside(capfd, "suggest", str(store), "--limit", "3")
    assert code == 0
    assert "1. " in said
    assert "relfrog ask" in said
    code, said, _ = inside(capfd, "suggest", str(store), "--limit", "3", "--json")
    assert len(json.loads(said)) == 3
    code, said, _ = inside(capfd, "suggest", str(store), "--seconds", "0")
    assert code == 0


def test_windows_fit_the_splits() -> None:
    val = pd.Timestamp("2020-07-01")
    assert choose_window(pd.Timestamp("2015-01-01"), val, val + 100 * DAY) == (30, "days")
    assert choose_window(pd.Timestamp("2020-06-01"), val, val + 100 * DAY) == (1, "days")
    assert choose_window(val - DAY / 100, val, val + DAY) is None


def test_scores_by_hand() -> None:
    frame = pd.DataFrame(
        [(T[0], "a", 1), (T[1], "a", 1), (T[2], "a", 1), (T[0], "b", 0), (T[1], "b", 1), (T[2], "b", 0), (T[3], "b", 5)],
        columns=["timestamp", "entity", "label"],
    )  # fmt: skip
    binary = quick_score("binary", frame, [T[2]], 10 * DAY)
    assert binary is not None
    assert (binary.score, binary.chance, binary.gain) == (1.0, 0.5, 1.0)
    number = quick_score("regression", frame, [T[2]], 10 * DAY)
    assert number is not None
    # The mean is 1 for a and 0.5 for b, the median of all is 1.
    assert (number.score, number.chance) == (0.25, 0.5)
    lists = frame.assign(label=[["x"], ["x", "y"], ["x"], ["z"], ["z"], ["y", "z"], []])
    ranked = quick_score("recommendation", lists, [T[2]], 10 * DAY)
    assert ranked is not None
    # a: x is first. b: z first, then x before y, so y is third.
    assert ranked.score == pytest.approx((1 + (1 + 2 / 3) / 2) / 2)
    words = frame.assign(label=["u", "u", "u", "v", "v", "v", "u"])
    classes = quick_score("multiclass", words, [T[2]], 10 * DAY)
    assert classes is not None
    assert (classes.score, classes.chance, classes.gain) == (1.0, 0.5, 1.0)
