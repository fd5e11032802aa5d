"""The user's own labels: a table of entity, time and label, in the keys of the source."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from relfrog.datasets.dataset import source_keys
from relfrog.datasets.entities import Entities, read_entities
from relfrog.datasets.protocols import Dataset, Task
from relfrog.errors import TaskError, UsageError
from relfrog.support.files import user_path
from relfrog.support.lines import most_rows
from relfrog.support.parquet import UNREADABLE, read_parquet
from relfrog.support.relbench import TaskType

__all__ = ["assign_splits", "check_names", "read_frame", "read_label_table", "read_labels"]


def read_label_table(
    dataset: Dataset, table: str, source: str | Path | pd.DataFrame, time: str, label: str | None
) -> tuple[Entities, pd.Series]:
    """Read labels from a CSV or Parquet file, or take them from a frame.

    Args:
        dataset: The opened dataset.
        table: The entity table.
        source: The file: the columns of the source's primary key, a time and a label.
        time: The name of the column with the time.
        label: The name of the column with the label; the only one left if None.

    Returns:
        The rows with their times, and the labels.

    Raises:
        TaskError: A column is missing, a key is not in the table, or a value is no time.
    """
    frame = source if isinstance(source, pd.DataFrame) else read_frame(user_path(source))
    where = "the frame" if isinstance(source, pd.DataFrame) else Path(source).name
    check_names(where, frame)
    if time not in frame:
        raise TaskError(
            f"{where} has no column {time!r} with the time of each label; it has "
            f"{', '.join(map(repr, frame.columns))}. Name the one that is: --time COLUMN"
        )
    spec = dataset.manifest.tables[table]
    record = pq.read_metadata(Path(dataset.db_dir) / f"{table}.parquet")
    names = [c for c in frame if c != time]
    if label is None:
        keys = {name.casefold() for name in _key_names(dataset, table, spec.pkey)}
        left = [c for c in names if str(c).casefold() not in keys]
        if len(left) != 1:
            raise TaskError(
                f"which column is the label? {where} has {', '.join(map(repr, left)) or 'none'} "
                "besides time and key. Name it: --label COLUMN"
            )
        label = str(left[0])
    if label in (time, *_key_names(dataset, table, spec.pkey)):
        raise TaskError(f"{where}: {label!r} is the time or the key, so it cannot be the label")
    if label not in frame:
        raise TaskError(f"{where} has no column {label!r}; it has {', '.join(map(repr, names))}")
    if names == [label]:
        raise TaskError(
            f"{where} has no column with the key of {table}: add "
            f"{', '.join(_key_names(dataset, table, spec.pkey))}"
        )
    asked = read_entities(
        dataset.dataset_dir, table, spec.pkey, record.num_rows,
        frame.drop(columns=[label]), time_names=(time,),
    )  # fmt: skip
    assert asked.times is not None
    return asked, frame[label].reset_index(drop=True)


def _key_names(dataset: Dataset, table: str, pkey: str | None) -> list[str]:
    keys = source_keys(dataset.dataset_dir, table)
    return [str(c) for c in keys] if keys is not None else [pkey or "row"]


def read_frame(path: Path) -> pd.DataFrame:
    """A file as a frame: keys and times as text where CSV has nothing better."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}. Check the path.")
    lower, most = path.name.lower(), most_rows()
    try:
        if lower.endswith((".parquet", ".pq")):
            return read_parquet(path)
        if not lower.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
            raise UsageError(f"{path} is neither .csv nor .parquet. Save it as one of them.")
        text = pd.read_csv(
            path, sep="\t" if ".tsv" in lower else ",", header=None, dtype=str,
            keep_default_na=False, encoding="utf-8-sig", nrows=most,
        )  # fmt: skip
        if len(text) == most:
            raise UsageError(f"{path} has {most:,} rows or more, too many for memory. Split it.")
    except (*UNREADABLE, EOFError, zlib.error) as error:
        text_of = " ".join(str(error).split())[:200]
        raise TaskError(f"{path} cannot be read: {text_of}. Check the file.") from None
    text.columns = pd.Index([name.strip() for name in text.iloc[0]])
    check_names(path.name, text)
    return text.iloc[1:].reset_index(drop=True)


