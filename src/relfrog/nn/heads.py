"""Heads: the output, the loss and the predictions of each task type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from relfrog.features.columns import Features, TableColumns
from relfrog.graph.popularity import Popularity
from relfrog.nn.batch_plan import Plan
from relfrog.support.arrays import class_numbers, different
from relfrog.support.lists import matrix

__all__ = ["BinaryHead", "Head", "MulticlassHead", "MultilabelHead", "Targets"]


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of a recommendation, for its head.

    Attributes:
        table: the table of the targets.
        columns: its columns.
        popularity: how often each target was referred to by a given time.
        bins: bins of the piecewise linear encoding of numbers.
        column_dropout: probability of hiding a column of the targets in training.
    """

    table: str
    columns: TableColumns
    popularity: Popularity
    bins: int
    column_dropout: float


class Head(nn.Module, ABC):
    """A two-layer MLP on the embedding of a seed, with its loss and predictions.

    Shapes: [n, c] -> [n, outputs].
    """

    #: RelBench's name of the task type.
    kind: ClassVar[str]
    #: The settings that `describe` takes beside the labels.
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, channels: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden: nn.Module = nn.Sequential(
            nn.Linear(channels, channels), nn.LayerNorm(channels), nn.ReLU(), nn.Dropout(dropout)
        )
        self.last = nn.Linear(channels, outputs)

    def make_linear(self) -> None:
        """Leave the hidden layer out: a single linear map remains."""
        self.hidden = nn.Identity()

    def forward(self, h: Tensor) -> Tensor:
        """Raw outputs."""
        return self.last(self.hidden(h))

    def read(self, h: Mapping[str, Tensor], plan: Plan) -> Any:
        """The output for the seeds of a batch, from the embeddings of the last layer."""
        return self(h[plan.batch.seed_table].index_select(0, plan.batch.seeds))

    def batch_loss(
        self, output: Any, plan: Plan, targets: Any, features: Mapping[str, Features]
    ) -> Tensor:
        """The mean loss of a batch, given the targets of all seeds. Shape []."""
        return self.loss(output.float(), targets[plan.batch.seed_ids.to(output.device)])

    def loss_count(self, plan: Plan, targets: Any) -> int:
        """How many terms `batch_loss` is the mean of; of multilabel seeds, each is one."""
        return len(plan.batch)

    def batch_predict(
        self, output: Any, plan: Plan, features: Mapping[str, Features], request: Any = None
    ) -> Tensor:
        """The predictions for a batch. Shape [seeds, ...]."""
        return self.predict(output)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """A time in which weights do not change, so that what depends on them can be kept."""
        yield

    @classmethod
    @abstractmethod
    def describe(cls, labels: Any) -> dict[str, Any]:
        """Statistics of the training labels that the head needs, as JSON values."""

    @classmethod
    @abstractmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> Head:
        """Create a head.

        Args:
            about: the result of `describe`.
            channels: size of the embedding of a seed.
            dropout: dropout probability.
            targets: the targets, for a recommendation.
        """

    @abstractmethod
    def targets(self, labels: Any) -> Any:
        """Convert labels for `loss`."""

    @abstractmethod
    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch. Shape []."""

    @classmethod
    def truth(cls, about: dict[str, Any], labels: Any) -> Any:
        """Convert labels for the metrics: an array, or `Lists` where a label is a list."""
        return labels

    @classmethod
    def columns(cls, about: dict[str, Any], predicted: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Convert predictions to named columns of a table."""
        return {"prediction": predicted}

    @abstractmethod
    def predict(self, out: Tensor) -> Tensor:
        """Convert outputs to predictions for the metrics. Shapes: [n, outputs] -> [n] or [n, k]."""


#: Positives are weighted by default where they are fewer than this share of the labels.
RARE = 0.02


