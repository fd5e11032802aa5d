"""Predictions of a graph network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from relfrog.graph.loader import Loader
from relfrog.graph.popularity import ListRequest
from relfrog.nn.network import Network
from relfrog.support.memory import is_out_of_memory
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["predict_seeds", "predict_sorted"]


def predict_sorted(
    network: Network,
    prepared: Prepared,
    seeds: Seeds,
    features: Mapping[str, Any],
    device: torch.device,
    *,
    cutoff: pd.Timestamp | None = None,
    request: ListRequest | None = None,
) -> NDArray[Any]:
    """Predict for seeds in batches: the same, whatever order they are asked in.

    In another batch, sums round otherwise; so seeds are sorted first.
    """
    order = np.lexsort((seeds.rows, seeds.times.to_numpy()))
    found = predict_seeds(
        network, prepared.loader(seeds.take(order), cutoff=cutoff), features, device,
        None if request is None else request.take(order),
    )  # fmt: skip
    answers = np.empty_like(found)
    answers[order] = found
    return answers


def predict_seeds(
    network: Network,
    loader: Loader,
    features: Mapping[str, Any],
    device: torch.device,
    request: Any = None,
) -> NDArray[Any]:
    """Predict for the seeds of a loader, in their order. Shape [seeds] or [seeds, k].

    For a recommendation [seeds, k, 2]: targets and scores, according to the `ListRequest`.
    A batch that does not fit into memory is split into micro-batches.
    """
    was_training = network.training
    network.eval()
    parts, numbers = [], []
    try:
        with torch.no_grad(), network.head.unchanged():
            for whole in loader:
                waiting = [whole]
                while waiting:
                    plan = waiting.pop()
                    try:
                        moved = plan.to(device)
                        out = network(moved, features)
                        found = network.head.batch_predict(
                            out.seeds, moved, features, request
                        ).cpu()
                    except (RuntimeError, MemoryError) as error:
                        if len(plan.batch) == 1 or not is_out_of_memory(error):
                            raise
                        halves = np.array_split(np.arange(len(plan.batch)), 2)
                        waiting += [loader.part(plan.batch, half) for half in halves]
                        continue
                    parts.append(found)
                    numbers.append(plan.batch.seed_ids.cpu())
    finally:
        network.train(was_training)
    if not parts:
        return np.empty(0)
    everything = torch.cat(parts)
    ordered = torch.empty_like(everything)
    ordered[torch.cat(numbers)] = everything
    return np.asarray(ordered.numpy())
