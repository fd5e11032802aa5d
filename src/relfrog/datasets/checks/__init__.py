"""Validate a dataset folder: all findings at once, each with its remedy."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.datasets.checks.findings import CheckReport, Finding
from relfrog.datasets.checks.leaks import check_update_times
from relfrog.datasets.checks.records import check_records
from relfrog.datasets.checks.refusal import remember_sound
from relfrog.datasets.checks.tables import check_splits, check_tables
from relfrog.datasets.checks.tasks import check_task
from relfrog.datasets.dataset import open_dataset, read_tables
from relfrog.datasets.files import database_in_files
from relfrog.datasets.late_columns import LateColumn, find_late_columns
from relfrog.datasets.memory_check import check_room
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.tasks import task_names
from relfrog.errors import DatasetError, TaskError, unknown
from relfrog.graph.resolution import prove_full_resolution
from relfrog.store.file_table import column_names, without_columns
from relfrog.support.files import user_path
from relfrog.support.forms import read_yaml
from relfrog.support.relbench import Database
from relfrog.support.text import folder_names, is_identifier

__all__ = ["CheckReport", "Finding", "check"]


def check(dataset: str | Path, task: str | None = None) -> CheckReport:
    """Validate a dataset folder and its tasks.

    Args:
        dataset: A dataset folder or the name of a dataset that RelBench hosts.
        task: Check only this task; all if None.

    Raises:
        DatasetError: There is no dataset to check, or it needs more memory than there is.
        TaskError: There is no such task.
    """
    report = CheckReport()
    path = user_path(dataset)
    if path.is_dir() and (path / "manifest.yaml").is_file():
        if not _check_manifest(path / "manifest.yaml", report):
            return report
    opened = open_dataset(dataset)
    if task is not None and task not in task_names(opened):
        raise TaskError(str(unknown("task", task, task_names(opened))))
    if _check_files(opened, report):
        tables = read_tables(opened)
        check_tables(opened, tables, report)
        check_splits(opened, tables, report)
    names = [task] if task is not None else task_names(opened)
    if report.ok:
        tables = read_tables(opened)
        check_room(str(dataset), tables, model="mean")  # a small file can hold any number of rows
        total = sum(t.rows for t in tables)
        report.passed.append(
            f"keys, foreign keys and times of {len(opened.manifest.tables)} tables, {total:,} rows"
        )
        full = database_in_files(opened)
        _check_resolution(full, report)
        check_update_times(full, report)
        late = find_late_columns(full)
        if late and not names:
            report.passed.append(_later(late))
        for name in names:
            check_task(opened, name, full, report, late=late)
        check_records(opened, report)
        for name in names:
            others = {f"task {other}" for other in names if other != name}
            if not any(f.level == "error" and f.place not in others for f in report.findings):
                remember_sound(opened, name)
    elif names:
        report.warning("tasks", "not checked because of errors", "Fix the errors above first.")
    return report


def _later(columns: list[LateColumn]) -> str:
    """What is said of columns that no task shows."""
    shown = ", ".join(column.place for column in columns)
    return f"{shown}: later than the rows that hold them, so tasks will hide them"


def _check_resolution(full: Database, report: CheckReport) -> None:
    """Build the graph, rebuild the database from it, and compare every key.

    Other columns are part of the graph as they are: nothing of them could be lost.
    """
    apart = [
        (name, column)
        for name, table in full.table_dict.items()
        for column in column_names(table)
        if column not in (table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table)
    ]
    proof = prove_full_resolution(without_columns(full, apart))
    if proof.identical:
        report.passed.append(str(proof))
    else:
        report.error(
            "graph", str(proof), "Please report this as a bug: the graph must not lose anything."
        )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _check_manifest(path: Path, report: CheckReport) -> bool:
    """Whether the manifest is valid; RelBench itself would end in a traceback."""
    remedy = "See RelBench's manifest format, or import the database again."
    try:
        content = read_yaml(path, path.name, DatasetError)
    except DatasetError as error:
        report.error(path.name, str(error), remedy)
        return False
    if not isinstance(content, dict):
        report.error(path.name, f"holds {type(content).__name__}, not a mapping", remedy)
        return False
    for key in ("name", "val_timestamp", "test_timestamp", "tables"):
        if content.get(key) is None:
            report.error(path.name, f"{key} is missing", remedy)
    for key in ("val_timestamp", "test_timestamp"):
        if content.get(key) is not None:
            try:
                stamp = pd.Timestamp(content[key])
                if stamp is pd.NaT:
                    raise ValueError
                if stamp.tzinfo is not None:
                    report.error(
                        path.name, f"{key} {content[key]} has a time zone", "Write it in UTC."
                    )
            except (ValueError, TypeError, OverflowError):
                report.error(
                    path.name, f"{key} {content[key]!r} is not a time", "Write 2024-06-30."
                )
    tables = content.get("tables")
    if not isinstance(tables, dict):
        if tables is not None:
            report.error(path.name, "tables must be a mapping", remedy)
        return False
    for name, spec in tables.items():
        if not isinstance(spec, dict):
            report.error(f"{path.name}: {name}", f"must be a mapping (got {spec!r})", remedy)
            continue
        for key in ("pkey", "time_col"):
            if spec.get(key) is not None and not isinstance(spec[key], str):
                report.error(f"{path.name}: {name}", f"{key} must be a column's name", remedy)
        time = spec.get("time_col")
        if isinstance(time, str) and not is_identifier(time):
            text = f"RelBench cannot filter by a time column of this name: {time}"
            report.error(f"{path.name}: {name}", text, "Rename it: letters, digits and _ only.")
        if not isinstance(spec.get("fkeys", {}), dict):
            report.error(f"{path.name}: {name}", "fkeys must map columns to tables", remedy)
        if not isinstance(name, str) or folder_names([name])[name] != name:
            report.error(
                f"{path.name}: {name}",
                "cannot be a table's name: not a valid file name, or 'timestamps'",
                "Rename the table and its file.",
            )
    return report.ok


def _check_files(opened: Dataset, report: CheckReport) -> bool:
    """Whether all files exist and have the columns named in the manifest."""
    tables = opened.manifest.tables
    folder = Path(opened.db_dir)
    lower: dict[str, str] = {}
    for name, spec in tables.items():
        if name.lower() in lower:
            report.error(
                name, f"differs from {lower[name.lower()]} only in case", "Rename one of them."
            )
        lower[name.lower()] = name
        path = folder / f"{name}.parquet"
        if not path.is_file():
            report.error(name, f"db/{path.name} is missing", "Restore the file, or drop the table.")
            continue
        try:
            schema = pq.read_schema(path)
            with pq.ParquetFile(path) as file:
                for _ in file.iter_batches():  # damaged pages are only noticed on reading
                    pass
        except (OSError, pa.ArrowException, NotImplementedError) as error:
            text = f"db/{path.name} is not a Parquet file, or damaged: {str(error).splitlines()[0]}"
            report.error(name, text, "Restore the file.")
            continue
        for column in filter(None, [spec.pkey, spec.time_col, *spec.fkeys]):
            if column not in schema.names:
                near = str(unknown("column", column, schema.names))
                report.error(name, near, "Fix the manifest or the file.")
        seen: dict[str, str] = {}
        for column in schema.names:
            if column.lower() in seen:
                report.error(
                    f"{name}.{column}",
                    f"differs from {seen[column.lower()]} only in case, which SQL ignores",
                    "Rename one of them.",
                )
            seen[column.lower()] = column
        for column, parent in spec.fkeys.items():
            if parent not in tables:
                report.error(
                    f"{name}.{column}",
                    f"refers to {parent}, which does not exist",
                    "Drop the key.",
                )
            elif tables[parent].pkey is None:
                report.error(
                    f"{name}.{column}",
                    f"refers to {parent}, which has no primary key",
                    f"Give {parent} a pkey column 0..n-1.",
                )
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else []:
        if path.stem not in tables:
            text = "is not in the manifest and is not used"
            report.warning(f"db/{path.name}", text, "Add the table to the manifest, or remove it.")
    return report.ok
