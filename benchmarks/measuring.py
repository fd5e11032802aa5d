"""Commands as child processes: seconds, seconds of the processor, and peak memory."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Worktree", "command_line", "machine", "measure"]

ROOT = Path(__file__).parents[1]


def measure(
    command: Sequence[str], environment: Mapping[str, str] | None = None, limit: float | None = None
) -> dict[str, Any]:
    """Run a command and measure it.

    Args:
        command: The program and its arguments.
        environment: Variables to add to this process's own.
        limit: Seconds after which it is killed.

    Returns:
        `seconds`; `cpu_seconds`, those of all its threads and children; `peak_mb`, the largest
        resident set the operating system saw; `private_mb`, the part of it that is not files in
        memory, looked at ten times a second; `output`; and `failed` with the last words, if so.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            list(command), env={**os.environ, **(environment or {})}, stdout=out, stderr=errors
        )
        watch = _Watch(process, limit)
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        watch.join()
        found: dict[str, Any] = {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_mb": round(usage.ru_maxrss / 1024),
            "private_mb": round(watch.private / 1024),
        }
        out.seek(0)
        errors.seek(0)
        output = out.read().decode(errors="replace")
        said = errors.read().decode(errors="replace")
    if process.returncode:
        words = said.strip().splitlines()[-1:] or [""]
        found["failed"] = f"after {limit:g} s" if watch.killed else words[0][-500:]
    return found | {"output": output}


class _Watch(threading.Thread):
    """Watches a process: its private memory, and that it ends in time."""

    def __init__(self, process: subprocess.Popen[bytes], limit: float | None) -> None:
        super().__init__(daemon=True)
        self.process, self.limit = process, limit
        self.private, self.killed = 0, False

    def run(self) -> None:
        start = time.perf_counter()
        while self.process.returncode is None:
            self.private = max(self.private, _private(self.process.pid))
            if self.limit and time.perf_counter() - start > self.limit and not self.killed:
                self.killed = True
                self.process.kill()
            time.sleep(0.1)


def _private(process: int) -> int:
    """Kilobytes of a process that are in no file; 0 where that cannot be seen."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


class Worktree:
    """A state of the code: this one, or an earlier one checked out beside it.

    Args:
        reference: A commit or branch; None for the code as it is.
    """

    def __init__(self, reference: str | None) -> None:
        self.reference = reference
        self.folder = ROOT
        self.commit = _git("rev-parse", "--short", reference or "HEAD")

    def __enter__(self) -> Worktree:
        if self.reference is not None:
            self.folder = Path(tempfile.mkdtemp(prefix="relfrog-before-")) / "code"
            _git("worktree", "add", "--detach", str(self.folder), self.reference)
        return self

    def __exit__(self, *_: object) -> None:
        if self.reference is not None:
            _git("worktree", "remove", "--force", str(self.folder))
            self.folder.parent.rmdir()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Python takes this state of the code."""
        return {"PYTHONPATH": str(self.folder / "src")}


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def command_line() -> str:
    """This command as it is kept with what it measured: without the folders of this machine."""
    words = ["benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]]
    return shlex.join(["python", *map(_without_folders, words)])


def _without_folders(word: str) -> str:
    """A word of a command, its path relative to the repository; of paths elsewhere the name."""
    option, sign, value = word.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return word
    inside = path.is_relative_to(ROOT)
    return option + sign + (str(path.relative_to(ROOT)) if inside else path.name)


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that was."""
    import duckdb
    import torch

    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "duckdb": duckdb.__version__,
        "command": command_line(),
    }
