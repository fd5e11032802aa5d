"""For whom and at which times `predict` predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.entities import Keys, key_frame, read_entities
from relfrog.errors import UsageError
from relfrog.support.times import Moments, as_moments
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["moment", "seeds_to_predict"]


def moment(prepared: Prepared, at: Any = None) -> pd.Timestamp:
    """A time as predictions take it; by default the newest in the database.

    Raises:
        UsageError: It is no time, or there is no newest one.
    """
    if at is None:
        newest = prepared.newest
        if newest is None and prepared.task.completes:
            return prepared.dataset.test_timestamp
        if newest is None:
            raise UsageError("the database has no times. Say which: --at 2026-01-01")
        return newest
    try:
        time = pd.Timestamp(at)
    except (ValueError, TypeError):
        raise UsageError(
            f"{at!r} is no time. Write it as 2026-01-01 or 2026-01-01T12:00."
        ) from None
    if time is pd.NaT:
        raise UsageError(f"{at!r} is no time. Write it as 2026-01-01.")
    if time.tzinfo:
        time = time.tz_convert("UTC").tz_localize(None)
    # Microseconds cover all times; nanoseconds only those until 2262.
    return time.as_unit("ns" if time.nanosecond else "us")


def seeds_to_predict(
    prepared: Prepared,
    at: Any,
    entities: Keys | None,
    everyone: bool,
    population: Callable[[pd.Timestamp], NDArray[np.int64]],
) -> tuple[pd.DataFrame, Seeds]:
    """The source's keys of whom to predict for, and their rows with times.

    Args:
        prepared: the task.
        at: the time, or None; see `Run.predict`.
        entities: whom for, in this order, or None.
        everyone: whether to predict for all that exist.
        population: finds the rows that the task asks about at a time.

    Raises:
        UsageError: The arguments contradict each other, or there is nothing to predict.
    """
    task = prepared.task
    table = task.entity_table
    time = moment(prepared, at)
    where = prepared.dataset.dataset_dir
    primary = prepared.dataset.manifest.tables[table].pkey
    if entities is not None:
        if everyone:
            raise UsageError("predict for some entities or for all: leave one of them out.")
        count = prepared.graph.num_rows[table]
        names = (task.time_col, "time", "at")
        asked = read_entities(where, table, primary, count, entities, time_names=names)
        times = None if asked.times is None else as_moments(asked.times)
        if times is None and at is None:
            times = prepared.opened.own_times(asked.rows)
        return asked.keys, Seeds(asked.rows, _at(time, len(asked.rows)) if times is None else times)
    fill = prepared.opened.seeds_to_fill(None if at is None else time)
    if fill is not None and not everyone:
        if not len(fill):
            raise UsageError(
                f"every row of {table} has a {task.target_col} by then: there is nothing to "
                "fill in. To predict it anyway, say for which rows: --entities FILE"
            )
        return key_frame(where, table, primary, fill.rows), fill
    if everyone:
        rows: NDArray[np.int64] = np.flatnonzero(prepared.graph.visible(table, time))
    else:
        rows = population(time)
    return key_frame(where, table, primary, rows), Seeds(rows, _at(time, len(rows)))


def _at(time: pd.Timestamp, count: int) -> Moments:
    """One time for all."""
    return np.repeat(time.to_datetime64(), count)
