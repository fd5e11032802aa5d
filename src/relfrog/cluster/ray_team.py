"""A team on a Ray cluster: Ray Train starts workers on its nodes, and again if any of them fails.

This process takes no part in the training: it makes the run folder, tells workers what to do, and
writes down what the first of them sends. In between stands a `Desk` on this process's node. It has
the last checkpoint, so that workers go on from it wherever Ray starts them again, also if they are
fewer by then. No folder has to be shared: data are copied to nodes as `replica` says.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from relfrog.cluster.ray_cluster import RayCluster, connect, node_name
from relfrog.cluster.ray_train import Together, run_together
from relfrog.cluster.replica import replicate
from relfrog.cluster.team import Follower, Team, TrainingJob
from relfrog.cluster.workers import RayWorkers
from relfrog.errors import ClusterError, RelFrogError, RunError
from relfrog.store.parts import open_store
from relfrog.support.files import atomic_write
from relfrog.training import checkpoint
from relfrog.training.callbacks import Callback, EpochRecord, announce
from relfrog.training.sharded_trainer import ShardedTrainer
from relfrog.training.trainer import Trainer
from relfrog.training.weights import FILE, load_weights

__all__ = ["RayTeam"]

#: What a training writes into its folder.
FILES = (FILE, checkpoint.LAST, "history.jsonl")
#: Failures of workers or nodes, and of the process that starts them, after which training goes on
#: without asking.
FAILURES, RETRIES = 20, 3
#: Seconds between two reports of steps.
REPORT = 0.2


class Desk:
    """What the first worker has sent: files of the run, events, and what went wrong."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._new: dict[str, bytes] = {}
        self._events: list[tuple[Any, ...]] = []

    def files(self) -> dict[str, bytes]:
        """The files of the last checkpoint."""
        return self._files

    def keep(self, files: dict[str, bytes]) -> None:
        """Keep the files of a checkpoint, all of them at once."""
        self._files = {**self._files, **files}
        self._new |= files

    def tell(self, *events: tuple[Any, ...]) -> None:
        """Keep events for the process that asked for the training."""
        self._events += events

    def take(self) -> tuple[list[tuple[Any, ...]], dict[str, bytes]]:
        """Events and files since the last time."""
        found = self._events, self._new
        self._events, self._new = [], {}
        return found


class RayTeam(Team):
    """Workers on the nodes of a Ray cluster.

    Args:
        size: how many; by default one for each core or GPU of the cluster.
        dataset: the dataset of all jobs.
        task: the task of all jobs.
        address: the cluster; see `connect`.
        device: where to compute.
    """

    def __init__(
        self, size: int | None, dataset: str | Path, task: str, address: str, device: str = "cpu"
    ) -> None:
        self.cluster: RayCluster = connect(address)
        gpus = sum(node.gpus for node in self.cluster.nodes()) if device.startswith("cuda") else 0
        super().__init__(size or gpus or self.cluster.cpus(), dataset, task)
        self.asked = size is not None

    def fit(self, trainer: ShardedTrainer, job: TrainingJob) -> None:
        """Train on the cluster; the trainer of this process shows what the first worker does."""
        ray = self.cluster.ray
        if len(self.cluster.nodes()) > 1 and Path(self.dataset).is_dir():
            job = replace(
                job, replica=replicate({"dataset": Path(self.dataset)}, open_store().used)
            )
        here = self.cluster.this_node()
        found = _files_in(trainer.folder, *FILES, checkpoint.BEFORE)
        files = {name: path.read_bytes() for name, path in found.items()}
        desk = ray.remote(Desk).options(num_cpus=0, scheduling_strategy=here).remote(files)
        mirror = _Mirror(trainer)
        try:
            run_together(
                self.cluster, self._together(job, desk, self.taking_part(trainer)), retries=RETRIES,
                meanwhile=lambda: mirror.show(*ray.get(desk.take.remote())),
            )  # fmt: skip
        finally:
            with suppress(Exception):
                ray.kill(desk)
        mirror.end()

    def _together(self, job: TrainingJob, desk: Any, workers: int) -> Together:
        """The workers, as Ray Train starts them. Fewer will do: their number changes nothing."""
        from relfrog.cluster.torch_collective import PATIENCE, backend

        return Together(
            _work, {"job": job, "desk": desk},
            workers=(1, workers) if workers > 1 else 1, failures=FAILURES,
            torch=backend(job.device), timeout=int(PATIENCE.total_seconds()),
            gpu=job.device.startswith("cuda"),
        )  # fmt: skip

    @property
    def workers(self) -> RayWorkers:
        """Ray's tasks for the jobs of models that are no networks."""
        return RayWorkers(self.cluster, Path(os.devnull))

    def close(self) -> None:
        """Leave the cluster."""
        self.cluster.close()


