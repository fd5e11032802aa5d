"""What a run says of itself beside the best quick model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from relfrog.analysis.verdict import verdict
from relfrog.kinds import TASK_KINDS
from relfrog.training.seeds import Seeds


def run_of(model: str, val: float, members: tuple[str, ...] = (), backtests: Any = None) -> Any:
    """A run of binary labels, with LightGBM and `recent` beside it, of which the first is better."""
    rng = np.random.default_rng(0)
    truth = (rng.random(300) < 0.4).astype(int)
    seeds = Seeds(np.arange(300), np.full(300, np.datetime64("2024-01-01", "us")), truth)

    def scores(value: float) -> dict[str, dict[str, dict[str, float]]]:
        return {split: {"rolling": {"roc_auc": value}} for split in ("val", "test")}

    return SimpleNamespace(
        kind=TASK_KINDS["binary_classification"], quantile=None,
        config=SimpleNamespace(regime="rolling", model=model),
        answers=lambda split: (seeds, truth, truth + rng.normal(size=300)),
        quick_scores=lambda: {"recent": scores(0.6), "lightgbm": scores(0.7)},
        metrics=scores(val), model=SimpleNamespace(members=dict.fromkeys(members)),
        blend={"backtests": backtests or {}},
    )  # fmt: skip


def test_a_network_that_is_behind_is_told_to_ask_auto() -> None:
    assert "train without --model" in verdict(run_of("frog", 0.65))[-1]
    assert "train without --model" not in " ".join(verdict(run_of("frog", 0.75)))


@pytest.mark.parametrize("backtests", [None, {"lightgbm": [0.9, 0.9], "together": [0.8, 0.8]}])
def test_auto_is_told_nothing_of_the_kind(backtests: Any) -> None:
    """What it answers with is no worse on validation: calibration can change the last digits."""
    said = verdict(run_of("auto", 0.7 - 1e-6, ("frog", "lightgbm"), backtests))
    assert len(said) == 2
    assert "the best quick baseline on validation" in said[1]


def test_a_quick_model_that_answers_alone_is_named_with_the_reason() -> None:
    alone = run_of("auto", 0.7, ("lightgbm",))
    assert verdict(alone)[1] == "The answers are those of lightgbm, which is best on validation."
    tested = run_of("auto", 0.7, ("lightgbm",), {"lightgbm": [0.7, 0.7], "recent": [0.6, 0.6]})
    assert verdict(tested)[1] == "The answers are those of lightgbm, which is best by backtests."
