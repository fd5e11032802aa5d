"""A database as a graph of row pointers, and batches sampled from it without any future row.

How the data flow, in order:

- `relational`: foreign keys become parent pointers and children sorted by time.
- `routes`: pairs of foreign keys along which a table can act as an edge.
- `resolution`: the graph under any roles, and back to the identical tables.
- `sampler`, `_kernels`: seeds (a row and a time) become a `batch` of subgraphs of their past.
- `loader`: batches in a reproducible order, sampled ahead in threads.
- `popularity`: counts over all rows of a table at a time, for recommendations.
- `pyg`: the graph as PyTorch Geometric's `HeteroData`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.graph.batch import Batch
    from relfrog.graph.loader import Loader
    from relfrog.graph.relational import (
        ForeignKey,
        RelationalGraph,
        build_graph,
        open_graph,
    )
    from relfrog.graph.resolution import prove_full_resolution
    from relfrog.graph.routes import (
        AGAINST,
        ALONG,
        Completion,
        CompletionAgainst,
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
    "CompletionAgainst",
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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AGAINST": "relfrog.graph.routes",
        "ALONG": "relfrog.graph.routes",
        "Batch": "relfrog.graph.batch",
        "CoOccurrence": "relfrog.graph.routes",
        "Completion": "relfrog.graph.routes",
        "CompletionAgainst": "relfrog.graph.routes",
        "ForeignKey": "relfrog.graph.relational",
        "Loader": "relfrog.graph.loader",
        "Matches": "relfrog.graph.routes",
        "Paradigm": "relfrog.graph.routes",
        "RelationalGraph": "relfrog.graph.relational",
        "Route": "relfrog.graph.routes",
        "TemporalSampler": "relfrog.graph.sampler",
        "build_graph": "relfrog.graph.relational",
        "find_routes": "relfrog.graph.routes",
        "open_graph": "relfrog.graph.relational",
        "prove_full_resolution": "relfrog.graph.resolution",
    },
)
