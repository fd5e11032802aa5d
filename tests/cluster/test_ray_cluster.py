"""Joining a Ray cluster: what is said where there is none."""

from __future__ import annotations

import socket
import sys
import time

import pytest

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
