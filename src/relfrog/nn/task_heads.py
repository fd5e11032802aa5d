"""The head of each type of task: output, loss, and what a prediction is."""

from __future__ import annotations

from relfrog.nn.heads import (
    BinaryHead,
    Head,
    MulticlassHead,
    MultilabelHead,
    RegressionHead,
    Targets,
)
from relfrog.nn.ranking_head import RankingHead

__all__ = ["HEADS", "Targets"]

#: By RelBench's name of the type of task.
HEADS: dict[str, type[Head]] = {
    head.kind: head
    for head in (BinaryHead, RegressionHead, MulticlassHead, MultilabelHead, RankingHead)
}
