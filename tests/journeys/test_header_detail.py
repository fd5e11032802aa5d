"""Headers and details: the future of the source changes no prediction, and who says so is right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relfrog
from helpers import inside
from oracles.header_detail import TEST, UNITS, VAL, make_trade, without_future, write_trade
from relfrog.analysis.altered_future import WAYS
from relfrog.errors import RunError, SchemaError
from small_store import QUICK

#: Before and after the split times, and where hardly anything is left.
TIMES = ("2020-11-15", "2020-09-10 12:00:00", "2020-05-20", "2020-01-25")


def make_dataset(folder: Path, seed: int, **options: Any) -> Path:
    """Import a trade and ask how many units of each product will be ordered."""
    address = write_trade(folder / "trade.db", make_trade(seed))
    relfrog.import_database(address, folder / "trade", val=VAL, test=TEST, **options)
    relfrog.add_task(
        folder / "trade", "units", UNITS, type="regression", entity="products", horizon="10 days",
        eval_times=2,
    )  # fmt: skip
    return folder / "trade"


@pytest.fixture(scope="session")
def trade(once: Any) -> Callable[..., Path]:
    """Datasets by seed and what is said of times, each made once."""

    def made(seed: int, *time: str) -> Path:
        name = f"trade-{seed}-{len(time)}"
        return Path(once(name, lambda folder: make_dataset(folder, seed, time=time)) / "trade")

    return made


def trained(dataset: Path, out: Path, model: str) -> relfrog.Run:
    settings = {"trials": 1} if model == "lightgbm" else {**QUICK, "layers": 3, "epochs": 1}
    return relfrog.train(dataset, "units", out, model=model, settings=settings, baselines=False)


def moved(run: Path, dataset: Path, folder: Path) -> relfrog.Run:
    """The same run on another dataset folder."""
    copy = Path(shutil.copytree(run, folder))
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | {"dataset": str(dataset)}))
    return relfrog.load_run(copy)


@pytest.mark.filterwarnings("ignore::relfrog.errors.RelFrogWarning")  # of times without rows
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_without_its_future_the_source_gives_the_same_predictions(
    seed: int, trade: Callable[..., Path], tmp_path: Path
) -> None:
    """Later headers are deleted, with all that names them, and the source is imported again."""
    dataset = trade(seed)
    runs = [trained(dataset, tmp_path / model, model) for model in ("frog", "lightgbm")]
    for number, time in enumerate(TIMES[seed::2]):
        here = tmp_path / str(number)
        here.mkdir()
        past = write_trade(here / "past.db", without_future(make_trade(seed), time))
        relfrog.import_database(past, here / "trade", mapping=dataset / "mapping.yaml")
        shutil.copytree(
            dataset / "tasks", here / "trade" / "tasks", ignore=shutil.ignore_patterns("*.parquet")
        )
        thens = [moved(run.folder, here / "trade", here / run.folder.name) for run in runs]
        for then, run in zip(thens, runs, strict=True):
            pd.testing.assert_frame_equal(then.predict(time), run.predict(time), check_exact=True)
    # It is not always the same; trees that found nothing answer with a constant.
    pairs = [(t.predict(TIMES[0]), r.predict(TIMES[0])) for t, r in zip(thens, runs, strict=True)]
    assert any(not np.allclose(a["prediction"], b["prediction"]) for a, b in pairs)


@pytest.fixture(scope="module", params=["frog", "lightgbm"])
def run(
    request: pytest.FixtureRequest,
    trade: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> relfrog.Run:
    """A run on a trade."""
    return trained(trade(3), tmp_path_factory.mktemp("trade") / "run", request.param)


@pytest.mark.slow
def test_certificates_say_what_they_cannot_vouch_for(
    run: relfrog.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ask = ["predict", str(run.folder), "--at", "2020-09-10", "--certify", "--out"]
    code, _, err = inside(capfd, *ask, str(tmp_path / "p.csv"))
    assert code == 0, err
    assert "certified, except for rows of products (30), which are always visible: 30 pred" in err
    about = json.loads((tmp_path / "p.csv.certificate.json").read_text())
    assert about["always_visible"] == {"products": 30}
    assert about["sentence"] in err
    assert about["tables"]["lines"]["time_column"] == "known_from"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["frog", "lightgbm"])
def test_details_that_are_always_visible_are_a_leak_that_is_found(
    model: str, trade: Callable[..., Path], tmp_path: Path
) -> None:
    """Their headers alone could be removed, altered and invented without a change."""
    certified = trained(trade(3, "lines=none", "parts=none"), tmp_path / "run", model).certify()
    certified.predict("2020-09-10")
    certificate = certified.certificate
    assert not certificate.holds
    assert set(certificate.about["always_visible"]) == {"lines", "parts", "products"}
    assert certificate.sentence.startswith("the predictions know the future: ")
    assert "Rows that are always visible name later rows: lines (orders)" in certificate.sentence
    assert "--time lines=orders" in certificate.sentence
    assert not any(certificate.about["trial"][way]["identical"] for way in WAYS)


@pytest.mark.slow
def test_a_run_names_the_tables_that_are_dated_otherwise(
    run: relfrog.Run, trade: Callable[..., Path], tmp_path: Path
) -> None:
    other = moved(run.folder, trade(3, "lines=none", "parts=none"), tmp_path / "run")
    with pytest.raises((SchemaError, RunError), match=r"lines \(by no time, then by known_from\)"):
        other.predict("2020-09-10")


def test_reports_say_which_times_are_inherited_and_what_is_always_visible(
    trade: Callable[..., Path], tmp_path: Path
) -> None:
    from relfrog.reporting.sections.provenance import _certificates, _times

    tables = relfrog.inspect(trade(3), labels=False)["tables"]
    assert dict(_times(tables)) == {
        "times inherited by": "lines (from orders), orders (from campaigns), "
        "parts (from lines, parts)",
        "always visible": "products (30 rows)",
    }
    said = {"sentence": "certified, except for rows of products (30)", "holds": True}
    (tmp_path / "evaluate-test-rolling.certificate.json").write_text(json.dumps(said))
    (tmp_path / "older.certificate.json").write_text("{}")
    assert _certificates(tmp_path) == [
        ("certificate of evaluate-test-rolling", "certified, except for rows of products (30)")
    ]


@pytest.mark.slow
def test_splits_that_move_with_the_data_leave_a_run_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Proposed splits are proposed anew with every import; a run keeps those it was trained with."""
    address = write_trade(tmp_path / "trade.db", make_trade(5))
    dataset = tmp_path / "trade"
    relfrog.import_database(address, dataset)
    relfrog.add_task(
        dataset, "units", UNITS, type="regression", entity="products", horizon="10 days",
        eval_times=2,
    )  # fmt: skip
    run = trained(dataset, tmp_path / "run", "lightgbm")
    time, before = "2020-08-20", relfrog.open_dataset(dataset).test_timestamp
    known = run.predict(time)
    (tmp_path / "trade.db").unlink()
    write_trade(tmp_path / "trade.db", without_future(make_trade(5), time))
    code, said, _ = inside(capfd, "import", address, str(dataset), "--overwrite")
    assert code == 0
    assert "Tasks kept, with new labels: units" in said
    assert relfrog.open_dataset(dataset).test_timestamp < before
    then = relfrog.load_run(tmp_path / "run")
    pd.testing.assert_frame_equal(then.predict(time), known, check_exact=True)
