"""A pool of processes on this machine, each with a bounded number of threads.

Every job runs in its own process, forked from a server with the libraries preloaded: its memory is
freed with it, and a job that is killed affects no other. If the parent process dies, running jobs
end as well; what they had begun can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from relfrog.cluster.guarded import Answer, Job, Work, guarded

__all__ = [
    "end_with_parent", "how_ended", "kill_all", "new_session", "process_context", "run_jobs",
    "without_script",
]  # fmt: skip

#: Modules to preload: they take seconds to import and start no threads.
PRELOAD = ["relfrog.runs.train", "relfrog.analysis.fd_space", "sklearn.decomposition",
           "sklearn.metrics"]  # fmt: skip
#: Seconds that an interrupted job has to end: a run, which saves its checkpoint, and others, which
#: have nothing to save.
GRACE, BRIEF = 30.0, 2.0


def run_jobs(
    run: Work,
    jobs: Sequence[Job],
    processes: int,
    threads: int,
    log: Path,
    grace: float = GRACE,
) -> Iterator[tuple[int, Answer]]:
    """Run jobs; yield the index and the result of each as soon as it is done.

    Closing the generator, or Ctrl-C, interrupts the running jobs, and kills those that go on.

    Args:
        run: runs a job; a module-level function.
        jobs: its arguments.
        processes: number of processes at a time.
        threads: threads per process.
        log: file for the output of the processes.
        grace: seconds that an interrupted job has to end.
    """
    context = process_context()
    waiting = iter(enumerate(jobs))
    running: dict[Connection, tuple[int, Any]] = {}
    try:
        while True:
            for number, job in islice(waiting, processes - len(running)):
                answer, sent = context.Pipe(duplex=False)
                given = (run, job, sent, dict(os.environ), threads, str(log), grace)
                process = context.Process(target=_work, args=given, daemon=True)
                with without_script():
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
        until = time.monotonic() + grace
        for _, process in running.values():
            process.join(max(0.0, until - time.monotonic()))
            process.kill()
            process.join()


def kill_all() -> None:
    """Kill all processes that were started here, at once.

    The server has no public name; left alone, it would end when it has imported everything.
    """
    for child in multiprocessing.active_children():
        child.kill()
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    number = getattr(server, "_forkserver_pid", None)
    if isinstance(number, int):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def process_context() -> Any:
    """The multiprocessing context: a fork server that ignores Ctrl-C, or spawn without one.

    The server imports while this process goes on; the first process that is started waits for it.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    forkserver.set_forkserver_preload(PRELOAD)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _safe_path():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return multiprocessing.get_context("forkserver")


@contextmanager
def _safe_path() -> Iterator[None]:
    """Python's own processes that are started inside import nothing from the current folder.

    It may be a stranger's, and Python searches it first for the code of the fork server.
    """
    if sys.version_info >= (3, 11):
        before = os.environ.get("PYTHONSAFEPATH")
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            yield
        finally:
            os.environ.pop("PYTHONSAFEPATH")
            if before is not None:
                os.environ["PYTHONSAFEPATH"] = before
    else:  # there is no such variable, but a switch, which also hides what PYTHONPATH says
        flags = multiprocessing.util._args_from_interpreter_flags
        multiprocessing.util._args_from_interpreter_flags = lambda: [*flags(), "-I"]
        try:
            yield
        finally:
            multiprocessing.util._args_from_interpreter_flags = flags


@contextmanager
def without_script() -> Iterator[None]:
    """Hide the user's script, which every new process would otherwise import and run again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with _safe_path():
            yield
    finally:
        sys.modules["__main__"] = script


def _answer(ready: Connection, process: Any) -> Answer:
    try:
        with ready:
            answer: Answer = ready.recv()
        return answer
    except EOFError:
        process.join()
    return {"error": f"the process {how_ended(process.exitcode)}"}


def how_ended(code: int | None) -> str:
    """How a process ended, in words, from its exit code."""
    if code is None or code >= 0:  # Windows knows no signals
        return f"ended with code {code}"
    hint = "; out of memory?" if code == -signal.SIGKILL else ""
    return f"was killed by signal {-code}{hint}"


def _work(
    run: Work, job: Job, sent: Connection,
    environment: Mapping[str, str], threads: int, log: str, grace: float,
) -> None:  # fmt: skip
    """Entry point of a worker process: run one job and send its result."""
    from threadpoolctl import threadpool_limits

    new_session(environment, log)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_parent(partial(_interrupt_then_end, grace))
    with threadpool_limits(threads), suppress(BrokenPipeError):
        sent.send(guarded(run, job))


def _interrupt_then_end(grace: float) -> None:
    """Interrupt the job of this process, and end it if it goes on: nobody waits for it."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(grace)
    os._exit(1)


def new_session(environment: Mapping[str, str], log: str) -> None:
    """Begin in a process that the server has forked: with the parent's environment of now.

    Ctrl-C reaches only the parent, which passes it on or not. What is printed goes into a file.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    os.environ.update(environment)
    with open(log, "a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def end_with_parent(end: Callable[[], Any]) -> None:
    """Call `end` when the process that started this one has gone, however that came."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        end()

    threading.Thread(target=watch, daemon=True).start()
