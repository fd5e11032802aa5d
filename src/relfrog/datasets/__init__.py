"""Dataset folders in RelBench's format: tables, tasks, labels, entities, and their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.datasets.checks import check
    from relfrog.datasets.dataset import open_dataset, source_keys
    from relfrog.datasets.demo import build_demo
    from relfrog.datasets.new_task import add_task
    from relfrog.datasets.overview import inspect
    from relfrog.datasets.tasks import load_task

__all__ = ["add_task", "build_demo", "check", "inspect", "load_task", "open_dataset", "source_keys"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "add_task": "relfrog.datasets.new_task",
        "build_demo": "relfrog.datasets.demo",
        "check": "relfrog.datasets.checks",
        "inspect": "relfrog.datasets.overview",
        "load_task": "relfrog.datasets.tasks",
        "open_dataset": "relfrog.datasets.dataset",
        "source_keys": "relfrog.datasets.dataset",
    },
)
