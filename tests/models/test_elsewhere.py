"""LightGBM's features and the members of `auto` in other processes: the same as in this one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import small_store
from relfrog.cluster.folders import MeetingPlace
from relfrog.cluster.guarded import guarded
from relfrog.errors import ClusterError
from relfrog.models.aggregates import feature_job
from relfrog.models.aggregates.feature_job import features_elsewhere
from relfrog.models.auto import read_blend
from relfrog.runs.run import load_run


class Here:
    """Workers that are this process, with what is asked of them."""

    count, threads, elsewhere = 3, 1, True

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    def run(self, work: Any, jobs: Sequence[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        self.jobs += jobs
        for number, job in reversed(list(enumerate(jobs))):
            yield number, guarded(work, job)


@pytest.fixture(scope="module")
def trained(once) -> Path:
    def make(folder: Path) -> None:
        store = small_store.make_store(folder)
        small_store.fit(store, folder / "trees", model="lightgbm", trials=1)
        small_store.fit(store, folder / "auto", model="auto", trials=1)

    return once("elsewhere", make)


def test_features_of_ranges_are_those_of_all(trained, monkeypatch) -> None:
    monkeypatch.setattr(feature_job, "FEWEST", 7)
    run = load_run(trained / "trees")
    model: Any = run.model
    seeds, workers = run.prepared.opened.seeds("train"), Here()
    limits = model.limits(seeds, None)
    rows = np.asarray(seeds.rows)
    whole, trail = model.maker.make_range(rows, limits, seeds.times)
    found = features_elsewhere(workers, model.maker, rows, limits, seeds.times)
    assert found is not None
    assert len(workers.jobs) == 3
    assert found[0].tobytes() == whole.tobytes()
    for (owners, pointers), (other, others) in zip(found[1], trail, strict=True):
        assert np.array_equal(owners, other)
        assert pointers.keys() == others.keys()
        assert all(np.array_equal(pointers[key], others[key]) for key in others)


def test_few_seeds_are_not_sent_away(trained) -> None:
    run, workers = load_run(trained / "trees"), Here()
    model: Any = run.model
    seeds = run.prepared.opened.seeds("val")
    rows, limits = np.asarray(seeds.rows), model.limits(seeds, None)
    assert features_elsewhere(workers, model.maker, rows, limits, seeds.times) is None
    assert not workers.jobs


def test_a_job_that_fails_is_said(trained, monkeypatch) -> None:
    monkeypatch.setattr(feature_job, "FEWEST", 7)

    class Broken(Here):
        def run(self, work, jobs):
            yield 0, {"error": "on node-7: no room"}

    model: Any = load_run(trained / "trees").model
    seeds = model.prepared.opened.seeds("train")
    with pytest.raises(
        ClusterError, match=r"features .* could not be computed: on node-7: no room"
    ):
        features_elsewhere(
            Broken(), model.maker, seeds.rows, model.limits(seeds, None), seeds.times
        )


@pytest.mark.slow
def test_lightgbm_with_workers_is_lightgbm(trained, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(feature_job, "FEWEST", 20)
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "cache"))
    small_store.fit(trained / "store", tmp_path / "run", model="lightgbm", trials=1, workers=2)
    one, two = trained / "trees", tmp_path / "run"
    assert [f.name for f in sorted(two.glob("*.txt"))] == [
        f.name for f in sorted(one.glob("*.txt"))
    ]
    for file in one.glob("*.txt"):
        assert file.read_bytes() == (two / file.name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("seen", [True, False])
def test_members_elsewhere_are_the_same_members(trained, tmp_path, monkeypatch, seen) -> None:
    workers = Here()
    monkeypatch.setattr("relfrog.runs.train.hired", lambda *_, **__: _held(workers))
    monkeypatch.setattr("relfrog.runs.train._team", lambda *_: _held(None))
    if not seen:
        monkeypatch.setattr(MeetingPlace, "is_seen", lambda self: False)
    small_store.fit(trained / "store", tmp_path / "run", model="auto", trials=1, cluster="local")
    here, there = read_blend(trained / "auto"), read_blend(tmp_path / "run")
    assert [job["config"]["model"] for job in workers.jobs] == [
        name for name in here["members"] if name != "frog"
    ]
    assert here["weights"] == there["weights"]
    for blend in (here, there):
        for member in blend["members"].values():
            member.pop("seconds")
    assert here["members"] == there["members"]
    assert (load_run(tmp_path / "run").evaluate("test")) == load_run(trained / "auto").evaluate(
        "test"
    )
    assert {
        load_run(path).about["dataset"] for path in (tmp_path / "run" / "members").iterdir()
    } == {str(trained / "store")}


def _held(value: Any) -> Any:
    from contextlib import nullcontext

    return nullcontext(value)
