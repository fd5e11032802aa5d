"""Processes that torchrun has started: one speaks, all train."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relfrog.cluster.torchrun_team import VARIABLES
from relfrog.errors import UsageError
from small_store import QUICK, fit, make_shop, weights


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


def torchrun(workers: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", str(workers), "-m", "relfrog", "train", *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.slow
def test_two_processes_of_torchrun_learn_what_one_does(shop: Path, tmp_path: Path) -> None:
    settings = {**QUICK, "batch_size": 32, "steps_per_epoch": 4}
    alone = fit(shop, tmp_path / "one", "list", workers=1, **settings)
    quick = [f"--set={name}={value}" for name, value in settings.items()]
    done = torchrun(
        2, str(shop), "list", "--out", str(tmp_path / "two"), "--model", "frog",
        "--no-baselines", "--no-report", *quick,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "two") == weights(tmp_path / "one")
    assert (tmp_path / "two" / "metrics.json").read_bytes() == (
        tmp_path / "one" / "metrics.json"
    ).read_bytes()
    assert done.stderr.count("training seeds, ") == 1  # one of them speaks
    assert done.stderr.count("epoch   0  loss") == 1
    assert done.stdout.count("The run is ") == 1
    assert alone.config.shards == 2


@pytest.mark.parametrize("asked", [{"workers": 3}, {"cluster": "auto"}], ids=str)
def test_torchrun_says_how_many_workers_there_are(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    """Before anybody waits for anybody."""
    for name, value in zip(VARIABLES, ("0", "2", "0", "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)
    words = " ".join(f"--{name} {value}" for name, value in asked.items())
    with pytest.raises(UsageError, match=f"torchrun has started 2 workers already: leave {words} "):
        fit(shop, tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()
