"""A database as pointers between rows; seeds become batches without a future.

The names below are imported on first use: the sampler needs PyTorch and compiled code, which
`relfrog inspect` does without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relfrog.graph.batch import Batch
    from relfrog.graph.loader import Loader
    from relfrog.graph.relational import ForeignKey, RelationalGraph, build_graph, open_graph
    from relfrog.graph.resolution import prove_full_resolution
    from relfrog.graph.routes import (
        AGAINST,
        ALONG,
        Completion,
        CoOccurrence,
        Matches,
        Paradigm,
        Route,
        find_routes,
    )
    from relfrog.graph.sampler import TemporalSampler

__all__ = [
    "AGAINST",
    "ALONG",
    "Batch",
    "CoOccurrence",
    "Completion",
    "ForeignKey",
    "Loader",
    "Matches",
    "Paradigm",
    "RelationalGraph",
    "Route",
    "TemporalSampler",
    "build_graph",
    "find_routes",
    "open_graph",
    "prove_full_resolution",
]

_HOMES = {
    "Batch": "batch",
    "ForeignKey": "relational",
    "Loader": "loader",
    "RelationalGraph": "relational",
    "TemporalSampler": "sampler",
    "build_graph": "relational",
    "open_graph": "relational",
    "prove_full_resolution": "resolution",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'routes')}")
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
