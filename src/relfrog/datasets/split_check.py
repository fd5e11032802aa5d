"""Do splits suit a question? What is wrong with a task's labels, split by split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from relfrog.datasets.label_events import LabelEvents
from relfrog.datasets.protocols import Task
from relfrog.support.text import counted, number, percent

__all__ = ["SplitProblem", "coarse_scores", "few_labels", "split_problems"]

#: Odds of a label, or means, that differ by this factor are far apart.
_FAR = 4.0
#: ... if the difference is that many times its standard error.
_SURE = 3.0
#: Fewer labels, or labels of the rarer class, cannot be scored.
_FEW, _FEW_RARE = 20, 5
#: With fewer, scores are coarse.
_COARSE, _COARSE_RARE = 200, 50


@dataclass(frozen=True)
class SplitProblem:
    """Something that is wrong with a split.

    Attributes:
        weight: How bad it is, for comparing splits.
        text: What, where, how many.
        remedy: What to do.
    """

    weight: int
    text: str
    remedy: str


_OTHER_SPLITS = "Choose other splits: relfrog task ... --val TIME --test TIME"


def split_problems(
    task: Task, frames: Mapping[str, pd.DataFrame], events: LabelEvents, fitting: int = 1
) -> list[SplitProblem]:
    """What is wrong with the labels of the three splits.

    Args:
        task: The task.
        frames: The labels of each split.
        events: The rows that decide labels.
        fitting: How many seed times validation and test have room for.
    """
    missing = [_missing_times(task, split, frames) for split in ("val", "test")]
    found = few_labels(task, frames, fitting) + [problem for problem in missing if problem]
    apart = _far_apart(task, frames)
    empty = _empty_windows(task, frames["train"], events)
    return [*found, *([apart] if apart else []), *([empty] if empty else [])]


def few_labels(
    task: Task, frames: Mapping[str, pd.DataFrame], fitting: int = 1
) -> list[SplitProblem]:
    """The splits with too few labels to be scored; arguments as for `split_problems`."""
    found = [_too_few(task, split, frames[split], fitting) for split in ("val", "test")]
    return [problem for problem in found if problem is not None]


def coarse_scores(task: Task, frames: Mapping[str, pd.DataFrame], fitting: int) -> str:
    """A note that scores are coarse where more seed times would give more labels; "" if not."""
    if fitting < 2 * task.num_eval_timestamps:
        return ""
    few = min(("val", "test"), key=lambda split: _rarer(task, frames[split])[0])
    rarer, which = _rarer(task, frames[few])
    if rarer >= (_COARSE if which == "label" else _COARSE_RARE) or _too_few(
        task, few, frames[few], fitting
    ):
        return ""
    return (
        f"the {few} split has only {counted(rarer, which)}: scores, and the choice of a model by "
        f"them, are coarse. {_more_times(task, fitting)}"
    )


def _more_times(task: Task, fitting: int) -> str:
    times = round(fitting / task.num_eval_timestamps)
    more = "twice" if times == 2 else f"{times} times"
    return f"There is room for --eval-times {fitting}, which gives {more} as many"


def _rarer(task: Task, frame: pd.DataFrame) -> tuple[int, str]:
    """How many labels there are; of binary ones those of the rarer class, with its name."""
    if task.task_type.value != "binary_classification":
        return len(frame), "label"
    positive = int(frame[task.target_col].astype(float).sum())
    rarer = min(positive, len(frame) - positive)
    return rarer, "positive label" if positive == rarer else "negative label"


def _too_few(task: Task, split: str, frame: pd.DataFrame, fitting: int) -> SplitProblem | None:
    remedy = f"Scores will be a matter of chance. {_OTHER_SPLITS}"
    if task.completes and task.dataset.manifest.tables[task.entity_table].time_col is None:
        remedy = "Scores will be a matter of chance: more rows with a value are needed."
    if task.sql is not None and fitting >= 2 * task.num_eval_timestamps:
        more = _more_times(task, fitting)
        remedy = f"Scores will be a matter of chance. {more}; or choose --val and --test"
    if len(frame) < _FEW:
        text = f"the {split} split has only {counted(len(frame), 'label')}"
        return SplitProblem(10, text, remedy)
    rarer, which = _rarer(task, frame)
    if which != "label" and rarer < _FEW_RARE:
        text = f"the {split} split has only {counted(rarer, which)} among {len(frame):,}"
        return SplitProblem(10, text, remedy)
    return None


def _missing_times(
    task: Task, split: str, frames: Mapping[str, pd.DataFrame]
) -> SplitProblem | None:
    asked, got = task.num_eval_timestamps, frames[split][task.time_col].nunique()
    if got >= asked:
        return None
    text = f"{got} of the {asked} seed times asked for fit into the {split} split"
    return SplitProblem(
        2, text, f"Take --eval-times {got}, a shorter --horizon, or other splits: --val, --test"
    )


def _values(task: Task, frame: pd.DataFrame) -> pd.Series:
    """Labels as numbers whose mean is compared."""
    values = frame[task.target_col]
    kind = task.task_type.value
    if kind == "recommendation":
        return values.map(len).astype(float)
    if kind == "multilabel_classification":
        return values.map(sum).astype(float)
    return values.astype(float)


def _far_apart(task: Task, frames: Mapping[str, pd.DataFrame]) -> SplitProblem | None:
    """Whether labels are distributed quite differently in training than in a later split."""
    kind = task.task_type.value
    for split in ("val", "test"):
        if min(len(frames["train"]), len(frames[split])) < _FEW:
            continue
        if kind == "multiclass_classification":
            shares = [
                frames[s][task.target_col].value_counts(normalize=True) for s in ("train", split)
            ]
            apart = shares[0].subtract(shares[1], fill_value=0).abs().sum() / 2
            if apart < 0.5:
                continue
            shown = f"{percent(float(apart))} of labels would have to change their class"
        else:
            old, new = (_values(task, frames[s]) for s in ("train", split))
            if not _differ(old, new, kind == "binary_classification"):
                continue
            what = "positive" if kind == "binary_classification" else "on average"
            show = percent if kind == "binary_classification" else number
            shown = (
                f"{show(float(old.mean()))} {what} in train, {show(float(new.mean()))} in {split}"
            )
        return SplitProblem(
            5,
            f"labels of the splits are far apart: {shown}",
            "What was learned will not fit what is scored. " + _OTHER_SPLITS,
        )
    return None


def _differ(old: pd.Series, new: pd.Series, binary: bool) -> bool:
    means, spread = (old.mean(), new.mean()), old.var() / len(old) + new.var() / len(new)
    if abs(means[0] - means[1]) <= _SURE * np.sqrt(spread):
        return False
    if binary:
        # As if one more of each had been seen, so that no odds are 0.
        odds = [(v.sum() + 0.5) / (len(v) - v.sum() + 0.5) for v in (old, new)]
        return bool(max(odds) >= _FAR * min(odds))
    if min(old.min(), new.min()) >= 0:
        return bool(max(means) >= _FAR * min(means))
    both = pd.concat([old - means[0], new - means[1]]).std()
    return bool(abs(means[0] - means[1]) > _FAR / 2 * both)


def _empty_windows(task: Task, train: pd.DataFrame, events: LabelEvents) -> SplitProblem | None:
    """Whether most training times have no event in their window."""
    times = pd.DatetimeIndex(np.sort(train[task.time_col].unique()))
    if not len(times) or not len(events.times):
        return None
    without = events.within(times, task.timedelta) == 0
    empty, first = int(without.sum()), events.first
    if 2 * empty <= len(times):
        return None
    text = (
        f"{empty:,} of {counted(len(times), 'training time')} have no row of "
        f"{', '.join(events.tables)} in the {task.timedelta} after them"
    )
    remedy = "Take a longer --horizon: most windows are empty."
    if first is not None and 2 * int((times[without] < first).sum()) > empty:
        remedy = (
            f"Most of them lie before {first:%Y-%m-%d}, where these rows begin. Add the task again "
            "(relfrog task ... --overwrite): then its training times begin there, too."
        )
    return SplitProblem(5, text, remedy)
