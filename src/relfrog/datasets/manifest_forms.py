"""The forms of a dataset's and of a task's manifest, checked before RelBench reads them.

RelBench takes what it is given: a name becomes a path, and the name of a time column becomes part
of a pandas query, which runs what is in it. So names are checked here, whatever they are used for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd

from relfrog.errors import DatasetError, TaskError
from relfrog.support.forms import read_yaml
from relfrog.support.text import is_identifier

__all__ = ["read_dataset_manifest", "read_task_form"]

Meta = msgspec.Meta
#: The longest name of a table in bytes: systems take 255, and its file has an ending.
LONGEST_NAME = 240
_Name = Annotated[str, Meta(min_length=1, max_length=1000)]
#: Times, and what is parsed: nobody writes longer ones, and to read them would take for ever.
_Time = Annotated[str, Meta(max_length=100)]
_Code = Annotated[str, Meta(max_length=1_000_000)]


class _Table(msgspec.Struct):
    pkey: _Name | None = None
    time_col: _Name | None = None
    fkeys: dict[_Name, _Name] = {}


class _Dataset(msgspec.Struct):
    name: str
    val_timestamp: _Time
    test_timestamp: _Time
    tables: dict[str, _Table]
    description: str | None = None
    manifest_version: int = 1


class _Task(msgspec.Struct):
    name: str
    kind: str
    task_type: str
    description: str | None = None
    entity_table: _Name | None = None
    entity_col: _Name | None = None
    target_col: _Name | None = None
    time_col: _Name | None = None
    src_entity_table: _Name | None = None
    src_entity_col: _Name | None = None
    dst_entity_table: _Name | None = None
    dst_entity_col: _Name | None = None
    eval_k: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    timedelta: _Time | None = None
    num_eval_timestamps: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    remove_columns: list[tuple[str, str]] = []
    sql: _Code | None = None
    evaluator: str | None = None
    extra_files: list[str] = []
    val_timestamp: _Time | None = None
    test_timestamp: _Time | None = None
    train_from: _Time | None = None
    split_reason: str | None = None
    keys: str | None = None
    labels: str | None = None
    source_sql: _Code | None = None
    query: _Code | None = None
    classes: list[str] | None = None
    horizon: _Time | None = None
    manifest_version: int = 1


def read_dataset_manifest(path: Path) -> None:
    """Check `manifest.yaml` of a dataset.

    Raises:
        DatasetError: It is not what RelBench takes it for.
    """
    content = read_yaml(path, str(path), DatasetError, _Dataset)
    again = f"See all findings: relfrog check {path.parent}"
    for name, table in content["tables"].items():
        is_long = len(name.encode()) > LONGEST_NAME
        if is_long or set(name) & set("/\\\0") or name in ("", ".", ".."):
            raise DatasetError(
                f"{path.parent}: {name[:60]!r} cannot be a table's name: it is not a file name. "
                "Rename it in manifest.yaml."
            )
        time = table.get("time_col")
        if time is not None and not is_identifier(time):
            raise DatasetError(
                f"{path}: {name}.{time} cannot be a time column: RelBench can only filter by one "
                f"whose name has letters, digits and _. Rename it. {again}"
            )
    for key in ("val_timestamp", "test_timestamp"):
        if wrong := _no_time(content[key]):
            raise DatasetError(f"{path}: {key} {wrong}. Write it as 2024-06-30. {again}")


def read_task_form(path: Path, name: str) -> None:
    """Check `manifest.yaml` of a task.

    Raises:
        TaskError: It is not what RelBench takes it for.
    """
    content: Mapping[str, Any] = read_yaml(path, f"task {name}: {path}", TaskError, _Task)
    for key in ("val_timestamp", "test_timestamp", "train_from"):
        if content.get(key) is not None and (wrong := _no_time(content[key])):
            raise TaskError(f"task {name}: the manifest is wrong: its {key} {wrong}")
    for key in ("timedelta", "horizon"):
        if content.get(key) is not None and (wrong := _no_span(content[key])):
            raise TaskError(f"task {name}: the manifest is wrong: its {key} {wrong}")


def _no_time(value: object) -> str:
    """Why a value is not a time in UTC; empty if it is."""
    try:
        time = pd.Timestamp(value)
    except (ValueError, TypeError, OverflowError):
        return f"{value!r} is not a time"
    if time is pd.NaT:
        return f"{value!r} is not a time"
    return f"{value} has a time zone" if time.tzinfo is not None else ""


def _no_span(value: str) -> str:
    """Why a value is not a time span; empty if it is."""
    try:
        span = pd.Timedelta(value)
    except (ValueError, TypeError, OverflowError):
        return f"{value!r} is not a time span. Write it as 30 days."
    if span is pd.NaT or span <= pd.Timedelta(0):
        return f"{value!r} must be longer than nothing"
    return ""
