"""RelFrog: learn from relational databases directly.

The names below load what they need on first use, so that ``import relfrog`` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relfrog._version import __version__
from relfrog.errors import (
    DatasetError,
    OutputError,
    RelFrogError,
    RunError,
    SchemaError,
    SourceError,
    TaskError,
    UsageError,
)

if TYPE_CHECKING:
    from relfrog.adding import add_task
    from relfrog.certifying import certify
    from relfrog.checking import check
    from relfrog.dataset import open_dataset, source_keys
    from relfrog.demo import build_demo
    from relfrog.experiments import experiment
    from relfrog.graph import build_graph, open_graph
    from relfrog.importing import import_database, plan_import
    from relfrog.inspecting import inspect
    from relfrog.learning import train
    from relfrog.loading import Loader
    from relfrog.resolution import prove_full_resolution
    from relfrog.runs import Run, load_run
    from relfrog.sampling import TemporalSampler
    from relfrog.submitting import submit

__all__ = [
    "DatasetError",
    "Loader",
    "OutputError",
    "RelFrogError",
    "Run",
    "RunError",
    "SchemaError",
    "SourceError",
    "TaskError",
    "TemporalSampler",
    "UsageError",
    "__version__",
    "add_task",
    "build_demo",
    "build_graph",
    "certify",
    "check",
    "experiment",
    "explain",
    "import_database",
    "inspect",
    "load_run",
    "open_dataset",
    "open_graph",
    "plan_import",
    "prove_full_resolution",
    "report",
    "source_keys",
    "submit",
    "train",
]

_HOMES = {
    "Loader": "relfrog.loading",
    "Run": "relfrog.runs",
    "TemporalSampler": "relfrog.sampling",
    "add_task": "relfrog.adding",
    "build_demo": "relfrog.demo",
    "build_graph": "relfrog.graph",
    "certify": "relfrog.certifying",
    "check": "relfrog.checking",
    "experiment": "relfrog.experiments",
    "explain": "relfrog.explaining",
    "import_database": "relfrog.importing",
    "inspect": "relfrog.inspecting",
    "load_run": "relfrog.runs",
    "open_dataset": "relfrog.dataset",
    "open_graph": "relfrog.graph",
    "plan_import": "relfrog.importing",
    "prove_full_resolution": "relfrog.resolution",
    "report": "relfrog.reporting",
    "source_keys": "relfrog.dataset",
    "submit": "relfrog.submitting",
    "train": "relfrog.learning",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'relfrog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
