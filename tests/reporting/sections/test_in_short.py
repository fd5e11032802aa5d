"""What a report opens with: the question, what acting on it catches, what to trust."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relfrog.kinds import TASK_KINDS
from relfrog.models.postprocessing.bundle import Postprocessing
from relfrog.models.postprocessing.calibrators import Platt
from relfrog.reporting import report
from relfrog.reporting.kind_parts import KIND_PARTS
from relfrog.reporting.material import Material
from relfrog.reporting.question import question, rows_name
from relfrog.reporting.sections.in_short import SHARES, gains, probabilities_words
from relfrog.runs.run import Run
from small_store import fit


@given(rows=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=60))
def test_gains_are_the_mean_over_all_orders_of_ties(rows: list[tuple[bool, int]]) -> None:
    truth = np.array([row[0] for row in rows]).astype(int)
    predicted = np.array([row[1] for row in rows]) / 6
    found = gains(truth, predicted)
    if not truth.any():
        assert found == []
        return
    for one, share in zip(found, SHARES, strict=True):
        count = max(1, round(share * len(truth)))
        cut = np.sort(predicted)[::-1][count - 1]
        above, at = predicted > cut, predicted == cut
        hits = truth[above].sum() + (count - above.sum()) * truth[at].mean()
        assert one.hits == pytest.approx(hits)
        assert one.caught == pytest.approx(hits / truth.sum())
        assert one.lift == pytest.approx(hits / count / truth.mean())


@pytest.mark.parametrize("kind", list(TASK_KINDS))
def test_the_question_is_the_users_own_or_made_of_the_task(kind: str) -> None:
    task: dict[str, Any] = {
        "entity_table": "households", "target_table": "Product", "label": "lapses",
        "horizon_seconds": 86400 * 30.0,
    }  # fmt: skip
    about = {"task": "lapse", "task_type": kind}
    template = KIND_PARTS[kind].question
    made = question(about, {"task": task}, template)
    assert made.endswith(" in the next 30 days?")
    assert "households" in made
    assert "a row of" not in made
    assert "“lapses”" in made or "products" in made
    own = {"task": {**task, "description": "Who stops buying?"}}
    assert question(about, own, template) == "Who stops buying?"
    assert question(about, None, template) == "Task lapse"
    assert question(about, {"task": {**task, "horizon_seconds": 0}}, template).endswith("?")


def test_rows_are_called_by_the_name_of_their_table() -> None:
    names = ("Customer", "order_lines", "Category", "people", "status", "Kündigung")
    assert [rows_name(name) for name in names] == [
        "customers", "order lines", "categories", "people", "statuses", "rows of Kündigung",
    ]  # fmt: skip


def words(truth: Any, predicted: Any, raw: Any) -> str:
    m = Material(SimpleNamespace())  # type: ignore[arg-type]
    m.postprocessing = Postprocessing(Platt(1.0, 0.0))
    return str(probabilities_words(m, truth, predicted, raw))


def test_a_rate_that_has_moved_is_said_in_words() -> None:
    rng = np.random.default_rng(0)
    predicted = rng.uniform(0.3, 0.6, 2000)
    truth = (rng.random(2000) < predicted - 0.25).astype(int)
    said = words(truth, predicted, predicted)
    assert "far off" in said
    assert "too high" in said
    assert "has moved between validation and test" in said


def test_noise_of_few_labels_is_not_called_far_off() -> None:
    rng = np.random.default_rng(1)
    predicted = rng.uniform(0.3, 0.6, 60)
    truth = (rng.random(60) < predicted).astype(int)
    assert "far off" not in words(truth, predicted, predicted)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["buys", "spends"])
def test_a_report_opens_with_what_a_manager_asks(task: str, store: Path, tmp_path: Path) -> None:
    run: Run = fit(store, tmp_path / "run", task, model="mean", baselines=True)
    text = report(run).read_text(encoding="utf-8")
    opening = text[text.index('id="answer"') : text.index('id="schema"')]
    expected = {
        "buys": ["highest 1 %", "highest 5 %", "highest 10 %", "Decisions: yes from", "points off"],
        "spends": ["On average the prediction is", "A typical “cents”", "Intervals for 80 %"],
    }[task]
    for part in expected:
        assert part in opening, part
    scores = run.metrics["test"]["rolling"]
    if task == "spends":
        assert f"{100 * scores['coverage']:.1f} %" in opening
    else:
        assert f"{100 * scores['recall']:.1f} %" in opening