class BinaryHead(Head):
    """A probability; binary cross-entropy."""

    kind = "binary_classification"
    settings: ClassVar[tuple[str, ...]] = ("class_weight",)

    def __init__(self, channels: int, dropout: float = 0.0, weight: float = 1.0) -> None:
        super().__init__(channels, 1, dropout)
        self.weight = weight

    @classmethod
    def describe(cls, labels: NDArray[Any], class_weight: str = "none") -> dict[str, Any]:
        """The share of positives, which initialises the bias, and their weight if it is not 1."""
        share = float(np.mean(labels.astype(float)))
        rare = class_weight == "balanced" or (class_weight == "auto" and share < RARE)
        if not rare or not 0 < share < 0.5:
            return {"positive": share}
        ratio = (1 - share) / share
        return {"positive": share, "weight": ratio if class_weight == "balanced" else ratio**0.5}

    @classmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> BinaryHead:
        """One output, initialised to the share of positives."""
        head = cls(channels, dropout, float(about.get("weight", 1.0)))
        share = min(max(about["positive"], 1e-4), 1 - 1e-4)
        nn.init.constant_(head.last.bias, float(np.log(head.weight * share / (1 - share))))
        return head

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """0.0 and 1.0."""
        return torch.from_numpy(labels.astype(np.float32))

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy, in which a positive counts `weight` times."""
        weight = None if self.weight == 1 else out.new_tensor(self.weight)
        return functional.binary_cross_entropy_with_logits(
            out.squeeze(1), target, pos_weight=weight
        )

    def predict(self, out: Tensor) -> Tensor:
        """Probabilities of label 1; what the weight adds to the odds is taken off again."""
        logits = out.squeeze(1)
        return (logits if self.weight == 1 else logits - float(np.log(self.weight))).sigmoid()


class MulticlassHead(Head):
    """A probability per class; cross-entropy. Classes unseen in training are never predicted."""

    kind = "multiclass_classification"

    def __init__(self, channels: int, classes: list[Any], dropout: float = 0.0) -> None:
        super().__init__(channels, len(classes), dropout)
        self.classes = classes

    @classmethod
    def describe(cls, labels: NDArray[Any]) -> dict[str, Any]:
        """The classes."""
        return {"classes": sorted(different(labels)[0])}

    @classmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> MulticlassHead:
        """One output per class."""
        return cls(channels, about["classes"], dropout)

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Class indices; -100, which the loss ignores, for unseen classes."""
        return torch.from_numpy(self.truth({"classes": self.classes}, labels))

    @classmethod
    def truth(cls, about: dict[str, Any], labels: NDArray[Any]) -> NDArray[Any]:
        """Class indices, -100 for unseen classes."""
        return class_numbers(labels, about["classes"], unseen=-100)

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy."""
        return functional.cross_entropy(out, target)

    def loss_count(self, plan: Plan, targets: Any) -> int:
        """The number of seeds of known classes."""
        return int((targets[plan.batch.seed_ids.to(targets.device)] >= 0).sum())

    def predict(self, out: Tensor) -> Tensor:
        """Probabilities. Shape [n, classes]."""
        return out.softmax(1)

    @classmethod
    def columns(cls, about: dict[str, Any], predicted: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The most likely class, and the probability of each class."""
        classes = about["classes"]
        rows = predicted.reshape(-1, len(classes))
        likeliest = np.array(classes, dtype=object)[rows.argmax(1)]
        found = {"prediction": likeliest.astype(np.array(classes).dtype)}
        for number, value in enumerate(classes):
            found[f"probability_{value}"] = rows[:, number]
        return found


class MultilabelHead(Head):
    """A probability per label; binary cross-entropy for each."""

    kind = "multilabel_classification"

    @classmethod
    def describe(cls, labels: Any) -> dict[str, Any]:
        """The number of labels."""
        return {"labels": matrix(labels).shape[1]}

    @classmethod
    def build(
        cls, about: dict[str, Any], channels: int, dropout: float, targets: Targets | None = None
    ) -> MultilabelHead:
        """One output per label."""
        return cls(channels, about["labels"], dropout)

    def targets(self, labels: Any) -> Tensor:
        """0.0 and 1.0. Shape [n, labels]."""
        return torch.from_numpy(matrix(labels).astype(np.float32))

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy."""
        return functional.binary_cross_entropy_with_logits(out, target)

    def predict(self, out: Tensor) -> Tensor:
        """Probabilities. Shape [n, labels]."""
        return out.sigmoid()

    @classmethod
    def columns(cls, about: dict[str, Any], predicted: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The probability of each label."""
        count = int(about["labels"])
        rows = predicted.reshape(-1, count)
        return {f"probability_{number}": rows[:, number] for number in range(count)}
