"""Several processes of one machine: the same weights, one error, and nobody is left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import relfrog
from process_tree import descendants, running
from relfrog.cluster.local_team import LocalTeam
from relfrog.cluster.team import check_shards
from relfrog.config import resolve
from relfrog.datasets.tasks import load_task
from relfrog.errors import ClusterError, RelFrogWarning, UsageError
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask
from relfrog.training.sharded_trainer import ShardedTrainer
from relfrog.training.trainer import Trainer
from small_store import QUICK, fit, make_shop, weights

#: As the authors have the regulariser: in a pass of its own, in which gates move.
PASS = {"fd_every": "epoch", "fd_training": True, "fd_final": True, "fd_seeds": 8}
#: Both phases in a pass of their own and in a step. All task types, in one process:
#: `test_sharded_trainer`; others in several: `test_torchrun_team`, `test_on_ray`.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("buys", PASS), ("sorts", {"dropout": 0.3, "average": 0.9}), ("wants", {}),
]  # fmt: skip


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


def sharded(shop: Path, folder: Path, task: str, settings: dict[str, Any]) -> ShardedTrainer:
    loaded = load_task(relfrog.open_dataset(shop), task)
    opened = OpenedTask(loaded.dataset, loaded)
    quick = QUICK | {"epochs": 1, "steps_per_epoch": 3, "layers": 2, "shards": 4}
    given = {"model": "frog", **quick, "loss": "l1", **settings}
    folder.mkdir(parents=True)
    prepared = opened.prepare(resolve(100, settings=given, kind=opened.kind))
    return ShardedTrainer(prepared, folder)


@pytest.mark.slow
def test_three_processes_learn_what_one_does(shop: Path, tmp_path: Path) -> None:
    with LocalTeam(3, shop, "buys") as team:
        for number, (task, settings) in enumerate(CASES):
            alone = sharded(shop, tmp_path / f"{number}-1", task, settings)
            alone.fit()
            team.task = task
            trainer = sharded(shop, tmp_path / f"{number}-3", task, settings)
            team.fit(trainer, team.job(trainer, "cpu", with_validation=False))
            assert trainer.collective.size == 3
            assert trainer.at.best == alone.at.best
            assert weights(tmp_path / f"{number}-3") == weights(tmp_path / f"{number}-1"), task
        pids = {child.pid for child in multiprocessing.active_children()}
        assert len(running(pids)) == 2
    assert not running(pids)


def until(there: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait for something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := there():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


class KillWorker(Callback):
    """Kill a worker after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            multiprocessing.active_children()[0].kill()


@pytest.mark.slow
def test_a_killed_worker_is_named_and_the_run_goes_on_with_others(
    shop: Path, tmp_path: Path
) -> None:
    settings = {"epochs": 2, "refit": True, "average": 0.9, "shards": 3}
    whole = fit(shop, tmp_path / "whole", workers=1, **settings)
    with pytest.raises(ClusterError) as failed:
        fit(shop, tmp_path / "run", workers=2, callbacks=[KillWorker(4)], **settings)
    text = str(failed.value)
    assert "worker 1 of 2 on " in text
    assert "killed by signal 9; out of memory?" in text
    assert text.endswith(f"--out {tmp_path / 'run'} --resume")
    assert multiprocessing.active_children() == []
    run = fit(shop, tmp_path / "run", resume=True, workers=3, **settings)
    assert multiprocessing.active_children() == []
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert weights(tmp_path / "run" / "chosen") == weights(tmp_path / "whole" / "chosen")
    pd.testing.assert_frame_equal(run.predict(), whole.predict(), check_exact=True)


@pytest.mark.slow
def test_nobody_is_left_after_ctrl_c(shop: Path, tmp_path: Path) -> None:
    """In a terminal, where it reaches all processes. After a kill: see `test_processes`."""
    quick = [f"--set={name}={value}" for name, value in QUICK.items() if name != "epochs"]
    command = [
        sys.executable, "-m", "relfrog", "train", str(shop), "buys", "--out", str(tmp_path / "run"),
        "--model", "frog", "--workers", "2", "--no-baselines", "--no-report", *quick,
        "--set=epochs=100000", "--set=patience=100000",
    ]  # fmt: skip
    history = tmp_path / "run" / "history.jsonl"
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until(lambda: process.poll() is not None or history.exists())
        workers = descendants(process.pid)
        assert len(workers) >= 2  # and the server that forks them
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    until(lambda: not running(workers), 10)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("Interrupted. Go on with: relfrog train")
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_network_of_auto_is_trained_by_all(shop: Path, tmp_path: Path) -> None:
    settings = {"model": "auto", "trials": 1, "minutes": 30, "epochs": 1}
    for workers in (1, 2):
        run = fit(shop, tmp_path / str(workers), workers=workers, **settings)
        assert set(run.fitted.members) <= {"frog", "lightgbm", "recent", "mean", "median",
                                           "global-mean", "global-median"}  # fmt: skip
    one, two = (weights(tmp_path / name / "members" / "frog") for name in ("1", "2"))
    assert one == two
    blends = [json.loads((tmp_path / n / "blend.json").read_text())["weights"] for n in ("1", "2")]
    assert blends[0] == blends[1]


@pytest.mark.slow
def test_what_a_worker_cannot_do_is_said_in_its_words(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own error, not that it is gone."""
    with LocalTeam(2, tmp_path / "nowhere", "buys") as team:
        trainer = sharded(shop, tmp_path / "run", "buys", {})
        with pytest.raises(ClusterError, match=r"worker 1 of 2 on .* failed: .*nowhere"):
            team.fit(trainer, team.job(trainer, "cpu", with_validation=False))


def test_workers_without_work_are_said(shop: Path, tmp_path: Path) -> None:
    def check(workers: int, **settings: int) -> None:
        check_shards(LocalTeam(workers, shop, "buys"), resolve(100, settings=settings))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(8, shards=8)
    with pytest.warns(RelFrogWarning, match=r"2 of 3 workers train: .* --set batch_size=768"):
        check(3, shards=2, batch_size=512)
    with pytest.raises(UsageError, match=r"2 workers .* shards=1: one worker.*--set shards=2"):
        check(2, shards=1)
    with pytest.raises(UsageError, match="workers must be 1 or more"):
        fit(shop, tmp_path / "run", workers=0)
