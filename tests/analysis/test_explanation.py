"""One prediction explained: effects are what happens without a row, and nothing is later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relfrog import Run
from relfrog.analysis import explain
from relfrog.datasets import source_keys
from relfrog.errors import TaskError, UsageError
from small_store import change, copied, fit

AT = "2020-11-05 13:00"


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that looks at all children of a row."""
    folder = tmp_path_factory.mktemp("explaining") / "run"
    return fit(store, folder, neighbors=-1, epochs=2)


def test_it_explains_what_predict_says(whole: Run) -> None:
    for key in ("P03", "P17"):
        found = explain(whole, key, AT, rows=5)
        said = whole.predict(AT, [key])["prediction"].iloc[0]
        assert found.prediction == pytest.approx(said, abs=1e-6)
        assert (found.table, found.key, found.time) == ("people", key, pd.Timestamp(AT))
        assert found.answer == "probability of buys"


def test_nothing_later_is_used_and_the_newest_is_named(whole: Run) -> None:
    tables = whole.prepared.db.table_dict
    for at in ("2020-06-01", AT):
        found = explain(whole, "P12", at, rows=400)
        assert {share.table for share in found.tables} == {*whole.prepared.graph.num_rows}
        for share in found.tables:
            times = [r.time for r in found.rows if r.table == share.table and r.time is not None]
            if share.table == "people":
                times.append(tables["people"].df.set_index("code_key")["joined"]["P12"])
            assert all(time <= pd.Timestamp(at) for time in times)
            assert share.newest == max(times, default=None)
        assert found.looked_at == 1 + len(found.rows)


@pytest.mark.slow
def test_an_effect_is_what_removing_the_row_does(
    whole: Run, store: Path, tmp_path: Path
) -> None:  # fmt: skip
    found = explain(whole, "P15", AT, rows=400)
    reviews = [row for row in found.rows if row.table == "reviews" and row.effect]
    assert reviews
    changed = copied(store, tmp_path)
    for row in (reviews[0], reviews[-1]):
        keys = source_keys(store, "reviews")
        assert keys is not None
        number = int(np.flatnonzero(keys["id"] == int(row.key))[0])
        before = pd.read_parquet(changed / "db" / "reviews.parquet")

        def cut(frame: pd.DataFrame, number: int = number) -> pd.DataFrame:
            frame["order_id"] = frame["order_id"].astype("Int64")
            frame.loc[number, "order_id"] = pd.NA
            return frame

        change(changed, "reviews", cut)
        about = {**whole.about, "dataset": str(changed)}
        other = Run(whole.folder, about, whole.config)
        without = other.predict(AT, ["P15"])["prediction"].iloc[0]
        assert found.prediction - without == pytest.approx(row.effect, abs=1e-5)
        change(changed, "reviews", lambda frame, before=before: before)


@pytest.mark.slow
def test_few_rows_are_those_that_count_most(whole: Run) -> None:
    every = explain(whole, "P15", AT, rows=400)
    some = explain(whole, "P15", AT, rows=20)
    effect = {(row.table, row.key): row.effect for row in every.rows}
    assert len(some.rows) == 20
    assert all(effect[r.table, r.key] == pytest.approx(r.effect, abs=1e-6) for r in some.rows)
    strongest = max(abs(row.effect) for row in every.rows)
    assert max(abs(row.effect) for row in some.rows) >= 0.5 * strongest
    sizes = [abs(row.effect) for row in some.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert every.tables == some.tables
    assert some == explain(whole, "P15", AT, rows=20)


def test_every_row_leads_to_the_entity(whole: Run) -> None:
    found = explain(whole, "P15", AT, rows=400)
    for row in found.rows:
        assert row.leads_to
        for to in row.leads_to:
            assert to == -1 or found.rows[to].hops < row.hops
        assert (-1 in row.leads_to) == (row.hops == 1)


def test_who_is_unknown(whole: Run) -> None:
    with pytest.raises(TaskError, match="code=nobody"):
        explain(whole, "nobody", AT)
    with pytest.raises(UsageError, match="is no time"):
        explain(whole, "P03", "soon")


def test_many_rows_at_once_are_rows_one_by_one(
    whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    together = explain(whole, "P15", AT, rows=30)
    monkeypatch.setattr("relfrog.analysis.explanation.COPIES", 1)
    single = explain(whole, "P15", AT, rows=30)
    by_row = {(r.table, r.key): r.effect for r in single.rows}
    assert by_row.keys() == {(r.table, r.key) for r in together.rows}
    assert all(r.effect == pytest.approx(by_row[r.table, r.key], abs=1e-6) for r in together.rows)


def test_someone_without_a_past(whole: Run) -> None:
    found = explain(whole, "P03", "2019-01-01")  # before everyone joined
    assert found.looked_at == 1
    assert found.rows == ()
    (share,) = found.tables
    assert (share.table, share.rows, share.newest, share.effect) == ("people", 1, None, None)


@pytest.mark.parametrize("task", ["spends", "wants", "sorts", "list"])
def test_every_type_of_task(task: str, shop: Path, tmp_path: Path) -> None:
    run = fit(shop, tmp_path / "run", task, epochs=1)
    found = explain(run, "P15", AT, rows=6)
    said: Any = run.predict(AT, ["P15"])
    if task == "spends":
        assert found.answer == "predicted cents"
        expected = said["prediction"].iloc[0]
    elif task == "list":
        best = said.iloc[0]
        assert found.answer == f"score of things {best['id']}, the first of the list"
        expected = best["score"]
    else:
        chances = said[[c for c in said if str(c).startswith("probability_")]].iloc[0]
        assert found.answer.startswith(f"probability of {'title' if task == 'wants' else 'sorts'} ")
        expected = chances.max()
    shown = found.prediction if found.calibrated is None else found.calibrated
    assert shown == pytest.approx(expected, abs=1e-5)
    assert any(row.effect for row in found.rows)
