"""Work on what strangers wrote, in a process of its own that can be killed.

A helper process, small and without threads, is started once and forks for every job. The fork has
limits of its own for memory, processor time and the size of files, and is killed at the deadline.
Whatever becomes of it, a crash, a hang or an exhausted limit, is an error here and nothing more.

Where a system has no fork, every job has a new helper process, which has a deadline only.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from relfrog.support.files import is_alive

__all__ = ["Ended", "Failed", "Limits", "run_job", "work_folder"]

#: What the helper process sees of the environment: nothing that could be a secret.
_ENVIRONMENT = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "SYSTEMROOT",
    "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL",
)  # fmt: skip
#: One thread, so that it can fork; memory that is reserved counts, so little of it.
_SETTINGS = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
}  # fmt: skip
_PREFIX = "relfrog-job-"
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from relfrog.support.sandbox_child import serve; serve()"
)


class Failed(Exception):
    """The job says why it did not succeed.

    Attributes:
        kind: The class of the exception.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Ended(Exception):
    """The job's process came to an end without an answer.

    Attributes:
        late: Whether it was killed because its time was over.
    """

    def __init__(self, text: str, late: bool = False) -> None:
        super().__init__(text)
        self.late = late


@dataclass(frozen=True)
class Limits:
    """What a job may use.

    Attributes:
        seconds: Time, of the clock and of the processor.
        memory: Bytes, beside what the process needs to be there at all.
        disk: Bytes of any file that it writes.
    """

    seconds: float
    memory: int
    disk: int


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A temporary folder for a job's files, which nobody else can read."""
    _clear_stale(os.getpid())
    prefix = f"{_PREFIX}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


@cache
def _clear_stale(process: int) -> None:
    """Remove what killed processes have left behind; once per process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        number = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and not is_alive(int(number)) and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def run_job(module: str, folder: Path, limits: Limits, **arguments: Any) -> Any:
    """Call ``run(**arguments)`` of a module in a process of its own.

    Args:
        module: The module; it is imported there, so it should import little. Its ``prepare()``
            is called before the fork, whenever there is a job.
        folder: A `work_folder` for large data, in and out. It is the current folder of the job.
        limits: What it may use.
        arguments: Arguments that JSON can hold.

    Returns:
        What the function returned.

    Raises:
        Failed: It raised an exception.
        Ended: It crashed, or was killed for using more than it may.
    """
    request = {
        "module": module, "folder": str(folder), "arguments": arguments,
        "seconds": limits.seconds, "memory": limits.memory, "disk": limits.disk,
    }  # fmt: skip
    answer = _helper().ask(json.dumps(request).encode() + b"\n", limits.seconds)
    if "failed" in answer:
        raise Failed(answer["failed"], answer["text"])
    if "ended" in answer:
        raise Ended(_ending(answer["ended"]))
    return answer["result"]


def _ending(number: int) -> str:
    try:
        return f"it was ended by signal {signal.Signals(number).name}"
    except ValueError:
        return "it ended without an answer"


class _Helper:
    """The helper process, and the pipes to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes, seconds: float) -> dict[str, Any]:
        """Send a request, and wait for the answer."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            late = threading.Event()

            def kill() -> None:
                late.set()
                _kill(process)

            timer = threading.Timer(seconds, kill)
            timer.daemon = True
            line = b""
            try:
                timer.start()
                with contextlib.suppress(OSError):  # it has been killed: there is no answer
                    process.stdin.write(request)
                    process.stdin.flush()
                    line = process.stdout.readline()
            finally:
                timer.cancel()
                # Without an answer, an interruption: nothing of it goes on.
                if not line.endswith(b"\n") or not hasattr(os, "fork"):
                    self.close()
            if late.is_set():
                self.close()
            if not line.endswith(b"\n"):
                raise Ended("its time was over" if late.is_set() else _ending(0), late.is_set())
            answer: dict[str, Any] = json.loads(line)
            return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        # The package's own folder, wherever it was found; never the current folder.
        path = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
        shown = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", _START, json.dumps(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=shown | _SETTINGS, start_new_session=True,
        )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the process, and with it any job."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those it has started."""
    if process.returncode is not None:
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


_current: _Helper | None = None
_guard = threading.Lock()


def _helper() -> _Helper:
    """This process's helper; one that was inherited by a fork belongs to another."""
    global _current
    with _guard:
        if _current is None or _current.owner != os.getpid():
            _current = _Helper()
        return _current


@atexit.register
def _close() -> None:
    if _current is not None and _current.owner == os.getpid():
        _current.close()
