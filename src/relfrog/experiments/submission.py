"""Prediction files for RelBench's leaderboard, checked by RelBench's own checker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relfrog.errors import OutputError, UsageError
from relfrog.kinds import TASK_KINDS
from relfrog.runs.run import Run, load_run
from relfrog.support.files import atomic_file, user_path
from relfrog.support.times import as_moments
from relfrog.training.seeds import Seeds

__all__ = ["Submitted", "leaderboards", "submit"]

#: The task types of the leaderboard.
_KINDS = ("binary_classification", "regression", "recommendation")


@dataclass(frozen=True)
class Submitted:
    """A prediction file that the checker accepted.

    Attributes:
        task: dataset and task.
        file: the file.
        rows: number of predictions.
        metrics: the metrics that RelBench's checker computes.
        family: the leaderboard with this task; None if there is none.
    """

    task: str
    file: Path
    rows: int
    metrics: dict[str, float]
    family: str | None


def submit(
    runs: Sequence[str | Path], out: str | Path = "submission", *, overwrite: bool = False
) -> list[Submitted]:
    """Write and check a file of test predictions for each run.

    Predictions are made in the frozen regime, as the benchmark requires: the database ends at the
    test time. A file that the checker rejects is removed.

    Args:
        runs: run folders, one per task.
        out: folder for the files, `DATASET__TASK.csv`.
        overwrite: whether to replace existing files.

    Raises:
        UsageError: Two runs are of the same task, or the leaderboard does not have its task type.
        OutputError: A file exists, or the checker rejects it.
    """
    from relbench.submit import LEADERBOARD_TASKS, evaluate_task, write_prediction_table

    if not runs:
        raise UsageError("name the runs to submit: relfrog submit RUN...")
    folder = user_path(out)
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
    """The tasks still missing for each leaderboard that the files belong to."""
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
    """Predictions in the order of the table: values, or lists of targets."""
    task = run.prepared.task
    seeds = Seeds(table[task.entity_col].to_numpy(np.int64), as_moments(table[task.time_col]))
    raw = run.predict_seeds(seeds, run.prepared.cutoff("test", "frozen"))
    predicted = run.postprocessing.apply(raw)
    if not TASK_KINDS[run.about["task_type"]].ranks:
        return np.asarray(predicted, float).reshape(-1)
    return [[int(target) for target in row if target >= 0] for row in predicted[:, :, 0]]
