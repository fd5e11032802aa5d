"""Predictions, studies, trees and a training on a real cluster of three nodes, of which two die."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import relfrog
from relfrog.cluster.folders import MeetingPlace
from relfrog.cluster.local_team import LocalTeam
from relfrog.cluster.ray_cluster import connect, node_name
from relfrog.cluster.team import TrainingJob
from relfrog.cluster.workers import RayWorkers
from relfrog.config import resolve
from relfrog.datasets.tasks import load_task
from relfrog.errors import ClusterError, UsageError
from relfrog.experiments import experiment
from relfrog.models import distributed_trees
from relfrog.models.distributed_trees import train_shares
from relfrog.runs.predict_parts import Request, predict_to, read_parts
from relfrog.runs.run import load_run
from relfrog.runs.train import RunInterrupted
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask
from relfrog.training.sharded_trainer import ShardedTrainer
from relfrog.training.trainer import Trainer
from small_store import QUICK, fit, make_shop, weights

#: Time-outs are against tests that hang, not against a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def workers(nodes, tmp_path_factory):
    """Joined once: processes that have imported everything are used again."""
    with connect(nodes.address) as cluster:
        yield RayWorkers(cluster, tmp_path_factory.mktemp("log") / "log")


def predictions(folder: Path) -> pd.DataFrame:
    return read_parts(folder).drop(columns="made_at")


def waiting_job(folder: Path) -> Any:
    """Predicts, but not before a file is there; and says where it began."""

    def predict_job(job: dict[str, Any]) -> dict[str, Any]:
        import os
        import time
        from pathlib import Path

        from relfrog.runs.predict_job import predict_job

        (folder / f"begun-{Path(os.environ['RELFROG_CACHE']).name}").write_text(str(os.getpid()))
        while not (folder / "go").exists():
            time.sleep(0.05)
        return predict_job(job)

    return predict_job


def appears(path: Path, unless: Callable[[], bool], seconds: float = 900) -> None:
    """Wait for a file; not for one that nobody will write any more."""
    end = time.monotonic() + seconds
    while not path.exists() and not unless():
        assert time.monotonic() < end, path
        time.sleep(0.05)


def test_predictions_are_the_same_for_one_and_three_workers(nodes, trained, workers, tmp_path):
    """For two on one machine: see `test_predict_parts`."""
    run, request = load_run(trained / "frog"), Request(everyone=True)
    predict_to(run, tmp_path / "one", request, size=3)
    assert [node.cpus for node in workers.cluster.nodes()] == [1, 1, 1]
    assert workers.count == 3
    predict_to(run, tmp_path / "three", request, size=3, workers=workers)
    pd.testing.assert_frame_equal(
        predictions(tmp_path / "three"), predictions(tmp_path / "one"), check_exact=True
    )
    copies = [list((nodes.disk(name) / "parts").glob("copy-*/store/manifest.yaml"))
              for name in ("second", "third")]  # fmt: skip
    assert [len(found) for found in copies] == [1, 1], "every node has a copy on its own disk"
    assert all(list((nodes.disk(name) / "parts").glob("graph-*")) for name in ("second", "third"))


def test_an_error_names_the_node_and_ends_the_rest(trained, workers, tmp_path, monkeypatch):
    def predict_job(job: dict[str, Any]) -> dict[str, Any]:
        from relfrog.errors import RunError

        raise RunError("the model is damaged.")

    monkeypatch.setattr("relfrog.runs.predict_parts.predict_job", predict_job)
    words = rf"on {node_name()}: RunError: the model is damaged\. What is predicted so far is kept"
    with pytest.raises(ClusterError, match=words):
        predict_to(load_run(trained / "frog"), tmp_path / "o", Request(), workers=workers)


def test_no_node_is_large_enough(workers):
    with pytest.raises(ClusterError, match=r"nodes has 1 cores for Ray, and a job wants 2"):
        list(replace(workers, threads=2).run(len, [{}]))


def test_a_study_gives_the_same_results(nodes, trained, workers, tmp_path):
    options = {
        "datasets": [trained / "store"], "tasks": ["buys"], "models": ["recent"],
        "seeds": 1, "settings": QUICK,
    }  # fmt: skip
    here = experiment("main", out=tmp_path / "here", **options)
    there = experiment("main", out=tmp_path / "there", cluster=nodes.address, **options)

    def scores(results: dict[str, Any]) -> list[Any]:
        return [
            {k: run[k] for k in ("variant", "regime", "metrics", "val_metrics", "settings", "run")}
            for run in results["runs"]
        ]

    assert scores(here) == scores(there)
    assert not there["failed"]
    runs = [load_run(path) for path in (tmp_path / "there" / "runs").iterdir() if path.is_dir()]
    assert {run.about["dataset"] for run in runs} == {str(trained / "store")}
    assert not list((tmp_path / "there" / "runs").glob(".seen-*"))


def test_trees_are_grown_from_all_shares(workers):
    """In the first share labels rise with x, in the second, ten times as large, they fall.

    Whoever knows the first share alone ranks everything the wrong way round.
    """
    rng = np.random.default_rng(0)
    few, many = rng.random((300, 2)), rng.random((3000, 2))
    shares = [(few, (few[:, 0] > 0.5) * 1.0), (many, (many[:, 0] <= 0.5) * 1.0)]
    settings = {"objective": "binary", "verbosity": -1, "num_leaves": 4, "seed": 0, "metric": "auc"}
    model = train_shares(workers, settings, shares, (many[:9], many[:9, 0]), [], 20, 0)
    x, y = many[:, :], many[:, 0] <= 0.5
    alone = lightgbm.train(settings, lightgbm.Dataset(*shares[0]), 20)
    assert roc_auc_score(y, alone.predict(x)) < 0.05
    assert roc_auc_score(y, model.predict(x)) > 0.95
    # Rows of both are counted in the first tree.
    assert model.dump_model()["tree_info"][0]["tree_structure"]["internal_count"] == 3300


def test_lightgbm_learns_on_all_nodes_if_asked(nodes, trained, tmp_path, monkeypatch):
    """Shares for three nodes; that nodes learn together from their shares, the test above shows."""
    dealt = []

    def here(workers, settings, shares, seen, categorical, rounds, patience):
        dealt.append(shares)
        x, y = (np.concatenate(parts) for parts in zip(*shares, strict=True))
        return lightgbm.train(settings, lightgbm.Dataset(x, y), rounds)

    monkeypatch.setattr(distributed_trees, "FEWEST", 50)
    monkeypatch.setattr(distributed_trees, "train_shares", here)
    options = {"model": "lightgbm", "trials": 1, "distributed": True}
    run = fit(trained / "store", tmp_path / "run", cluster=nodes.address, **options)
    assert {len(shares) for shares in dealt} == {3}
    rows = len(run.prepared.opened.seeds("train"))
    assert sum(len(y) for _, y in dealt[0]) == rows
    pd.testing.assert_frame_equal(load_run(tmp_path / "run").predict(), run.predict())
    with pytest.raises(UsageError, match=r"distributed=true needs .* a Ray cluster: add --cluster"):
        fit(trained / "store", tmp_path / "other", **options)


def jobs_of_all_types(shop: Path, folder: Path) -> list[TrainingJob]:
    """A training for each type of task, each done here by one worker."""
    jobs = []
    for task in ("buys", "spends", "wants", "sorts", "list"):
        loaded = load_task(relfrog.open_dataset(shop), task)
        opened = OpenedTask(loaded.dataset, loaded)
        more = {"sharing": "separate"} if task == "list" else {}
        given = {"model": "frog", **QUICK, "epochs": 1, "steps_per_epoch": 3, "shards": 3,
                 "batch_size": 48, "loss": "l1", **more}  # fmt: skip
        config = resolve(100, settings=given, kind=opened.kind)
        (folder / f"{task}-1").mkdir(parents=True)
        trainer = ShardedTrainer(opened.prepare(config), folder / f"{task}-1")
        jobs.append(LocalTeam(1, shop, task).job(trainer, "cpu", with_validation=False))
        trainer.fit()
    return jobs


def before_work(jobs: list[TrainingJob], folder: Path) -> Any:
    """What workers do on Ray, after trainings of all types."""

    def work(given: dict[str, Any]) -> None:
        from relfrog.cluster.ray_team import _work
        from relfrog.cluster.team import Follower
        from relfrog.cluster.torch_collective import TorchCollective

        collective = TorchCollective()
        for job in jobs:
            place = folder / f"{job.task}-{collective.size}"
            place.mkdir(exist_ok=True)
            Follower(collective, folder=place).run(job)
        _work(given)

    return work


class Stop(Callback):
    """Ctrl-C after some steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Trouble(Callback):
    """Kill a node after some steps, and Ctrl-C in the first step after that."""

    def __init__(self, nodes: Any) -> None:
        self.nodes, self.left = nodes, 8
        self.first: tuple[int, int] | None = None
        self.said: list[str] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.first = self.first or (trainer.at.epoch, trainer.at.step)
        self.left -= 1
        if self.left == 0:
            self.nodes.kill("third")
        if self.said:
            raise KeyboardInterrupt

    def on_message(self, text: str) -> None:
        self.said.append(text)


