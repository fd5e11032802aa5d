"""Look for common leaks of labels into features, with evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.checks.findings import CheckReport
from relfrog.datasets.labels import label_rows
from relfrog.datasets.late_columns import LateColumn, other_times
from relfrog.datasets.protocols import Task
from relfrog.store.file_table import column_names, read_column
from relfrog.support.relbench import Database

__all__ = ["check_late_columns", "check_leaks", "check_update_times"]

#: From this ROC-AUC, accuracy or correlation on, a column is nearly the label.
NEARLY = 0.98
#: The least share of seeds, or of rows, for a warning.
MANY = 0.05
#: The least number of values for a warning.
FEWEST = 30
_UPDATE = re.compile(r"updat|modif|chang|edit|refresh|sync|last_?(seen|login|active)", re.I)
_CREATE = re.compile(
    r"creat|insert|open|start|join|regist|sign|placed|order|added|born|first", re.I
)


def check_leaks(
    task: Task, frames: dict[str, pd.DataFrame], full: Database, report: CheckReport, place: str
) -> None:
    """Look for columns that give the label away, and for seeds selected by what happens later.

    Args:
        task: RelBench's task.
        frames: its labels by split.
        full: the whole database.
        report: receives the findings.
        place: the task, as named in findings.
    """
    labels = frames.get("train")
    if labels is None or not len(labels):
        return
    hidden = set(map(tuple, task.hidden_columns()))
    _check_columns(task, labels, full, hidden, report, place)
    _check_existence(task, frames, full, report, place)


# Columns that give the label away.


def _check_columns(
    task: Task,
    labels: pd.DataFrame,
    full: Database,
    hidden: set[Any],
    report: CheckReport,
    place: str,
) -> None:
    kind = task.task_type.value
    if kind not in ("binary_classification", "multiclass_classification", "regression"):
        return
    rows = labels[task.entity_col].to_numpy(np.int64)
    target = labels[task.target_col]
    times = pd.to_datetime(labels[task.time_col])
    for name, column, values in _always_visible(task, full):
        if (name, column) in hidden or len(values) <= rows.max(initial=-1):
            continue
        forms = _forms(values.iloc[rows].reset_index(drop=True), times)
        likeness = [(*_likeness(form, target, kind), words) for words, form in forms.items()]
        score, how, words = max(likeness, key=lambda found: found[0])
        if score >= NEARLY:
            report.warning(
                place,
                f"{words}{name}.{column} is nearly the label: {how} {score:.3f} over "
                f"{len(rows):,} training labels, at any time",
                f"If it is written after the fact, hide it: --hide {name}.{column}",
            )


def _always_visible(task: Task, full: Database) -> Iterator[tuple[str, str, pd.Series]]:
    """Columns that a seed sees regardless of when they were written, one value per entity."""
    entity = full.table_dict[task.entity_table]
    keys = {entity.pkey_col, entity.time_col, *entity.fkey_col_to_pkey_table}
    for column in column_names(entity):
        if column not in keys:
            yield task.entity_table, column, read_column(entity, column).reset_index(drop=True)
    for name, table in full.table_dict.items():
        if table.time_col is not None or name == task.entity_table:
            continue
        for key, parent in table.fkey_col_to_pkey_table.items():
            if parent != task.entity_table:
                continue
            own = {table.pkey_col, *table.fkey_col_to_pkey_table}
            rows = read_column(table, key)
            for column in column_names(table):
                if column in own:
                    continue
                values = read_column(table, column)
                if pd.api.types.is_numeric_dtype(values.dtype):
                    yield name, column, _means(rows, values, len(entity))


def _means(rows: pd.Series, values: pd.Series, count: int) -> pd.Series:
    """The mean of the values that belong to each row; missing where there are none."""
    known = (rows.notna() & values.notna()).to_numpy()
    at = rows[known].to_numpy(np.int64)
    numbers = values[known].to_numpy(float)
    sums, sizes = (np.bincount(at, weights, count)[:count] for weights in (numbers, None))
    with np.errstate(invalid="ignore"):
        return pd.Series(sums / sizes)


def _forms(values: pd.Series, times: pd.Series) -> dict[str, pd.Series]:
    """How a column may give the label away: by its value, by having one, or by the time until it.

    The time of a last game or of a cancellation says little by itself, but relative to the seed's
    time it says everything about who stays; NULL means that it has not happened.
    """
    forms = {"": values}
    if values.isna().any():
        forms["whether there is a value in "] = values.notna().astype(float)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        gap = (values - times.reset_index(drop=True)).dt.total_seconds()
        forms["the time from the seed to "] = gap.fillna(gap.max() + 1)
    return forms


def _likeness(values: pd.Series, target: pd.Series, kind: str) -> tuple[float, str]:
    """How well a column predicts the label, and the name of the score."""
    known = values.notna().to_numpy() & target.notna().to_numpy()
    if known.sum() < FEWEST or known.mean() < 0.2:
        return 0.0, ""
    values, target = values[known], target[known]
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = pd.Series(values.to_numpy().astype("datetime64[us]").view(np.int64))
    numeric = pd.api.types.is_numeric_dtype(values.dtype)
    if kind == "regression":
        if not numeric:
            return 0.0, ""
        return abs(_correlation(_numbers(values), _numbers(target))), "correlation"
    if kind == "binary_classification" and numeric:
        truth = _numbers(target) > 0.5
        if min(truth.sum(), (~truth).sum()) < 5:
            return 0.0, ""
        from sklearn.metrics import roc_auc_score

        area = float(roc_auc_score(truth, _numbers(values)))
        return max(area, 1 - area), "ROC-AUC"
    codes = pd.factorize(values.astype(str))[0]
    if codes.max(initial=0) + 1 > len(codes) // 5:
        return 0.0, ""
    classes = pd.factorize(target.astype(str))[0]
    most = np.bincount(classes).max() / len(classes)
    table = np.zeros((codes.max() + 1, classes.max() + 1))
    np.add.at(table, (codes, classes), 1)
    right = float(table.max(1).sum() / len(codes))
    return (right, "accuracy") if most < 0.9 else (0.0, "")


def _numbers(values: pd.Series) -> NDArray[np.float64]:
    found = np.asarray(values.to_numpy(dtype=float, na_value=np.nan))
    return np.asarray(np.nan_to_num(found, posinf=1e300, neginf=-1e300))


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    with np.errstate(all="ignore"):
        ranks = [pd.Series(x).rank().to_numpy() for x in (one, other)]
        linear, ranked = np.corrcoef(one, other)[0, 1], np.corrcoef(*ranks)[0, 1]
    values = [abs(x) for x in (linear, ranked) if np.isfinite(x)]
    return float(max(values, default=0.0)) if np.unique(one).size > 2 else 0.0


# Seeds selected by what happens later.


def _check_existence(
    task: Task, frames: dict[str, pd.DataFrame], full: Database, report: CheckReport, place: str
) -> None:
    """Look for seeds whose entity has no row by their time, but does later."""
    name = task.entity_table
    table, first = full.table_dict[name], None
    if table.time_col is not None:
        first = (
            pd.to_datetime(read_column(table, table.time_col)).to_numpy().astype("datetime64[us]")
        )
        what = f"have a {table.time_col} after the seed's time"
    else:
        first = _first_trace(name, full)
        what = "have no row in any table with times until after the seed's time"
    if first is None:
        return
    labels = pd.concat(list(frames.values()), ignore_index=True)
    rows = labels[task.entity_col].to_numpy(np.int64)
    inside = (rows >= 0) & (rows < len(first))
    times = pd.to_datetime(labels[task.time_col]).to_numpy().astype("datetime64[us]")
    early = np.zeros(len(rows), bool)
    early[inside] = first[rows[inside]] > times[inside]  # NaT compares as False
    if early.sum() >= max(1, MANY * len(rows)) and _because_of_later_rows(
        task, full, rows[early], times[early]
    ):
        row = int(np.flatnonzero(early)[0])
        report.warning(
            place,
            f"{early.sum():,} of {len(rows):,} seeds are of rows of {name} that {what}, such as "
            f"row {rows[row]} at {str(times[row])[:19]}: they are seeds only because of what "
            "happens later",
            "Select only entities that exist: add a condition on the time to the SQL.",
        )


def _because_of_later_rows(
    task: Task, full: Database, rows: NDArray[np.int64], times: NDArray[Any]
) -> bool:
    """Whether the SQL would not select most of these rows without later rows."""
    table = full.table_dict[task.entity_table]
    if table.time_col is not None or task.sql is None:
        return True
    moments, count = np.unique(times, return_counts=True)
    time = pd.Timestamp(moments[count.argmax()])
    asked = rows[times == moments[count.argmax()]]
    found = label_rows(task, full.upto(time), [time])
    return bool((~np.isin(asked, found[task.entity_col])).mean() > 0.5)


def _first_trace(name: str, full: Database) -> NDArray[Any] | None:
    """The time at which a row with a time first refers to each row of a table."""
    count = len(full.table_dict[name])
    never = np.iinfo(np.int64).max
    first = np.full(count, never)
    found = False
    for table in full.table_dict.values():
        if table.time_col is None:
            continue
        for key, parent in table.fkey_col_to_pkey_table.items():
            if parent != name:
                continue
            found = True
            named, stamps = read_column(table, key), read_column(table, table.time_col)
            known = (named.notna() & stamps.notna()).to_numpy()
            rows = named[known].to_numpy(np.int64)
            times = pd.to_datetime(stamps[known]).to_numpy()
            inside = (rows >= 0) & (rows < count)
            ticks = times.astype("datetime64[us]").view(np.int64)
            np.minimum.at(first, rows[inside], ticks[inside])
    if not found:
        return None
    first[first == never] = np.iinfo(np.int64).min  # NaT: never
    return first.view("datetime64[us]")


def check_update_times(full: Database, report: CheckReport) -> None:
    """Look for time columns with the last change, where another has the creation."""
    for name, own, column, gap in other_times(full):
        if own is None or len(gap) < FEWEST:
            continue
        if not _UPDATE.search(own) or not _CREATE.search(column):
            continue
        earlier, later = (gap < pd.Timedelta(0)).mean(), (gap > pd.Timedelta(0)).mean()
        if earlier < 0.05 or later > 0.01:
            continue
        report.warning(
            f"{name}.{own}",
            f"seems to be the time of the last change: {column} is earlier in {earlier:.0%} of "
            f"{len(gap):,} rows, by up to {-gap.min()}, and later in {later:.1%}. A row is "
            "visible only from its last change on, in its changed state",
            f"Import again with --time {name}.{column}, if the row never changes after it.",
        )


def check_late_columns(
    task: Task, late: Sequence[LateColumn], report: CheckReport, place: str
) -> None:
    """Name the columns later than their rows that a task lets the model see."""
    hidden = set(map(tuple, task.hidden_columns()))
    for column in late:
        if (column.table, column.column) not in hidden:
            report.warning(
                place,
                f"{column.place} {column.evidence}",
                f"Unless it was planned, hide it, with everything else that was written that late: "
                f"add the task again, which hides it, or with --hide {column.place}.",
            )