def check_names(where: str, frame: pd.DataFrame) -> None:
    """Refuse two columns of one name, which neither key, time nor label could be told by.

    Raises:
        TaskError: There are two.
    """
    names = pd.Index([str(name) for name in frame])
    if len(twice := names[names.duplicated()]):
        raise TaskError(f"{where} has two columns {twice[0]!r}. Remove or rename one.")


def as_labels(values: pd.Series, type: str) -> pd.Series:
    """Labels in the type of the task: CSV has only text.

    Raises:
        TaskError: A label is no number where the task needs one.
    """
    missing = values.isna() | (values.map(str).astype(object).str.strip() == "")
    if missing.any():
        raise TaskError(
            f"{int(missing.sum()):,} of {len(values):,} rows have no label. Remove them."
        )
    if type in ("multiclass_classification", "multilabel_classification"):
        return values.infer_objects()
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        truths = {"true": "1", "false": "0"}
        texts = values.map(str).astype(object).str.strip()  # astype would decode bytes
        values = pd.to_numeric(texts.map(lambda t: truths.get(t.lower(), t)), errors="coerce")
        if values.isna().any():
            odd = texts[values.isna()].iloc[0]
            raise TaskError(
                f"{int(values.isna().sum()):,} of {len(values):,} labels are no numbers, such as "
                f"{odd!r}. For names of classes: --type multiclass"
            )
    return values


def assign_splits(dataset: Dataset, times: pd.Series, horizon: pd.Timedelta) -> pd.Series:
    """The split of each label by its time and the end of its window; "" where it lies in none.

    Windows of training end by the validation time, those of validation by the test time.
    """
    ends = times + horizon
    val, test = dataset.val_timestamp, dataset.test_timestamp
    found = np.select(
        [ends <= val, (times >= val) & (ends <= test), times >= test],
        ["train", "val", "test"],
        "",
    )
    return pd.Series(found, times.index)


def read_labels(file: Path, dataset: Dataset, task: Task, split: str) -> pd.DataFrame:
    """The labels of a split from `labels.parquet`, entities as row numbers.

    Raises:
        TaskError: The file is damaged, or does not fit the database any more.
    """
    try:
        frame = read_parquet(file)
    except UNREADABLE as error:
        text = " ".join(str(error).split())[:200]
        raise TaskError(f"{file} cannot be read: {text}. Add the task again.") from None
    asked, labels = read_label_table(
        dataset, task.entity_table, frame, task.time_col, task.target_col
    )
    return label_frame(dataset, task, asked, labels, split)


def label_frame(
    dataset: Dataset, task: Task, asked: Entities, labels: pd.Series, split: str
) -> pd.DataFrame:
    """The labels of a split, in the order in which RelBench stores them."""
    assert asked.times is not None
    frame = pd.DataFrame(
        {
            task.time_col: asked.times.astype("datetime64[us]").to_numpy(),
            task.entity_col: asked.rows,
            task.target_col: as_labels(labels, task.task_type.value),
        }
    )
    frame = frame[assign_splits(dataset, frame[task.time_col], task.timedelta) == split]
    if task.task_type is TaskType.BINARY_CLASSIFICATION and len(frame):
        odd = frame[~frame[task.target_col].isin([0, 1])]
        if len(odd):
            raise TaskError(f"binary labels must be 0 and 1 (got {odd[task.target_col].iloc[0]!r})")
        frame = frame.astype({task.target_col: "int64"})
    return frame.sort_values([task.time_col, task.entity_col], kind="stable", ignore_index=True)
