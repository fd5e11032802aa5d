"""A team on one machine: this process leads, the others are its children.

Children are forked from a server that has imported everything (`processes`). They end with this
process, however it ends. Ctrl-C reaches this process alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from relfrog.cluster.processes import (
    end_with_parent,
    how_ended,
    new_session,
    process_context,
    without_script,
)
from relfrog.cluster.ray_cluster import node_name
from relfrog.cluster.team import Follower, Team, TrainingJob, own_device, send_home
from relfrog.errors import ClusterError, RelFrogError, UsageError
from relfrog.training.sharded_trainer import ShardedTrainer

__all__ = ["LocalTeam"]

#: Seconds that a child has to start, and to say why it ended.
STARTING, ENDING = 300.0, 5.0


@dataclass
class _Child:
    rank: int
    process: multiprocessing.process.BaseProcess

    @property
    def ended(self) -> bool:
        return self.process.exitcode is not None


class LocalTeam(Team):
    """Processes of this machine."""

    def __init__(self, size: int, dataset: str | Path, task: str) -> None:
        super().__init__(size, dataset, task)
        self._folder: Path | None = None
        self._children: list[_Child] = []
        self._collective: Any = None
        if size > 1:
            process_context()  # imports while this process reads the data

    def fit(self, trainer: ShardedTrainer, job: TrainingJob) -> None:
        """Train with the children; if any of them fails, all are ended."""
        count = self.taking_part(trainer)
        if count == 1:
            trainer.fit()
            return
        try:
            own_device(job.device, count - 1)
            collective = self._join(count, job.device)
            collective.share(job)
            trainer.collective = collective
            trainer.fit()
        except ClusterError as error:
            raise self._who_failed(error) from None
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Send the children home."""
        if self._collective is not None:
            send_home(self._collective)
        self._end(kill=self._collective is None)

    def _join(self, count: int, device: str) -> Any:
        """Start the children, unless they are there, and connect with them."""
        if self._collective is None:
            self._folder = Path(tempfile.mkdtemp(prefix="relfrog-workers-"))
            context = process_context()
            for rank in range(1, count):
                given = (rank, count, self._folder, device, dict(os.environ))
                process = context.Process(target=_follow, args=given, daemon=True)
                with without_script():
                    process.start()
                self._children.append(_Child(rank, process))
            self._await_children(self._folder)
            self._collective = _connect(0, count, self._folder, device)
        return self._collective

    def _await_children(self, folder: Path) -> None:
        """Wait until all are about to connect: who connects waits for them without end."""
        until = time.monotonic() + STARTING
        for child in self._children:
            while not (folder / f"{child.rank}.ready").exists():
                if child.ended or time.monotonic() > until:
                    raise ClusterError(f"worker {child.rank} did not start")
                time.sleep(0.01)

    def _who_failed(self, error: ClusterError) -> RelFrogError:
        """The failure in words: which worker, where, why."""
        assert self._folder is not None
        until = time.monotonic() + ENDING
        dead: list[_Child] = []
        while not dead and time.monotonic() < until:
            dead = [child for child in self._children if child.ended]
            time.sleep(0.05)
        # A child that lost contact is not the cause; one that says something else, or nothing, is.
        said = {child.rank: _read_error(self._folder / f"{child.rank}.error") for child in dead}
        dead.sort(key=lambda child: said[child.rank].get("lost", False))
        found = str(error)
        if dead:
            child = dead[0]
            why = said[child.rank].get("text") or f"it {how_ended(child.process.exitcode)}"
            count = len(self._children) + 1
            found = f"worker {child.rank} of {count} on {node_name()} failed: {why}"
        self._end()
        return ClusterError(found if found.endswith((".", "?")) else f"{found}.")

    def _end(self, kill: bool = True) -> None:
        """End all children; they hold nothing that is not in the run folder of this process."""
        for child in self._children:
            if not kill:
                child.process.join(ENDING)
            child.process.kill()
            child.process.join()
        self._children = []
        if self._collective is not None:
            with suppress(Exception):
                self._collective.close()
            self._collective = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _connect(rank: int, size: int, folder: Path, device: str) -> Any:
    """Join the group of processes that meet in a folder."""
    import torch.distributed as dist

    from relfrog.cluster.torch_collective import PATIENCE, TorchCollective, backend

    if dist.is_initialized():
        raise UsageError(
            "this process belongs to a torch.distributed group already: leave workers out, or "
            "start it with torchrun."
        )
    if sys.platform.startswith("linux"):  # the name of a machine may lead nowhere
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = cast("Any", dist).FileStore(str(folder / "meeting"), size)
    dist.init_process_group(
        backend(device), store=store, rank=rank, world_size=size, timeout=PATIENCE
    )
    return TorchCollective()


def _read_error(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {}


# In a child.


def _follow(
    rank: int, size: int, folder: Path, device: str, environment: Mapping[str, str]
) -> None:
    """Entry point of a child: follow the parent."""
    import warnings

    end_with_parent(partial(os._exit, 1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    new_session(environment, str(folder / f"{rank}.log"))
    warnings.simplefilter("ignore")  # the parent says it all
    (folder / f"{rank}.ready").touch()
    error: dict[str, Any] | None = None
    try:
        Follower(_connect(rank, size, folder, device), local=rank).follow()
    except ClusterError as lost:
        error = {"text": str(lost), "lost": True}
    except RelFrogError as failed:
        error = {"text": str(failed)}
    except BaseException as failed:
        import traceback

        traceback.print_exc()  # into the log
        error = {"text": f"{type(failed).__name__}: {' '.join(str(failed).split())[:300]}"}
    if error is not None:
        aside = folder / f"{rank}.error-partial"
        with suppress(OSError):  # the parent may have gone, with the folder
            aside.write_text(json.dumps(error), encoding="utf-8")
            aside.replace(folder / f"{rank}.error")
    # Not by way of Python's own end: a group whose members are gone may take its time.
    sys.stdout.flush()
    os._exit(0 if error is None else 1)
