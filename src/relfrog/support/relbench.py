"""RelBench's classes, without what RelBench imports for scores alone: a fifth of the start.

Whoever needs them takes them from here, so that nobody imports RelBench before.
"""

from __future__ import annotations

from relfrog.support.lazy import deferred

with deferred("sklearn.metrics"):
    from relbench.base import (
        BaseTask,
        Database,
        EntityTask,
        RecommendationTask,
        Table,
        TaskType,
    )

__all__ = ["BaseTask", "Database", "EntityTask", "RecommendationTask", "Table", "TaskType"]
