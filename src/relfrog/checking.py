"""Validating a dataset folder made by anyone: all findings in one go, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from relfrog.dataset import TableFile, arrow_kind, open_dataset, read_tables
from relfrog.errors import TaskError
from relfrog.mapping import unknown
from relfrog.names import folder_names, is_plain
from relfrog.sources.duck import literal, quoted
from relfrog.tasks import (
    SPLITS,
    label_stats,
    read_task_manifest,
    run_sql,
    seed_times,
    task_from,
    task_names,
)

__all__ = ["CheckReport", "Finding", "check"]


@dataclass(frozen=True)
class Finding:
    """Something wrong, or worth knowing.

    Attributes:
        level: ``error`` or ``warning``.
        place: ``table.column``, ``task NAME`` or a file.
        text: What is wrong, how often, with an example.
        remedy: What to do.
    """

    level: Literal["error", "warning"]
    place: str
    text: str
    remedy: str


@dataclass
class CheckReport:
    """All findings, and what was looked at.

    Attributes:
        findings: In the order of the tables and tasks.
        passed: One sentence for each thing that holds.
    """

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(f.level == "error" for f in self.findings)

    def error(self, place: str, text: str, remedy: str) -> None:
        """Add an error."""
        self.findings.append(Finding("error", place, text, remedy))

    def warning(self, place: str, text: str, remedy: str) -> None:
        """Add a warning."""
        self.findings.append(Finding("warning", place, text, remedy))


def check(dataset: str | Path, task: str | None = None) -> CheckReport:
    """Validate a dataset folder and its tasks.

    Args:
        dataset: A dataset folder or the name of a dataset that RelBench hosts.
        task: Look at this task only; all if None.

    Raises:
        DatasetError: There is nothing that could be checked.
        TaskError: There is no such task.
    """
    report = CheckReport()
    path = Path(dataset).expanduser()
    if path.is_dir() and (path / "manifest.yaml").is_file():
        if not _check_manifest(path / "manifest.yaml", report):
            return report
    opened = open_dataset(dataset)
    if task is not None and task not in task_names(opened):
        raise TaskError(str(unknown("task", task, task_names(opened))))
    whole = _check_files(opened, report)
    if whole:
        tables = read_tables(opened)
        _check_tables(opened, tables, report)
        _check_splits(opened, tables, report)
    names = [task] if task is not None else task_names(opened)
    if report.ok:
        total = sum(t.rows for t in read_tables(opened))
        report.passed.append(
            f"keys, foreign keys and times of {len(opened.manifest.tables)} tables, {total:,} rows"
        )
        full = opened.get_db(upto_test_timestamp=False)
        for name in names:
            _check_task(opened, name, full, report)
    elif names:
        report.warning("tasks", "not checked: the tables come first", "Mend the errors above.")
    return report


def _check_manifest(path: Path, report: CheckReport) -> bool:
    """Whether the manifest is one at all; RelBench itself would end in a traceback."""
    remedy = "See RelBench's manifest format, or import the database again."
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        report.error(path.name, f"is no YAML: {' '.join(str(error).split())}", remedy)
        return False
    if not isinstance(content, dict):
        report.error(path.name, f"holds {type(content).__name__}, not names with values", remedy)
        return False
    for key in ("name", "val_timestamp", "test_timestamp", "tables"):
        if content.get(key) is None:
            report.error(path.name, f"{key} is missing", remedy)
    for key in ("val_timestamp", "test_timestamp"):
        if content.get(key) is not None:
            try:
                stamp = pd.Timestamp(content[key])
                if stamp.tzinfo is not None:
                    report.error(path.name, f"{key} {content[key]} has a zone", "Write it in UTC.")
            except (ValueError, TypeError):
                report.error(path.name, f"{key} {content[key]!r} is no time", "Write 2024-06-30.")
    tables = content.get("tables")
    if not isinstance(tables, dict):
        if tables is not None:
            report.error(path.name, "tables must be names with values", remedy)
        return False
    for name, spec in tables.items():
        if not isinstance(spec, dict):
            report.error(
                f"{path.name}: {name}", f"must be names with values (got {spec!r})", remedy
            )
            continue
        for key in ("pkey", "time_col"):
            if spec.get(key) is not None and not isinstance(spec[key], str):
                report.error(f"{path.name}: {name}", f"{key} must be a column's name", remedy)
        if not isinstance(spec.get("fkeys", {}), dict):
            report.error(f"{path.name}: {name}", "fkeys must be columns with tables", remedy)
        if not isinstance(name, str) or folder_names([name])[name] != name:
            report.error(
                f"{path.name}: {name}",
                "cannot be a table's name: not a file name everywhere, or 'timestamps'",
                "Rename the table and its file.",
            )
    return report.ok


def _check_files(opened: Any, report: CheckReport) -> bool:
    """Whether all files are there and have the columns that the manifest names."""
    tables = opened.manifest.tables
    folder = Path(opened.db_dir)
    lower: dict[str, str] = {}
    for name, spec in tables.items():
        if name.lower() in lower:
            report.error(
                name, f"differs from {lower[name.lower()]} in case alone", "Rename one of them."
            )
        lower[name.lower()] = name
        path = folder / f"{name}.parquet"
        if not path.is_file():
            report.error(name, f"db/{path.name} is missing", "Restore the file, or drop the table.")
            continue
        try:
            schema = pq.read_schema(path)
            pq.ParquetFile(path).close()
        except (OSError, pa.ArrowException) as error:
            text = f"db/{path.name} is no Parquet file: {str(error).splitlines()[0]}"
            report.error(name, text, "Restore the file.")
            continue
        for column in filter(None, [spec.pkey, spec.time_col, *spec.fkeys]):
            if column not in schema.names:
                near = str(unknown("column", column, schema.names))
                report.error(name, near, "Mend the manifest or the file.")
        seen = {}
        for column in schema.names:
            if column.lower() in seen:
                report.error(
                    f"{name}.{column}",
                    f"differs from {seen[column.lower()]} in case alone, which SQL cannot tell apart",
                    "Rename one of them.",
                )
            seen[column.lower()] = column
        for column, parent in spec.fkeys.items():
            if parent not in tables:
                report.error(
                    f"{name}.{column}",
                    f"points into {parent}, which does not exist",
                    "Drop the key.",
                )
            elif tables[parent].pkey is None:
                report.error(
                    f"{name}.{column}",
                    f"points into {parent}, which has no primary key",
                    f"Give {parent} a pkey column 0..n-1.",
                )
    for path in sorted(folder.glob("*.parquet")) if folder.is_dir() else []:
        if path.stem not in tables:
            text = "is not in the manifest and is not used"
            report.warning(f"db/{path.name}", text, "Add the table to the manifest, or remove it.")
    return report.ok


def _check_tables(opened: Any, tables: list[TableFile], report: CheckReport) -> None:
    sizes = {t.name: t.rows for t in tables}
    timed = {t.name for t in tables if t.time_col is not None}
    for table in tables:
        if table.pkey is not None:
            _check_pkey(table, report)
        for column, parent in table.fkeys.items():
            _check_fkey(table, column, parent, sizes[parent], report)
        if table.time_col is not None:
            _check_time(table, report)
        else:
            later = sorted({p for p in table.fkeys.values() if p in timed})
            if later and table.rows:
                report.warning(
                    table.name,
                    f"has no time column but refers to {', '.join(later)}, which has: its "
                    f"{table.rows:,} rows are visible from the beginning, which may leak",
                    "Give it a time column, or make sure that its rows never change.",
                )
    if report.ok:
        _check_order_of_times(tables, report)


def _column(table: TableFile, column: str) -> Any:
    return pq.read_table(table.path, columns=[column]).column(0).combine_chunks()


_REIMPORT = "Import the database again, or number the rows anew."


def _check_pkey(table: TableFile, report: CheckReport) -> None:
    place = f"{table.name}.{table.pkey}"
    values = _column(table, str(table.pkey))
    if arrow_kind(values.type) != "integer":
        report.error(place, f"a primary key must be integer (got {values.type})", _REIMPORT)
        return
    if values.null_count:
        report.error(place, f"{values.null_count:,} keys are NULL", _REIMPORT)
        return
    numbers = np.asarray(values)
    wrong = np.flatnonzero(numbers != np.arange(len(numbers)))
    if len(wrong):
        row = int(wrong[0])
        text = (
            f"keys must be 0..n-1 in the order of rows: {len(wrong):,} are not, "
            f"such as {numbers[row]} in row {row:,}"
        )
        report.error(place, text, _REIMPORT)


def _check_fkey(table: TableFile, column: str, parent: str, size: int, report: CheckReport) -> None:
    place = f"{table.name}.{column}"
    values = _column(table, column)
    if arrow_kind(values.type) not in ("integer", "number") and values.null_count < len(values):
        report.error(place, f"a foreign key must be integer (got {values.type})", _REIMPORT)
        return
    numbers = np.asarray(values.drop_null(), dtype=np.float64)
    wrong = numbers[(numbers < 0) | (numbers >= size) | (numbers != np.floor(numbers))]
    if len(wrong):
        text = (
            f"{len(wrong):,} of {len(numbers):,} values are no row of {parent} (0 to {size - 1:,}), "
            f"such as {wrong[0]:g}"
        )
        report.error(place, text, "Make dangling keys NULL.")
    elif len(values) and values.null_count == len(values):
        report.warning(place, f"all {len(values):,} values are NULL", "Drop the key.")


def _check_time(table: TableFile, report: CheckReport) -> None:
    column = str(table.time_col)
    place = f"{table.name}.{column}"
    values = _column(table, column)
    if not is_plain(column):
        report.error(place, "RelBench cannot filter by a time column of this name", "Rename it.")
    if not pa.types.is_timestamp(values.type):
        report.error(place, f"a time must be a timestamp (got {values.type})", "Convert it.")
        return
    if values.type.tz is not None:
        report.error(
            place, f"times must be in UTC without a zone (got {values.type})", "Convert it."
        )
        return
    if values.null_count:
        text = f"{values.null_count:,} of {len(values):,} rows have no time; RelBench drops them"
        report.warning(place, text, "Give them a time, such as the first of all.")
    if not len(values):
        text = "an empty table with a time column breaks RelBench's splits"
        report.error(place, text, "Set its time_col to null.")
        return
    missing = np.asarray(values.is_null())
    numbers = np.asarray(values.cast(pa.int64()).fill_null(np.iinfo(np.int64).max))
    back = np.flatnonzero(numbers[1:] < numbers[:-1])
    if len(back):
        row = int(back[0]) + 1
        where = "a row without a time comes first" if missing[row - 1] else f"row {row:,}"
        text = f"rows are not in order of time: {len(back):,} steps back, first at {where}"
        if table.pkey is not None:
            report.error(place, text + ", so keys do not survive a cut in time", _REIMPORT)
        else:
            report.warning(place, text, "Sort the table by time.")


def _check_order_of_times(tables: list[TableFile], report: CheckReport) -> None:
    """Rows that refer to a parent which did not exist yet."""
    by_name = {t.name: t for t in tables}
    connection = duckdb.connect()
    try:
        for table in tables:
            for column, parent_name in table.fkeys.items():
                parent = by_name[parent_name]
                if table.time_col is None or parent.time_col is None:
                    continue
                child_time, parent_time = quoted(table.time_col), quoted(parent.time_col)
                key, pkey = quoted(column), quoted(str(parent.pkey))
                row = connection.execute(
                    f"SELECT count(*), any_value(c.{key}) FROM read_parquet("
                    f"{literal(str(table.path))}) c JOIN read_parquet({literal(str(parent.path))}) p "
                    f"ON c.{key} = p.{pkey} WHERE c.{child_time} < p.{parent_time}"
                ).fetchone()
                early, example = row or (0, None)
                if early:
                    report.warning(
                        f"{table.name}.{column}",
                        f"{early:,} of {table.rows:,} rows are older than their {parent_name} row, "
                        f"such as those of {example}; between the two times they stand alone",
                        "Check which time column says when the row came to be.",
                    )
    finally:
        connection.close()


def _check_splits(opened: Any, tables: list[TableFile], report: CheckReport) -> None:
    val, test = opened.val_timestamp, opened.test_timestamp
    if not val < test:
        text = f"the validation time {val} must lie before the test time {test}"
        report.error("manifest.yaml", text, "Choose other split times.")
    low, high = None, None
    for table in tables:
        if table.time_col is None or not table.rows:
            continue
        values = _column(table, table.time_col).drop_null()
        if pa.types.is_timestamp(values.type) and len(values):
            numbers = np.asarray(values.cast(pa.timestamp("us"), safe=False).cast(pa.int64()))
            low = numbers.min() if low is None else min(low, numbers.min())
            high = numbers.max() if high is None else max(high, numbers.max())
    if low is None or high is None:
        text = "no table has a time column: nothing can be predicted ahead of time"
        report.warning("manifest.yaml", text, "Import again with --time TABLE.COLUMN.")
        return
    first, last = pd.Timestamp(low, unit="us"), pd.Timestamp(high, unit="us")
    for name, time in (("val_timestamp", val), ("test_timestamp", test)):
        if not first < time < last:
            text = f"{name} {time} lies outside the data, which run from {first} to {last}"
            report.error("manifest.yaml", text, "Choose a time in between.")


def _check_task(opened: Any, name: str, full: Any, report: CheckReport) -> None:
    place = f"task {name}"
    try:
        manifest, folder = read_task_manifest(opened, name)
    except TaskError as error:
        report.error(place, str(error), "Mend the task's manifest.yaml.")
        return
    ends = [("entity_table", "entity_col"), ("src_entity_table", "src_entity_col")]
    ends += [("dst_entity_table", "dst_entity_col")]
    for key, _ in ends:
        table = getattr(manifest, key)
        if table is not None and table not in full.table_dict:
            report.error(
                place, str(unknown(f"table (its {key})", table, full.table_dict)), "Mend it."
            )
            return
        if table is not None and full.table_dict[table].pkey_col is None:
            if manifest.kind == "forecast":
                report.error(place, f"{table} has no primary key", "Give it one.")
                return
    for table, column in (tuple(pair) for pair in manifest.remove_columns):
        if table not in full.table_dict or column not in full.table_dict[table].df.columns:
            text = f"remove_columns names {table}.{column}, which does not exist"
            report.warning(place, text, "Mend the task's manifest.yaml.")
    before = len(report.findings)
    try:
        task = task_from(opened, manifest, folder)
        frames = dict(_label_frames(opened, task, manifest, folder, full, report, place))
        if manifest.kind == "forecast" and len(frames) == len(SPLITS):
            _check_windows(opened, task, manifest, full, report, place)
    except TaskError as error:
        report.error(place, str(error), "Mend the label SQL or the horizon.")
        return
    if not any(f.level == "error" for f in report.findings[before:]):
        sizes = ", ".join(f"{split} {len(frames[split]):,}" for split in SPLITS if split in frames)
        report.passed.append(f"{place}: {sizes} labels")


def _label_frames(
    opened: Any,
    task: Any,
    manifest: Any,
    folder: Path,
    full: Any,
    report: CheckReport,
    place: str,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The labels of each split, looked at one by one."""
    mend = "Mend the label SQL."
    is_list = manifest.task_type == "recommendation"
    for split in SPLITS:
        stored = (folder / f"{split}.parquet").is_file()
        if not stored and manifest.kind == "external":
            report.error(place, f"{split}.parquet is missing", "Restore the file.")
            continue
        try:
            frame = task.get_table(split, mask_input_cols=False, db=full).df
        except (RuntimeError, KeyError, OSError, pa.ArrowException, ValueError) as error:
            report.error(
                place, f"{split} split: {error}", "Choose other splits or a shorter horizon."
            )
            continue
        ends = (
            [(task.src_entity_col, task.src_entity_table)]
            if is_list
            else [(task.entity_col, task.entity_table)]
        )
        label = task.dst_entity_col if is_list else task.target_col
        missing = [c for c in (task.time_col, ends[0][0], label) if c not in frame.columns]
        if missing:
            report.error(place, f"{split} split: no column {', '.join(map(repr, missing))}", mend)
            continue
        if not len(frame):
            report.error(place, f"{split} split: no label", "Widen the SQL, or move the splits.")
            continue
        yield split, frame
        stats = label_stats(task, frame)
        if stats.missing:
            report.error(place, f"{split} split: {stats.missing:,} labels are NULL", mend)
        if stats.constant:
            text = f"{split} split: all {stats.rows:,} labels are equal"
            (report.error if split == "train" else report.warning)(place, text, mend)
        if manifest.task_type == "binary_classification":
            odd = set(frame[label].dropna().unique()) - {0, 1}
            if odd:
                text = f"{split} split: binary labels must be 0 and 1 (got {sorted(odd)[:3]})"
                report.error(place, text, mend)
        _check_entities(frame, ends[0], full, split, report, place)
        if stored and manifest.kind == "forecast":
            _check_stored(opened, manifest, split, frame, full, report, place)


