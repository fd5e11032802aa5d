"""Certificates: what they say is so, and a model that looks ahead gets none."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from relbench.base import Database, Table

import relfrog
from helpers import inside
from relfrog import load_run
from relfrog.analysis import certify
from relfrog.analysis.altered_future import WAYS, Readings, Tampering
from relfrog.datasets import source_keys
from relfrog.errors import RunError
from relfrog.graph import _kernels
from relfrog.kinds import MODELS
from relfrog.store.file_table import concrete
from relfrog.training.altered_task import AlteredTask
from relfrog.training.opened_task import OpenedTask
from relfrog.training.seeds import Seeds
from small_store import QUICK, TASKS, TEST, VAL, fit


@pytest.fixture(scope="module")
def run(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    """A run that tests only look at."""
    return fit(shop, tmp_path_factory.mktemp("runs") / "run", layers=2, epochs=1)


# Another future.


def ticks(table: Any) -> np.ndarray:
    return table.df[table.time_col].to_numpy().astype("datetime64[us]").view(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_past_stays_and_the_future_does_not(way: str, store: Path) -> None:
    db = relfrog.open_dataset(store).get_db(upto_test_timestamp=False)
    tick = int(VAL.to_datetime64().astype("datetime64[us]").view(np.int64))
    tamper = Tampering(way, tick, Readings("us"))
    other = tamper(db)
    for name, table in db.table_dict.items():
        new = other.table_dict[name].df
        if table.time_col is None:
            pd.testing.assert_frame_equal(new, table.df)
            continue
        later, still = ticks(table) > tick, ticks(other.table_dict[name]) > tick
        old = table.df[~later].reset_index(drop=True)
        pd.testing.assert_frame_equal(
            new[~still].reset_index(drop=True), old, check_dtype=False, check_exact=True
        )
        if name == "people":  # all of them had joined
            continue
        if way == "removed":
            assert not still.any()
        elif way == "altered":
            assert still.sum() == later.sum() == tamper.rows[name]
            both = (table.df[later], new[later])
            assert all(
                (both[0][c].astype(str) != both[1][c].astype(str)).any()
                for c in new
                if c != table.pkey_col
            )
        else:
            assert still.sum() == tamper.rows[name] >= 50
            assert ticks(other.table_dict[name])[still].min() == tick + 1
        if table.pkey_col is not None:
            assert new[table.pkey_col].tolist() == list(range(len(new)))


@pytest.mark.parametrize("way", WAYS)
def test_awkward_columns_have_another_future_too(way: str) -> None:
    days = pd.date_range("2020-01-01", periods=6)
    frame = pd.DataFrame(
        {
            "id": np.arange(6), "at": days.astype("datetime64[s]"), "small": np.arange(6, dtype="uint8"),
            "yes": [True, False] * 3, "half": np.arange(6, dtype="float32"),
            "list": [[1], None, [2, 3], [], [4], [5]], "when": days, "none": [None] * 6,
            "text": pd.array(["a", None, "c", "d", "e", "f"], "string"),
            "whole": pd.array([1, None, 3, 4, 5, 6], "Int64"), "self": [0.0, np.nan, 1, 2, 9, 0],
        }
    )  # fmt: skip
    db = Database({"t": Table(frame, {"self": "t"}, "id", "at")})
    for day in (2, 5, 9, -3):
        tick = int((pd.Timestamp("2020-01-01") + pd.Timedelta(day, "D")).value // 1000)
        found = Tampering(way, tick, Readings("us"), {"t": np.array([5])})(db).table_dict["t"].df
        count = int((days.to_numpy() <= np.datetime64(tick, "us")).sum())
        pd.testing.assert_frame_equal(
            found.iloc[:count], frame.iloc[:count], check_dtype=False, check_exact=True
        )
        assert len(found) >= 6  # row 5 is asked for
        assert str(found["at"].dtype) == "datetime64[s]"
        assert (found["at"].iloc[count:] > pd.Timestamp(tick, unit="us")).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::relfrog.features.columns.NewColumnWarning")
@pytest.mark.parametrize("way", WAYS)
def test_an_overlay_is_predicted_like_the_second_database(
    way: str, shop: Path, run: relfrog.Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Really made, and looked at where it differs: half a year after it began to."""
    trees = relfrog.train(
        shop, "buys", tmp_path_factory.mktemp("trees") / "run", model="lightgbm",
        settings={"trials": 1}, baselines=False,
    )  # fmt: skip
    for model in (run, trees):
        ready = model.prepared
        tick = int(VAL.to_datetime64().astype("datetime64[us]").view(np.int64))
        tamper = Tampering(way, tick, Readings(ready.graph.unit))

        def change(db: Database, ready: Any = ready, tamper: Any = tamper) -> Database:
            return db if ready.opened.history in db.table_dict else tamper(db)

        altered = AlteredTask(ready.opened, change)
        tables = {name: concrete(table) for name, table in altered.db.table_dict.items()}
        made = OpenedTask(ready.dataset, ready.task, db=Database(tables))
        rows = np.arange(20)
        later = VAL + pd.Timedelta("180 days")
        seeds = Seeds(rows, pd.Series(np.repeat(later.to_datetime64(), len(rows))))
        found = model.on(altered).predict_seeds(seeds, None)
        np.testing.assert_array_equal(found, model.on(made).predict_seeds(seeds, None))
        assert (found != model.predict_seeds(seeds, None)).any()


