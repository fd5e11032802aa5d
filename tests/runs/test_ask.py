"""From a database and a question to predictions, in one call."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import relfrog
from helpers import inside
from relfrog.errors import DatasetError, QueryError, UsageError
from relfrog.runs.answers import answer
from relfrog.runs.ask import FirstAnswer, find_dataset, task_name
from relfrog.runs.forecast import Forecast
from small_store import QUICK

QUERY = "PREDICT COUNT(orders.*, 0, 20, days) > 2 FOR EACH people.code"
SETTINGS = {**QUICK, "trials": 1}


@pytest.fixture(scope="module")
def answered(
    store: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, relfrog.Run, list[FirstAnswer]]:
    """A question that was asked of a database file, and what was said first."""
    folder = tmp_path_factory.mktemp("ask")
    first: list[FirstAnswer] = []
    run = relfrog.ask(
        f"sqlite:///{store.parent / 'store.db'}", QUERY, folder / "run", dataset=folder / "shop",
        settings=SETTINGS, minutes=1, first=first.append,
    )  # fmt: skip
    assert isinstance(run, relfrog.Run)
    return folder, run, first


@pytest.mark.slow
def test_a_database_and_a_question_give_predictions(
    answered: tuple[Path, relfrog.Run, list[FirstAnswer]],
) -> None:
    folder, run, first = answered
    assert (folder / "shop" / "manifest.yaml").is_file()
    assert run.config.model == "auto"
    assert run.config.minutes == 1
    (told,) = first
    assert told.model in ("mean", "global-mean", "recent", "median", "global-median")
    assert len(told.predictions) == len(run.predict())
    found = answer(run, QUERY)
    assert not found.chosen
    assert found.population is not None
    pd.testing.assert_frame_equal(found.predictions, run.predict())
    some = answer(run, QUERY.replace("FOR EACH people.code", "FOR people.code IN ('P03', 'P01')"))
    assert some.predictions["code"].tolist() == ["P03", "P01"]
    assumed = answer(run, f"{QUERY} ASSUMING people.city = 'Oslo'")
    assert "prediction_supposed" in assumed.predictions
    assert "people.city = Oslo" in assumed.words


@pytest.mark.slow
def test_what_was_asked_before_is_not_learned_again(
    answered: tuple[Path, relfrog.Run, list[FirstAnswer]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, run, _ = answered
    out = str(folder / "run")
    code, said, errors = inside(
        capfd, "ask", str(folder / "shop"), QUERY, "--out", out, "--json", "--no-report"
    )
    assert code == 0
    assert "answered before" in errors
    told = json.loads(said)
    assert told["runs"] == [out]
    assert told["metrics"] == [run.metrics]
    assert len(told["predictions"]) == 10
    assert told["baselines"][0].keys() >= {"mean"}
    code, said, _ = inside(capfd, "ask", str(folder / "shop"), QUERY, "--out", out, "--no-report")
    assert "predictions, of which 10 are shown:" in said
    assert f"The run is {out}. Try next:" in said  # there is no report to point to
    other = QUERY.replace("> 2", "> 3")
    with pytest.raises(UsageError, match="another question"):
        relfrog.ask(folder / "shop", other, folder / "run")


@pytest.mark.slow
def test_a_forecast_has_a_row_per_window(
    answered: tuple[Path, relfrog.Run, list[FirstAnswer]],
) -> None:
    folder, _, _ = answered
    query = "PREDICT SUM(orders.amount, 0, 20, days) FORECAST 2 TIMEFRAMES FOR EACH people.code"
    found = relfrog.ask(folder / "shop", query, folder / "forecast", settings={"model": "mean"})
    assert isinstance(found, Forecast)
    frame = found.predict()
    assert frame["step"].tolist()[:4] == [1, 2, 1, 2]
    assert frame["code"].tolist()[0] == frame["code"].tolist()[1]
    assert "step" in found._repr_html_()


def test_where_a_dataset_comes_from(
    bare_shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_dataset(bare_shop) == (bare_shop, ())
    with pytest.raises(DatasetError, match="neither a dataset folder nor a database"):
        find_dataset(tmp_path / "nothing")
    with pytest.raises(UsageError, match="leave --dataset out"):
        find_dataset(bare_shop, tmp_path / "x")
    (tmp_path / "csv").mkdir()
    with pytest.raises(DatasetError, match=r"was imported from sqlite:.*, not from .*csv\."):
        find_dataset(tmp_path / "csv", bare_shop)


@pytest.mark.parametrize(
    "address", ["shop.db", "./shop.db", "sqlite:///shop.db", "sqlite:///{folder}/shop.db"]
)
def test_a_source_is_recognised_however_it_is_written(
    address: str, bare_shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = json.loads((bare_shop / "import.json").read_text())["source"]
    shutil.copy(recorded.removeprefix("sqlite:///"), tmp_path / "shop.db")
    shutil.copy(tmp_path / "shop.db", tmp_path / "other.db")
    monkeypatch.chdir(tmp_path)
    assert find_dataset("shop.db")[0] == Path("shop")
    folder, (said,) = find_dataset(address.format(folder=tmp_path))
    assert folder == Path("shop")
    assert said.startswith("using shop, imported from sqlite:///shop.db before")
    with pytest.raises(DatasetError, match=r"was imported from sqlite:///shop.db, not from other"):
        find_dataset("other.db", "shop")


def test_a_wrong_question_costs_nothing(bare_shop: Path, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="did you mean orders"):
        relfrog.ask(bare_shop, "PREDICT COUNT(order.*, 0, 9) FOR EACH people.id", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not (bare_shop / "tasks").exists()


def test_tasks_are_named_after_the_question(bare_shop: Path) -> None:
    from relfrog.queries.new_task import plan_query

    question = "PREDICT COUNT(orders.*, 0, 9) FOR EACH people.id"
    name = task_name(plan_query(bare_shop, question))
    assert name.startswith("people-count-orders-")
    assert name == task_name(plan_query(bare_shop, question.replace(" FOR", "\n FOR")))
    assert name != task_name(plan_query(bare_shop, question.replace("9", "8")))