def _check_entities(
    frame: pd.DataFrame,
    end: tuple[str, str],
    full: Any,
    split: str,
    report: CheckReport,
    place: str,
) -> None:
    column, table = end
    size = len(full.table_dict[table])
    values = frame[column]
    wrong = values[values.isna() | (values < 0) | (values >= size)]
    if len(wrong):
        text = (
            f"{split} split: {len(wrong):,} values of {column} are no row of {table}, "
            f"such as {wrong.iloc[0]}"
        )
        report.error(place, text, "Use the dataset's keys (row numbers) and filter NULLs.")


def _check_stored(
    opened: Any,
    manifest: Any,
    split: str,
    frame: pd.DataFrame,
    full: Any,
    report: CheckReport,
    place: str,
) -> None:
    """Stored labels must be what the SQL gives."""
    fresh = task_from(opened, manifest, None, regenerate=True)
    made = fresh.get_table(split, mask_input_cols=False, db=full).df
    text = None
    if len(made) != len(frame):
        text = f"{len(frame):,} labels are stored, the SQL gives {len(made):,}"
    else:
        differ = 0
        for column in made.columns:
            if column in frame.columns:
                differ = max(differ, _differences(frame[column], made[column]))
        if differ:
            text = f"{differ:,} of {len(frame):,} stored labels differ from what the SQL gives"
    if text is not None:
        report.error(
            place, f"{split} split: {text}", f"Remove {split}.parquet from the task's folder."
        )