def test_a_run_goes_on_when_a_node_is_lost_and_when_it_is_interrupted(
    nodes, trained, workers, tmp_path, monkeypatch
):
    """Begun here, resumed by three workers there, then two are left, and it is ended here again.

    With learned roles and both phases. Workers that Ray starts import everything, which costs most
    of this test: so there is one start, and the three, and the two, first learn tasks of all types.
    """
    jobs = jobs_of_all_types(make_shop(trained / "store", tmp_path), tmp_path / "types")
    monkeypatch.setattr("relfrog.cluster.ray_team._work", before_work(jobs, tmp_path / "types"))
    nodes.wait_until_free(3)
    settings = {"epochs": 16, "patience": 16, "fd_every": "epoch", "fd_training": True,
                "loss": "l1", "shards": 4}  # fmt: skip
    store, out = trained / "store", tmp_path / "run"
    here = fit(store, tmp_path / "here", "spends", workers=1, **settings)
    with pytest.raises(RunInterrupted):
        fit(store, out, "spends", workers=1, callbacks=[Stop(7)], **settings)
    trouble = Trouble(nodes)
    with pytest.raises(RunInterrupted, match=r"Go on with: relfrog train .* --resume"):
        fit(store, out, "spends", workers=3, cluster=nodes.address, resume=True,
            callbacks=[trouble], **settings)  # fmt: skip
    assert trouble.first is not None
    assert trouble.first > (0, 1), "it went on where it was"
    assert trouble.said[0].startswith("a worker was lost: 2 go on from epoch ")
    run = fit(store, out, "spends", workers=1, resume=True, **settings)
    assert weights(out) == weights(tmp_path / "here")
    pd.testing.assert_frame_equal(run.predict(), here.predict(), check_exact=True)
    assert not list(out.glob("*checkpoint*"))
    for job in jobs:
        one, two, three = (weights(tmp_path / "types" / f"{job.task}-{n}") for n in (1, 2, 3))
        assert two == one, job.task
        assert three == one, job.task


