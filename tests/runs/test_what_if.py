"""What if: the answer is that of a database in which it is so."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import relfrog
from helpers import inside
from relfrog.datasets import source_keys
from relfrog.errors import RelFrogWarning, UsageError
from small_store import QUICK


@pytest.fixture(scope="module", params=["frog", "lightgbm"])
def run(
    store: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> relfrog.Run:
    out = tmp_path_factory.mktemp("what-if") / "run"
    settings = QUICK if request.param == "frog" else {"trials": 1}
    return relfrog.train(
        store, "spends", out, model=request.param, settings=settings, baselines=False
    )


def copied(run: relfrog.Run, folder: Path) -> tuple[Path, relfrog.Run]:
    """A copy of the dataset, and the run on it."""
    dataset = Path(shutil.copytree(run.about["dataset"], folder / "changed"))
    return dataset, relfrog.Run(run.folder, {**run.about, "dataset": str(dataset)}, run.config)


@pytest.mark.slow
def test_a_supposed_value_is_as_if_the_row_had_it(run: relfrog.Run, tmp_path: Path) -> None:
    found = run.predict(entities=["P03"], suppose={"people.city": "Oslo", "people.age": "33"})
    assert list(found) == [
        "code", "time", "prediction", "low", "high", "prediction_supposed", "low_supposed",
        "high_supposed", "difference",
    ]  # fmt: skip
    assert found["prediction"].tolist() == run.predict(entities=["P03"])["prediction"].tolist()
    dataset, other = copied(run, tmp_path)
    path = dataset / "db" / "people.parquet"
    frame = pd.read_parquet(path)
    row = source_keys(dataset, "people")["code"].tolist().index("P03")
    frame.loc[row, ["city", "age"]] = ["Oslo", 33]
    frame.to_parquet(path)
    assert other.predict(entities=["P03"])["prediction"][0] == found["prediction_supposed"][0]


@pytest.mark.slow
def test_a_supposed_event_is_as_if_it_had_happened(run: relfrog.Run, tmp_path: Path) -> None:
    time = run.moment()
    found = run.predict(time, entities=["P03"], suppose={"orders.amount": 50, "orders.thing": 2})
    dataset, other = copied(run, tmp_path)
    rows = source_keys(dataset, "people")["code"].tolist()
    things = source_keys(dataset, "things")["id"].tolist()
    path = dataset / "db" / "orders.parquet"
    frame = pd.read_parquet(path)
    new = {
        "id": len(frame),
        "person": rows.index("P03"),
        "thing": things.index(2),
        "amount": 50.0,
        "channel": None,
        "ordered_at": time,
    }
    keys = dataset / "keys" / "orders.parquet"
    pd.concat([frame, pd.DataFrame([new])], ignore_index=True).astype(frame.dtypes).to_parquet(path)
    known = pd.read_parquet(keys)
    pd.concat([known, pd.DataFrame({"id": [known["id"].max() + 1]})], ignore_index=True).to_parquet(
        keys
    )
    assert other.predict(time, entities=["P03"])["prediction"][0] == pytest.approx(
        found["prediction_supposed"][0], abs=1e-6
    )
    assert np.isfinite(found["difference"][0])


@pytest.mark.filterwarnings("ignore:people.city")
def test_what_cannot_be_supposed(run: relfrog.Run) -> None:
    for suppose, said in (
        ({"people.code": "P04"}, "cannot be supposed"),
        ({"people.aeg": 3}, "did you mean 'age'"),
        ({"people.age": "old"}, "people.age is a number, not 'old'"),
        ({"things.price": 3}, "does not refer to people"),
        ({"orders.thing": 999}, "is not in table things"),
        ({"people": None}, "say which column"),
        ({}, "nothing is supposed"),
    ):
        with pytest.raises(UsageError, match=said):
            run.predict(entities=["P03"], suppose=suppose)  # type: ignore[arg-type]
    with pytest.warns(RelFrogWarning, match="has not learned what it means"):
        run.predict(entities=["P03"], suppose={"people.city": "Atlantis"})


def test_the_command_shows_both(
    run: relfrog.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "what-if.csv"
    code, _, said = inside(
        capfd,
        "predict",
        str(run.folder),
        "--out",
        str(out),
        "--set",
        "people.age=70",
        "--set",
        "orders.amount=9",
    )
    assert code == 0, said
    frame = pd.read_csv(out)
    assert {"prediction", "prediction_supposed", "difference"} <= set(frame)


def test_the_command_prints_both_where_no_file_is_given(
    run: relfrog.Run, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = inside(capfd, "predict", str(run.folder), "--set", "people.age=70")
    assert code == 0
    head, _, *rows = said.splitlines()
    assert head.split()[-1] == "difference"
    assert 0 < len(rows) <= 20
    for option in (["--certify"], ["--table", "t"]):
        code, _, said = inside(capfd, "predict", str(run.folder), *option)
        assert code == 2
        assert "needs a file: --out FILE" in said