def _differences(stored: pd.Series, made: pd.Series) -> int:
    count = 0
    for a, b in zip(stored.tolist(), made.tolist(), strict=True):
        if isinstance(a, list | np.ndarray):
            count += sorted(a) != sorted(b)
        elif isinstance(a, float) and isinstance(b, float):
            count += not (np.isclose(a, b, rtol=1e-9) or (np.isnan(a) and np.isnan(b)))
        else:
            count += a != b
    return count


def _check_windows(
    opened: Any, task: Any, manifest: Any, full: Any, report: CheckReport, place: str
) -> None:
    """Labels must come from their window: after the seed time, and not after its end."""
    start = seed_times(opened, task, "val", full.upto(opened.test_timestamp))[0]
    entity = task.src_entity_col if manifest.task_type == "recommendation" else task.entity_col
    label = task.dst_entity_col if manifest.task_type == "recommendation" else task.target_col

    def answers(until: pd.Timestamp | None) -> dict[Any, str]:
        db = full if until is None else full.upto(until)
        frame = run_sql(task._sql, db, [start], task.timedelta)
        odd = frame[frame[task.time_col] != start]
        if len(odd):
            raise TaskError(
                f"{len(odd):,} labels carry a time that is no seed time, such as "
                f"{odd[task.time_col].iloc[0]} for the seed {start}"
            )
        lists = frame[label].map(lambda v: sorted(v) if isinstance(v, list | np.ndarray) else v)
        return dict(zip(frame[entity].tolist(), lists.map(str).tolist(), strict=True))

    everything = answers(None)
    if not everything:
        return
    if answers(start) == everything:
        text = f"the labels of seed {start:%Y-%m-%d} are the same without anything after that time"
        report.error(place, text, "Labels must look ahead: rows with time > t.timestamp.")
    window = answers(start + task.timedelta)
    changed = [k for k, v in everything.items() if window.get(k) != v]
    if changed:
        text = (
            f"{len(changed):,} labels of seed {start:%Y-%m-%d} depend on rows after their window of "
            f"{task.timedelta}, such as that of {changed[0]}"
        )
        remedy = "End the window in the SQL: time <= t.timestamp + INTERVAL '{timedelta}'."
        report.error(place, text, remedy)
