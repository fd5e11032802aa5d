"""Processes that torchrun has started: one speaks, all train."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from process_tree import descendants
from relfrog.cluster.torchrun_team import VARIABLES, meeting
from relfrog.errors import UsageError
from small_store import QUICK, fit, make_shop, weights


@pytest.fixture(scope="module")
def shop(once: Any, store: Path) -> Path:
    """The store with one more task, a list."""
    return once("sharded-shop", lambda folder: make_shop(store, folder)) / "copy"


def torchrun(workers: int, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", str(workers), "--max-restarts", "2", "-m", "relfrog", "train",
        *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def of_rank(rank: int, among: set[int]) -> int:
    """The process that torchrun has given a number."""
    for process in among:
        with contextlib.suppress(OSError):
            if f"RANK={rank}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(
                b"\0"
            ):
                return process
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are seen in /proc")
def test_two_processes_of_torchrun_learn_what_one_does_and_one_of_them_may_die(
    shop: Path, tmp_path: Path
) -> None:
    """Both are started again, and go on where they were."""
    settings = {**QUICK, "batch_size": 32, "steps_per_epoch": 4, "epochs": 12, "patience": 12}
    alone = fit(shop, tmp_path / "one", "list", workers=1, **settings)
    quick = [f"--set={name}={value}" for name, value in settings.items()]
    history = tmp_path / "two" / "history.jsonl"
    with torchrun(
        2, str(shop), "list", "--out", str(tmp_path / "two"), "--model", "frog",
        "--no-baselines", "--no-report", *quick,
    ) as process:  # fmt: skip
        end = time.monotonic() + 300
        while not history.exists() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(of_rank(1, descendants(process.pid)), signal.SIGKILL)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert weights(tmp_path / "two") == weights(tmp_path / "one")
    assert (tmp_path / "two" / "metrics.json").read_bytes() == (
        tmp_path / "one" / "metrics.json"
    ).read_bytes()
    assert len(history.read_text().splitlines()) == 12
    # torchrun may end the other before that notices; then there is nothing to say.
    assert err.count("worker 0 of 2 lost another") <= 1
    assert err.count("training seeds, ") == 2  # one of them speaks, at first and again
    assert err.count("epoch  11  loss") == 1
    assert out.count("The run is ") == 1
    assert alone.config.shards == 2


def test_processes_meet_where_those_before_them_have_been() -> None:
    """In a store with whatever attempts before have left, also one that ended half-way."""
    store = dist.HashStore()
    found = []
    for attempt, size in enumerate((3, 4, 2)):
        store.set("relfrog/asks/1", "of somebody who is gone")
        with ThreadPoolExecutor(size) as pool:
            met = list(pool.map(lambda rank, size=size: meeting(store, rank, size), range(size)))
        met[0].set("where", str(attempt))
        assert [place.get("where") for place in met] == [str(attempt).encode()] * size
        found.append(met[0])
    assert [place.get("where") for place in found] == [b"0", b"1", b"2"]


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
