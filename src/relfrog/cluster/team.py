"""A team: workers that train one network together, wherever they are.

The process that was asked to train leads: it reads the data, makes the run folder, trains what is
no network, scores. For each network it sends the others a `TrainingJob`, and all of them run the
same trainer. How workers are started differs: `local_team`, `torchrun_team`, `ray_team`.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from relfrog.cluster.replica import Replica, obtain
from relfrog.cluster.workers import Workers
from relfrog.config import Config
from relfrog.errors import RelFrogWarning, UsageError
from relfrog.support.threads import thread_limit
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.collective import Collective
from relfrog.training.opened_task import OpenedTask, open_task
from relfrog.training.sharded_trainer import ShardedTrainer
from relfrog.training.shards import FEWEST

__all__ = ["Follower", "Team", "TrainingJob", "check_shards"]


@dataclass(frozen=True)
class TrainingJob:
    """The training of one network, as other processes are told of it.

    Attributes:
        dataset: a dataset folder, or the name of a dataset that RelBench hosts.
        task: one of its tasks.
        config: the settings.
        labels: description of the training labels.
        gates: fixed gates by route, if roles are not learned.
        device: where to compute; of several GPUs, each worker takes its own.
        last: epochs to train for when nothing is selected any more.
        with_validation: whether validation labels are learned from, too.
        deadline: when the time budget is over, in seconds since 1970.
        replica: what to copy to this node's disk first; None if all is there.
    """

    dataset: str
    task: str
    config: Config
    labels: dict[str, Any]
    gates: Mapping[str, float] | None = None
    device: str = "cpu"
    last: int | None = None
    with_validation: bool = False
    deadline: float = float("inf")
    replica: Replica | None = None

    @property
    def budget(self) -> Budget:
        """The time budget on this process's clock."""
        if self.deadline == float("inf"):
            return UNLIMITED
        return Budget(time.monotonic() + self.deadline - time.time())


class Team(ABC):
    """Workers that train together.

    Attributes:
        size: how many there are, with the one that leads.
        dataset: the dataset of all jobs: a folder, or a name.
        task: the task of all jobs.
        asked: whether somebody asked for so many, and not just for all that there are.
    """

    asked = True

    def __init__(self, size: int, dataset: str | Path, task: str) -> None:
        self.size, self.dataset, self.task = size, str(dataset), task

    def taking_part(self, trainer: ShardedTrainer) -> int:
        """How many workers train: no more than there are pieces of a batch."""
        return min(self.size, trainer.config.shards)

    def job(self, trainer: ShardedTrainer, device: str, with_validation: bool) -> TrainingJob:
        """What others need to know to take part in a training."""
        until = trainer.budget.until
        deadline = until if until == float("inf") else until - time.monotonic() + time.time()
        return TrainingJob(
            self.dataset, self.task, trainer.config, trainer.labels, trainer.gates, device,
            trainer.last, with_validation, deadline,
        )  # fmt: skip

    @property
    def workers(self) -> Workers | None:
        """Processes that run jobs beside the training of networks; None if there are none."""
        return None

    @abstractmethod
    def fit(self, trainer: ShardedTrainer, job: TrainingJob) -> None:
        """Train to the end, from where the trainer is.

        Raises:
            ClusterError: A worker has failed; the run can be resumed.
        """

    @abstractmethod
    def close(self) -> None:
        """Send all workers home."""

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_shards(team: Team, config: Config) -> None:
    """Say if some workers that were asked for have nothing to do.

    Raises:
        UsageError: Only one of several would: a batch is whole.

    Warns:
        RelFrogWarning: There are more workers than pieces of a batch.
    """
    workers = team.size
    if workers <= config.shards or not team.asked:
        return
    more = (
        f"--set shards={workers}, which changes what is learned a little and costs more of the "
        "processor"
    )
    if config.shards == 1:
        raise UsageError(
            f"{workers} workers cannot share a batch of shards=1: one worker would have work. "
            f"Take one, or train anew with more pieces: {more}."
        )
    text = (
        f"{config.shards} of {workers} workers train: a batch of {config.batch_size} seeds has "
        f"shards={config.shards}. For more, take larger batches, --set "
        f"batch_size={FEWEST * workers}, or smaller pieces, {more}."
    )
    warnings.warn(text, RelFrogWarning, stacklevel=3)


@dataclass
class Follower:
    """A worker that does not lead: it runs jobs as the first worker does.

    Attributes:
        collective: the workers.
        local: the number of this worker among those of its machine.
        folder: a folder of its own, in which nothing is written unless it is the first worker.
    """

    collective: Collective
    local: int = 0
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    _opened: dict[tuple[str, str], OpenedTask] = field(default_factory=dict)
    _trainer: ShardedTrainer | None = None

    @property
    def agreed(self) -> bool:
        """Whether an error was raised by all workers alike, so that the first one says it."""
        return self._trainer is not None and self._trainer.agreed

    def follow(self) -> None:
        """Run jobs until there are no more."""
        while True:
            job: TrainingJob | None = self.collective.share(None)
            if job is None:
                return
            self.run(job)

    def run(self, job: TrainingJob) -> None:
        """Take part in a training."""
        with thread_limit(job.config.threads):
            self.trainer(job).fit()

    def trainer(
        self, job: TrainingJob, kind: type[ShardedTrainer] = ShardedTrainer, **options: Any
    ) -> ShardedTrainer:
        """The trainer of a job, on this worker's copy of the data."""
        dataset = job.dataset
        if job.replica is not None:
            dataset = str(obtain(job.replica)["dataset"])
        place = (dataset, job.task)
        if place not in self._opened:
            self._opened[place] = open_task(dataset, job.task, **vars(job.config))
        opened = self._opened[place]
        prepared = opened.prepare(job.config)
        if job.with_validation:
            assert prepared.train_seeds is not None
            seeds = opened.with_validation(prepared.train_seeds)
            prepared = replace(prepared, train_seeds=seeds)
        self._trainer = kind(
            prepared, self.folder, collective=self.collective, roles=job.gates,
            device=own_device(job.device, self.local), budget=job.budget, labels=job.labels,
            last=job.last, **options,
        )  # fmt: skip
        return self._trainer


def own_device(device: str, local: int) -> torch.device:
    """The device of a worker: of GPUs, each takes the one of its number on the machine."""
    wanted = torch.device(device)
    if wanted.type != "cuda":
        return wanted
    count = torch.cuda.device_count()
    if local >= count:
        raise UsageError(
            f"worker {local} of this machine has no GPU of its own: there are {count}. Take "
            f"--workers {max(count, 1)}, or --device cpu"
        )
    return torch.device("cuda", local)


def send_home(collective: Collective) -> None:
    """Tell followers that there are no more jobs; whoever is gone needs not be told."""
    with suppress(Exception):
        collective.share(None)
