"""Models that are no networks, behind one interface: see `relfrog.models.model`."""

from __future__ import annotations

from relfrog.models.boosting import LightGBMBaseline
from relfrog.models.model import Baseline
from relfrog.models.past_labels import (
    GlobalMeanBaseline,
    GlobalMedianBaseline,
    MeanBaseline,
    MedianBaseline,
    RecentBaseline,
)
from relfrog.models.rankers import LightGBMRanker, PastVisitRanker, PopularityRanker

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
