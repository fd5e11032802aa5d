"""Nothing that is fitted hears of the future: statistics, vocabularies, texts, labels, selection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import relfrog
from relfrog.analysis.altered_future import WAYS, Readings, Tampering
from relfrog.datasets.label_sql import run_sql
from small_store import TEST, VAL, copied, fit, weights


def tick(time: pd.Timestamp) -> int:
    return int(time.to_datetime64().astype("datetime64[us]").view(np.int64))


def tampered(store: Path, folder: Path, way: str, time: pd.Timestamp) -> Path:
    """A dataset with another future, which also says so in words that were never seen."""
    changed = copied(store, folder)
    db = relfrog.open_dataset(changed).get_db(upto_test_timestamp=False)
    times = {"people": "joined", "orders": "ordered_at", "reviews": "written"}
    for name, table in Tampering(way, tick(time), Readings("us"))(db).table_dict.items():
        frame = table.df.copy()
        if name in times:
            later = frame[times[name]] > time
            for column in frame.select_dtypes(include=["object", "string"]):
                frame.loc[later, column] = "Kassandra Kassandra Kassandra"
            for column in frame.select_dtypes(include=["float"]):
                frame.loc[later, column] = -7e7
        frame.to_parquet(changed / "db" / f"{name}.parquet", index=False)
        _add_keys(changed / "keys" / f"{name}.parquet", len(frame))
    return changed


def _add_keys(path: Path, count: int) -> None:
    """Give rows that were invented keys of the source, as an import would."""
    keys = pd.read_parquet(path) if path.exists() else pd.DataFrame()
    new = range(len(keys), count)
    if len(keys.columns) and new:
        (column,) = keys
        text = not pd.api.types.is_numeric_dtype(keys[column].dtype)
        more = [f"new {n}" for n in new] if text else [10**6 + n for n in new]
        pd.concat([keys, pd.DataFrame({column: more})]).to_parquet(path, index=False)


@pytest.fixture(scope="module")
def plain(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit(store, tmp_path_factory.mktemp("plain") / "run", epochs=3).folder


@pytest.fixture
def any_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn from databases that end too early, or have rows that name removed ones.

    Nobody would be allowed to train on these: rows change and stored labels stay, on purpose.
    """
    monkeypatch.setattr("relfrog.runs.train.refuse_errors", lambda *given: None)
    monkeypatch.setattr("relfrog.runs.train.check_split_times", lambda *given: None)
    monkeypatch.setattr("relfrog.datasets.files.check_database", lambda *given: None)
    monkeypatch.setattr("relfrog.datasets.opened_dataset.check_database", lambda *given: None)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_learned_and_selected_knows_nothing_after_the_test_time(
    way: str, store: Path, plain: Path, tmp_path: Path, any_database: None
) -> None:
    changed = tampered(store, tmp_path, way, TEST)
    run = fit(changed, tmp_path / "run", epochs=3)
    assert weights(run.folder) == weights(plain)
    for name in ("columns.json", "columns.safetensors", "roles.json", "config.yaml"):
        assert (run.folder / name).read_bytes() == (plain / name).read_bytes(), name
    about = [json.loads((f / "run.json").read_text()) for f in (plain, run.folder)]
    assert about[0]["best_epoch"] == about[1]["best_epoch"]
    assert about[0]["labels"] == about[1]["labels"]
    kept = [json.loads((f / "metrics.json").read_text())["val"] for f in (plain, run.folder)]
    assert kept[0] == kept[1]
    if way == "altered":
        assert (
            run.metrics["test"]["rolling"]
            != json.loads((plain / "metrics.json").read_text())["test"]["rolling"]
        )


@pytest.mark.parametrize("way", WAYS)
def test_columns_know_nothing_after_the_validation_time(
    way: str, store: Path, plain: Path, tmp_path: Path, any_database: None
) -> None:
    changed = tampered(store, tmp_path, way, VAL)
    run = fit(changed, tmp_path / "run", epochs=1)
    for name in ("columns.json", "columns.safetensors"):
        assert (run.folder / name).read_bytes() == (plain / name).read_bytes(), name
    assert b"Kassandra" not in (run.folder / "columns.json").read_bytes()
    first = [
        json.loads((f / "history.jsonl").read_text().splitlines()[0]) for f in (plain, run.folder)
    ]
    assert first[0]["loss"] == first[1]["loss"]
    assert first[0]["gates"] == first[1]["gates"]


@pytest.mark.slow
def test_label_sql_prints_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """DuckDB shows how far a long query is, where data should be; here soon."""
    connect = duckdb.connect

    def talkative(**options: Any) -> duckdb.DuckDBPyConnection:
        connection = connect(**options)
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET progress_bar_time = 200")
        return connection

    monkeypatch.setattr(duckdb, "connect", talkative)
    db = relfrog.open_dataset(store).get_db()
    slow = (
        "SELECT count(*) AS n FROM range(11000) a, range(11000) b WHERE a.range * b.range % 7 = 3"
    )
    found = run_sql(slow, db, [TEST], pd.Timedelta("1 day"))
    assert capfd.readouterr() == ("", "")
    with talkative(config={"threads": 1}) as loud:
        assert loud.execute(slow).fetchone() == (found["n"].iloc[0],)
    assert "%" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("task", "model"), [("spends", "lightgbm"), ("list", "frog")])
def test_other_models_know_nothing_after_the_test_time(
    task: str, model: str, shop: Path, tmp_path: Path, any_database: None
) -> None:
    """Features, lists, and the trials that choose among settings."""
    changed = tampered(shop, tmp_path, "altered", TEST)
    options = {"model": model, "trials": 2, "epochs": 1}
    one, other = (
        fit(place, tmp_path / f"run{number}", task, **options)
        for number, place in enumerate((shop, changed))
    )
    for path in one.folder.iterdir():
        if path.suffix in (".txt", ".safetensors") or path.name in ("columns.json", "roles.json"):
            assert path.read_bytes() == (other.folder / path.name).read_bytes(), path.name
    assert one.metrics["val"] == other.metrics["val"]
    rows = [pd.read_parquet(place / "db" / "orders.parquet") for place in (shop, changed)]
    assert not rows[0].equals(rows[1])