def test_a_node_that_dies_while_it_predicts_is_replaced(
    nodes, trained, workers, tmp_path, monkeypatch
):
    """And what nodes that do not see our folder predict is sent to us.

    As many jobs as nodes wait, one on each, so that one of them is on the node that dies. It comes
    last, with the nodes that are left: a node is not started again, which takes a busy machine
    longer than Ray waits for it.
    """
    run, request = load_run(trained / "frog"), Request(everyone=True)
    before = len(workers.cluster.nodes())
    predict_to(run, tmp_path / "one", request, size=3)
    monkeypatch.setattr("relfrog.runs.predict_parts.predict_job", waiting_job(tmp_path))
    hidden = nullcontext(MeetingPlace("/nowhere", "mark"))
    monkeypatch.setattr("relfrog.runs.predict_parts.meeting_place", lambda folder: hidden)
    nodes.wait_until_free(2)
    with ThreadPoolExecutor(1) as aside:
        done = aside.submit(predict_to, run, tmp_path / "other", request, size=3, workers=workers)
        try:
            appears(tmp_path / "begun-second", unless=done.done)
            nodes.kill("second")
        finally:
            (tmp_path / "go").touch()
        done.result()
    pd.testing.assert_frame_equal(
        predictions(tmp_path / "other"), predictions(tmp_path / "one"), check_exact=True
    )
    # Predictions may be there before Ray has noticed the loss.
    until = time.monotonic() + 60
    while len(workers.cluster.nodes()) >= before:
        assert time.monotonic() < until
        time.sleep(0.2)
