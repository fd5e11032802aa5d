"""Predictions in parts: the same whoever makes them, and made once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import small_store
from helpers import inside
from relfrog.cluster.workers import LocalWorkers
from relfrog.errors import ClusterError, OutputError
from relfrog.models.fit import RunInterrupted
from relfrog.runs import predict_job, predict_parts
from relfrog.runs.predict_parts import MANIFEST, PLAN, Request, predict_to, read_parts
from relfrog.runs.run import Run, load_run

STAMPS = ["run", "horizon", "made_at"]


@pytest.fixture(scope="module")
def run(once) -> Run:
    def make(folder: Path) -> None:
        store = small_store.make_store(folder)
        small_store.fit(store, folder / "frog")

    return load_run(once("parts", make) / "frog")


def same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """All columns are the same, and predictions but for rounding."""
    left = found.drop(columns=STAMPS)
    pd.testing.assert_frame_equal(left, wanted, check_exact=False, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_parts_are_what_one_process_predicts_at_once(run: Run, tmp_path: Path, size: int) -> None:
    whole = run.predict(everyone=True)
    where, rows = predict_to(run, tmp_path / "out", Request(everyone=True), size=size)
    assert (where, rows) == (str(tmp_path / "out"), len(whole))
    same(read_parts(tmp_path / "out"), whole)
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["rows"] == manifest["entities"] == len(whole)
    assert [part["file"] for part in manifest["parts"]] == sorted(
        path.name for path in (tmp_path / "out").glob("*.parquet")
    )
    assert len(manifest["parts"]) == -(-len(whole) // size)
    assert not (tmp_path / "out" / PLAN).exists()


@pytest.mark.slow
def test_processes_make_the_same_files(run: Run, tmp_path: Path) -> None:
    request = Request(at="2020-11-01", everyone=True)
    predict_to(run, tmp_path / "one", request, size=4)
    workers = LocalWorkers(2, tmp_path / "log")
    predict_to(run, tmp_path / "two", request, size=4, workers=workers)
    one, two = (read_parts(tmp_path / name).drop(columns="made_at") for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    same(read_parts(tmp_path / "two"), run.predict("2020-11-01", everyone=True))
    names = [sorted(p.name for p in (tmp_path / n).iterdir()) for n in ("one", "two")]
    assert names[0] == names[1]


def test_what_is_there_is_not_made_again(run: Run, tmp_path: Path, monkeypatch) -> None:
    out, made, make = tmp_path / "out", [], predict_job.make_part

    def twice(*given):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(given)
        return make(*given)

    monkeypatch.setattr(predict_parts, "make_part", twice)
    with pytest.raises(RunInterrupted, match=r"2 of \d+ parts are written and kept; go on"):
        predict_to(run, out, Request(everyone=True), size=5)
    assert not (out / MANIFEST).exists()
    with pytest.raises(OutputError, match="not complete"):
        read_parts(out)
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    monkeypatch.setattr(predict_parts, "make_part", make)
    monkeypatch.setattr(predict_parts, "now", lambda: pd.Timestamp("2100-01-01"))
    predict_to(run, out, Request(everyone=True), size=5)
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert before.items() < after.items()
    found = read_parts(out)
    same(found, run.predict(everyone=True))
    assert found["made_at"].nunique() == 1


def test_other_questions_have_other_names(run: Run, tmp_path: Path) -> None:
    out, names = tmp_path / "out", []
    for request in (Request(everyone=True), Request(at="2020-11-01", everyone=True)):
        predict_to(run, out, request, size=5, overwrite=True)
        names.append({path.name for path in out.glob("*.parquet")})
    assert not names[0] & names[1], "and the old ones are gone"
    same(read_parts(out), run.predict("2020-11-01", everyone=True))


def test_a_file_is_what_write_frame_makes(run: Run, tmp_path: Path) -> None:
    predict_to(run, tmp_path / "a.parquet", Request(everyone=True), size=5)
    found = pd.read_parquet(tmp_path / "a.parquet")
    same(found, run.predict(everyone=True))
    whole = run.predict(everyone=True, stamped=True)
    assert pq.read_schema(tmp_path / "a.parquet").names == list(whole.columns)
    where, rows = predict_to(
        run, f"sqlite:///{tmp_path / 'a.db'}", Request(everyone=True), size=5, table="answers"
    )
    assert "answers" in where
    assert rows == len(whole)


def test_keys_of_a_range_have_the_type_of_all(run: Run, tmp_path: Path) -> None:
    people = pd.DataFrame({"code": [f"P{i:02d}" for i in range(10)]})
    predict_to(run, tmp_path / "out", Request(entities=people), size=3)
    schemas = {pq.read_schema(path).field("code").type for path in (tmp_path / "out").glob("*.p*")}
    assert len(schemas) == 1


def test_nobody_is_asked_about(run: Run, tmp_path: Path) -> None:
    nobody = pd.DataFrame({"code": np.array([], dtype=object)})
    _, rows = predict_to(run, tmp_path / "out", Request(entities=nobody))
    assert rows == 0
    assert len(read_parts(tmp_path / "out")) == 0


@pytest.mark.slow
def test_lists_in_parts(once, tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        shop = small_store.make_shop(small_store.make_store(folder), folder)
        small_store.fit(shop, folder / "run", task="list", model="popularity")

    run = load_run(once("list-parts", make) / "run")
    (tmp_path / "t.csv").write_text("id\n1\n2\n5\n")
    options = {"k": 2, "targets": tmp_path / "t.csv", "exclude_known": True}
    whole = run.predict(everyone=True, **options)
    predict_to(run, tmp_path / "out", Request(everyone=True, **options), size=6)
    found = read_parts(tmp_path / "out").drop(columns=STAMPS)
    pd.testing.assert_frame_equal(found, whole, check_exact=True)


class TestRefused:
    """What must not be written over, and what does not go together."""

    def test_complete_predictions(self, run: Run, tmp_path: Path) -> None:
        predict_to(run, tmp_path / "out", Request())
        with pytest.raises(OutputError, match=r"holds predictions already.*--overwrite"):
            predict_to(run, tmp_path / "out", Request())

    @pytest.mark.parametrize("name", ["notes.txt", "orders.parquet"])
    def test_somebody_elses_files(self, run: Run, tmp_path: Path, name: str) -> None:
        (tmp_path / name).touch()
        with pytest.raises(OutputError, match=rf"holds other files, such as {name}"):
            predict_to(run, tmp_path, Request(), overwrite=True)
        assert (tmp_path / name).exists()

    def test_a_job_that_fails(self, run: Run, tmp_path: Path) -> None:
        class Broken(LocalWorkers):
            def run(self, work, jobs):
                yield 0, {"error": "on node-7: RunError: no."}

        with pytest.raises(ClusterError, match=r"on node-7: RunError: no\. What is predicted"):
            predict_to(run, tmp_path / "out", Request(), workers=Broken(2, tmp_path / "log"))

    @pytest.mark.parametrize(
        "more", [["--certify"], ["--set", "people.age=3"], ["--cluster", "local"]]
    )
    def test_options(self, run: Run, tmp_path: Path, more: list[str], capfd) -> None:
        given = ["predict", str(run.folder), "--out", str(tmp_path / "out"), "--workers", "2"]
        code, _, err = inside(capfd, *given, *more)
        assert (code, "UsageError" in err) == (2, True)
        assert not (tmp_path / "out").exists()
