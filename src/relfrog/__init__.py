"""RelFrog: learn from relational databases directly.

The names below load what they need on first use, so that ``import relfrog`` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relfrog._version import __version__
from relfrog.errors import (
    DatasetError,
    RelFrogError,
    SchemaError,
    SourceError,
    TaskError,
    UsageError,
)

if TYPE_CHECKING:
    from relfrog.checking import check
    from relfrog.dataset import open_dataset, source_keys
    from relfrog.demo import build_demo
    from relfrog.importing import import_database, plan_import
    from relfrog.inspecting import inspect
    from relfrog.tasks import add_task

__all__ = [
    "DatasetError",
    "RelFrogError",
    "SchemaError",
    "SourceError",
    "TaskError",
    "UsageError",
    "__version__",
    "add_task",
    "build_demo",
    "check",
    "import_database",
    "inspect",
    "open_dataset",
    "plan_import",
    "source_keys",
]

_HOMES = {
    "add_task": "relfrog.tasks",
    "build_demo": "relfrog.demo",
    "check": "relfrog.checking",
    "import_database": "relfrog.importing",
    "inspect": "relfrog.inspecting",
    "open_dataset": "relfrog.dataset",
    "plan_import": "relfrog.importing",
    "source_keys": "relfrog.dataset",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'relfrog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
