"""RelFrog: learn from relational databases directly.

The names below are imported on first use, so that ``import relfrog`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog._version import __version__
from relfrog.errors import RelFrogError
from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.config import Config
    from relfrog.datasets.checks import check
    from relfrog.datasets.dataset import open_dataset
    from relfrog.datasets.overview import inspect
    from relfrog.graph.batch import Batch
    from relfrog.graph.relational import RelationalGraph
    from relfrog.graph.sampler import TemporalSampler
    from relfrog.importing.database import import_database
    from relfrog.queries.new_task import add_task
    from relfrog.queries.suggest import suggest
    from relfrog.runs.ask import ask
    from relfrog.runs.run import Run, load_run
    from relfrog.runs.train import train
    from relfrog.training.callbacks import Callback

__all__ = [
    "Batch",
    "Callback",
    "Config",
    "RelFrogError",
    "RelationalGraph",
    "Run",
    "TemporalSampler",
    "__version__",
    "add_task",
    "ask",
    "check",
    "import_database",
    "inspect",
    "load_run",
    "open_dataset",
    "suggest",
    "train",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Batch": "relfrog.graph.batch",
        "Callback": "relfrog.training.callbacks",
        "Config": "relfrog.config",
        "RelationalGraph": "relfrog.graph.relational",
        "Run": "relfrog.runs.run",
        "TemporalSampler": "relfrog.graph.sampler",
        "add_task": "relfrog.queries.new_task",
        "ask": "relfrog.runs.ask",
        "check": "relfrog.datasets.checks",
        "import_database": "relfrog.importing.database",
        "inspect": "relfrog.datasets.overview",
        "load_run": "relfrog.runs.run",
        "open_dataset": "relfrog.datasets.dataset",
        "suggest": "relfrog.queries.suggest",
        "train": "relfrog.runs.train",
    },
)
