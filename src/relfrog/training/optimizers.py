"""What the settings say of the regulariser, the optimisers and the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from relfrog.config import Config
from relfrog.graph.relational import ForeignKey
from relfrog.kinds import MODELS
from relfrog.nn.dependency import Dependencies, DependencyOptions
from relfrog.nn.network import Network

__all__ = ["learning_rate", "make_dependencies", "make_optimizer"]

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
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(network.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)


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
