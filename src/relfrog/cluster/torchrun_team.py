"""A team that torchrun has started: the first process leads, the others follow."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from relfrog.cluster.ray_cluster import node_name
from relfrog.cluster.replica import replicate
from relfrog.cluster.team import Follower, Team, TrainingJob, own_device, send_home
from relfrog.errors import ClusterError, RelFrogError
from relfrog.store.parts import open_store
from relfrog.training.sharded_trainer import ShardedTrainer

__all__ = [
    "TorchrunTeam", "follow", "follows", "restarts", "torchrun_size", "under_torchrun",
]  # fmt: skip

#: What torchrun tells each of its processes.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def under_torchrun() -> bool:
    """Whether torchrun, or something like it, has started this process."""
    return all(name in os.environ for name in VARIABLES)


def torchrun_size() -> int:
    """How many processes torchrun has started."""
    return int(os.environ["WORLD_SIZE"])


def follows() -> bool:
    """Whether this process is not the first that torchrun has started: it says nothing."""
    return under_torchrun() and os.environ["RANK"] != "0"


def follow(dataset: str | Path, task: str, device: str) -> None:
    """Take part in the training that the first process leads, to its end.

    Args:
        dataset: as the first process was given it.
        task: one of its tasks.
        device: where the first process computes, too: it decides what connects all of them.

    Raises:
        SystemExit: It failed.
    """
    team = TorchrunTeam(dataset, task, device)
    team.follow()
    team.close()


def restarts() -> int:
    """How often torchrun has started all processes again, because one failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if under_torchrun() else 0


class TorchrunTeam(Team):
    """The processes of torchrun, on one machine or several."""

    def __init__(self, dataset: str | Path, task: str, device: str = "cpu") -> None:
        super().__init__(torchrun_size(), dataset, task)
        import torch.distributed as dist

        from relfrog.cluster.torch_collective import PATIENCE, TorchCollective, backend

        self.local = int(os.environ["LOCAL_RANK"])
        if not dist.is_initialized():
            dist.init_process_group(backend(device), init_method="env://", timeout=PATIENCE)
        self.collective = TorchCollective()
        self._broken = False

    @property
    def leads(self) -> bool:
        """Whether this process is the first."""
        return self.collective.first

    def fit(self, trainer: ShardedTrainer, job: TrainingJob) -> None:
        """Train with the others."""
        own_device(job.device, self.local)
        several = os.environ.get("LOCAL_WORLD_SIZE", str(self.size)) != str(self.size)
        if several and Path(self.dataset).is_dir():
            copies = replicate({"dataset": Path(self.dataset)}, open_store().used)
            job = replace(job, replica=copies)
        self.collective.share(job)
        trainer.collective = self.collective
        self._broken = True  # until it has come to its end, nobody waits for jobs
        try:
            trainer.fit()
        except ClusterError as error:
            raise ClusterError(f"{error}. If it could, it said why.") from None
        self._broken = False

    def follow(self) -> None:
        """Be one of the others, to the end. Only what went wrong here alone is said.

        Raises:
            SystemExit: Training failed.
        """
        follower = Follower(self.collective, local=self.local)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first one says them, too
                follower.follow()
        except KeyboardInterrupt:
            sys.exit(130)
        except ClusterError:
            sys.exit(1)  # another one failed, and says why
        except RelFrogError as error:
            if not follower.agreed:
                rank = self.collective.rank
                print(f"worker {rank} on {node_name()}: {error}", file=sys.stderr, flush=True)
            sys.exit(1)

    def close(self) -> None:
        """Send the others home, and leave."""
        if self.leads and not self._broken:
            send_home(self.collective)
        self.collective.close()
