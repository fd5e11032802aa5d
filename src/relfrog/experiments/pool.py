"""Many jobs in a few processes, each with a bounded number of threads."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["run_jobs"]

#: Libraries that take as many threads as there are cores, unless they are told otherwise.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
#: Seconds that a run has to put its checkpoint away when it is interrupted.
GRACE = 30.0


def run_jobs(
    jobs: Sequence[dict[str, Any]], processes: int, threads: int, log: Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run jobs; the number of each and its answer as soon as it is there.

    Whoever stops listening, be it by Ctrl-C, ends the jobs in progress; their runs can be taken
    up again.

    Args:
        jobs: as `relfrog.experiments.worker.run_job` takes them.
        processes: how many at a time.
        threads: of each.
        log: file for what they print.
    """
    waiting: queue.Queue[int] = queue.Queue()
    for number in range(len(jobs)):
        waiting.put(number)
    answers: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
    slots = [_Slot(jobs, waiting, answers, threads, log) for _ in range(min(processes, len(jobs)))]
    try:
        for slot in slots:
            slot.start()
        for _ in range(len(jobs)):
            yield answers.get()
    finally:
        with suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        for slot in slots:
            slot.stop()
        for slot in slots:
            slot.join(GRACE)


class _Slot(threading.Thread):
    """Feeds one worker process, and starts another when it is lost."""

    def __init__(
        self,
        jobs: Sequence[dict[str, Any]],
        waiting: queue.Queue[int],
        answers: queue.Queue[tuple[int, dict[str, Any]]],
        threads: int,
        log: Path,
    ) -> None:
        super().__init__(daemon=True)
        self.jobs, self.waiting, self.answers = jobs, waiting, answers
        self.threads, self.log = threads, log
        self.process: subprocess.Popen[str] | None = None
        self.stopped = False

    def run(self) -> None:
        while not self.stopped:
            try:
                number = self.waiting.get_nowait()
            except queue.Empty:
                break
            try:
                answer = self._ask(self.jobs[number])
            except Exception as error:  # the answer must come, or all would wait for ever
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.answers.put((number, answer))
        self._end()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            self.process = self._launched()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        if not line:
            return {"error": f"the worker process ended; see {self.log}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _launched(self) -> subprocess.Popen[str]:
        environment = os.environ | {name: str(self.threads) for name in THREADS}
        with open(self.log, "a", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "relfrog.experiments.worker"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """Interrupt the job in progress; it puts a checkpoint away."""
        self.stopped = True
        process = self.process
        if process is not None and process.poll() is None:
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)  # the worker ignores it, its child not
            else:
                process.terminate()

    def _end(self) -> None:
        if self.process is not None:
            with suppress(BrokenPipeError, OSError):
                assert self.process.stdin is not None
                self.process.stdin.close()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
