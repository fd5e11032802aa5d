"""Weights: their moving average while a network learns, and the file of the best of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from relfrog.nn.network import Network
from relfrog.support.tensors import load_tensors, save_tensors

__all__ = ["FILE", "WeightAverage", "load_weights", "named_part", "save_weights"]

FILE = "model.safetensors"


class WeightAverage:
    """A copy of a network whose weights follow the network's own.

    `torch.optim.swa_utils.AveragedModel` gives the same bits, but collects all tensors anew in each
    step, which takes several times as long as the average itself.

    Attributes:
        network: the copy.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.network = copy.deepcopy(network)
        self._decay = decay
        # Weights only ever change in place, so that these stay theirs.
        pairs = list(zip(*(n.state_dict().values() for n in (self.network, network)), strict=True))
        self._averaged = [mine for mine, _ in pairs if mine.is_floating_point()]
        self._weights = [theirs for _, theirs in pairs if theirs.is_floating_point()]
        self._whole = [pair for pair in pairs if not pair[0].is_floating_point()]

    def update(self, steps: int) -> None:
        """Move towards the weights after a step; in the first steps quickly.

        Args:
            steps: steps before this one.
        """
        keep = min(self._decay, (1 + steps) / (10 + steps))
        if steps:
            torch._foreach_lerp_(self._averaged, self._weights, 1 - keep)
        else:
            torch._foreach_copy_(self._averaged, self._weights)
        for mine, theirs in self._whole:  # a whole number has no average
            mine.copy_(theirs)


def save_weights(folder: Path, network: nn.Module, dependencies: nn.Module | None) -> None:
    """Write the network and, for a look at what it learned, the regulariser."""
    parts = {"network": network} | ({} if dependencies is None else {"fd": dependencies})
    save_tensors(
        folder / FILE,
        {f"{part}.{k}": v for part, one in parts.items() for k, v in one.state_dict().items()},
    )


def load_weights(folder: Path, part: str = "network") -> dict[str, Tensor]:
    """Read one of the parts that `save_weights` wrote: "network" or "fd".

    Raises:
        RunError: The file is missing or damaged.
    """
    return named_part(load_tensors(folder / FILE), part)


def named_part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part, without its name before theirs."""
    start = f"{part}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
