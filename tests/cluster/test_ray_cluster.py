"""Joining a Ray cluster: what is said where there is none."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from process_tree import descendants, running
from relfrog.cluster.ray_cluster import connect
from relfrog.errors import ClusterError


def test_without_ray_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'relfrog\[ray\]'"):
        connect("auto")


class TestUnreachable:
    """Addresses where nobody is."""

    @pytest.fixture(autouse=True)
    def ray(self, monkeypatch):
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr("relfrog.cluster.ray_cluster._running", lambda ray: "")

    def test_no_cluster_on_this_machine(self):
        with pytest.raises(ClusterError, match=r"no Ray cluster runs on this machine.*ray start"):
            connect("auto")

    def test_nobody_listens(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = time.monotonic()
        with pytest.raises(ClusterError, match=rf"no Ray cluster answers at 127.0.0.1:{port}"):
            connect(f"127.0.0.1:{port}")
        assert time.monotonic() - started < 20

    @pytest.mark.parametrize("address", ["", "here", "host:", ":1", "host:99999999", "a b"])
    def test_no_address(self, address):
        with pytest.raises(ClusterError, match="must be auto, local or HOST:PORT"):
            connect(address)


SCRIPT = """
import sys
from pathlib import Path
from relfrog.cluster.ray_cluster import connect
from relfrog.cluster.workers import RayWorkers

def wait(job):
    import os, time
    from pathlib import Path
    Path(job["file"]).write_text(str(os.getpid()))
    time.sleep(600)

with connect("local") as cluster:
    list(RayWorkers(cluster, Path(sys.argv[1] + ".log")).run(wait, [{"file": sys.argv[1]}]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are seen in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_of_a_local_cluster_is_left(tmp_path: Path, how: signal.Signals) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")
    file = tmp_path / "begun"
    # A background shell has its children ignore Ctrl-C.
    script = f"import signal; signal.signal(2, signal.default_int_handler)\n{SCRIPT}"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(file)], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        end = time.monotonic() + 300
        while not (file.exists() and file.read_text()) and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        started = descendants(process.pid) | {int(file.read_text())}
        assert len(started) > 3
        process.send_signal(how)
        out, err = process.communicate(timeout=200)
    assert process.returncode != 0
    end = time.monotonic() + 100
    while running(started) and time.monotonic() < end:
        time.sleep(0.2)
    assert not running(started), (out, err)
    if how == signal.SIGINT:
        assert err.count("Traceback") <= 1, "only of the script"
        assert not out
