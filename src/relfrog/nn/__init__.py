"""The network: rows in, messages by node and by edge, predictions out."""

from relfrog.nn.aggregation import Aggregation, aggregate, first
from relfrog.nn.encoders import age_parts
from relfrog.nn.heads import BinaryHead, Head, MulticlassHead, MultilabelHead, RegressionHead
from relfrog.nn.messages import MESSAGES
from relfrog.nn.network import Network, Output
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
    "RegressionHead",
    "age_parts",
    "aggregate",
    "first",
]
