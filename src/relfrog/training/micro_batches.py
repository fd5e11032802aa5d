"""Micro-batches: a batch that does not fit into memory is computed in parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from relfrog.errors import RelFrogWarning, RunError
from relfrog.graph.loader import Loader
from relfrog.nn.batch_plan import Plan
from relfrog.support.memory import is_out_of_memory
from relfrog.training.checkpoint import TrainerState

__all__ = ["micro_batches", "within_memory"]

Found = TypeVar("Found")


def micro_batches(plan: Plan, loader: Loader, at: TrainerState) -> Iterator[Plan]:
    """The batch, or the parts into which it is split by now."""
    if at.micro_batches == 1:
        yield plan
        return
    count = len(plan.batch)
    for some in np.array_split(np.arange(count), min(at.micro_batches, count)):
        yield loader.part(plan.batch, some, at.epoch)


def within_memory(
    compute: Callable[[Plan], Found],
    plan: Plan,
    at: TrainerState,
    gates: Tensor,
    neighbors: int,
) -> Found:
    """What `compute` makes of a batch, by as many micro-batches as it takes to fit into memory.

    Each try begins with the same random state and the same gates.

    Args:
        compute: splits what it is given by `micro_batches`.
        plan: the batch.
        at: where training is; it remembers into how many batches are split.
        gates: the average gates, which move in a forward pass.
        neighbors: the setting, of which to advise less.

    Raises:
        RunError: A single seed does not fit.

    Warns:
        RelFrogWarning: Batches are split into more micro-batches from now on.
    """
    random, before = torch.get_rng_state(), gates.clone()
    while True:
        try:
            return compute(plan)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, which holds on to everything that was computed.
        _split_more(len(plan.batch), at, neighbors)
        torch.set_rng_state(random)
        gates.copy_(before)


def _split_more(size: int, at: TrainerState, neighbors: int) -> None:
    """Split batches into twice as many micro-batches from now on."""
    if at.micro_batches >= size:
        raise RunError(
            "a single seed does not fit into memory. Take fewer neighbours or channels: "
            f"--set neighbors={max(1, neighbors // 2)} or --size small"
        )
    at.micro_batches *= 2
    text = (
        f"a batch of {size} seeds does not fit into memory; from epoch {at.epoch}, step "
        f"{at.step} on batches are split into {at.micro_batches} micro-batches."
    )
    warnings.warn(text, RelFrogWarning, stacklevel=3)
