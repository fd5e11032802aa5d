"""Every model explains itself: what adds up, what is used, and what a blend makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import relfrog
from relfrog import Run, load_run
from relfrog.analysis import explain
from relfrog.analysis.explained import Explanation
from relfrog.cli import cli
from relfrog.kinds import MODELS, ModelKind
from relfrog.models.past_labels import EntityMean
from relfrog.reporting import report
from small_store import fit

AT = "2020-11-05 13:00"
LABELS = "labels of the task"


def total(found: Explanation) -> float:
    assert found.base is not None
    return found.base + sum(share.effect for share in found.features)


def said(run: Run, key: str) -> float:
    frame = run.predict(AT, [key])
    chances = [name for name in frame if str(name).startswith("probability_")]
    return float(frame[chances].iloc[0].max() if chances else frame["prediction"].iloc[0])


def answered(found: Explanation) -> float:
    """The number that `predict` gives: after calibration, if there is one."""
    return found.prediction if found.calibrated is None else found.calibrated


@pytest.mark.slow
@pytest.mark.parametrize("task", ["buys", "spends", "wants", "sorts"])
@pytest.mark.parametrize("model", ["lightgbm", "mean", "recent", "global-mean"])
def test_effects_add_up_to_what_predict_says(
    model: str, task: str, store: Path, tmp_path: Path
) -> None:
    run = fit(store, tmp_path / "run", task, model=model, trials=1)
    for key in ("P03", "P15"):
        found = explain(run, key, AT, rows=10_000)
        frame = run.predict(AT, [key])
        shown = frame.filter(regex="^(prediction|probability_.*)$").iloc[0]
        numbers = pd.to_numeric(shown, errors="coerce").dropna()
        # The likeliest label before calibration need not be so after it.
        assert any(answered(found) == pytest.approx(value, rel=1e-6) for value in numbers)
        assert total(found) == pytest.approx(found.prediction, rel=1e-6)
        by_table = sum(share.effect or 0.0 for share in found.tables)
        assert by_table == pytest.approx(found.prediction - found.base, rel=1e-6, abs=1e-6)
        when = pd.Timestamp(AT)
        assert all(row.time is None or row.time <= when for row in found.rows)
        assert all(share.newest is None or share.newest <= when for share in found.tables)
        assert all(share.last is None or share.last <= when for share in found.features)
        if model != "lightgbm":
            assert {row.table for row in found.rows} == {LABELS}
        else:
            assert {"orders", LABELS} <= {row.table for row in found.rows}
            for table in {row.table for row in found.rows} - {"people"}:
                carried = sum(row.effect for row in found.rows if row.table == table)
                with_rows = sum(f.effect for f in found.features if f.table == table and f.rows)
                assert carried == pytest.approx(with_rows, rel=1e-6, abs=1e-9)


def test_the_effect_of_a_label_is_what_hiding_it_does(store: Path, tmp_path: Path) -> None:
    for model, middle in (("mean", np.mean), ("median", np.median)):
        run = fit(store, tmp_path / model, "spends", model=model)
        found = explain(run, "P15", AT)
        values = [float(row.cells["label"]) for row in found.rows]
        assert found.prediction == pytest.approx(middle(values), rel=1e-3)  # cells are rounded
        for place, row in enumerate(found.rows):
            without = middle(values[:place] + values[place + 1 :])
            assert row.effect == pytest.approx(found.prediction - without, abs=30)
        assert len(found.rows) == found.features[0].rows > 5


@pytest.mark.parametrize("model", ["lightgbm", "popularity", "past-visit"])
def test_lists(model: str, shop: Path, tmp_path: Path) -> None:
    run = fit(shop, tmp_path / "run", "list", model=model)
    found = explain(run, "P15", AT)
    best = run.predict(AT, ["P15"]).iloc[0]
    assert str(best["id"]) in found.answer
    assert total(found) == pytest.approx(found.prediction, rel=1e-6)
    assert found.rows
    if model == "lightgbm":
        assert found.prediction == pytest.approx(best["score"])


@pytest.mark.slow
def test_a_blend_is_its_members(store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", "wants", model="auto", trials=1, epochs=1)
    weights = {"lightgbm": 0.5, "frog": 0.3, "recent": 0.2}
    run.model._weights = weights  # type: ignore[attr-defined]
    blend = run.folder / "blend.json"
    content = json.loads(blend.read_text()) | {"weights": weights}
    relfrog.support.files.write_json(blend, content)
    for opened in (run, load_run(run.folder)):
        found = explain(opened, "P15", AT, rows=500)
        assert answered(found) == pytest.approx(said(opened, "P15"), rel=1e-6)
        assert {m.name: m.weight for m in found.members} == weights
        parts = [m.weight * m.prediction for m in found.members]
        assert sum(parts) == pytest.approx(found.prediction, rel=1e-6)
        # Each member is explained for the class that the blend finds likeliest.
        of_member: dict[str, float] = {}
        for share in found.features:
            of_member[share.member] = of_member.get(share.member, 0.0) + share.effect
        for member in found.members:
            if member.base is not None:
                whole = member.weight * (member.prediction - member.base)
                assert of_member[member.name] == pytest.approx(whole, rel=1e-6)
        assert {row.table for row in found.rows} >= {"orders", LABELS}
        for row in found.rows:
            assert all(to == -1 or found.rows[to].hops <= row.hops for to in row.leads_to)


def test_a_model_of_ones_own_is_explained_by_tables(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(relfrog.models.Model):
        def fit(self, *_: Any, **__: Any) -> None:
            """Nothing to learn."""

        save = load = fit

        def predict(self, seeds: Any, cutoff: Any, request: Any = None) -> Any:
            inner = EntityMean(self.prepared, self.labels)
            inner.constant = np.array([0.25])
            return inner.predict(seeds, cutoff)

    kinds = dict.fromkeys(("binary_classification",), Own)
    monkeypatch.setitem(MODELS, "own", ModelKind("own", kinds))
    run = fit(store, tmp_path / "run", model="own")
    found = explain(run, "P15", AT)
    assert answered(found) == pytest.approx(said(run, "P15"))
    effects = {share.table: share.effect for share in found.tables}
    assert effects[LABELS] == pytest.approx(found.prediction - 0.25)
    assert effects["orders"] == effects["reviews"] == 0
    assert effects["people"] is None


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgbm", "auto"])
def test_the_report_shows_all_sections(model: str, store: Path, tmp_path: Path) -> None:
    run = fit(store, tmp_path / "run", model=model, trials=1, epochs=1, baselines=True)
    text = report(run).read_text(encoding="utf-8")
    missing = text.count('class="missing"')
    # Only a network has embeddings; all else has an answer.
    assert missing == (1 if model == "lightgbm" else 0)
    assert "Features behind this prediction" in text
    assert "Rows behind this prediction" in text
    assert "rows hidden" in text
    if model == "auto":
        assert "This is the member frog" in text
        assert "undecided" in text
    else:
        assert "learning_rate" in text
    again = report(load_run(run.folder), tmp_path / "again.html").read_text(encoding="utf-8")
    assert "Features behind this prediction" in again
    shown = CliRunner().invoke(cli, ["explain", str(run.folder), "--entity", "P15", "--at", AT])
    assert shown.exit_code == 0, shown.output
    assert "feature" in shown.output
