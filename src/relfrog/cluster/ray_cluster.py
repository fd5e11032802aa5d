"""Joining a Ray cluster, or starting one on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from relfrog.errors import ClusterError

__all__ = ["Node", "RayCluster", "connect", "import_ray", "node_name"]

#: Seconds in which the head of a cluster must answer; Ray itself would wait for minutes.
PATIENCE = 5.0
#: Ray's own settings, unless the user has others: no statistics sent home, no remarks in between.
#: And workers get their share of a busy machine: with Ray's niceness, 15, they would hardly move.
#: A node ends itself if its agents, which import for seconds, are not there in time: half a minute,
#: unless told otherwise.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_worker_niceness": "0",
    "RAY_agent_register_timeout_ms": "300000",
}


@dataclass(frozen=True)
class Node:
    """A machine of a cluster.

    Attributes:
        name: its name or address, for people.
        id: Ray's id.
        cpus: how many cores Ray may use there.
        gpus: how many GPUs.
    """

    name: str
    id: str
    cpus: int
    gpus: int


def import_ray() -> ModuleType:
    """Import Ray.

    Raises:
        ClusterError: It is not installed.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with _quiet():
            import ray
    except ImportError:
        raise ClusterError(
            "--cluster needs Ray, which is not installed. Install it on every node: "
            "pip install 'relfrog[ray]'"
        ) from None
    return ray


def connect(address: str) -> RayCluster:
    """Join a Ray cluster, or start one.

    Args:
        address: "auto" for the cluster that this machine is a node of, "HOST:PORT" for the head of
            one, or "local" for a new one on this machine alone, which ends with `close`.

    Raises:
        ClusterError: Ray is missing, or the cluster cannot be reached.
    """
    ray = import_ray()
    if ray.is_initialized():
        return RayCluster(address, owned=False)
    if address != "local":
        _probe(address)
    try:
        with _quiet():
            ray.init(
                address=address, job_config=_job_config(ray),
                include_dashboard=False if address == "local" else None,
                log_to_driver=False, logging_level="ERROR", configure_logging=True,
            )  # fmt: skip
    except (Exception, SystemExit) as error:
        with contextlib.suppress(Exception):
            ray.shutdown()
        raise ClusterError(f"{_where(address)} cannot be joined: {_words(error)}") from None
    _hush(ray)
    return RayCluster(address, owned=True)


def _job_config(ray: Any) -> Any:
    """A job whose workers import nothing from the current folder.

    Ray lets them search it before all others, and it may be a stranger's; but not for a job that
    came through Ray's client. Those that `ray job submit` started are where their user put them.
    """
    config = ray.job_config.JobConfig()
    config._client_job = "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ
    return config


def _hush(ray: Any) -> None:
    """Keep Ray from printing its own state to the terminal, such as when a node is lost.

    There is no setting for that: `log_to_driver` is about what workers print.
    """
    if hasattr(ray._private.worker, "print_to_stdstream"):
        ray._private.worker.print_to_stdstream = lambda *args, **options: None


def _probe(address: str) -> None:
    """Refuse an address at which nobody listens."""
    import ray

    if address == "auto":
        found = os.environ.get("RAY_ADDRESS") or _running(ray)
        if not found:
            raise ClusterError(
                "--cluster auto: no Ray cluster runs on this machine. Start one with ray start "
                "--head, name one with --cluster HOST:PORT, or take this machine: --cluster local"
            )
        address = found
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"--cluster must be auto, local or HOST:PORT (got {address!r}).")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error.strerror or 'no answer'}, "
            f"{PATIENCE:g} seconds allowed). Check the address with ray status on its head node."
        ) from None


def _running(ray: Any) -> str:
    """The address of the cluster that this machine is a node of, if any."""
    with contextlib.suppress(Exception):
        return str(ray._private.services.canonicalize_bootstrap_address("auto") or "")
    return ""


def _where(address: str) -> str:
    return "a Ray cluster on this machine" if address == "local" else f"the Ray cluster {address}"


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings that Ray's own code raises about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def node_name() -> str:
    """The name of the machine that this process runs on."""
    return socket.gethostname()


class RayCluster:
    """A Ray cluster that this process has joined.

    Args:
        address: as it was given.
        owned: whether to leave it, or end it, with `close`.
    """

    def __init__(self, address: str, *, owned: bool) -> None:
        self.address, self._owned = address, owned

    @property
    def ray(self) -> Any:
        """Ray itself."""
        return import_ray()

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        found = []
        for about in self.ray.nodes():
            if about["Alive"]:
                has = about.get("Resources", {})
                name = str(about.get("NodeManagerHostname") or about["NodeManagerAddress"])
                cpus, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
                found.append(Node(name, str(about["NodeID"]), cpus, gpus))
        return found

    def cpus(self) -> int:
        """The cores of all nodes that Ray may use, at least one."""
        return max(1, sum(node.cpus for node in self.nodes()))

    def this_node(self) -> Any:
        """A scheduling strategy: on the node that this process is on."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self.ray.get_runtime_context().get_node_id()
        return NodeAffinitySchedulingStrategy(here, soft=False)

    def close(self) -> None:
        """Leave the cluster; end it, if it was started here."""
        if self._owned:
            self._owned = False
            with _quiet():
                self.ray.shutdown()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
