"""Predictions of a graph network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from relfrog.graph.loader import Loader
from relfrog.graph.popularity import ListRequest
from relfrog.nn.network import Network
from relfrog.support.memory import is_out_of_memory
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["in_order", "predict_batches", "predict_seeds", "predict_sorted"]


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
    order = np.lexsort((seeds.rows, seeds.times))
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
    """
    return in_order([predict_batches(network, loader, features, device, request)])


def in_order(found: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> NDArray[Any]:
    """All predictions of `predict_batches` in the order of their seeds."""
    parts = [part for part in found if len(part[1])]
    if not parts:
        return np.empty(0)
    everything, numbers = (np.concatenate(some) for some in zip(*parts, strict=True))
    ordered = np.empty_like(everything)
    ordered[numbers] = everything
    return ordered


def predict_batches(
    network: Network,
    loader: Loader,
    features: Mapping[str, Any],
    device: torch.device,
    request: Any = None,
    batches: Iterable[int] | None = None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Predict for some batches of a loader, by default all: predictions and numbers of seeds.

    A batch that does not fit into memory is split into micro-batches.
    """
    was_training = network.training
    network.eval()
    parts, numbers = [], []
    try:
        with torch.no_grad(), network.head.unchanged():
            for whole in loader if batches is None else loader.batches(batches):
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
        return np.empty(0), np.empty(0, np.int64)
    return torch.cat(parts).numpy(), torch.cat(numbers).numpy()