class _Mirror:
    """Brings what the first worker does to the trainer of this process, and to its callbacks."""

    def __init__(self, trainer: ShardedTrainer) -> None:
        self.trainer, self._begun = trainer, False

    def show(self, events: list[tuple[Any, ...]], files: dict[str, bytes]) -> None:
        """Write files and report events.

        Raises:
            RelFrogError: A worker has failed in a way that another try would not mend.
        """
        for name, content in files.items():
            path = self.trainer.folder / name
            if name == checkpoint.LAST and path.exists():
                path.replace(self.trainer.folder / checkpoint.BEFORE)
            with atomic_write(path) as file:
                file.write(content)
        for kind, *about in events:
            getattr(self, f"_{kind}")(*about)

    def _start(self, progress: str, workers: int) -> None:
        self.trainer.at = checkpoint.parse_progress(progress)
        if self._begun:
            at = f"epoch {self.trainer.at.epoch}, step {self.trainer.at.step}"
            announce(self.trainer.callbacks, f"a worker was lost: {workers} go on from {at}")
            return
        self._begun = True
        for callback in self.trainer.callbacks:
            callback.on_start(self.trainer)

    def _step(self, progress: str, loss: float) -> None:
        self.trainer.at = checkpoint.parse_progress(progress)
        for callback in self.trainer.callbacks:
            callback.on_step(self.trainer, loss)

    def _epoch(self, progress: str, record: EpochRecord) -> None:
        self.trainer.at = checkpoint.parse_progress(progress)
        for callback in self.trainer.callbacks:
            callback.on_epoch(self.trainer, record)

    def _failed(self, rank: int, node: str, text: str, agreed: bool) -> None:
        raise RunError(text) if agreed else ClusterError(f"worker {rank} on {node} failed: {text}")

    def end(self) -> None:
        """Load the best weights, as a trainer does at its end."""
        self.trainer.network.load_state_dict(load_weights(self.trainer.folder))
        for callback in self.trainer.callbacks:
            callback.on_end(self.trainer)


def _files_in(folder: Path, *names: str) -> dict[str, Path]:
    return {name: folder / name for name in names or FILES if (folder / name).is_file()}


# In processes of the cluster.


class _SendingTrainer(ShardedTrainer):
    """Sends the files of each checkpoint to the desk."""

    desk: Any = None
    _sent: dict[str, int]

    def save_checkpoint(self) -> None:
        """As on one machine, and then to the desk, before training goes on."""
        import ray

        super().save_checkpoint()
        if self.collective.first:
            found = _files_in(self.folder)
            changed = {n: p for n, p in found.items() if self._sent.get(n) != p.stat().st_mtime_ns}
            ray.get(self.desk.keep.remote({n: p.read_bytes() for n, p in changed.items()}))
            self._sent |= {n: p.stat().st_mtime_ns for n, p in changed.items()}


class _Reporter(Callback):
    """Sends what happens to the desk; steps some at a time."""

    def __init__(self, desk: Any) -> None:
        self._desk, self._steps, self._last = desk, list[tuple[Any, ...]](), 0.0

    def on_start(self, trainer: Trainer) -> None:
        """Where training begins, and with how many."""
        progress = checkpoint.progress_text(trainer)
        self._desk.tell.remote(("start", progress, trainer.collective.size))

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """A step."""
        self._steps.append(("step", checkpoint.progress_text(trainer), loss))
        if time.monotonic() - self._last > REPORT:
            self._flush()

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """An epoch."""
        self._steps.append(("epoch", checkpoint.progress_text(trainer), record))
        self._flush()

    def _flush(self) -> None:
        self._desk.tell.remote(*self._steps)
        self._steps, self._last = [], time.monotonic()


def _work(given: dict[str, Any]) -> None:
    """Train, as one of the workers that Ray Train has started and connected."""
    import ray
    import torch.distributed as dist

    from relfrog.cluster.torch_collective import TorchCollective
    from relfrog.support.threads import thread_limit
    from relfrog.training.collective import ALONE

    job, desk = given["job"], given["desk"]
    collective = TorchCollective() if dist.is_initialized() else ALONE
    local = ray.train.get_context().get_local_rank()
    with tempfile.TemporaryDirectory(prefix="relfrog-worker-") as place:
        follower = Follower(collective, local, Path(place))
        try:
            with thread_limit(job.config.threads):
                options: dict[str, Any] = {"kind": _SendingTrainer}
                if collective.first:
                    for name, content in ray.get(desk.files.remote()).items():
                        (Path(place) / name).write_bytes(content)
                    options["callbacks"] = [_Reporter(desk)]
                trainer = follower.trainer(job, **options)
                assert isinstance(trainer, _SendingTrainer)
                trainer.desk, trainer._sent = desk, {}
                if collective.first:
                    trainer.load_checkpoint()
                trainer.fit()
        except ClusterError:
            raise  # another worker is gone: Ray begins again
        except RelFrogError as error:
            about = ("failed", collective.rank, node_name(), str(error), follower.agreed)
            if collective.first or not follower.agreed:
                ray.get(desk.tell.remote(about))
            if not follower.agreed:
                time.sleep(600)  # until it is ended: Ray would try again in vain
