"""Starts workers that learn together on the nodes of a Ray cluster, through Ray Train."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from relfrog.cluster.ray_cluster import RayCluster
from relfrog.errors import ClusterError

__all__ = ["Together", "run_together"]

#: Ray Train's own settings, unless the user has others. After a node is lost Ray may ask for as
#: many workers as before, and wait for them: a minute, unless told otherwise, before it counts
#: again how many there are. And it looks every two seconds whether a worker has failed.
PATIENCE = {
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
}
#: Seconds between two looks at how workers are doing, and in which they must end when told to: on a
#: busy machine that takes a while, and whoever is killed leaves cores reserved.
LOOK, GRACE = 0.1, 180.0
#: The name of the actor of Ray that counts nodes.
COUNTS = "AutoscalingCoordinator"


@dataclass(frozen=True)
class Together:
    """Workers that learn together.

    Attributes:
        work: what each of them does with `given`; what the first one returns is the result.
        given: its argument.
        workers: how many; or at least and at most, if fewer will do when a node is lost.
        failures: losses of workers or nodes after which they are started again.
        torch: the backend that connects them as processes of PyTorch; None for LightGBM.
        timeout: how long they wait for each other, in seconds, if PyTorch connects them.
        cores: cores of each.
        gpu: whether each has a GPU.
    """

    work: Callable[[dict[str, Any]], Any]
    given: dict[str, Any]
    workers: int | tuple[int, int]
    failures: int
    torch: str | None = None
    timeout: int = 1800
    cores: int = 1
    gpu: bool = False


def run_together(
    cluster: RayCluster,
    together: Together,
    *,
    retries: int = 0,
    meanwhile: Callable[[], None] = lambda: None,
) -> Any:
    """Start workers, and wait for what the first of them returns.

    They are started from a process of its own on this node: it can be ended, and all of them with
    it, and Ray's messages stay in it.

    Args:
        cluster: the cluster.
        together: the workers.
        retries: how often that process is started again if it is killed.
        meanwhile: called again and again; if it raises, the workers are ended.

    Raises:
        ClusterError: They failed.
    """
    ray = cluster.ray
    launch = ray.remote(_launch).options(
        num_cpus=0, scheduling_strategy=cluster.this_node(), max_retries=retries
    )
    watch = _Watch(cluster)
    running = launch.remote(together)
    try:
        while not ray.wait([running], timeout=LOOK)[0]:
            watch.look()
            meanwhile()
        answer: dict[str, Any] = ray.get(running)
        meanwhile()
    except ray.exceptions.RayError as error:
        text = " ".join(str(error).split())[:300] or type(error).__name__
        raise ClusterError(f"the Ray cluster failed: {text}.") from None
    except BaseException:
        _end(ray, running)
        raise
    if "error" in answer:
        times = "once" if not together.failures else f"{together.failures + 1} times"
        raise ClusterError(f"workers failed {times}, at last with: {answer['error']}.")
    return answer["result"]


class _Watch:
    """Tells Ray Train which nodes there are, when one has come or gone.

    It asks an actor of Ray that counts them every 20 seconds, and until then begins again, in vain,
    with as many workers as before.
    """

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster, self._seen, self._next = cluster, {n.id for n in cluster.nodes()}, 0.0

    def look(self) -> None:
        """Look, once a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1.0
        there = {node.id for node in self._cluster.nodes()}
        if there != self._seen:
            self._seen = there
            with suppress(Exception):  # another version of Ray may do without
                counts = self._cluster.ray.get_actor(COUNTS, namespace=COUNTS)
                counts.get_reserved_resources.remote("", recompute=True)


def _end(ray: Any, running: Any) -> None:
    """Ctrl-C in the process that has started the workers: it ends them and gives their cores back.

    If it were killed, their cores would stay reserved, unless Ray has a dashboard that tells of it:
    that is for who cannot wait, and presses Ctrl-C again.
    """
    with suppress(Exception):
        ray.cancel(running)
        try:
            ended = bool(ray.wait([running], timeout=GRACE)[0])
        except KeyboardInterrupt:
            ended = False
        if not ended:
            ray.cancel(running, force=True)


def _launch(together: Together) -> dict[str, Any]:
    """Start the workers, and wait for them."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory(prefix="relfrog-ray-") as folder:
        # Ray's types do not know that the number of workers may be a range.
        count: Any = together.workers
        trainer = _trainer(together)(
            together.work,
            train_loop_config=together.given,
            scaling_config=ScalingConfig(
                num_workers=count, use_gpu=together.gpu,
                resources_per_worker={"GPU": 1} if together.gpu else {"CPU": together.cores},
            ),
            run_config=RunConfig(
                storage_path=folder, failure_config=FailureConfig(max_failures=together.failures)
            ),
        )  # fmt: skip
        try:
            return {"result": trainer.fit().return_value}
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return {"error": (lines[-1] if lines else type(error).__name__)[:300]}


def _trainer(together: Together) -> Callable[..., Any]:
    """What makes Ray's trainer of such workers."""
    if together.torch is None:
        from ray.train.lightgbm import LightGBMTrainer

        return LightGBMTrainer
    from functools import partial

    from ray.train.torch import TorchConfig, TorchTrainer

    connection = TorchConfig(together.torch, timeout_s=together.timeout)
    return partial(TorchTrainer, torch_config=connection)
