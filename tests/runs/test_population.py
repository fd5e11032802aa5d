"""Predictions are for whom the task asks about, found from rows up to the time alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import relfrog
from relfrog.errors import RelFrogWarning, UsageError
from small_store import TEST, VAL, copied, fit, truncate

WINDOW = "o.ordered_at > t.timestamp AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'"
#: Who ordered in the 20 days before, whatever comes.
ACTIVE = f"""
SELECT t.timestamp, p.code, CAST(count(o.id) > 1 AS INTEGER) AS buys
FROM timestamps t CROSS JOIN people p LEFT JOIN orders o ON o.person = p.code AND {WINDOW}
WHERE p.joined <= t.timestamp AND EXISTS (SELECT 1 FROM orders e WHERE e.person = p.code
    AND e.ordered_at <= t.timestamp AND e.ordered_at > t.timestamp - INTERVAL '20 days')
GROUP BY ALL
"""
#: Only those who will order.
BUYERS = f"""
SELECT t.timestamp, o.person AS code, avg(o.amount) AS amount
FROM timestamps t JOIN orders o ON {WINDOW} WHERE o.person IS NOT NULL GROUP BY ALL
"""
#: Of those who ordered before; without later orders their label is NULL.
MEANS = f"""
SELECT t.timestamp, p.code, avg(o.amount) AS amount
FROM timestamps t CROSS JOIN people p JOIN orders o ON o.person = p.code AND {WINDOW}
WHERE p.joined <= t.timestamp GROUP BY ALL
"""


@pytest.fixture(scope="module")
def dataset(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(store, tmp_path_factory.mktemp("asked"))
    for name, kind, sql in (("active", "binary", ACTIVE), ("buyers", "regression", BUYERS),
                            ("means", "regression", MEANS)):  # fmt: skip
        relfrog.add_task(
            folder, name, sql, type=kind, entity="people", horizon="20 days", eval_times=3
        )
    return folder


@pytest.fixture(scope="module")
def runs(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, relfrog.Run]:
    where = tmp_path_factory.mktemp("runs")
    return {
        name: fit(dataset, where / name, name, model="mean")
        for name in ("active", "buyers", "means", "buys")
    }


def ordered(run: relfrog.Run, begin: pd.Timestamp, end: pd.Timestamp) -> set[int]:
    frame = run.prepared.db.table_dict["orders"].df
    inside = (frame["ordered_at"] > begin) & (frame["ordered_at"] <= end)
    return set(frame["person"][inside].dropna().astype(int))


@pytest.mark.slow
@pytest.mark.parametrize("time", [VAL, TEST, TEST + pd.Timedelta("33 days")])
def test_a_population_that_the_past_decides_is_the_sql_s_own(
    time: pd.Timestamp, runs: dict[str, relfrog.Run]
) -> None:
    run = runs["active"]
    found = run.population(time)
    joined = np.flatnonzero(run.prepared.graph.visible("people", time))
    assert found.rule == "sql"
    assert set(found.rows) == ordered(run, time - pd.Timedelta("20 days"), time) & set(joined)
    assert len(found.rows) + found.others == len(joined)
    assert len(run.predict(time)) == len(found.rows)
    assert len(run.predict(time, everyone=True)) == len(joined)


@pytest.mark.slow
def test_where_the_sql_asks_everyone_there_are_no_others(runs: dict[str, relfrog.Run]) -> None:
    found = runs["buys"].population(TEST)
    assert (found.rule, found.others) == ("sql", 0)


@pytest.mark.parametrize("name", ["buyers", "means"])
def test_a_population_that_the_future_decides_is_learned_from_earlier_times(
    name: str, runs: dict[str, relfrog.Run]
) -> None:
    """As a slow version tries the rules."""
    run, time = runs[name], TEST
    step = pd.Timedelta("20 days")

    def visible(at: pd.Timestamp) -> set[int]:
        return set(np.flatnonzero(run.prepared.graph.visible("people", at)).tolist())

    def rule(at: pd.Timestamp, kind: str) -> set[int]:
        first = {"last window": at - step, "last 3 windows": at - 3 * step}.get(kind)
        chosen = ordered(run, first or pd.Timestamp("2019-01-01"), at)
        return visible(at) & (visible(at) if kind == "all" else chosen)

    def score(kind: str) -> float:
        scores = []
        for number in (1, 2, 3):
            at = time - number * step
            wanted = ordered(run, at, at + step) & visible(at)
            chosen = rule(at, kind)
            scores.append(2 * len(chosen & wanted) / (len(chosen) + len(wanted)))
        return round(float(np.mean(scores)), 2)

    found = run.population(time)
    kinds = ["last window", "last 3 windows", "any window", "all"]
    assert score(found.rule) == max(map(score, kinds))
    assert set(found.rows.tolist()) == rule(time, found.rule)
    assert "cannot be known yet" in found.words
    assert "earlier times" in found.words


@pytest.mark.slow
def test_whom_is_asked_does_not_depend_on_later_rows(
    runs: dict[str, relfrog.Run], dataset: Path, tmp_path: Path
) -> None:
    cut = copied(dataset, tmp_path)
    truncate(cut, TEST)
    for run in runs.values():
        again = relfrog.load_run(run.folder)
        again.about["dataset"] = str(cut)
        assert again.population(TEST).rows.tolist() == run.population(TEST).rows.tolist()
        assert again.population(TEST).rule == run.population(TEST).rule


def test_before_any_window_has_closed_everyone_is_asked(runs: dict[str, relfrog.Run]) -> None:
    found = runs["buyers"].population("2019-12-01")
    assert found.rule == "all"
    assert "no label window had closed" in found.words


def test_entities_and_everyone_exclude_each_other(runs: dict[str, relfrog.Run]) -> None:
    with pytest.raises(UsageError, match="leave one"):
        runs["buys"].predict(TEST, ["P01"], everyone=True)


def test_times_outside_the_data_are_warned_of(runs: dict[str, relfrog.Run]) -> None:
    run = runs["buys"]
    with pytest.warns(RelFrogWarning, match="before the first row"):
        run.predict("1999-01-01", everyone=True)
    with pytest.warns(RelFrogWarning, match="after the newest row"):
        run.predict("2031-01-01")


def test_beside_a_prediction_stand_its_run_its_horizon_and_when_it_was_made(
    runs: dict[str, relfrog.Run],
) -> None:
    frame = runs["active"].predict(TEST, stamped=True)
    assert set(frame["run"]) == {str(runs["active"].folder)}
    assert set(frame["horizon"]) == {"20 days"}
    assert abs(frame["made_at"].iloc[0] - pd.Timestamp.now("UTC").tz_localize(None)) < pd.Timedelta(
        "5 min"
    )
    assert set(frame["decision"]) <= {0, 1}
