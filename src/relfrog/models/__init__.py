"""All models behind one interface: fit, save, load, predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.kinds import MODELS, TASK_KINDS, ModelKind
    from relfrog.models.model import Model
    from relfrog.models.network_model import NetworkModel
    from relfrog.training.budget import Budget
    from relfrog.training.opened_task import OpenedTask, open_task
    from relfrog.training.prepared import Prepared
    from relfrog.training.seeds import Seeds
    from relfrog.training.trainer import Trainer

__all__ = [
    "MODELS",
    "TASK_KINDS",
    "Budget",
    "Model",
    "ModelKind",
    "NetworkModel",
    "OpenedTask",
    "Prepared",
    "Seeds",
    "Trainer",
    "open_task",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Budget": "relfrog.training.budget",
        "MODELS": "relfrog.kinds",
        "Model": "relfrog.models.model",
        "ModelKind": "relfrog.kinds",
        "NetworkModel": "relfrog.models.network_model",
        "OpenedTask": "relfrog.training.opened_task",
        "Prepared": "relfrog.training.prepared",
        "Seeds": "relfrog.training.seeds",
        "TASK_KINDS": "relfrog.kinds",
        "Trainer": "relfrog.training.trainer",
        "open_task": "relfrog.training.opened_task",
    },
)
