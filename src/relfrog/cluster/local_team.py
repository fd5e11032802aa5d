"""A team on one machine: this process leads, the others are its children.

Children end with this process, however it ends: each reads from a pipe that nobody writes to, and
exits when it is closed. Ctrl-C reaches this process alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

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
    process: subprocess.Popen[bytes]


class LocalTeam(Team):
    """Processes of this machine."""

    def __init__(self, size: int, dataset: str | Path, task: str) -> None:
        super().__init__(size, dataset, task)
        self._folder: Path | None = None
        self._children: list[_Child] = []
        self._collective: Any = None
        if size > 1:
            self._start()  # they import while this process reads the data

    def fit(self, trainer: ShardedTrainer, job: TrainingJob) -> None:
        """Train with the children; if any of them fails, all are ended."""
        if self.size == 1:
            trainer.fit()
            return
        try:
            own_device(job.device, self.size - 1)
            collective = self._join(job.device)
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

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="relfrog-workers-"))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for rank in range(1, self.size):
            with open(self._folder / f"{rank}.log", "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(rank), str(self.size), self._folder],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment,
                    start_new_session=True,
                )  # fmt: skip
            self._children.append(_Child(rank, process))

    def _join(self, device: str) -> Any:
        """Connect with the children; they are started again if they were ended."""
        if self._collective is None:
            if not self._children:
                self._start()
            assert self._folder is not None
            self._await_children()
            (self._folder / "device").write_text(device, encoding="utf-8")
            self._collective = _connect(0, self.size, self._folder, device)
        return self._collective

    def _await_children(self) -> None:
        assert self._folder is not None
        until = time.monotonic() + STARTING
        for child in self._children:
            while not (self._folder / f"{child.rank}.ready").exists():
                if child.process.poll() is not None or time.monotonic() > until:
                    raise ClusterError(f"worker {child.rank} did not start")
                time.sleep(0.02)

    def _who_failed(self, error: ClusterError) -> RelFrogError:
        """The failure in words: which worker, where, why."""
        assert self._folder is not None
        until = time.monotonic() + ENDING
        dead: list[_Child] = []
        while not dead and time.monotonic() < until:
            dead = [child for child in self._children if child.process.poll() is not None]
            time.sleep(0.05)
        # A child that lost contact is not the cause; one that says something else, or nothing, is.
        said = {child.rank: _read_error(self._folder / f"{child.rank}.error") for child in dead}
        dead.sort(key=lambda child: said[child.rank].get("lost", False))
        found = str(error)
        if dead:
            child = dead[0]
            why = said[child.rank].get("text") or _ended(child.process.returncode)
            found = f"worker {child.rank} of {self.size} on {node_name()} failed: {why}"
        self._end()
        return ClusterError(found if found.endswith(".") else f"{found}.")

    def _end(self, kill: bool = True) -> None:
        """End all children; they hold nothing that is not in the run folder of this process."""
        for child in self._children:
            with suppress(OSError):
                assert child.process.stdin is not None
                child.process.stdin.close()
            if not kill:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(ENDING)
            child.process.kill()
            child.process.wait()
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


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    hint = "; out of memory?" if code == -signal.SIGKILL else ""
    return f"it was killed by signal {-code}{hint}"


def _read_error(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    return {}


# In a child.


def _end_with_parent() -> None:
    """Exit when the parent closes its end of the pipe, as it does when it dies."""
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    os._exit(1)


def main(rank: int, size: int, folder: Path) -> None:
    """Follow the parent."""
    import warnings

    threading.Thread(target=_end_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")  # the parent says it all
    (folder / f"{rank}.ready").touch()
    while not (folder / "device").exists():
        time.sleep(0.02)
    error: dict[str, Any] | None = None
    try:
        collective = _connect(rank, size, folder, (folder / "device").read_text(encoding="utf-8"))
        Follower(collective, local=rank).follow()
    except ClusterError as lost:
        error = {"text": str(lost), "lost": True}
    except RelFrogError as failed:
        error = {"text": str(failed)}
    except BaseException as failed:
        import traceback

        traceback.print_exc()  # into the log
        error = {"text": f"{type(failed).__name__}: {' '.join(str(failed).split())[:300]}"}
    if error is not None:
        partial = folder / f"{rank}.error-partial"
        with suppress(OSError):  # the parent may have gone, with the folder
            partial.write_text(json.dumps(error), encoding="utf-8")
            partial.replace(folder / f"{rank}.error")
    # Not by way of Python's own end: a group whose members are gone may take its time.
    sys.stdout.flush()
    os._exit(0 if error is None else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
