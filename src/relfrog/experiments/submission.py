"""Predictions of runs as RelBench's leaderboard takes them, checked by RelBench's own checker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relfrog.errors import OutputError, UsageError
from relfrog.runs.run import Run, load_run
from relfrog.support.files import atomic_file
from relfrog.training.seeds import Seeds

__all__ = ["Submitted", "leaderboards", "submit"]

_KINDS = ("binary_classification", "regression", "recommendation")


@dataclass(frozen=True)
class Submitted:
    """A file of predictions that the checker has accepted.

    Attributes:
        task: dataset and task.
        file: where it is.
        rows: how many predictions.
        metrics: what RelBench's checker gives for it.
        family: the leaderboard that has the task; None if there is none.
    """

    task: str
    file: Path
    rows: int
    metrics: dict[str, float]
    family: str | None


def submit(
    runs: Sequence[str | Path], out: str | Path = "submission", *, overwrite: bool = False
) -> list[Submitted]:
    """Write a file per run with predictions for the test seeds, and have it checked.

    The database stops at the test time for all of them (the frozen regime), as the benchmark has
    it. A file that the checker refuses is not left behind.

    Args:
        runs: run folders, one per task.
        out: folder for the files, `DATASET__TASK.csv`.
        overwrite: replace files that are there already.

    Raises:
        UsageError: Two runs are of one task, or the leaderboard has no tasks of its type.
        OutputError: A file is in the way, or the checker refuses it.
    """
    from relbench.submit import LEADERBOARD_TASKS, evaluate_task, write_prediction_table

    if not runs:
        raise UsageError("name the runs to submit: relfrog submit RUN...")
    folder = Path(out).expanduser()
    opened: dict[str, Run] = {}
    for path in runs:
        run = load_run(path)
        if run.about["task_type"] not in _KINDS:
            raise UsageError(
                f"{path}: the leaderboard has no {run.about['task_type']}; it takes "
                f"{', '.join(_KINDS)}."
            )
        name = f"{_dataset_name(run)}/{run.about['task']}"
        if name in opened:
            raise UsageError(
                f"{opened[name].folder} and {path} are both of {name}. Choose one, by validation."
            )
        opened[name] = run
    done = []
    for name, run in opened.items():
        file = folder / f"{name.replace('/', '__', 1)}.csv"
        task = run.prepared.task
        table = task.get_table("test", mask_input_cols=True).df
        with atomic_file(file, overwrite) as partial:
            write_prediction_table(task, _predictions(run, table), partial)
            try:
                found = evaluate_task(name, partial, dataset=run.prepared.dataset.dataset_dir)
            except (ValueError, NotImplementedError) as error:
                raise OutputError(f"RelBench's checker refuses {file.name}: {error}") from None
        metrics = {metric: float(value) for metric, value in found.items()}
        board = next((b for b, tasks in LEADERBOARD_TASKS.items() if name in tasks), None)
        done.append(Submitted(name, file, len(table), metrics, board))
    return done


def leaderboards(done: Sequence[Submitted]) -> dict[str, list[str]]:
    """For each leaderboard that files are for, the tasks it still lacks."""
    from relbench.submit import LEADERBOARD_TASKS

    there = {one.task for one in done}
    return {
        family: [task for task in tasks if task not in there]
        for family, tasks in LEADERBOARD_TASKS.items()
        if there & set(tasks)
    }


def _dataset_name(run: Run) -> str:
    return str(run.prepared.dataset.manifest.name)


def _predictions(run: Run, table: pd.DataFrame) -> Any:
    """In the order of the table: values, or lists of targets."""
    task = run.prepared.task
    seeds = Seeds(
        table[task.entity_col].to_numpy(np.int64), pd.Series(pd.to_datetime(table[task.time_col]))
    )
    raw = run.predict_seeds(seeds, run.prepared.cutoff("test", "frozen"))
    predicted = run.postprocessing.apply(raw)
    if run.about["task_type"] != "recommendation":
        return np.asarray(predicted, float).reshape(-1)
    return [[int(target) for target in row if target >= 0] for row in predicted[:, :, 0]]
