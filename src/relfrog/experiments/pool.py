"""A process pool for training runs, each process with a bounded number of threads.

Every job runs in its own process, forked from a server with the libraries preloaded: its memory is
freed with it, and a job that is killed affects no other. If the parent process dies, running jobs
end as well; their run folders can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from relfrog.errors import RelFrogError, RunError, UsageError
from relfrog.models.run_folder import is_run
from relfrog.support.files import write_json
from relfrog.support.forms import read_json

__all__ = ["DifferencesFile", "is_complete", "run_job", "run_jobs"]

#: Modules to preload: they take seconds to import and start no threads.
PRELOAD = ["relfrog.runs.train", "relfrog.analysis.fd_space", "sklearn.decomposition",
           "sklearn.metrics", "torch._dynamo"]  # fmt: skip
#: Seconds that an interrupted run has to save its checkpoint.
GRACE = 30.0


def run_jobs(
    run: Callable[[dict[str, Any]], dict[str, Any]],
    jobs: Sequence[dict[str, Any]],
    processes: int,
    threads: int,
    log: Path,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run jobs; yield the index and the result of each as soon as it is done.

    Closing the generator, or Ctrl-C, interrupts the running jobs.

    Args:
        run: runs a job, such as `run_job`; a module-level function.
        jobs: its arguments.
        processes: number of processes at a time.
        threads: threads per process.
        log: file for the output of the processes.
    """
    context = _context()
    waiting = iter(enumerate(jobs))
    running: dict[Connection, tuple[int, Any]] = {}
    try:
        while True:
            for number, job in islice(waiting, processes - len(running)):
                answer, sent = context.Pipe(duplex=False)
                given = (run, job, sent, dict(os.environ), threads, str(log))
                process = context.Process(target=_work, args=given, daemon=True)
                with _without_script():
                    process.start()
                sent.close()
                running[answer] = number, process
            if not running:
                return
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                number, process = running.pop(ready)
                yield number, _answer(ready, process)
    finally:
        for _, process in running.values():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        for _, process in running.values():
            process.join(GRACE)


def _context() -> Any:
    """The multiprocessing context: a fork server that ignores Ctrl-C, or spawn without one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    forkserver.set_forkserver_preload(PRELOAD)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("forkserver")


@contextmanager
def _without_script() -> Iterator[None]:
    """Hide the user's script, which every new process would otherwise import and run again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _answer(ready: Connection, process: Any) -> dict[str, Any]:
    try:
        with ready:
            answer: dict[str, Any] = ready.recv()
        return answer
    except EOFError:
        process.join()
    code = process.exitcode
    why = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    hint = "; out of memory?" if code == -signal.SIGKILL else ""
    return {"error": f"the process {why}{hint}"}


def _work(
    run: Callable[[dict[str, Any]], dict[str, Any]], job: dict[str, Any], sent: Connection,
    environment: Mapping[str, str], threads: int, log: str,
) -> None:  # fmt: skip
    """Entry point of a worker process: run one job and send its result."""
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches only the parent, which passes it on once
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ.update(environment)
    with open(log, "a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with threadpool_limits(threads), suppress(BrokenPipeError):
        sent.send(run(job))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a complete run."""
    if not is_run(folder) or not (folder / "metrics.json").is_file():
        return False
    return bool(read_json(folder / "run.json", dict[str, Any]).get("status") == "complete")


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train or resume a run; then analyse its embedding space, if the job asks for it.

    Args:
        job: `dataset`, `task`, `folder`; `settings`, `preset`, `size`, `seed`, `gates`, `members`
            as for `train`; `differences`: a file for the result of `relfrog.analysis.fd_space`.

    Returns:
        `{}`, or an `error` message, with `unfit` if the settings do not fit the task.
    """
    try:
        _train(job)
        if job.get("differences"):
            _look_into(job)
    except UsageError as error:
        return {"error": str(error), "unfit": True}
    except RelFrogError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except KeyboardInterrupt:
        return {"error": "interrupted"}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {}


def _train(job: dict[str, Any]) -> None:
    from relfrog.runs.train import train

    folder = Path(job["folder"])
    if is_complete(folder):
        return
    options = {
        "roles": job.get("gates"), "size": job["size"], "preset": job.get("preset"),
        "settings": job["settings"], "seed": job["seed"], "baselines": False,
        "members": job.get("members"),
    }  # fmt: skip
    if is_run(folder):
        try:
            train(job["dataset"], job["task"], folder, resume=True, **options)
            return
        except (RunError, UsageError):
            # The unfinished run is damaged or from an older version: start again.
            pass
    train(job["dataset"], job["task"], folder, overwrite=True, **options)


class DifferencesFile(msgspec.Struct):
    """What is kept of `relfrog.analysis.fd_space` for a run; null where a number is not defined."""

    points: list[tuple[float, float]]
    key: list[str]
    matched: list[bool]
    separation: dict[str, float | None]
    scored: dict[str, float | None]
    silhouette: float | None
    explained: float | None

    def __post_init__(self) -> None:
        if not len(self.points) == len(self.key) == len(self.matched):
            raise ValueError("points of different lengths")


def _look_into(job: dict[str, Any]) -> None:
    from relfrog.analysis.fd_space import differences
    from relfrog.runs.run import load_run

    file = Path(job["differences"])
    if file.is_file():
        return
    found = differences(load_run(job["folder"]))
    write_json(
        file,
        {
            "points": [[round(float(x), 4) for x in point] for point in found.points],
            "key": found.key, "matched": found.matched.tolist(),
            "separation": found.separation, "scored": found.scored,
            "silhouette": found.silhouette,
            "explained": found.explained,
        },
    )  # fmt: skip
