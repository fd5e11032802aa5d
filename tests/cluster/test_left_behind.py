"""What is left of a local cluster when the command that started it ends, however it ends: nothing.

The first tests of this folder that take long: what they wait for happens while others run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from process_tree import descendants, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are seen in /proc"),
]

SCRIPT = """
import signal, sys
from pathlib import Path
from relfrog.cluster.ray_cluster import connect
from relfrog.cluster.workers import RayWorkers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell has it ignored

def work(job):
    import os, time
    from pathlib import Path
    Path(job["file"]).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)  # a longer sleep would end first

with connect("local") as cluster:
    list(RayWorkers(cluster, Path(sys.argv[1] + ".log")).run(work, [{"file": sys.argv[1]}]))
"""


@pytest.fixture(scope="session")
def ending() -> Iterator[set[int]]:
    """Processes that must have ended when all tests have: nobody waits for them before."""
    found: set[int] = set()
    yield found
    await_end(found, 150)


def await_end(processes: set[int], seconds: float, but: int = 0) -> None:
    """Wait until processes have ended, all but so many."""
    end = time.monotonic() + seconds
    while len(left := running(processes)) > but:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def begun(process: subprocess.Popen[str], file: Path) -> int:
    """The process of the job, once it runs."""
    end = time.monotonic() + 300
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    return int(file.read_text())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_of_a_local_cluster_is_left(
    tmp_path: Path, how: signal.Signals, ending: set[int]
) -> None:
    """After a kill Ray's agents have last words for the head, which is gone, for a minute."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")
    file = tmp_path / "begun"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(file)], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        job = begun(process, file)
        started = descendants(process.pid) | {job}
        assert len(started) > 3
        process.send_signal(how)
        out, err = process.communicate(timeout=200)
    assert process.returncode != 0
    await_end(started, 60, but=2 if how == signal.SIGKILL else 0)
    assert job not in running(started)
    ending |= running(started)
    if how == signal.SIGINT:
        assert err.count("Traceback") <= 1, "only of the script"
        assert not out
