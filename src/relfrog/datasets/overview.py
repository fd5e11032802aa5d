"""Describe a dataset: tables, keys, times, routes and tasks, as plain data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from relfrog.datasets.dataset import TableFile, open_dataset, read_tables
from relfrog.datasets.files import database_in_files
from relfrog.datasets.kept_labels import is_stored, kept_labels
from relfrog.datasets.key_views import find_source_keys
from relfrog.datasets.known_from import KnownFrom, read_known_from, recorded_keys
from relfrog.datasets.labels import SPLITS, label_stats
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.tasks import labels_of, read_task_manifest, task_from, task_names
from relfrog.errors import DatasetError, SchemaError, TaskError
from relfrog.graph.relational import foreign_keys
from relfrog.graph.routes import find_routes
from relfrog.store.parts import open_store
from relfrog.support.duckdb import path_literal, quoted, silence
from relfrog.support.lists import read_frame
from relfrog.support.relbench import Database

__all__ = ["inspect"]


def inspect(dataset: str | Path, *, labels: bool = True) -> dict[str, Any]:
    """Describe a dataset, as plain values.

    Args:
        dataset: A dataset folder or the name of a dataset that RelBench hosts.
        labels: Whether to count the tasks' labels, which may run their SQL.

    Returns:
        ``tables`` (list), ``foreign_keys`` (list), ``routes`` (``co_occurrence`` and
        ``completion``), ``keys_in_sql``, ``tasks`` (list), and the dataset's name and split times.

    Raises:
        DatasetError: A file is damaged.
    """
    opened = open_dataset(dataset)
    tables = read_tables(opened)
    recorded = recorded_keys(opened.dataset_dir)
    added = KnownFrom() if recorded is not None else _known_from(dataset, tables)
    heirs = added.keys if recorded is None else recorded
    connection = duckdb.connect()
    silence(connection)
    try:
        described = [_table(connection, t, heirs.get(t.name, []), added) for t in tables]
        keys = [key for table in tables for key in _foreign_keys(connection, table)]
    except duckdb.Error as error:
        raise DatasetError(
            f"{dataset}: its tables cannot be read ({str(error).splitlines()[0]}). See all "
            f"findings: relfrog check {dataset}"
        ) from None
    finally:
        connection.close()
    return {
        "name": opened.manifest.name,
        "description": opened.manifest.description,
        "val_timestamp": str(opened.val_timestamp),
        "test_timestamp": str(opened.test_timestamp),
        "tables": described,
        "foreign_keys": keys,
        "routes": _routes(tables),
        "keys_in_sql": _keys_in_sql(opened),
        "tasks": _tasks(opened, labels),
    }


def _known_from(dataset: str | Path, tables: list[TableFile]) -> KnownFrom:
    try:
        return read_known_from(tables)
    except (OSError, ValueError, LookupError, TypeError, SchemaError) as error:  # includes Arrow's
        raise DatasetError(
            f"{dataset}: its tables cannot be read ({str(error).splitlines()[0]}). See all "
            f"findings: relfrog check {dataset}"
        ) from None


def _routes(tables: list[TableFile]) -> dict[str, int]:
    """Count the routes of each paradigm."""
    found = find_routes(foreign_keys({t.name: t.fkeys for t in tables}))
    counts = Counter(route.paradigm.name.replace("-", "_") for route in found)
    return {name: counts[name] for name in ("co_occurrence", "completion")}


def _table(
    connection: Any, table: TableFile, inherited: list[str], added: KnownFrom
) -> dict[str, Any]:
    """Describe a table.

    Args:
        connection: DuckDB.
        table: The table.
        inherited: The foreign keys along which it inherits times.
        added: Time columns that are not in the files.
    """
    features = {
        name: kind
        for name, kind in table.columns.items()
        if name not in (table.pkey, table.time_col) and name not in table.fkeys
    }
    first = last = None
    missing = 0
    if table.time_col in table.columns:
        time = quoted(str(table.time_col))
        first, last, missing = connection.execute(
            f"SELECT CAST(min({time}) AS VARCHAR), CAST(max({time}) AS VARCHAR), "
            f"count(*) FILTER (WHERE {time} IS NULL) FROM read_parquet({path_literal(table.path)})"
        ).fetchone()
    columns, time_column = dict(table.columns), table.time_col
    if table.name in added.columns:
        time_column, times = added.columns[table.name], added.times[table.name]
        columns[time_column] = "time"
        first, last = (str(pd.Timestamp(t)) for t in (times.min(), times.max()))
        missing = 0
    return {
        "name": table.name,
        "rows": table.rows,
        "primary_key": table.pkey,
        "time_column": time_column,
        "time_inherited_from": [
            {"column": column, "parent": table.fkeys[column]}
            for column in inherited
            if column in table.fkeys
        ],
        "first_time": first,
        "last_time": last,
        "rows_without_time": missing,
        "columns": columns,
        "features": dict(Counter(features.values())),
    }


def _foreign_keys(connection: Any, table: TableFile) -> list[dict[str, Any]]:
    present = [c for c in table.fkeys if c in table.columns]
    if not present:
        return []
    counts = connection.execute(
        "SELECT "
        + ", ".join(f"count(*) FILTER (WHERE {quoted(c)} IS NULL)" for c in present)
        + f" FROM read_parquet({path_literal(table.path)})"
    ).fetchone()
    return [
        {
            "table": table.name,
            "column": column,
            "parent": table.fkeys[column],
            "nulls": nulls,
            "null_share": nulls / table.rows if table.rows else 0.0,
        }
        for column, nulls in zip(present, counts, strict=True)
    ]


def _keys_in_sql(opened: Dataset) -> dict[str, Any]:
    """What keys label SQL has: the source's, with one of each table, or row numbers."""
    keys = find_source_keys(opened)
    if keys is None:
        return {"values": "rows"}
    found = {name: keys.example(name) for name in opened.manifest.tables}
    shown = {t: {c: _plain(v) for c, v in key.items()} for t, key in found.items() if key}
    return {"values": "source", "examples": shown}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool) else str(value)


