"""The network: row encoders, node and edge messages, role gates, and a head per task type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.nn.aggregation import Aggregation, aggregate, first
    from relfrog.nn.encoders import age_parts
    from relfrog.nn.heads import (
        BinaryHead,
        Head,
        MulticlassHead,
        MultilabelHead,
        Targets,
    )
    from relfrog.nn.messages import MESSAGES
    from relfrog.nn.network import Network, Output
    from relfrog.nn.ranking_head import RankingHead
    from relfrog.nn.regression_head import RegressionHead
    from relfrog.nn.task_heads import HEADS

__all__ = [
    "HEADS",
    "MESSAGES",
    "Aggregation",
    "BinaryHead",
    "Head",
    "MulticlassHead",
    "MultilabelHead",
    "Network",
    "Output",
    "RankingHead",
    "RegressionHead",
    "Targets",
    "age_parts",
    "aggregate",
    "first",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Aggregation": "relfrog.nn.aggregation",
        "BinaryHead": "relfrog.nn.heads",
        "HEADS": "relfrog.nn.task_heads",
        "Head": "relfrog.nn.heads",
        "MESSAGES": "relfrog.nn.messages",
        "MulticlassHead": "relfrog.nn.heads",
        "MultilabelHead": "relfrog.nn.heads",
        "Network": "relfrog.nn.network",
        "Output": "relfrog.nn.network",
        "RankingHead": "relfrog.nn.ranking_head",
        "RegressionHead": "relfrog.nn.regression_head",
        "Targets": "relfrog.nn.heads",
        "age_parts": "relfrog.nn.encoders",
        "aggregate": "relfrog.nn.aggregation",
        "first": "relfrog.nn.aggregation",
    },
)
