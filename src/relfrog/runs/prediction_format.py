"""PredictionFormat as tables with the source's keys: what may be asked of each type of task."""

from __future__ import annotations

from typing import Any, Protocol

import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.entities import Keys
from relfrog.errors import UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.kinds import ENTITY_KINDS
from relfrog.nn.task_heads import HEADS
from relfrog.runs.recommendation import list_table, requested_lists
from relfrog.support.text import free_name
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["PREDICTION_FORMATS", "PredictionFormat"]


class PredictionFormat(Protocol):
    """What may be asked of a type of task, and what is answered."""

    def check(self, *, k: int | None, targets: Keys | None, exclude_known: bool) -> None:
        """Refuse what makes no sense for the type of task.

        Raises:
            UsageError: An option is for other types of task.
        """

    def request(
        self, prepared: Prepared, seeds: Seeds, k: int | None, targets: Keys | None,
        exclude_known: bool,
    ) -> ListRequest | None:  # fmt: skip
        """What a model is asked for beside the seeds."""

    def frame(
        self, prepared: Prepared, labels: dict[str, Any], keys: pd.DataFrame, seeds: Seeds,
        predicted: NDArray[Any],
    ) -> pd.DataFrame:  # fmt: skip
        """Predictions as a table."""


class EntityFormat:
    """One row per entity: its key, the time, and what is predicted."""

    def check(self, *, k: int | None, targets: Keys | None, exclude_known: bool) -> None:
        """Only lists have a length and targets."""
        if k is not None or targets is not None or exclude_known:
            raise UsageError(
                "k, targets and exclude_known are for recommendations only. Leave them out."
            )

    def request(
        self, prepared: Prepared, seeds: Seeds, k: int | None, targets: Keys | None,
        exclude_known: bool,
    ) -> None:  # fmt: skip
        """Nothing more."""

    def frame(
        self, prepared: Prepared, labels: dict[str, Any], keys: pd.DataFrame, seeds: Seeds,
        predicted: NDArray[Any],
    ) -> pd.DataFrame:  # fmt: skip
        """A value, a probability, or one for each class or label."""
        frame = keys.reset_index(drop=True)
        taken = {str(column).lower() for column in frame}
        columns = HEADS[prepared.kind].columns(labels, predicted)
        for name, values in {"time": seeds.times.to_numpy(), **columns}.items():
            frame[free_name(name, taken)] = values
        return frame


class RankedListFormat:
    """One row per entity and rank: both keys, the time, the rank and the score."""

    def check(self, *, k: int | None, targets: Keys | None, exclude_known: bool) -> None:
        """A list has an entry at least."""
        if k is not None and k < 1:
            raise UsageError(f"k must be 1 or more (got {k}).")

    def request(
        self, prepared: Prepared, seeds: Seeds, k: int | None, targets: Keys | None,
        exclude_known: bool,
    ) -> ListRequest:  # fmt: skip
        """The length of the lists, and what may be in them."""
        return requested_lists(prepared, seeds, k, targets, exclude_known)

    def frame(
        self, prepared: Prepared, labels: dict[str, Any], keys: pd.DataFrame, seeds: Seeds,
        predicted: NDArray[Any],
    ) -> pd.DataFrame:  # fmt: skip
        """The lists, the best first."""
        return list_table(prepared, keys, seeds, predicted)


#: By RelBench's name of the type of task.
PREDICTION_FORMATS: dict[str, PredictionFormat] = {
    **dict.fromkeys(ENTITY_KINDS, EntityFormat()), "recommendation": RankedListFormat(),
}  # fmt: skip