# What a certificate says.


@pytest.mark.slow
def test_a_certificate_says_what_was_used(run: relfrog.Run) -> None:
    certified = certify(run)
    frame = certified.predict(TEST)
    pd.testing.assert_frame_equal(frame, run.predict(TEST), check_exact=True)
    certificate = certified.certificate
    assert certificate.holds
    about, used = certificate.about, certificate.entities
    assert list(used) == ["code", "time", "table", "newest_time", "rows"]
    assert set(used["table"]) == {"people", "orders", "things", "reviews", "labels of the task"}
    assert (used["newest_time"].dropna() <= TEST).all()
    assert used.groupby("table")["newest_time"].max()["orders"] > TEST - pd.Timedelta("2 days")
    assert about["always_visible"] == {"things": 8}
    assert set(used["code"]) == set(frame["code"])
    for way in WAYS:
        assert about["trial"][way]["identical"]
        assert about["trial"][way]["rows"] > 100


@pytest.mark.slow
def test_rows_used_are_those_that_a_change_can_reach(run: relfrog.Run, shop: Path) -> None:
    """Blank one order after the other: the entities whose answer moves are among its users."""
    from relfrog.analysis.rows_used import rows_behind
    from relfrog.training.inference import predict_seeds
    from relfrog.training.opened_task import OpenedTask
    from relfrog.training.seeds import Seeds

    ready = run.prepared
    rows = np.flatnonzero(ready.graph.visible("people", TEST))
    seeds = Seeds(rows, pd.Series(np.repeat(TEST.to_datetime64(), len(rows))))
    (plan,) = list(ready.loader(seeds))
    used = rows_behind(ready.graph, plan)
    before = run.predict_seeds(seeds, None)
    orders = used[used["table"] == "orders"].set_index("seed")["rows"]
    moved = np.zeros(len(rows), int)
    db = ready.dataset.get_db(upto_test_timestamp=False)
    sampled = np.unique(plan.batch.tables["orders"].rows.numpy())
    for row in sampled:
        frame = db.table_dict["orders"].df.copy()
        frame.loc[row, ["amount", "channel"]] = [1e6, "pigeon"]
        table = db.table_dict["orders"]
        tables = {
            **db.table_dict,
            "orders": Table(frame, table.fkey_col_to_pkey_table, "id", "ordered_at"),
        }
        # The label history stays as it was: this is about rows of the batch alone.
        opened = OpenedTask(ready.dataset, ready.task, db=Database(tables))
        made = opened.prepare(run.config, ready.columns)
        features = {**made.features, ready.history: ready.features[ready.history]}

        after = predict_seeds(
            run.network, ready.loader(seeds), features, run.network.head.last.weight.device
        )
        moved += after != before
    assert (moved <= orders.reindex(range(len(rows)), fill_value=0).to_numpy()).all()
    assert moved.sum() > 0.6 * orders.sum()


