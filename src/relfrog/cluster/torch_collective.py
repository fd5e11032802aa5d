"""Workers in processes of their own, connected by PyTorch: gloo, and NCCL between GPUs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from relfrog.errors import ClusterError
from relfrog.training.collective import Collective

__all__ = ["PATIENCE", "TorchCollective", "backend"]

Said = TypeVar("Said")

#: Workers wait for each other as long as it takes: the first may search for trees in between. That
#: one has died is noticed at once, by its connection.
PATIENCE = datetime.timedelta(days=30)


def backend(device: str) -> str:
    """What connects workers that compute on such a device."""
    return "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo"


class TorchCollective(Collective):
    """All processes of the default process group, which has been made before."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def add(self, values: Tensor) -> None:
        """Sum over all workers, in place."""
        self._with_others(lambda: dist.all_reduce(values))

    def share(self, thing: Said) -> Said:
        """What the first worker gives."""
        box: list[Any] = [thing if self.first else None]
        self._with_others(lambda: dist.broadcast_object_list(box, src=0))
        found: Said = box[0]
        return found

    def collect(self, thing: Said) -> list[Said]:
        """What each worker gives."""
        boxes: list[Any] = [None] * self.size
        self._with_others(lambda: dist.all_gather_object(boxes, thing))
        return boxes

    def _with_others(self, talk: Callable[[], Any]) -> None:
        """Talk to the other workers.

        Raises:
            ClusterError: One of them is gone.
        """
        try:
            talk()
        except RuntimeError as error:
            text = " ".join(str(error).split())[:200]
            raise ClusterError(f"worker {self.rank} of {self.size} lost another: {text}") from None

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()
