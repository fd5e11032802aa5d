"""What the settings say of the regulariser, the optimisers and the learning rate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from relfrog.config import Config
from relfrog.graph.relational import ForeignKey
from relfrog.kinds import MODELS
from relfrog.nn.dependency import Dependencies, DependencyOptions
from relfrog.nn.network import Network

__all__ = [
    "learning_rate", "make_dependencies", "make_fd_optimizer", "make_optimizer", "plain_optimizer",
]  # fmt: skip

#: Steps in which a learning rate with a schedule rises.
RISE = 20


def make_dependencies(config: Config, keys: Sequence[ForeignKey]) -> Dependencies | None:
    """The regulariser; None without its losses."""
    if not (MODELS[config.model].roles and (config.beta or config.gamma)):
        return None
    options = DependencyOptions(
        config.fd_negatives, config.fd_tau, config.fd_orthonormal,
        normal=config.fd_start == "normal", both=config.fd_directions == "both",
        true_negatives=not config.fd_false_negatives,
    )  # fmt: skip
    return Dependencies(keys, config.channels, options)


def make_optimizer(config: Config, network: Network) -> torch.optim.Optimizer:
    """The optimiser of a network: Adam adds the decay to the gradient (L2), AdamW to weights."""
    kind = plain_optimizer(torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW)
    return kind(network.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)


def make_fd_optimizer(
    config: Config, dependencies: Dependencies | None
) -> torch.optim.Optimizer | None:
    """The optimiser of the regulariser, if there is one."""
    if dependencies is None:
        return None
    kind = plain_optimizer(torch.optim.Adam)
    return kind(dependencies.parameters(), lr=config.lr, fused=True)


@cache
def plain_optimizer(kind: type[torch.optim.Adam]) -> type[torch.optim.Adam]:
    """The same optimiser without PyTorch's compiler, which it imports to say that it is not used.

    That takes a second. Where PyTorch is made otherwise than expected, it is left as it is.
    """
    if "torch._dynamo" in sys.modules:
        return kind
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        method: Any = getattr(getattr(kind, name), "__wrapped__", None)
        if method is not None and not hasattr(method, "__dynamo_disable"):
            method.__dynamo_disable = method
    step: Any = getattr(kind.step, "__wrapped__", None)
    if step is None:
        return kind
    return type(kind.__name__, (kind,), {"step": torch.no_grad()(step)})


def learning_rate(config: Config, steps: int, steps_per_epoch: int) -> float:
    """Constant, or up over the first steps and down along a cosine.

    Args:
        config: the settings.
        steps: steps that are done.
        steps_per_epoch: steps of an epoch.
    """
    if config.schedule == "constant":
        return config.lr
    total = config.epochs * steps_per_epoch
    rise = min(1.0, (steps + 1) / RISE)
    fall = 0.5 * (1 + np.cos(np.pi * min(1.0, steps / max(total, 1))))
    return float(config.lr * rise * fall)
