"""Where workers compute, and what connects them: NCCL only between GPUs, one GPU for each worker.

There is no GPU here: what PyTorch says of them is made up, and tensors without data tell where
they would be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from helpers import inside
from relfrog.cluster import local_team, torchrun_team
from relfrog.cluster.ray_team import RayTeam
from relfrog.cluster.team import TrainingJob, own_device
from relfrog.cluster.torch_collective import backend
from relfrog.cluster.torchrun_team import VARIABLES, TorchrunTeam
from relfrog.config import resolve
from relfrog.errors import UsageError
from relfrog.training.sharded_trainer import Piece, ShardedTrainer
from relfrog.training.shards import FlatSum

GPUS = 2


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with GPUs, as far as anybody asks."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: GPUS)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that groups of processes were made with; none are made."""
    found: list[str] = []
    monkeypatch.setattr(dist, "init_process_group", lambda kind, **rest: found.append(kind))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    return found


@pytest.mark.parametrize(
    ("device", "words"),
    [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl"), ("cuda:1", "cpu:gloo,cuda:nccl"),
     ("meta", "gloo")],
)  # fmt: skip
def test_nccl_connects_gpus_and_nothing_else(device: str, words: str) -> None:
    """Objects, which lie in the memory of the processor, go by way of gloo there, too."""
    assert backend(device) == words


def test_each_worker_has_a_gpu_of_its_own(gpus: None) -> None:
    found = [own_device("cuda", local) for local in range(GPUS)]
    assert found == [torch.device("cuda", number) for number in range(GPUS)]
    with pytest.raises(
        UsageError, match=r"worker 2 .* no GPU of its own: there are 2. .*workers 2"
    ):
        own_device("cuda", GPUS)
    assert [own_device("cpu", local) for local in range(5)] == [torch.device("cpu")] * 5


def test_local_workers_that_outnumber_gpus_are_refused_before_they_start(
    gpus: None, joined: list[str], tmp_path: Path
) -> None:
    team = local_team.LocalTeam(1, tmp_path, "buys")
    team.size = GPUS + 1

    class Trainer:
        config = resolve(100, settings={"shards": GPUS + 1})

    job = TrainingJob(str(tmp_path), "buys", Trainer.config, {}, device="cuda")
    with pytest.raises(UsageError, match="no GPU of its own"):
        team.fit(Trainer(), job)  # type: ignore[arg-type]
    assert joined == []


@pytest.mark.parametrize(("device", "words"), [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl")])
def test_local_workers_are_connected_by_what_fits_their_device(
    joined: list[str], tmp_path: Path, device: str, words: str
) -> None:
    local_team._connect(1, 2, tmp_path, device)
    assert joined == [words]


@pytest.mark.parametrize("there", [False, True], ids=["no GPU", "a GPU"])
def test_the_processes_of_torchrun_choose_alike(
    joined: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Those that follow take a GPU where the first does, without being told; or all wait."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    for name, value in zip(VARIABLES, ("1", "2", "1", "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "rendezvous", lambda *given, **rest: [(None, 1, 2)])
    monkeypatch.setattr(torchrun_team, "meeting", lambda *given: None)
    monkeypatch.setattr(TorchrunTeam, "follow", lambda team: None)
    said = inside(capfd, "train", str(tmp_path), "buys", "--out", str(tmp_path / "run"))
    assert said == (0, "", "")
    TorchrunTeam(tmp_path, "buys", "cuda" if there else "cpu")  # as the first process has it
    assert joined == ["cpu:gloo,cuda:nccl" if there else "gloo"] * 2
    assert torchrun_team.follows()


@pytest.mark.parametrize(("device", "words"), [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl")])
def test_ray_gives_each_worker_a_gpu_where_they_compute_there(
    tmp_path: Path, device: str, words: str
) -> None:
    team = object.__new__(RayTeam)
    job = TrainingJob(str(tmp_path), "buys", resolve(100), {}, device=device)
    together = team._together(job, None, 2)
    assert (together.torch, together.gpu) == (words, device == "cuda")


def test_what_is_summed_is_where_the_weights_are() -> None:
    """Gradients and counts, which NCCL could not add up otherwise."""
    weights = nn.Linear(3, 2, device="meta")
    assert FlatSum(weights, None, 4).values.device == torch.device("meta")

    class Collective:
        def add(self, values: Any) -> None:
            raise Seen(values.device)

    class Seen(Exception):
        pass

    trainer = object.__new__(ShardedTrainer)
    trainer.device, trainer.keys = torch.device("meta"), ()
    trainer.collective = Collective()  # type: ignore[assignment]
    with pytest.raises(Seen, match="meta"):
        trainer._totals([Piece(None, None, [7])])  # type: ignore[arg-type]
