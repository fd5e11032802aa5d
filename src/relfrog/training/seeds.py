"""Seeds: rows to predict for, each at a time, with their labels if known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.protocols import Task
from relfrog.support.lists import as_objects

__all__ = ["Seeds"]


@dataclass(frozen=True)
class Seeds:
    """Rows to predict for, each at a time.

    Attributes:
        rows: rows of the entity table. Shape [seeds].
        times: their times. Shape [seeds].
        labels: their labels, if known. Shape [seeds].
    """

    rows: NDArray[np.int64]
    times: pd.Series
    labels: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of_frame(cls, task: Task, frame: pd.DataFrame) -> Seeds:
        """The seeds of a table of labels."""
        return cls(
            frame[task.entity_col].to_numpy(np.int64),
            pd.Series(pd.to_datetime(frame[task.time_col])),
            as_objects(frame[task.target_col]),
        )

    def take(self, chosen: NDArray[Any]) -> Seeds:
        """A subset, by position."""
        times = self.times.iloc[chosen].reset_index(drop=True)
        labels = None if self.labels is None else self.labels[chosen]
        return Seeds(self.rows[chosen], times, labels)

    def sample(self, most: int) -> Seeds:
        """So many of them, drawn at random, the same each time; all if there are no more."""
        if len(self) <= most:
            return self
        return self.take(np.sort(np.random.default_rng(0).permutation(len(self))[:most]))

    def joined(self, others: Seeds) -> Seeds:
        """Concatenate with other seeds; both have labels."""
        assert self.labels is not None
        assert others.labels is not None
        return Seeds(
            np.concatenate([self.rows, others.rows]),
            pd.concat([self.times, others.times], ignore_index=True),
            np.concatenate([self.labels, others.labels]),
        )
