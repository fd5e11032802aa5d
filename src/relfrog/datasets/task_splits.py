"""The splits of a task: the dataset's, or its own where those do not suit the question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from relfrog.datasets.label_checks import NoLabels
from relfrog.datasets.label_events import LabelEvents, label_events
from relfrog.datasets.label_splits import choose_splits, own_splits, shown_time
from relfrog.datasets.labels import SPLITS, fitting_times, label_stats
from relfrog.datasets.no_labels import has_events, why_no_labels
from relfrog.datasets.protocols import Dataset, Task
from relfrog.datasets.split_check import SplitProblem, coarse_scores, split_problems
from relfrog.datasets.task_file import TaskFile
from relfrog.datasets.tasks import task_from
from relfrog.errors import TaskError, UsageError
from relfrog.importing.split_proposal import main_part, place_splits
from relfrog.support.relbench import Database
from relfrog.support.text import counted

__all__ = ["FittedTask", "fit_splits", "need_times", "place_windows"]

#: Seed times in training beyond which something is wrong.
_MOST_SEEDS = 20_000
#: A window with less than this share of the usual number of events is in a gap.
_FULL = 0.3
#: Training times that RelBench asks for.
_FEWEST_TIMES = 3

MakeLabels = Callable[[Task, str, Database], pd.DataFrame]


@dataclass(frozen=True)
class FittedTask:
    """A task with splits that suit it, as far as there are any.

    Attributes:
        task: The task.
        manifest: Its manifest, with the splits if they are its own.
        frames: The labels of each split.
        notes: What was chosen instead of the dataset's splits, and why.
        problems: What is still wrong.
    """

    task: Task
    manifest: TaskFile
    frames: dict[str, pd.DataFrame]
    notes: tuple[str, ...]
    problems: tuple[SplitProblem, ...]


def need_times(dataset: Dataset) -> None:
    """Raise TaskError if no table has a time: then nothing lies ahead."""
    if not any(table.time_col for table in dataset.manifest.tables.values()):
        raise TaskError(
            "no table of the dataset has a time column, so no label can lie ahead of anything. "
            "Import the database again and choose one (--time TABLE.COLUMN), or fill in a column, "
            "which needs no time: --autocomplete TABLE.COLUMN"
        )


def place_windows(
    events: LabelEvents, horizon: pd.Timedelta, windows: int = 1
) -> tuple[pd.Timestamp, pd.Timestamp] | None:
    """Place validation and test among events, so that whole windows lie behind each.

    As at import, but no later than the windows allow; and earlier where they would be in a gap.

    Args:
        events: The rows that decide labels.
        horizon: The length of a window.
        windows: The seed times in validation and in test.

    Returns:
        None if there is no room for three windows of training before them.
    """
    if not len(events.times):
        return None
    part = main_part(events.times, events.counts)
    times, counts = events.times[part], events.counts[part]
    placed = place_splits(times, counts)
    if placed is None:
        return None
    unit = pd.Timedelta("1 day") if horizon >= pd.Timedelta("1 day") else pd.Timedelta("1 s")
    step = int(horizon / pd.Timedelta(microseconds=1))
    length = windows * step
    round_to = int(unit / pd.Timedelta(microseconds=1))
    first = int(times[0]) + _FEWEST_TIMES * step
    usual = np.median(_masses(times, counts, np.arange(times[0], times[-1] - length + 1, length)))

    def latest(wanted: int, lowest: int) -> int | None:
        """The latest time up to a wanted one with events enough behind it."""
        grid = np.arange(wanted, lowest - 1, -max(1, step // 4), dtype=np.int64)
        grid = grid // round_to * round_to
        grid = grid[grid >= lowest]
        full = np.flatnonzero(_masses(times, counts, grid, length) >= max(1, _FULL * usual))
        return int(grid[full[0]]) if len(full) else None

    # RelBench wants rows at the end of a window or later, and in validation none after its end.
    test = latest(min(placed.test, int(times[-1]) - events.unit - length), first + length)
    if test is None:
        return None
    end = int(times[np.searchsorted(times, test, side="right") - 1]) - events.unit
    val = latest(min(placed.val, end - length), first)
    if val is None:
        return None
    return pd.Timestamp(val, unit="us"), pd.Timestamp(test, unit="us")


def _masses(
    times: np.ndarray, counts: np.ndarray, starts: np.ndarray, length: int | None = None
) -> np.ndarray:
    """Events in each window; by default each ends where the next begins."""
    if not len(starts):
        return np.zeros(1)
    passed = np.concatenate(([0], np.cumsum(counts)))
    ends = np.append(starts[1:], times[-1]) if length is None else starts + length
    begin, end = (np.searchsorted(times, t, side="right") for t in (starts, ends))
    return np.asarray(passed[end] - passed[begin])


def fit_splits(
    dataset: Dataset,
    manifest: TaskFile,
    full: Database,
    make_labels: MakeLabels,
    val: str | None = None,
    test: str | None = None,
) -> FittedTask:
    """Make a task's labels: in the dataset's splits, or others that suit it better.

    Args:
        dataset: The dataset.
        manifest: The task, without splits.
        full: The dataset's whole database.
        make_labels: Makes the labels of a split.
        val: The validation time that the user wants.
        test: The test time that the user wants.

    Raises:
        TaskError: There are no labels in a split, and no other splits have some.
    """
    horizon = pd.Timedelta(manifest.timedelta)
    begin = dataset.val_timestamp
    anywhere = replace(manifest, val_timestamp=str(begin), test_timestamp=str(begin + 2 * horizon))
    events = label_events(task_from(dataset, anywhere), full)
    gap = dataset.test_timestamp - dataset.val_timestamp
    manifest = replace(manifest, longest_in_relbench=str(gap))
    if val is not None or test is not None:
        given = choose_splits(dataset, manifest, val, test)
        return _attempt(dataset, given, full, events, make_labels)
    found: FittedTask | None = None
    try:
        found = _attempt(dataset, manifest, full, events, make_labels)
        wrong = "; ".join(problem.text for problem in found.problems)
    except TaskError as error:
        wrong = str(error)
        if gap < horizon:
            ends = [shown_time(t) for t in (dataset.val_timestamp, dataset.test_timestamp)]
            wrong = (
                f"no window of {manifest.timedelta} fits between its validation ({ends[0]}) and "
                f"test ({ends[1]})"
            )
    if not wrong:
        assert found is not None
        return found
    for windows in sorted({manifest.num_eval_timestamps, 1}, reverse=True):
        places = place_windows(events, horizon, windows)
        if places is None or places == (dataset.val_timestamp, dataset.test_timestamp):
            continue
        reason = f"where rows of {', '.join(events.tables)} lie"
        own = own_splits(manifest, *places, f"proposed: {reason}")
        try:
            other = _attempt(dataset, own, full, events, make_labels)
        except TaskError:
            continue
        if found is None or _weight(other) < _weight(found):
            note = (
                f"the dataset's splits do not suit this task ({wrong.rstrip('.')}). It has "
                f"splits of its own, {reason}: validation from {own.val_timestamp}, test from "
                f"{own.test_timestamp}. Choose others with --val and --test"
            )
            return replace(other, notes=(note, *other.notes))
    if found is None:
        if gap < horizon:
            wrong = (
                f"the dataset's splits do not suit this task: {wrong}; and there is no room for "
                "others with three windows of training before them. Take a shorter --horizon"
            )
        raise TaskError(wrong)
    return found


def _weight(found: FittedTask) -> int:
    return sum(problem.weight for problem in found.problems)


def _attempt(
    dataset: Dataset,
    manifest: TaskFile,
    full: Database,
    events: LabelEvents,
    make_labels: MakeLabels,
) -> FittedTask:
    """Make the labels in one choice of splits; training begins where events begin."""
    task = task_from(dataset, manifest)
    val, step, notes = task.dataset.val_timestamp, task.timedelta, []
    first, begin = full.min_timestamp, events.first
    if begin is not None and begin > first and (val - begin) / step >= _FEWEST_TIMES:
        before = int((val - first) // step) - int((val - begin) // step)
        if before > 0:
            manifest = replace(manifest, train_from=str(begin))
            task = task_from(dataset, manifest)
            notes.append(
                f"training begins at {shown_time(begin)}, with the first rows of "
                f"{' and '.join(events.tables)}; {counted(before, 'earlier seed time')}, back to "
                f"{shown_time(first)}, would have no label to learn from"
            )
            first = begin
    count = int((val - first) / step) if first is not pd.NaT else 0
    if count > _MOST_SEEDS:
        raise UsageError(
            f"horizon {manifest.timedelta!r} makes {count:,} seed times between {first} and "
            f"validation; more than {_MOST_SEEDS:,} make no sense. Take a longer one, or correct "
            "times that are far too early."
        )
    frames = {}
    for split in SPLITS:
        try:
            frames[split] = make_labels(task, split, full)
        except NoLabels:
            raise TaskError(why_no_labels(task, split, full, events)) from None
        except TaskError:
            if has_events(task, split, full, events):
                raise
            raise TaskError(why_no_labels(task, split, full, events)) from None
        if not len(frames[split]):
            raise TaskError(why_no_labels(task, split, full, events))
        equal = label_stats(task, frames[split]).constant
        if equal and not has_events(task, split, full, events):
            raise TaskError(why_no_labels(task, split, full, events, "all labels are equal"))
    fitting = fitting_times(task.dataset, task, full)
    problems = tuple(split_problems(task, frames, events, fitting))
    coarse = coarse_scores(task, frames, fitting)
    notes += [coarse] if coarse else []
    return FittedTask(task, manifest, frames, tuple(notes), problems)
