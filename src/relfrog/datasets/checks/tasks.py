"""Check tasks: the SQL runs, and its labels come from their window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from relfrog.datasets.checks.findings import CheckReport
from relfrog.datasets.checks.leaks import check_late_columns, check_leaks
from relfrog.datasets.label_checks import NoLabels
from relfrog.datasets.label_digests import digests
from relfrog.datasets.label_events import label_events
from relfrog.datasets.labels import SPLITS, fitting_times, label_stats, window_problems
from relfrog.datasets.late_columns import LateColumn
from relfrog.datasets.no_labels import why_no_labels
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.split_check import split_problems
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.tasks import read_task_manifest, task_from
from relfrog.errors import TaskError, unknown
from relfrog.store.file_table import column_names
from relfrog.support.relbench import Database

__all__ = ["MakeFrame", "check_task"]


#: Gives the labels of a split.
MakeFrame: TypeAlias = Callable[[str], pd.DataFrame]


def check_task(
    opened: Dataset,
    name: str,
    full: Database,
    report: CheckReport,
    errors_only: bool = False,
    late: Sequence[LateColumn] = (),
    labels: MakeFrame | None = None,
) -> None:
    """Check one task: its manifest, its SQL, its labels and their window.

    Args:
        opened: The dataset.
        name: The task.
        full: The dataset's whole database.
        report: Receives the findings.
        errors_only: Whether to leave out what costs time and can only warn.
        late: Columns of times later than their rows.
        labels: Gives the labels of a split, if somebody has them.
    """
    try:
        _check_task(opened, name, full, report, errors_only, late, labels)
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        text = f"cannot be checked: {type(error).__name__}: {line}"
        report.error(f"task {name}", text, "Fix the task's manifest, SQL or label files.")


def _check_task(
    opened: Dataset,
    name: str,
    full: Database,
    report: CheckReport,
    errors_only: bool,
    late: Sequence[LateColumn],
    labels: MakeFrame | None,
) -> None:
    place = f"task {name}"
    try:
        manifest, folder = read_task_manifest(opened, name)
    except TaskError as error:
        report.error(place, str(error), "Fix the task's manifest.yaml.")
        return
    ends = [("entity_table", "entity_col"), ("src_entity_table", "src_entity_col")]
    ends += [("dst_entity_table", "dst_entity_col")]
    for key, _ in ends:
        table = getattr(manifest, key)
        if table is not None and table not in full.table_dict:
            report.error(
                place, str(unknown(f"table (its {key})", table, full.table_dict)), "Fix it."
            )
            return
        if table is not None and full.table_dict[table].pkey_col is None:
            if manifest.kind == "forecast":
                report.error(place, f"{table} has no primary key", "Give it one.")
                return
    for table, column in (tuple(pair) for pair in manifest.remove_columns):
        if table not in full.table_dict or column not in column_names(full.table_dict[table]):
            text = f"remove_columns names {table}.{column}, which does not exist"
            report.warning(place, text, "Fix the task's manifest.yaml.")
    before = len(report.findings)
    try:
        task = task_from(opened, manifest, folder)
        make = labels or (lambda split: task.get_table(split, mask_input_cols=False, db=full).df)
        frames = dict(_label_frames(opened, task, manifest, folder, full, report, place, make))
        if manifest.kind == "forecast" and len(frames) == len(SPLITS):
            for is_error, text, remedy in window_problems(task.dataset, task, full, errors_only):
                (report.error if is_error else report.warning)(place, text, remedy)
        if errors_only:
            return
        if manifest.kind == "forecast" and len(frames) == len(SPLITS):
            for problem in split_problems(
                task, frames, label_events(task, full), fitting_times(task.dataset, task, full)
            ):
                report.warning(place, problem.text, problem.remedy)
        check_leaks(task, frames, full, report, place)
        check_late_columns(task, late, report, place)
    except TaskError as error:
        report.error(place, str(error), "Fix the label SQL or the horizon.")
        return
    if not any(f.level == "error" for f in report.findings[before:]):
        sizes = ", ".join(f"{split} {len(frames[split]):,}" for split in SPLITS if split in frames)
        report.passed.append(f"{place}: {sizes} labels")


def _label_frames(
    opened: Dataset,
    task: Task,
    manifest: TaskFile,
    folder: Path,
    full: Database,
    report: CheckReport,
    place: str,
    labels: MakeFrame,
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Check the labels of each split, and yield them."""
    fix = "Fix the label SQL."
    for split in SPLITS:
        stored = (folder / f"{split}.parquet").is_file()
        if not stored and manifest.kind == "external" and manifest.labels != "file":
            report.error(place, f"{split}.parquet is missing", "Restore the file.")
            continue
        try:
            frame = labels(split)
        except NoLabels:
            report.error(place, _why(task, split, full), "Widen the SQL, or move the splits.")
            continue
        except (RuntimeError, KeyError, OSError, pa.ArrowException, ValueError) as error:
            report.error(
                place, f"{split} split: {error}", "Choose other splits or a shorter horizon."
            )
            continue
        label = task.target_col
        missing = [c for c in (task.time_col, task.entity_col, label) if c not in frame.columns]
        if missing:
            report.error(place, f"{split} split: no column {', '.join(map(repr, missing))}", fix)
            continue
        if not len(frame):
            report.error(place, _why(task, split, full), "Widen the SQL, or move the splits.")
            continue
        yield split, frame
        stats = label_stats(task, frame)
        if stats.missing:
            report.error(place, f"{split} split: {stats.missing:,} labels are NULL", fix)
        if stats.constant:
            text = f"{split} split: all {stats.rows:,} labels are equal"
            (report.error if split == "train" else report.warning)(place, text, fix)
        if manifest.task_type == "binary_classification":
            odd = set(frame[label].dropna().unique()) - {0, 1}
            if odd:
                text = f"{split} split: binary labels must be 0 and 1 (got {sorted(odd)[:3]})"
                report.error(place, text, fix)
        _check_entities(frame, (task.entity_col, task.entity_table), full, split, report, place)
        if stored and manifest.kind == "forecast":
            _check_stored(opened, manifest, split, frame, full, report, place)


