"""Callbacks of the training loop, and the record of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relfrog.training.trainer import Trainer

__all__ = ["Callback", "EpochRecord", "announce"]


class Callback:
    """Hooks into the training loop; override any of the methods."""

    def on_start(self, trainer: Trainer) -> None:
        """Called before the first step."""

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """Called after each step."""

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Called after each epoch, with its validation metrics."""

    def on_end(self, trainer: Trainer) -> None:
        """Called after training, with the best weights loaded."""

    def on_member(self, name: str, folder: Path, model: Any, record: Mapping[str, Any]) -> None:
        """Called when a member of `auto` is done: its model, its run folder and its scores."""

    def on_message(self, text: str) -> None:
        """Called with a line of progress; models without epochs report nothing else."""


def announce(callbacks: Sequence[Callback], text: str) -> None:
    """Send a line of progress to all callbacks."""
    for callback in callbacks:
        callback.on_message(text)


@dataclass(frozen=True)
class EpochRecord:
    """One line of `history.jsonl`.

    Attributes:
        epoch: its number, from 0.
        loss: mean training loss of the task.
        fd_emb: mean L_emb.
        fd_pair: mean L_pair.
        val: validation metrics.
        best: whether these weights were the best so far, and saved.
        seconds: training time of the epoch.
        seeds_per_second: training speed.
        gates: the average gate of each route.
    """

    epoch: int
    loss: float
    fd_emb: float
    fd_pair: float
    val: dict[str, float]
    best: bool
    seconds: float
    seeds_per_second: float
    gates: dict[str, float]
