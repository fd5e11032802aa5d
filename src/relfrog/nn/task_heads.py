"""The head of each task type, registered by RelBench's name of the type."""

from __future__ import annotations

from relfrog.nn.heads import (
    BinaryHead,
    Head,
    MulticlassHead,
    MultilabelHead,
    Targets,
)
from relfrog.nn.ranking_head import RankingHead
from relfrog.nn.regression_head import RegressionHead

__all__ = ["HEADS", "Targets"]

#: Heads by RelBench's name of the task type.
HEADS: dict[str, type[Head]] = {
    head.kind: head
    for head in (BinaryHead, RegressionHead, MulticlassHead, MultilabelHead, RankingHead)
}
