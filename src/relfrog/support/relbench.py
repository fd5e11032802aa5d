"""RelBench's tables, without what RelBench imports for scores alone: a fifth of the start."""

from __future__ import annotations

from relfrog.support.lazy import deferred

with deferred("sklearn.metrics"):
    from relbench.base import Database, Table

__all__ = ["Database", "Table"]
