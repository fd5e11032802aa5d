"""Models that are no networks, behind one interface: see `relfrog.baselines.base`."""

from __future__ import annotations

from relfrog.baselines.base import Baseline
from relfrog.baselines.past import (
    GlobalMeanBaseline,
    GlobalMedianBaseline,
    MeanBaseline,
    MedianBaseline,
    RecentBaseline,
)
from relfrog.baselines.rankers import LightGBMRanker, PastVisitRanker, PopularityRanker
from relfrog.baselines.trees import LightGBMBaseline

__all__ = ["Baseline", "baseline_class"]

_RANKERS: tuple[type[Baseline], ...] = (PopularityRanker, PastVisitRanker, LightGBMRanker)
_OTHERS: tuple[type[Baseline], ...] = (
    MeanBaseline, MedianBaseline, GlobalMeanBaseline, GlobalMedianBaseline, RecentBaseline,
    LightGBMBaseline,
)  # fmt: skip


def baseline_class(name: str, kind: str) -> type[Baseline]:
    """The model of this name for this type of task."""
    classes = _RANKERS if kind == "recommendation" else _OTHERS
    return next(found for found in classes if found.name == name)
