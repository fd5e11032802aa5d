"""Predictions as tables with the source's keys, and the options of `predict`, per task type."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.entities import Keys
from relfrog.errors import RelFrogWarning, UsageError
from relfrog.graph.popularity import ListRequest
from relfrog.kinds import TASK_KINDS
from relfrog.nn.task_heads import HEADS
from relfrog.runs.recommendation import list_table, requested_lists
from relfrog.support.text import free_name, horizon
from relfrog.support.times import Moments
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["PREDICTION_FORMATS", "PredictionFormat", "now", "stamp", "warn_outside"]


class PredictionFormat(Protocol):
    """The options of `predict` for a task type, and the table it returns."""

    def check(self, *, k: int | None, targets: Keys | None, exclude_known: bool) -> None:
        """Check the options.

        Raises:
            UsageError: An option is for other task types.
        """

    def request(
        self, prepared: Prepared, seeds: Seeds, k: int | None, targets: Keys | None,
        exclude_known: bool,
    ) -> ListRequest | None:  # fmt: skip
        """The request to the model, in addition to the seeds."""

    def frame(
        self, prepared: Prepared, labels: dict[str, Any], keys: pd.DataFrame, seeds: Seeds,
        predicted: NDArray[Any], beside: Mapping[str, NDArray[Any]],
    ) -> pd.DataFrame:  # fmt: skip
        """Predictions as a table, with more columns beside them."""


class EntityFormat:
    """One row per entity: its key, the time, and the prediction."""

    def check(self, *, k: int | None, targets: Keys | None, exclude_known: bool) -> None:
        """Reject the options of lists."""
        if k is not None or targets is not None or exclude_known:
            raise UsageError(
                "k, targets and exclude_known are for recommendations only. Leave them out."
            )

    def request(
        self, prepared: Prepared, seeds: Seeds, k: int | None, targets: Keys | None,
        exclude_known: bool,
    ) -> None:  # fmt: skip
        """No request."""

    def frame(
        self, prepared: Prepared, labels: dict[str, Any], keys: pd.DataFrame, seeds: Seeds,
        predicted: NDArray[Any], beside: Mapping[str, NDArray[Any]],
    ) -> pd.DataFrame:  # fmt: skip
        """A value, a probability, or one for each class or label; then decisions or an interval."""
        frame = keys.reset_index(drop=True)
        taken = {str(column).lower() for column in frame}
        columns = HEADS[prepared.kind].columns(labels, predicted)
        names = prepared.task.classes
        for name, values in {"time": seeds.times, **columns, **beside}.items():
            what, _, number = name.rpartition("_")
            if names and what and number.isdecimal() and int(number) < len(names):
                name = f"{what}_{names[int(number)]}"
            frame[free_name(name, taken)] = values
        return frame


class RankedListFormat:
    """One row per entity and rank: both keys, the time, the rank and the score."""

    def check(self, *, k: int | None, targets: Keys | None, exclude_known: bool) -> None:
        """Check the length of the lists."""
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
        predicted: NDArray[Any], beside: Mapping[str, NDArray[Any]],
    ) -> pd.DataFrame:  # fmt: skip
        """The lists, the best first."""
        return list_table(prepared, keys, seeds, predicted)


#: Formats by RelBench's name of the task type.
PREDICTION_FORMATS: dict[str, PredictionFormat] = {
    name: RankedListFormat() if kind.ranks else EntityFormat() for name, kind in TASK_KINDS.items()
}


def now() -> pd.Timestamp:
    """The time in UTC, without a zone."""
    made = datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None)
    return pd.Timestamp(made).as_unit("us")


def stamp(
    frame: pd.DataFrame,
    folder: Path,
    ahead: pd.Timedelta | None,
    made_at: pd.Timestamp | None = None,
) -> pd.DataFrame:
    """Add to each prediction its run, its horizon if any, and when it was made (in UTC)."""
    taken = {str(column).lower() for column in frame}
    values = {
        "run": str(folder), "horizon": "" if ahead is None else horizon(ahead.total_seconds()),
        "made_at": now() if made_at is None else made_at,
    }  # fmt: skip
    return frame.assign(**{free_name(name, taken): value for name, value in values.items()})


def warn_outside(opened: OpenedTask, times: Moments) -> None:
    """Warn of times before the first row, or further than the horizon after the newest.

    Warns:
        RelFrogWarning: There are such times.
    """
    newest, ahead = opened.newest, opened.task.timedelta
    if newest is None or not len(times):
        return
    first, last = pd.Timestamp(times.min()), pd.Timestamp(times.max())
    if first < opened.db.min_timestamp:
        text = f"{first} lies before the first row of the database, {opened.db.min_timestamp}: " \
               "nothing was known then, and predictions are guesses."  # fmt: skip
        warnings.warn(text, RelFrogWarning, stacklevel=3)
    if last > newest + ahead:
        text = (
            f"{last} lies {horizon((last - newest).total_seconds())} after the newest row of the "
            f"database, {newest}: what has happened since is not in it. Import it anew, or predict "
            "for an earlier time with --at."
        )
        warnings.warn(text, RelFrogWarning, stacklevel=3)
