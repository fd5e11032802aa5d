"""The splits of a task whose labels exist already: a file of the user's, or a column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from relfrog.datasets.protocols import Dataset
from relfrog.datasets.task_file import TaskFile
from relfrog.errors import UsageError

__all__ = ["choose_splits", "own_splits", "place_labels", "shown_time"]

#: The least share of labels in validation, and in test.
_LEAST = 0.1


def place_labels(
    times: pd.Series, horizon: pd.Timedelta
) -> tuple[pd.Timestamp, pd.Timestamp] | None:
    """Place validation and test among the times of labels.

    Each has a tenth of the labels at least, and lies as late as that allows. Windows of training
    end by the validation time, those of validation by the test time.

    Returns:
        None if there is no room for three parts.
    """
    ordered = np.sort(times.dropna().to_numpy().astype("datetime64[us]"))
    if not len(ordered):
        return None
    least, step = max(1, int(np.ceil(_LEAST * len(ordered)))), horizon.to_timedelta64()
    test = ordered[-least]
    # Labels before this one have windows that end by the test time.
    inside = int(np.searchsorted(ordered, test - step, side="right"))
    if inside < least:
        return None
    val = ordered[inside - least]
    if not len(ordered[ordered <= val - step]):
        return None
    return pd.Timestamp(val), pd.Timestamp(test)


def shown_time(time: pd.Timestamp) -> str:
    """A time as short as it can be written."""
    return str(time.date()) if time == time.normalize() else str(time)


def choose_splits(
    dataset: Dataset, manifest: TaskFile, val: str | None, test: str | None
) -> TaskFile:
    """The task with the splits that the user wants; one that is not given is the dataset's.

    Raises:
        UsageError: A time cannot be read, or they are in the wrong order.
    """
    times = {"val": dataset.val_timestamp, "test": dataset.test_timestamp}
    for name, text in (("val", val), ("test", test)):
        if text is not None:
            try:
                time = pd.Timestamp(text)
            except ValueError:
                time = pd.NaT
            if time is pd.NaT:
                raise UsageError(f"--{name} {text}: write a date such as 2024-06-30")
            times[name] = time if time.tz is None else time.tz_convert("UTC").tz_localize(None)
    if times["val"] >= times["test"]:
        raise UsageError(
            f"the validation time {times['val']} must lie before the test time {times['test']}"
        )
    return own_splits(manifest, times["val"], times["test"], "chosen")


def own_splits(manifest: TaskFile, val: pd.Timestamp, test: pd.Timestamp, reason: str) -> TaskFile:
    """The task with splits of its own."""
    return replace(
        manifest, val_timestamp=shown_time(val), test_timestamp=shown_time(test),
        split_reason=reason,
    )  # fmt: skip
