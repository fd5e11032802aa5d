"""A team that torchrun has started: the first process leads, the others follow."""

from __future__ import annotations

import os
import sys
import time
import uuid
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

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
    try:
        team = TorchrunTeam(dataset, task, device)
    except KeyboardInterrupt:
        sys.exit(130)
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

        from relfrog.cluster.torch_collective import TorchCollective

        self.local = int(os.environ["LOCAL_RANK"])
        if not dist.is_initialized():
            _connect(device)
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


def _connect(device: str) -> None:
    """Join the group of all processes.

    Raises:
        ClusterError: They do not reach each other.
    """
    import torch.distributed as dist

    from relfrog.cluster.torch_collective import PATIENCE, backend

    try:
        store, rank, size = next(iter(cast("Any", dist).rendezvous("env://", timeout=PATIENCE)))
        dist.init_process_group(
            backend(device), store=meeting(store, rank, size), rank=rank, world_size=size,
            timeout=PATIENCE,
        )  # fmt: skip
    except RuntimeError as error:
        text = " ".join(str(error).split())[:300]
        raise ClusterError(f"the processes of torchrun do not reach each other: {text}.") from None


def meeting(store: Any, rank: int, size: int) -> Any:
    """A part of torchrun's store that nobody has written to before.

    The store outlives the processes: where torchrun starts them again, it still has the addresses
    of those that are gone. How often it has started them is no mark of an attempt, as a node that
    joins later counts from zero. So the first process names the attempt to all others that ask, and
    goes on when each has heard of it; questions of those that are gone do no harm.
    """
    import torch.distributed as dist

    if rank == 0:
        mark = uuid.uuid4().hex
        missing = set(range(1, size))
        while missing:
            for other in sorted(missing):
                if store.check([f"relfrog/heard/{mark}/{other}"]):
                    missing.remove(other)
                elif store.check([f"relfrog/asks/{other}"]):
                    question = store.get(f"relfrog/asks/{other}").decode()
                    store.set(f"relfrog/told/{question}", mark)
            time.sleep(0.01)
    else:
        question = uuid.uuid4().hex
        store.set(f"relfrog/asks/{rank}", question)
        mark = store.get(f"relfrog/told/{question}").decode()
        store.set(f"relfrog/heard/{mark}/{rank}", "yes")
    return cast("Any", dist).PrefixStore(f"relfrog/{mark}", store)
