"""Seeds: rows to predict for, each at a time, with their labels if known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.datasets.protocols import Task
from relfrog.support.lists import Lists, as_labels, column_values
from relfrog.support.times import Moments, as_moments

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Seeds"]


@dataclass(frozen=True)
class Seeds:
    """Rows to predict for, each at a time: three arrays, from label SQL to the trainer.

    Attributes:
        rows: rows of the entity table. Shape [seeds].
        times: their times; given in any form that pandas converts to times. Shape [seeds].
        labels: their labels, if known: an array, or `Lists` where a label is a list; given as an
            array of lists as well. Shape [seeds].
    """

    rows: NDArray[np.int64]
    times: Moments
    labels: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", as_moments(self.times))
        if self.labels is not None:
            object.__setattr__(self, "labels", as_labels(self.labels))

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def one(cls, row: int, time: pd.Timestamp) -> Seeds:
        """A single row at a time."""
        return cls(np.array([row]), np.array([time.to_datetime64()]))

    @classmethod
    def of_frame(cls, task: Task, frame: pd.DataFrame) -> Seeds:
        """The seeds of a table of labels as tasks make it."""
        return cls(
            frame[task.entity_col].to_numpy(np.int64), as_moments(frame[task.time_col]),
            as_labels(frame[task.target_col]),
        )  # fmt: skip

    @classmethod
    def of_arrow(cls, task: Task, table: pa.Table) -> Seeds:
        """The seeds of a table of labels as the store keeps it."""
        return cls(
            column_values(table.column(task.entity_col)).astype(np.int64, copy=False),
            as_moments(column_values(table.column(task.time_col))),
            as_labels(table.column(task.target_col)),
        )

    def take(self, chosen: NDArray[Any]) -> Seeds:
        """A subset, by position."""
        labels = None if self.labels is None else self.labels[chosen]
        return Seeds(self.rows[chosen], self.times[chosen], labels)

    def sample(self, most: int) -> Seeds:
        """So many of them, drawn at random, the same each time; all if there are no more."""
        if len(self) <= most:
            return self
        return self.take(np.sort(np.random.default_rng(0).permutation(len(self))[:most]))

    def joined(self, others: Seeds) -> Seeds:
        """Concatenate with other seeds; both have labels."""
        assert self.labels is not None
        assert others.labels is not None
        lists = isinstance(self.labels, Lists) and isinstance(others.labels, Lists)
        return Seeds(
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.times, others.times]),
            self.labels.joined(others.labels)
            if lists
            else np.concatenate([self.labels, others.labels]),
        )
