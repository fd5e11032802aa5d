"""The one interface of everything that learns: fit, save, load, predict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.metrics import compute_metrics
from relfrog.graph.popularity import ListRequest
from relfrog.kinds import TASK_KINDS, TaskKind
from relfrog.nn.task_heads import HEADS
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["Model"]


class Model(ABC):
    """Something that learns from a prepared task and answers seeds from what was known then.

    Graph networks, boosted trees, counts of earlier labels and `auto` are the kinds of it;
    `relfrog.kinds.MODELS` registers each with the types of task that it serves.

    Args:
        prepared: the database and the task.
        labels: of the training labels, as `Prepared.describe_labels` says it.
        device: where to compute.
        gates: by route, where roles are fixed.
    """

    #: Whether it reads columns as numbers; otherwise it has the tables themselves.
    encoded: ClassVar[bool] = False

    def __init__(
        self,
        prepared: Prepared,
        labels: dict[str, Any],
        *,
        device: str = "cpu",
        gates: Mapping[str, float] | None = None,
    ) -> None:
        self.prepared, self.labels = prepared, labels
        self.device, self.gates = device, gates
        #: One line each for `history.jsonl`: epochs, or settings that were tried.
        self.trials: list[dict[str, Any]] = []
        #: What `run.json` says of the fitted model.
        self.facts: dict[str, Any] = {}
        #: Where a refitted model keeps what validation had selected; None if it is the same.
        self.selected_folder: Path | None = None

    @property
    def kind(self) -> TaskKind:
        """The type of task."""
        return TASK_KINDS[self.prepared.kind]

    @abstractmethod
    def fit(
        self,
        folder: Path,
        budget: Budget = UNLIMITED,
        callbacks: Sequence[Callback] = (),
        *,
        resume: bool = False,
    ) -> None:
        """Learn from the training labels.

        Args:
            folder: of the run, for checkpoints.
            budget: when it has to end.
            callbacks: notified of what happens.
            resume: whether to go on from the checkpoints in the folder.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was learned."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what was learned.

        Raises:
            RunError: It is missing or damaged.
        """

    @abstractmethod
    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """Predictions as the metrics want them, from rows up to each seed's time.

        Args:
            seeds: whom for.
            cutoff: where the database stops for all of them, if not at each one's own time.
            request: of a recommendation: what the lists shall be.
        """

    @cached_property
    def selected(self) -> Model:
        """What validation has selected: this model, unless it was refitted afterwards.

        A model that has learned from validation labels cannot be scored on them.
        """
        if self.selected_folder is None:
            return self
        other = self._copy()
        other.load(self.selected_folder)
        return other

    def _copy(self) -> Model:
        """The same model, to be given other weights."""
        other = copy(self)
        other.selected_folder = None
        vars(other).pop("selected", None)
        return other

    @property
    def members(self) -> dict[str, Model]:
        """The models that it is made of, by name; none unless it is made of others."""
        return {}

    def roles(self) -> list[dict[str, Any]]:
        """The learned role of each route, for `roles.json`; none without a network."""
        return []

    def limits(self, seeds: Seeds, cutoff: pd.Timestamp | None) -> NDArray[np.int64]:
        """Up to when each seed sees, in ticks of the graph. Shape [seeds]."""
        limits = self.prepared.graph.ticks(seeds.times)
        if cutoff is not None:
            limits = np.minimum(limits, self.prepared.graph.ticks([cutoff])[0])
        return limits

    def score(self, split: str, regime: str) -> dict[str, float]:
        """Metrics on the seeds of a split."""
        seeds = self.prepared.seeds(split)
        model = self.selected if split == "val" else self
        return self.metrics(seeds, model.predict(seeds, self.prepared.cutoff(split, regime)))

    def truth(self, seeds: Seeds) -> NDArray[Any]:
        """Labels as the metrics want them. Shape [seeds]."""
        assert seeds.labels is not None
        return HEADS[self.kind.name].truth(self.labels, seeds.labels)

    def metrics(self, seeds: Seeds, predicted: NDArray[Any]) -> dict[str, float]:
        """What predictions for these seeds are worth."""
        truth = self.truth(seeds)
        return compute_metrics(self.kind.name, truth, predicted, self.labels.get("std"))
