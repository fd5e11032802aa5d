"""What a report computed from the data, written and read again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relfrog.analysis.bootstrap import Interval
from relfrog.analysis.explanation import Explanation, Reason, TableShare
from relfrog.analysis.fd_space import Differences
from relfrog.analysis.importance import Importance, TableImportance
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.saved import keep, recall
from relfrog.training.seeds import Seeds

NAN = math.nan
TIME = pd.Timestamp("2020-01-02 03:04:05")


def material(folder: Path, **parts: Any) -> Material:
    run: Any = SimpleNamespace(folder=folder)
    return Material(run, **parts)


def full(folder: Path) -> Material:
    """With a number that is none wherever one can be, and nothing wherever there may be nothing."""
    worth = (
        TableImportance("a", None, Interval(NAN, 0.1, NAN), None),
        TableImportance("b", "x", None, Interval(0.5, 0.25, 1.0)),
    )
    rows = (
        Reason("a", "1", None, 1, NAN, {}, ()),
        Reason("b", "2", TIME, 2, 0.5, {"x": "y"}, (0, 1)),
    )
    shares = (TableShare("a", 3, None, None), TableShare("b", 4, TIME, 0.25))
    return material(
        folder,
        importance=Importance("roc_auc", NAN, 7, 9, worth, worth[1:]),
        explanations=[Explanation("a", "1", TIME, NAN, "yes", shares, rows, 5)],
        differences=Differences(
            np.array([[0.5, 1.0], [2.0, 3.0]]), ["k", "l"], np.array([True, False]),
            {"k": NAN, "l": 0.5}, {"k": 0.75}, NAN, 0.5,
        ),
        why={"answers": "nobody asked"},
    )  # fmt: skip


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    before, after = full(tmp_path), material(tmp_path)
    keep(before, deep=False)
    assert recall(after, deep=False)
    for part in ("importance", "explanations", "differences", "why"):
        assert repr(getattr(after, part)) == repr(getattr(before, part))


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_of_answers_are_read_as_they_were(unit: str, tmp_path: Path) -> None:
    """Also those that nanoseconds do not reach, such as open ends."""
    times = np.array(["2024-01-01", "2262-01-01" if unit == "ns" else "9999-12-31"])
    seeds = Seeds(np.arange(2), times.astype(f"datetime64[{unit}]"))
    before, after = full(tmp_path), material(tmp_path)
    before.answers = Answers(
        seeds, np.zeros(2), np.zeros(2), np.zeros(2, np.int64), ["a", "b"]
    )  # fmt: skip
    keep(before, deep=False)
    assert recall(after, deep=False)
    assert after.answers is not None
    # Compared as texts: NumPy compares times of two units in the finer one, beyond its end.
    assert after.answers.seeds.times.astype(str).tolist() == seeds.times.astype(str).tolist()


@pytest.mark.parametrize(
    "place",
    [
        ("importance", "metric"), ("importance", "seeds"), ("importance", "score"),
        ("importance", "tables", 0, "hidden", 1), ("importance", "tables", 0, "table"),
        ("explanations", 0, "time"), ("explanations", 0, "tables", 1, "newest"),
        ("explanations", 0, "rows", 1, "cells", "x"), ("explanations", 0, "rows", 0, "effect"),
        ("differences", "key", 0), ("differences", "scored", "k"), ("differences", "silhouette"),
    ],
)  # fmt: skip
def test_what_is_of_another_type_is_not_used(place: tuple[Any, ...], tmp_path: Path) -> None:
    keep(full(tmp_path), deep=False)
    content = json.loads((tmp_path / "shown.json").read_text())
    parent = content
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = {"not": ["this"]}
    (tmp_path / "shown.json").write_text(json.dumps(content))
    after = material(tmp_path)
    assert not recall(after, deep=False)
    assert after.importance is None
    assert not after.kept
