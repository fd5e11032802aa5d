"""Run folders of every format that there has been stay readable, and predict what they did."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

import relfrog
from relfrog import load_run
from relfrog.errors import SchemaError
from relfrog.features.columns import NewColumnWarning
from relfrog.models.postprocessing.bundle import Postprocessing
from relfrog.models.run_folder import FORMAT
from relfrog.support.files import write_json
from relfrog.support.forms import read_json

STORED = Path(__file__).parents[1] / "stored"


@pytest.fixture
def stored(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a stored folder; the run knows where its dataset is now."""
    copy = Path(shutil.copytree(STORED / getattr(request, "param", "format-1"), tmp_path / "copy"))
    about = read_json(copy / "run" / "run.json")
    write_json(copy / "run" / "run.json", {**about, "dataset": str(copy / "dataset")})
    return copy


def test_there_is_a_folder_of_every_format() -> None:
    names = {path.name for path in STORED.iterdir()}
    assert names == {f"format-{number}" for number in range(1, FORMAT + 1)}


@pytest.mark.parametrize("stored", sorted(p.name for p in STORED.iterdir()), indirect=True)
def test_an_old_run_predicts_what_it_did(stored: Path) -> None:
    run = load_run(stored / "run")
    expected = pd.read_csv(stored / "predictions.csv")
    found = run.predict("2020-11-01")
    assert found["code"].tolist() == expected["code"].tolist()
    assert found["prediction"].to_numpy() == pytest.approx(expected["prediction"], abs=1e-4)
    # Not frozen: its ages once counted back from the seed's time.
    scores = run.evaluate("test", "rolling")
    kept = run.metrics["test"]["rolling"]
    assert {name: scores[name] for name in kept} == pytest.approx(kept, abs=0.02)
    assert run.postprocessing == Postprocessing()  # it was made before there was any
    assert len(run.roles()) == 4
    assert relfrog.check(stored / "dataset", "buys").ok


def test_what_is_new_is_named_and_what_is_gone_is_an_error(stored: Path) -> None:
    """Schema drift in the words that a user sees."""
    run, db = stored / "run", stored / "dataset" / "db"
    before = load_run(run).predict("2020-11-01")
    path = stored / "dataset" / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    manifest["tables"]["coupons"] = {"pkey": "id", "fkeys": {"who": "people"}, "time_col": None}
    path.write_text(yaml.safe_dump(manifest))
    pd.DataFrame({"id": [0], "who": [1]}).to_parquet(db / "coupons.parquet")
    orders = pd.read_parquet(db / "orders.parquet")
    orders.assign(gift=True).to_parquet(db / "orders.parquet")
    with pytest.warns(NewColumnWarning) as said:
        after = load_run(run).predict("2020-11-01")
    texts = " ".join(str(w.message) for w in said)
    assert "table coupons is new" in texts
    assert "gift" in texts
    pd.testing.assert_frame_equal(before, after)
    orders.assign(channel="telepathy").to_parquet(db / "orders.parquet")
    with pytest.warns(NewColumnWarning) as said:
        assert load_run(run).predict("2020-11-01")["prediction"].between(0, 1).all()
    assert any("orders.channel: 1 category ('telepathy')" in str(w.message) for w in said)
    orders.drop(columns=["channel", "amount"]).to_parquet(db / "orders.parquet")
    with pytest.raises(SchemaError, match=r"orders\.amount.*orders\.channel.*Restore them"):
        load_run(run).predict("2020-11-01")
