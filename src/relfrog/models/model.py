"""What a model is that is no network: one interface for all of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.metrics import compute_metrics
from relfrog.graph.popularity import Wish
from relfrog.models.prepared import Prepared, Seeds, seeds_of
from relfrog.nn.heads import HEADS, Head

__all__ = ["Baseline", "Tell", "silent"]

#: Takes one line of progress.
Tell = Callable[[str], None]


def silent(text: str) -> None:
    """Say nothing."""


class Baseline(ABC):
    """A model that is no network: it answers seeds from what was known at their times.

    Args:
        prepared: the database with its label history.
        about: of the training labels, as `Prepared.describe_labels` says it.
    """

    #: As `relfrog train --model` calls it.
    name: ClassVar[str]
    #: Whether it reads columns as numbers; otherwise it has the tables themselves.
    encoded: ClassVar[bool] = False

    def __init__(self, prepared: Prepared, about: dict[str, Any]) -> None:
        self.prepared, self.about = prepared, about
        self.kind: str = prepared.task.task_type.value
        #: What was tried, one line each for `history.jsonl`.
        self.trials: list[dict[str, Any]] = []
        #: When a search has to end, on the clock of `time.monotonic`.
        self.until = math.inf

    def fit(self, tell: Tell = silent) -> None:
        """Learn, where there is something to learn."""
        return

    def save(self, folder: Path) -> None:
        """Write what was learned."""
        return

    def load(self, folder: Path) -> None:
        """Read what was learned.

        Raises:
            RunError: It is missing or damaged.
        """
        return

    @abstractmethod
    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, wish: Wish | None = None
    ) -> NDArray[Any]:
        """Predictions as the metrics want them, from rows up to each seed's time.

        Args:
            seeds: whom for.
            cutoff: where the database stops for all of them, if not at each one's own time.
            wish: of a recommendation: what the lists shall be.
        """

    @property
    def selected(self) -> Baseline:
        """What validation has chosen; another only where that was learned once more."""
        return self

    @cached_property
    def head(self) -> Head:
        """What labels and predictions of this type of task mean."""
        return HEADS[self.kind].build(self.about, 1, 0.0)

    def limits(self, seeds: Seeds, cutoff: pd.Timestamp | None) -> NDArray[np.int64]:
        """Up to when each seed sees, in ticks of the graph. Shape [seeds]."""
        limits = self.prepared.graph.ticks(seeds.times)
        if cutoff is not None:
            limits = np.minimum(limits, self.prepared.graph.ticks([cutoff])[0])
        return limits

    def score(self, split: str, regime: str) -> dict[str, float]:
        """Metrics on the seeds of a split."""
        seeds = seeds_of(self.prepared.task, split)
        one = self.selected if split == "val" else self
        return self.metrics(seeds, one.predict(seeds, self.prepared.cutoff(split, regime)))

    def metrics(self, seeds: Seeds, predicted: NDArray[Any]) -> dict[str, float]:
        """What predictions for these seeds are worth."""
        assert seeds.labels is not None
        ranks = self.kind == "recommendation"
        truth = seeds.labels if ranks else self.head.truth(seeds.labels)
        return compute_metrics(self.kind, truth, predicted, self.about.get("std"))
