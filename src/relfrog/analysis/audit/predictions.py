"""Read predictions that somebody made, and match them with the labelled seeds of a split.

Two forms are read: what `relfrog predict` writes, and the files of RelBench's leaderboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.entities import Entities, read_entities
from relfrog.datasets.external import check_names, read_frame
from relfrog.errors import TaskError
from relfrog.nn.task_heads import HEADS
from relfrog.support.files import user_path
from relfrog.support.forms import parse_json
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

__all__ = ["Predictions", "read_predictions"]

#: Names that a column of times, or of predictions, usually has.
TIMES = ("time", "timestamp", "date", "at")
VALUES = ("prediction", "probability", "pred", "score", "value")
#: The rank of a target in a list, in what `relfrog predict` writes.
RANK = "rank"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions as read, and their places among the seeds of a split.

    Attributes:
        rows: rows of the entity table. Shape [predictions].
        times: their times. Shape [predictions].
        values: predictions in the form of the metrics. Shape [predictions, ...].
        seed: the position of the seed that each is about; -1 if the split has none such.
    """

    rows: NDArray[np.int64]
    times: pd.Series
    values: NDArray[Any]
    seed: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def of_seeds(self, count: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The seeds with a prediction, and the first prediction of each."""
        first = np.full(count, -1, np.int64)
        places = np.flatnonzero(self.seed >= 0)[::-1]
        first[self.seed[places]] = places
        known = np.flatnonzero(first >= 0)
        return known, self.values[first[known]]


def read_predictions(
    source: str | Path | pd.DataFrame,
    prepared: Prepared,
    about: dict[str, Any],
    seeds: Seeds,
    *,
    column: str | None = None,
    time: str | None = None,
) -> Predictions:
    """Read predictions from a CSV or Parquet file, or take them from a frame.

    Args:
        source: the key of each entity, as in the source of the dataset, a time, and a prediction.
        prepared: the task.
        about: description of the training labels, from `Prepared.describe_labels`.
        seeds: the labelled seeds of the split.
        column: the name of the column with predictions; by default it is found.
        time: the name of the column with times; by default it is found.

    Raises:
        TaskError: A column is missing or ambiguous, or a value cannot be read.
    """
    opened = prepared.opened
    where = "the frame" if isinstance(source, pd.DataFrame) else Path(source).name
    frame = (
        source if isinstance(source, pd.DataFrame) else read_frame(user_path(source))
    ).reset_index(drop=True)
    frame = frame.rename(columns=str)
    check_names(where, frame)
    if frame.empty:
        raise TaskError(f"{where} holds no prediction.")
    given = _time_column(where, frame, opened, seeds, time)
    keys = _key_names(opened)
    if not any(name.casefold() in keys for name in frame):
        raise TaskError(f"{where} has no column with the key of {opened.task.entity_table}.")
    if prepared.target_table is not None:
        lists = _lists(where, frame, prepared, given, keys, column, int(about["k"]))
        frame, values = lists
    else:
        names = _value_columns(where, frame, opened, about, given, keys, column)
        values = _numbers(where, frame, names)
    asked = frame[[name for name in frame if name == given or name.casefold() in keys]]
    return _matched(opened, asked, given, seeds, values)


def _matched(
    opened: OpenedTask, asked: pd.DataFrame, time: str | None, seeds: Seeds, values: NDArray[Any]
) -> Predictions:
    """Find entities by the keys of the source, or, as in RelBench's files, by their row numbers.

    Raises:
        TaskError: They are neither.
    """
    table = opened.task.entity_table
    count = len(opened.db.table_dict[table])
    by_row = _by_row_number(opened, asked, time, count)
    try:
        spec = opened.dataset.manifest.tables[table]
        found = read_entities(
            opened.dataset.dataset_dir, table, spec.pkey, count, asked, time_names=(time or "",)
        )
    except TaskError:
        if by_row is None:
            raise
        found = by_row
    best = _predictions(found, seeds, values)
    if by_row is not None and found is not by_row and (best.seed < 0).any():
        other = _predictions(by_row, seeds, values)
        if (other.seed >= 0).sum() > (best.seed >= 0).sum():
            return other
    return best


def _by_row_number(
    opened: OpenedTask, asked: pd.DataFrame, time: str | None, count: int
) -> Entities | None:
    """The rows of RelBench's files; None if there are no such rows."""
    name = _find(asked, (str(opened.task.entity_col),))
    if name is None:
        return None
    rows = pd.to_numeric(asked[name], errors="coerce").to_numpy(np.float64)
    times = None if time is None else _utc(asked[time])
    whole = np.isfinite(rows) & (rows >= 0) & (rows < count) & (rows == np.floor(rows))
    if not whole.all() or (times is not None and times.isna().any()):
        return None
    return Entities(rows.astype(np.int64), asked[[name]], times)


def _utc(values: pd.Series) -> pd.Series:
    """Times without a zone, NaT where a value is none."""
    return pd.to_datetime(values, errors="coerce", utc=True).dt.tz_localize(None)


def _predictions(found: Entities, seeds: Seeds, values: NDArray[Any]) -> Predictions:
    times = found.times
    if times is None:
        times = pd.Series(np.repeat(seeds.times[:1], len(found)))
    return Predictions(found.rows, times, values, _places(found.rows, times, seeds))


def _places(rows: NDArray[np.int64], times: pd.Series, seeds: Seeds) -> NDArray[np.int64]:
    """The position of the seed with each row and time; -1 if there is none."""
    known = pd.MultiIndex.from_arrays([seeds.rows, seeds.times.astype("datetime64[us]")])
    known_once = ~known.duplicated()
    places = np.flatnonzero(known_once)
    asked = pd.MultiIndex.from_arrays([rows, times.astype("datetime64[us]")])
    found = known[known_once].get_indexer(asked)
    return np.where(found >= 0, places[found], -1)


def _key_names(opened: OpenedTask) -> set[str]:
    """The names of the entity's key columns, in lower case."""
    from relfrog.datasets.dataset import source_keys

    table = opened.task.entity_table
    keys = source_keys(opened.dataset.dataset_dir, table)
    pkey = opened.dataset.manifest.tables[table].pkey
    names = [str(name) for name in keys] if keys is not None else [pkey or "row"]
    return {name.casefold() for name in (*names, opened.task.entity_col)}


def _find(frame: pd.DataFrame, names: Sequence[str]) -> str | None:
    present = {name.casefold(): name for name in frame}
    return next((present[n.casefold()] for n in names if n.casefold() in present), None)


def _time_column(
    where: str, frame: pd.DataFrame, opened: OpenedTask, seeds: Seeds, time: str | None
) -> str | None:
    """The column with the time of each prediction; None if the split has one time only."""
    if time is not None and time not in frame:
        raise TaskError(f"{where} has no column {time!r}; it has {', '.join(frame)}.")
    found = time or _find(frame, (str(opened.task.time_col), *TIMES))
    if found is None and len(np.unique(seeds.times)) > 1:
        raise TaskError(
            f"{where} says of no prediction for which time it is; it has {', '.join(frame)}. Name "
            "the column that does: --time COLUMN"
        )
    return found


def _value_columns(
    where: str, frame: pd.DataFrame, opened: OpenedTask, about: dict[str, Any],
    time: str | None, keys: set[str], column: str | None,
) -> list[str]:  # fmt: skip
    """The columns with predictions: one, or one per class or label."""
    if column is not None:
        if column not in frame:
            raise TaskError(f"{where} has no column {column!r}; it has {', '.join(frame)}.")
        return [column]
    wide = len(about.get("classes", ())) or int(about.get("labels", 0))
    if wide:
        example = HEADS[opened.kind].columns(about, np.zeros((1, wide)))
        names = [name for name in example if name.startswith("probability_")]
        if opened.task.classes:
            names = [f"probability_{name}" for name in opened.task.classes]
        missing = [name for name in names if name not in frame]
        if missing:
            raise TaskError(
                f"{where} has no column {missing[0]!r} ({len(missing)} of {len(names)} missing): "
                "a probability for each class or label is needed."
            )
        return names
    found = _find(frame, (str(opened.task.target_col), *VALUES))
    if found is None:
        left = [name for name in frame if name != time and name.casefold() not in keys]
        if len(left) != 1:
            raise TaskError(
                f"which column is the prediction? {where} has {', '.join(left) or 'none'} besides "
                "key and time. Name it: --column COLUMN"
            )
        found = left[0]
    return [found]


def _numbers(where: str, frame: pd.DataFrame, names: list[str]) -> NDArray[np.float64]:
    """Columns as numbers. Shape [rows] for one, [rows, columns] for several."""
    columns = []
    for name in names:
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(np.float64)
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise TaskError(
                f"{where}: {len(wrong):,} of {len(values):,} values of {name} are no numbers, such "
                f"as {frame[name].iloc[wrong[0]]!r}."
            )
        columns.append(values)
    return columns[0] if len(columns) == 1 else np.stack(columns, 1)


def _lists(
    where: str, frame: pd.DataFrame, prepared: Prepared, time: str | None, keys: set[str],
    column: str | None, k: int,
) -> tuple[pd.DataFrame, NDArray[np.float64]]:  # fmt: skip
    """One row per seed, and its list of targets with their ranks. Shape [seeds, k, 2]."""
    task = prepared.task
    if RANK not in frame:
        name = column or _find(frame, (str(task.target_col),))
        if name is None:
            raise TaskError(
                f"{where} has neither a column {RANK!r} nor lists of targets in a column "
                f"{task.target_col!r}. Name the one that has: --column COLUMN"
            )
        return frame, _padded([_decoded(where, value) for value in frame[name]], k)
    table = task.dst_entity_table
    spec = prepared.dataset.manifest.tables[table]
    left = [
        name for name in frame
        if name not in (time, RANK, "score", "run", "horizon", "made_at")
        and name.casefold() not in keys
    ]  # fmt: skip
    if not left:
        raise TaskError(f"{where} has no column with the key of {table}.")
    named = frame[left].rename(columns=lambda name: name.removeprefix(f"{table}."))
    found = read_entities(
        prepared.dataset.dataset_dir, table, spec.pkey, prepared.graph.num_rows[table], named
    )
    owner = [name for name in frame if name == time or name.casefold() in keys]
    order = np.argsort(_numbers(where, frame, [RANK]), kind="stable")
    number = frame.iloc[order].groupby(owner, sort=False, dropna=False).ngroup().to_numpy()
    together = np.argsort(number, kind="stable")
    ends = np.flatnonzero(np.diff(number[together])) + 1
    groups = np.split(order[together], ends)
    lists = [found.rows[places].tolist() for places in groups]
    return frame.iloc[[places[0] for places in groups]].reset_index(drop=True), _padded(lists, k)


def _decoded(where: str, value: Any) -> list[int]:
    """A list of row numbers of targets."""
    try:
        listed = parse_json(value, list[float]) if isinstance(value, str) else list(value)
        numbers = np.asarray(listed, np.float64)
        if numbers.ndim != 1 or not (np.abs(numbers) < 1 << 53).all() or (numbers % 1).any():
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise TaskError(f"{where}: {str(value)[:60]!r} is no list of targets.") from None
    found: list[int] = numbers.astype(np.int64).tolist()
    return found


def _padded(lists: list[list[int]], k: int) -> NDArray[np.float64]:
    """Lists of rows in the form of the metrics, -1 after their ends. Shape [lists, k, 2]."""
    found = np.full((len(lists), k, 2), -1.0)
    for number, some in enumerate(lists):
        kept = some[:k]
        found[number, : len(kept), 0] = kept
        found[number, : len(kept), 1] = -np.arange(len(kept))
    return found