def _why(task: Task, split: str, full: Database) -> str:
    """Why a split has no label."""
    if task.sql is None:
        return f"{split} split: no label"
    return why_no_labels(task, split, full, label_events(task, full))


def _check_entities(
    frame: pd.DataFrame,
    end: tuple[str, str],
    full: Database,
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
            f"{split} split: {len(wrong):,} values of {column} are not rows of {table}, "
            f"such as {wrong.iloc[0]}"
        )
        report.error(place, text, "Use the dataset's keys (row numbers) and filter NULLs.")


def _check_stored(
    opened: Dataset,
    manifest: TaskFile,
    split: str,
    frame: pd.DataFrame,
    full: Database,
    report: CheckReport,
    place: str,
) -> None:
    """Check that stored labels equal those of the SQL."""
    fresh = task_from(opened, manifest, None, regenerate=True)
    made = fresh.get_table(split, mask_input_cols=False, db=full).df
    text = None
    if len(made) != len(frame):
        text = f"{len(frame):,} labels are stored, but the SQL gives {len(made):,}"
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
    kinds = {getattr(column.dtype, "kind", "O") for column in (stored, made)}
    if kinds <= {"i", "u", "b"} or kinds == {"M"}:
        return int((stored.to_numpy() != made.to_numpy()).sum())
    if kinds <= {"i", "u", "b", "f"}:
        sides = (stored.to_numpy(float), made.to_numpy(float))
        same = np.isclose(*sides, rtol=1e-9, equal_nan=True)
        return int((~same).sum())
    if kinds == {"O"} and _is_tuple(made):  # of a multilabel task
        return int((digests(stored, ordered=True) != digests(made, ordered=True)).sum())
    return int((digests(stored) != digests(made)).sum())


def _is_tuple(values: pd.Series) -> bool:
    return bool(len(values)) and isinstance(values.iloc[0], tuple)
