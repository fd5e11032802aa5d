"""What a report says of the score beside others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relfrog.kinds import TASK_KINDS
from relfrog.reporting.material import Material
from relfrog.reporting.sections.scores import _statement, verdicts


@pytest.mark.parametrize(
    ("weights", "words", "others"),
    [
        ({"frog": 1.0}, "auto (here FROG alone) is 0.1000 ROC-AUC better", ["LightGBM"]),
        ({"lightgbm": 1.0}, "auto (here LightGBM alone) is 0.0000 ROC-AUC worse", ["FROG"]),
        ({"frog": 0.5, "lightgbm": 0.5}, "auto is 0.0000 ROC-AUC worse", ["FROG", "LightGBM"]),
    ],
)
def test_a_model_is_not_compared_with_itself(
    weights: dict[str, float], words: str, others: list[str]
) -> None:
    def scored(value: float) -> dict[str, Any]:
        return {split: {"rolling": {"roc_auc": value}} for split in ("val", "test")}

    members = {"frog": scored(0.8), "lightgbm": scored(0.7)}
    run: Any = SimpleNamespace(
        config=SimpleNamespace(model="auto"),
        kind=TASK_KINDS["binary_classification"],
        about={"task_type": "binary_classification"},
    )
    made = Material(run)
    made.blend, made.baselines, made.metrics = {"weights": weights}, members, scored(0.8)
    found = verdicts(made, None)
    assert [one.name for one in found] == others
    assert words in str(_statement(made, None, found))
