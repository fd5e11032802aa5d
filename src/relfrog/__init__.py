"""RelFrog: learn from relational databases directly.

The names below are imported on first use, so that ``import relfrog`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.analysis.certificate import certify
    from relfrog.analysis.explanation import explain
    from relfrog.config import Config
    from relfrog.datasets.checks import check
    from relfrog.datasets.dataset import open_dataset, source_keys
    from relfrog.datasets.demo import build_demo
    from relfrog.datasets.new_task import add_task
    from relfrog.datasets.overview import inspect
    from relfrog.experiments.study_run import experiment
    from relfrog.experiments.submission import submit
    from relfrog.graph.batch import Batch
    from relfrog.graph.loader import Loader
    from relfrog.graph.relational import RelationalGraph, build_graph, open_graph
    from relfrog.graph.resolution import prove_full_resolution
    from relfrog.graph.sampler import TemporalSampler
    from relfrog.importing.database import import_database, plan_import
    from relfrog.reporting import report
    from relfrog.runs.run import Run, load_run
    from relfrog.runs.train import train
    from relfrog.training.callbacks import Callback

__all__ = [
    "Batch",
    "Callback",
    "Config",
    "DatasetError",
    "Loader",
    "OutputError",
    "RelFrogError",
    "RelationalGraph",
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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Batch": "relfrog.graph.batch",
        "Callback": "relfrog.training.callbacks",
        "Config": "relfrog.config",
        "Loader": "relfrog.graph.loader",
        "RelationalGraph": "relfrog.graph.relational",
        "Run": "relfrog.runs.run",
        "TemporalSampler": "relfrog.graph.sampler",
        "add_task": "relfrog.datasets.new_task",
        "build_demo": "relfrog.datasets.demo",
        "build_graph": "relfrog.graph.relational",
        "certify": "relfrog.analysis.certificate",
        "check": "relfrog.datasets.checks",
        "experiment": "relfrog.experiments.study_run",
        "explain": "relfrog.analysis.explanation",
        "import_database": "relfrog.importing.database",
        "inspect": "relfrog.datasets.overview",
        "load_run": "relfrog.runs.run",
        "open_dataset": "relfrog.datasets.dataset",
        "open_graph": "relfrog.graph.relational",
        "plan_import": "relfrog.importing.database",
        "prove_full_resolution": "relfrog.graph.resolution",
        "report": "relfrog.reporting",
        "source_keys": "relfrog.datasets.dataset",
        "submit": "relfrog.experiments.submission",
        "train": "relfrog.runs.train",
    },
)
