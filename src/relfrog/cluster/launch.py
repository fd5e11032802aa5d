"""Chooses how workers are started: torchrun's processes, this machine's, or those of Ray."""

from __future__ import annotations

from pathlib import Path

from relfrog.cluster.local_team import LocalTeam
from relfrog.cluster.team import Team
from relfrog.cluster.torchrun_team import TorchrunTeam, torchrun_size, under_torchrun
from relfrog.errors import UsageError

__all__ = ["open_team"]


def open_team(
    dataset: str | Path,
    task: str,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    device: str = "cpu",
) -> Team | None:
    """The workers to train with; None for this process alone, as if there were no others.

    Args:
        dataset: a dataset folder, or the name of a dataset that RelBench hosts.
        task: one of its tasks.
        workers: how many.
        cluster: a Ray cluster: "auto", "local" or its address.
        device: where to compute.

    Raises:
        UsageError: The arguments contradict each other.
        ClusterError: The cluster cannot be reached.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more (got {workers}).")
    if under_torchrun():
        size = torchrun_size()
        if cluster is not None or workers not in (None, size):
            asked = f"--cluster {cluster}" if cluster is not None else f"--workers {workers}"
            raise UsageError(f"torchrun has started {size} workers already: leave {asked} out.")
        return TorchrunTeam(dataset, task, device)
    if cluster is not None:
        from relfrog.cluster.ray_team import RayTeam

        return RayTeam(workers, dataset, task, cluster, device)
    return None if workers is None else LocalTeam(workers, dataset, task)
