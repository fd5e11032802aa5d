"""What may be done while training goes on, and what is reported of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relfrog.training.trainer import Trainer

__all__ = ["Callback", "EpochRecord", "announce"]


class Callback:
    """What may be done while training goes on; override any of the methods."""

    def on_start(self, trainer: Trainer) -> None:
        """Everything is ready; the first step comes next."""

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """A step is done."""

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """An epoch is done and validated."""

    def on_end(self, trainer: Trainer) -> None:
        """Training has ended; the best weights are in place."""

    def on_message(self, text: str) -> None:
        """A line of progress; models without epochs report nothing else."""


def announce(callbacks: Sequence[Callback], text: str) -> None:
    """Report a line of progress."""
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
        best: whether these weights were saved.
        seconds: training time of the epoch.
        seeds_per_second: its speed.
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
