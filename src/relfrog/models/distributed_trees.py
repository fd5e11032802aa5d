"""LightGBM on the nodes of a Ray cluster, each with a share of the rows, as one model.

Ray's LightGBM trainer starts a worker per share and tells them of each other. LightGBM must be
given these network parameters: without them every worker silently learns from its share alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.cluster.ray_cluster import node_name
from relfrog.cluster.ray_train import Together, run_together
from relfrog.cluster.workers import RayWorkers
from relfrog.errors import ClusterError
from relfrog.models.booster_file import load_lightgbm
from relfrog.models.tree_learner import TreeLearner
from relfrog.store.parts import versions
from relfrog.store.versions import REMEDY, version_differences

__all__ = ["boosted_on_cluster", "deal"]

#: A matrix of features, and labels.
Rows = tuple[NDArray[Any], NDArray[Any]]
#: The most workers, and failures of nodes after which training begins again.
MOST, FAILURES = 64, 3
#: The fewest rows of a share: bins are found in them.
FEWEST = 1_000


def deal(rows: Rows, count: int, seed: int) -> list[Rows]:
    """Deal rows to workers at random: what each knows of a feature must be like the whole."""
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    return [(rows[0][part], rows[1][part]) for part in np.array_split(order, count)]


def boosted_on_cluster(
    workers: RayWorkers,
    learner: TreeLearner,
    settings: dict[str, Any],
    train: Rows,
    stop: Rows | None,
    categorical: list[int],
    *,
    rounds: int,
    patience: int,
) -> Any:
    """Train a LightGBM model on all nodes.

    Args:
        workers: the cluster.
        learner: what LightGBM minimises.
        settings: more of LightGBM's parameters.
        train: what to learn from.
        stop: what to stop early by; every worker has all of it, so that all stop alike.
        categorical: indices of categorical features.
        rounds: the most rounds.
        patience: of early stopping.

    Raises:
        ClusterError: The workers failed.
    """
    train = learner.rows(*train)
    seen = (train[0][:0], train[1][:0]) if stop is None else learner.rows(*stop, stopping=True)
    count = max(1, min(workers.count, MOST, len(train[0]) // FEWEST))
    given = learner.settings(settings, train[1], seen[1])
    shares = deal(train, count, int(given.get("seed", 0)))
    patience = patience if len(seen[1]) else 0
    return train_shares(workers, given, shares, seen, categorical, rounds, patience)


def train_shares(
    workers: RayWorkers,
    settings: dict[str, Any],
    shares: list[Rows],
    seen: Rows,
    categorical: list[int],
    rounds: int,
    patience: int,
) -> Any:
    """As `boosted_on_cluster`, with shares that are dealt already."""
    ray = workers.cluster.ray
    lightgbm = load_lightgbm()
    given = {
        "settings": settings, "shares": [ray.put(share) for share in shares],
        "seen": ray.put(seen), "categorical": categorical, "rounds": rounds, "patience": patience,
        "threads": workers.threads, "versions": versions(),
    }  # fmt: skip
    together = Together(
        _learn, given, workers=len(shares), failures=FAILURES, cores=workers.threads
    )
    try:
        found = run_together(workers.cluster, together)
    except ClusterError as error:
        raise ClusterError(f"LightGBM: {error}") from None
    booster = lightgbm.Booster(model_str=found["model"])
    booster.best_iteration = found["best"]
    return booster


def _learn(given: dict[str, Any]) -> dict[str, Any] | None:
    """Learn, as one of the workers: trees are grown together, from everybody's rows.

    Returns:
        The model, if this is the first worker.

    Raises:
        ClusterError: This worker has other libraries than the machine that gave the rows.
    """
    if other := version_differences(versions(), given["versions"]):
        raise ClusterError(f"the worker on {node_name()} has {other}. {REMEDY}")
    import lightgbm
    import ray
    import ray.train
    from ray.train.lightgbm import get_network_params

    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    network = get_network_params() if size > 1 else {}
    if size > 1 and network.get("num_machines") != size:
        raise RuntimeError(f"Ray told LightGBM of {network.get('num_machines')} workers of {size}")
    x, y = ray.get(given["shares"][rank])
    seen, z = ray.get(given["seen"])
    settings = {
        **given["settings"], **network, "num_threads": given["threads"], "pre_partition": True,
        "tree_learner": "data" if size > 1 else "serial",
    }  # fmt: skip
    data = lightgbm.Dataset(x, y, categorical_feature=given["categorical"], params=settings)
    valid: list[Any] = []
    callbacks: list[Any] = []
    if given["patience"]:
        valid = [lightgbm.Dataset(seen, z, reference=data)]
        callbacks = [lightgbm.early_stopping(given["patience"], verbose=False)]
    booster = lightgbm.train(settings, data, given["rounds"], valid, callbacks=callbacks)
    if rank:
        return None
    return {"model": booster.model_to_string(), "best": booster.best_iteration}