def _tasks(opened: Dataset, labels: bool) -> list[dict[str, Any]]:
    found = []
    full = None
    for name in task_names(opened):
        entry: dict[str, Any] = {"name": name}
        found.append(entry)
        try:
            manifest, folder = read_task_manifest(opened, name)
            for key in ("task_type", "kind", "description", "timedelta", "num_eval_timestamps"):
                entry[key] = getattr(manifest, key)
            for key in ("entity_table", "target_col", "src_entity_table", "dst_entity_table"):
                if getattr(manifest, key) is not None:
                    entry[key] = getattr(manifest, key)
            for key in ("val_timestamp", "test_timestamp", "train_from"):
                if getattr(manifest, key) is not None:
                    entry[key] = getattr(manifest, key)
            entry["keys"] = manifest.keys or "rows"
            if manifest.eval_k is not None:
                entry["eval_k"] = manifest.eval_k
            if not labels:
                continue
            task = task_from(opened, manifest, folder)
            stored = all((folder / f"{split}.parquet").exists() for split in SPLITS)
            if full is None and not stored:
                full = database_in_files(opened)
            entry["splits"] = {
                split: dataclasses.asdict(label_stats(task, _labels(opened, task, split, full)))
                for split in SPLITS
            }
        except (TaskError, RuntimeError) as error:
            entry["error"] = str(error)
    return found


def _labels(opened: Dataset, task: Task, split: str, full: Database | None) -> pd.DataFrame:
    """The labels of a split, which a training finds in the store afterwards."""
    if full is None or not is_stored(full):
        return labels_of(task, split, full)
    about = f"{opened.manifest.name} {getattr(task, 'name', '')}".strip()
    made: list[pd.DataFrame] = []

    def make() -> pd.DataFrame:
        made.append(labels_of(task, split, full))
        return made[0]

    def load(path: Path) -> pd.DataFrame:
        return made[0] if made else read_frame(path)  # what was just written is at hand

    return kept_labels(open_store(), task, full, [split], make, about, load)