@pytest.mark.slow
def test_who_is_not_there_yet_is_not_used(run: relfrog.Run, shop: Path) -> None:
    people = pd.read_parquet(shop / "db" / "people.parquet")
    keys = source_keys(shop, "people")["code"]
    time = people["joined"].iloc[-1] - pd.Timedelta("1 day")
    late = keys[people["joined"] > time].tolist()
    certified = certify(run)
    certified.predict(time, late)
    used = certified.certificate.entities
    assert certified.certificate.holds
    alone = used[(used["table"] == "people") & used["code"].isin(late)]
    assert (alone["newest_time"] <= time).all()


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["rolling", "frozen"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_scores_are_certified(split: str, regime: str, run: relfrog.Run) -> None:
    certified = certify(run)
    assert certified.evaluate(split, regime) == pytest.approx(run.evaluate(split, regime), abs=1e-5)
    about = certified.certificate.about
    assert about["holds"]
    assert about["trial"]["times_tried"] == (1 if regime == "frozen" else 3)
    assert about["trial"]["seeds_tried"] == about["predictions"] == 60
    if regime == "frozen":
        assert about["last_time"].startswith(str({"val": VAL, "test": TEST}[split].date()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*list(TASKS)[1:], "list"])
def test_every_type_of_task_is_certified(name: str, shop: Path, tmp_path: Path) -> None:
    certified = certify(fit(shop, tmp_path / "run", name, epochs=1))
    more = {"exclude_known": True, "targets": [1, 2, 3, 5, 7]} if name == "list" else {}
    certified.predict("2020-06-15", **more)
    assert certified.certificate.holds
    assert certified.certificate.about["trial"]["altered"]["rows"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [m.name for m in MODELS.values() if m.baseline and "recommendation" in m.homes]
)
def test_what_is_no_network_is_certified(name: str, shop: Path, tmp_path: Path) -> None:
    certified = certify(relfrog.train(shop, "list", tmp_path / "run", model=name))
    frame = certified.predict(VAL, k=2, exclude_known=True)
    assert len(frame)
    assert certified.certificate.holds
    used = certified.certificate.entities
    assert (used["newest_time"].dropna() <= VAL).all()
    certified.evaluate("test")
    assert certified.certificate.holds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recent", "lightgbm", "auto"])
def test_other_models_are_certified(name: str, shop: Path, tmp_path: Path) -> None:
    quick = {"trials": 1} | (QUICK if name == "auto" else {})
    run = relfrog.train(shop, "buys", tmp_path / "run", model=name, settings=quick)
    certified = certify(run)
    certified.predict("2020-06-15")
    assert certified.certificate.holds
    assert certified.certificate.about["trial"]["removed"]["rows"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* lies .* row of the database")
def test_at_the_ends_of_time(run: relfrog.Run) -> None:
    for at, count in (("1990-01-01", 0), ("2019-05-01", None), ("2500-01-01", 20), (None, 20)):
        certified = certify(run)
        frame = certified.predict(at)
        assert count is None or len(frame) == count
        assert certified.certificate.holds
        assert certified.certificate.about["trial"]["seeds_tried"] == len(frame)
    certified = certify(run)
    certified.predict("2010-01-01", ["P01", "P07"])  # before everything
    assert certified.certificate.holds


@pytest.mark.slow
@pytest.mark.parametrize(("most", "tried"), [(1, 1), (4, 4), (0, 9), (20, 9)])
def test_each_entity_at_its_own_time(most: int, tried: int, run: relfrog.Run) -> None:
    times = pd.date_range("2020-05-01", periods=9, freq="11D")
    asked = pd.DataFrame({"code": ["P03", "P07", "P19"] * 3, "time": times})
    certified = certify(run, times=most)
    found = certified.predict(None, asked)
    assert found["time"].tolist() == times.tolist()
    trial = certified.certificate.about["trial"]
    assert (trial["times"], trial["times_tried"], trial["seeds_tried"]) == (9, tried, tried)
    used = certified.certificate.entities
    assert (used["newest_time"] <= used["time"]).sum() == used["newest_time"].notna().sum()


def test_eight_times_unless_it_is_said_otherwise(run: relfrog.Run) -> None:
    assert certify(run).times == 8
    with pytest.raises(relfrog.errors.UsageError, match=r"0 or more \(got -1\)"):
        certify(run, times=-1)


def test_the_command_takes_the_number_of_times(
    run: relfrog.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from relfrog.cli import cli

    monkeypatch.chdir(tmp_path)
    times = pd.date_range("2020-05-01", periods=4, freq="20D")
    pd.DataFrame({"code": ["P03"] * 4, "time": times}).to_csv("who.csv", index=False)
    words = ["predict", str(run.folder), "--entities", "who.csv", "--certify-times", "2", "--out"]
    done = CliRunner().invoke(cli, [*words, "p.csv", "--certify"])
    assert done.exit_code == 0, done.output
    assert "always visible: 2 predictions (at 2 of 4 times) are the same" in done.output
    trial = json.loads(Path("p.csv.certificate.json").read_text())["trial"]
    assert (trial["times"], trial["times_tried"]) == (4, 2)
    done = CliRunner().invoke(cli, [*words, "q.csv"])
    assert isinstance(done.exception, relfrog.errors.UsageError)
    assert not Path("q.csv").exists()


# A model that looks ahead.


@pytest.mark.slow
def test_a_leak_is_found(run: relfrog.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    visible = _kernels.count_visible

    def a_month_ahead(tables: np.ndarray, times: np.ndarray, moments: np.ndarray) -> np.ndarray:
        return visible(tables, times, moments + 30 * 86_400 * 1_000_000)

    monkeypatch.setattr(_kernels, "count_visible", a_month_ahead)
    leaking = certify(load_run(run.folder))
    leaking.predict(TEST)
    about = leaking.certificate.about
    assert not leaking.certificate.holds
    assert about["later_rows_used"] > 0
    assert not any(about["trial"][way]["identical"] for way in WAYS)


@pytest.mark.slow
def test_a_leak_through_labels_is_found(run: relfrog.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that are known before their windows have closed."""
    from relfrog.datasets import label_history as history

    whole = history.add_label_history

    def early(dataset: Any, task: Any, db: Any, name: str, closed_by: Any = None) -> Any:
        made = whole(dataset, task, db, name, closed_by)
        table = made.table_dict[name]
        frame = table.df.assign(window_end=table.df["window_end"] - task.timedelta)
        return Database(
            {
                **made.table_dict,
                name: Table(frame, table.fkey_col_to_pkey_table, None, "window_end"),
            }
        )

    monkeypatch.setattr("relfrog.training.opened_task.add_label_history", early)
    leaking = certify(load_run(run.folder))
    leaking.predict(VAL + pd.Timedelta("5 days"))
    assert not leaking.certificate.holds
    assert leaking.certificate.about["later_rows_used"] == 0  # only the trial can know


@pytest.mark.slow
def test_labels_that_go_on_changing_after_their_window_are_found(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reviews of the orders in a window may be written later: the label was not known then."""
    # Such a task is refused before training; a certificate does not rely on that.
    monkeypatch.setattr("relfrog.runs.train.refuse_errors", lambda *given: None)
    changed = Path(shutil.copytree(shop, tmp_path / "copy"))
    manifest = yaml.safe_load((changed / "tasks" / "spends" / "manifest.yaml").read_text())
    manifest |= {"name": "reviewed", "target_col": "n", "sql": """
        SELECT t.timestamp, p.code, count(r.id) AS n FROM timestamps t CROSS JOIN people p
        LEFT JOIN orders o ON o.person = p.code AND o.ordered_at > t.timestamp
            AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}'
        LEFT JOIN reviews r ON r.order_id = o.id
        WHERE p.joined <= t.timestamp GROUP BY ALL"""}  # fmt: skip
    (changed / "tasks" / "reviewed").mkdir()
    (changed / "tasks" / "reviewed" / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    run = fit(changed, tmp_path / "run", "reviewed", epochs=2)
    certified = certify(run)
    certified.predict(TEST)
    trial = certified.certificate.about["trial"]
    assert not certified.certificate.holds
    assert not trial["removed"]["identical"]
    assert "up to the end" in trial["removed"]["labels"]


# Files.


@pytest.mark.slow
def test_the_command_writes_a_certificate(
    run: relfrog.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, folder = tmp_path / "p.csv", str(run.folder)
    asked = ["predict", folder, "--out", str(out), "--at", "2020-09-01", "--certify"]
    code, _, err = inside(capfd, *asked)
    assert code == 0, err
    said = (
        "certified, except for rows of things (8), which are always visible: 20 predictions are the"
    )
    assert f"{said} same, bit for bit" in err
    about = json.loads((tmp_path / "p.csv.certificate.json").read_text())
    assert about["holds"] is True
    assert about["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    entities = pd.read_parquet(tmp_path / about["entities_file"])
    assert len(about["entities"]) == len(entities)
    assert about["entities"][0]["newest_time"] <= "2020-09-01T00:00:00"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "p.csv", "p.csv.certificate.json", "p.csv.certificate.parquet",
    ]  # fmt: skip
    code, said, err = inside(capfd, "evaluate", folder, "--json", "--certify")
    assert code == 0, err
    about = json.loads((run.folder / "evaluate-test-rolling.certificate.json").read_text())
    assert about["metrics"] == json.loads(said)["metrics"]
    assert about["holds"]


def test_what_does_not_hold_is_an_error(run: relfrog.Run, tmp_path: Path) -> None:
    from relfrog.analysis.certificate import Certificate
    from relfrog.cli.runs import _show_certificate

    certified = certify(run)
    certified.predict(TEST)
    about = dict(certified.certificate.about)
    about["trial"] = {**about["trial"], "removed": {"rows": 5, "identical": False, "different": 3}}
    certified.found.append(Certificate({**about, "holds": False}, certified.certificate.entities))
    with pytest.raises(RunError, match="3 change when later rows are removed"):
        _show_certificate(certified, tmp_path / "x.json")


@pytest.mark.slow
def test_predictions_in_a_database_have_their_certificate_in_the_run(
    run: relfrog.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = inside(
        capfd, "predict", str(run.folder), "--out", f"sqlite:///{tmp_path / 'a.db'}", "--table",
        "my scores", "--certify",
    )  # fmt: skip
    assert code == 0, err
    path = run.folder / "predictions-my-scores.certificate.json"
    assert json.loads(path.read_text())["table"] == "my scores"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rel-f1"])
def test_a_real_database_is_certified(name: str, shared_data: Path, tmp_path: Path) -> None:
    settings = {"epochs": 1, "steps_per_epoch": 1, "channels": 8, "neighbors": 4, "fd_pairs": 16}
    run = relfrog.train(
        shared_data / name,
        "driver-top3",
        tmp_path / "run",
        model="frog",
        settings=settings,
        baselines=False,
    )
    certified = certify(run)
    certified.predict("2009-06-01")
    assert certified.certificate.holds
    assert certified.certificate.about["trial"]["removed"]["rows"] > 1000
