"""A Ray cluster of three nodes on this machine, each with a disk of its own."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import small_store

#: Ray's own settings: nodes have their memory in common with all else that runs on this machine; a
#: node whose process is gone is noticed within seconds, and workers are not waited for on it. On a
#: busy machine a process may need more than Ray's minute until it has imported what it needs.
SETTINGS = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "3",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
}


class Nodes:
    """The nodes of a cluster; those beside the head can be killed."""

    def __init__(self, cluster: Any, base: Path) -> None:
        self.cluster, self.base = cluster, base
        self.workers: dict[str, Any] = {}
        self.address = str(cluster.address)

    def add(self, name: str) -> None:
        """Start a node with a cache folder of its own, which is all its disk here."""
        disk = self.base / name
        disk.mkdir(exist_ok=True)
        self.workers[name] = self.cluster.add_node(
            num_cpus=1, env_vars={"RELFROG_CACHE": str(disk)}, resources={name: 1}
        )

    def kill(self, name: str) -> None:
        """Kill a node with everything that runs there."""
        self.cluster.remove_node(self.workers.pop(name), allow_graceful=False)

    def wait_until_free(self, cores: int, seconds: float = 900) -> None:
        """Wait until nodes have so many cores that nobody has reserved.

        What a test has used is given back after it, in a while.
        """
        import ray

        end = time.monotonic() + seconds
        while (free := ray.available_resources().get("CPU", 0)) < cores:
            assert time.monotonic() < end, f"{free:g} of {cores} cores are free: {ray.nodes()}"
            time.sleep(0.1)

    def disk(self, name: str) -> Path:
        """The cache folder of a node."""
        return self.base / name


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes of one core each: the head, on whose disk the tests are, and two others."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'relfrog[ray]'")
    from relfrog.cluster.ray_cluster import import_ray

    ray = import_ray()
    if ray.is_initialized():
        ray.shutdown()
    from ray.cluster_utils import Cluster

    base = tmp_path_factory.mktemp("nodes")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        warnings.simplefilter("ignore")
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False,
                            "env_vars": {"RELFROG_CACHE": os.environ.get("RELFROG_CACHE", "")}},
        )  # fmt: skip
        found = Nodes(cluster, base)
        try:
            for name in ("second", "third"):
                found.add(name)
            yield found
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(scope="session")
def trained(once) -> Path:
    """The small store, with a run of FROG."""

    def make(folder: Path) -> None:
        store = small_store.make_store(folder)
        small_store.fit(store, folder / "frog")

    return once("trained", make)
