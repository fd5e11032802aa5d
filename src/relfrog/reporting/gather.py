"""Gather what a report shows, from the run folder and from the dataset if it is available."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.explanation import explain_row
from relfrog.analysis.fd_space import differences
from relfrog.analysis.importance import importance
from relfrog.datasets.entities import key_frame
from relfrog.errors import RelFrogError
from relfrog.graph.references import children_at
from relfrog.kinds import TASK_KINDS
from relfrog.models.model_files import check_model_files
from relfrog.models.run_folder import describe_database, fingerprint
from relfrog.reporting.material import (
    ENTRIES,
    Answers,
    Material,
    listed,
    missed,
    read_folder,
    sentence,
    shown_lists,
)
from relfrog.reporting.saved import PARTS, keep, recall
from relfrog.reporting.schema_drawing import read_schema
from relfrog.runs.run import Run
from relfrog.training.seeds import Seeds

__all__ = ["gather"]


#: The time for measuring which tables matter, without `deep`: seconds, or a share of training's.
ALLOWED, ALLOWED_SHARE = 30.0, 0.1
#: The errors that reading labels and data can raise, RelFrog's and RelBench's.
ERRORS = (RelFrogError, OSError, ValueError, LookupError, RuntimeError, AssertionError)


def gather(
    run: Run,
    *,
    deep: bool = False,
    brief: bool = False,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Material:
    """Read the run folder, and compute what needs the data unless it is cached there.

    Args:
        run: the run.
        deep: whether to spend more time on table importance and explanations.
        brief: whether only the schema and the results of training are needed.
        fresh: whether to recompute what is cached.
        progress: called with a line about each step.

    Raises:
        RunError: A file of the model is damaged, whether or not it is needed.
    """
    check_model_files(run.folder)
    found = Material(run)
    read_folder(found)
    complete = found.database is not None
    if not (brief and complete) and not (complete and not fresh and recall(found, deep)):
        _read_data(found, progress)
        if not found.why.keys() & set(PARTS):
            _compute(found, deep, progress)
            try:
                keep(found, deep)
            except OSError as error:
                progress(f"what was computed cannot be kept: {sentence(error)}")
        elif not fresh:
            recall(found, deep=False)  # less thorough than requested, but better than nothing
    if found.database is not None:
        shown = found.network_run or run
        history = shown.config.history != "off"
        found.schema = read_schema(found.database, found.roles, history=history)
    else:
        found.why["schema"] = (
            "The run folder does not hold its schema (database.json is missing), and the dataset "
            "cannot be read."
        )
    return found


def _read_data(found: Material, progress: Callable[[str], None]) -> None:
    progress("reading the data")
    try:
        prepared = found.run.prepared
        if found.database is None:
            found.database = describe_database(prepared, found.run.about["task"])
        found.same_data = found.database.get("fingerprint") == fingerprint(prepared)
    except ERRORS as error:
        reason = (
            f"The dataset cannot be read, and the run folder does not hold what it gave: "
            f"{sentence(error)}"
        )
        found.why |= dict.fromkeys(PARTS, reason)


def _compute(found: Material, deep: bool, progress: Callable[[str], None]) -> None:
    """Compute the parts that need the data; each can fail independently."""
    run = found.run
    progress("predicting the test labels")
    try:
        seeds, truth, raw = run.answers("test", "rolling", raw=True)
        predicted = found.postprocessing.apply(raw)
        if not len(seeds):
            raise ValueError("test has no labels.")
        keys = entity_names(run, seeds.rows)
        targets = target_names(run, truth, predicted) if TASK_KINDS[found.kind].ranks else {}
        past = count_past(run, seeds)
        found.answers = Answers(seeds, truth, predicted, past, keys, targets, raw)
    except ERRORS as error:
        found.why["answers"] = f"There are no predictions on test: {sentence(error)}"
    if found.answers is None:
        found.why["importance"] = found.why["explanations"] = found.why["answers"]
    else:
        try:
            seconds = math.inf if deep else max(ALLOWED, ALLOWED_SHARE * run.about["seconds"])
            found.importance = importance(run, deep=deep, seconds=seconds, progress=progress)
        except ERRORS as error:
            found.why["importance"] = sentence(error)
        progress("explaining some predictions")
        try:
            for number in seeds_to_explain(found, 6 if deep else 3):
                row = int(found.answers.seeds.rows[number])
                time = pd.Timestamp(found.answers.seeds.times[number])
                found.explanations.append(explain_row(run, row, time, rows=60 if deep else 28))
        except ERRORS as error:
            found.why["explanations"] = sentence(error)
    if found.network_run is None:
        found.why["differences"] = (
            f"Model {run.config.model} has no network, so there are no embeddings to look at."
        )
        return
    progress("comparing foreign-key pairs")
    try:
        found.differences = differences(run)
    except ERRORS as error:
        found.why["differences"] = sentence(error)


def count_past(run: Run, seeds: Seeds) -> NDArray[np.int64]:
    """Rows that refer to each entity and were known at its time. Shape [seeds]."""
    prepared = run.prepared
    graph, table = prepared.graph, prepared.task.entity_table
    ticks = graph.ticks(seeds.times)
    total = np.zeros(len(seeds), np.int64)
    for key in graph.foreign_keys:
        if key.parent == table and key.table != prepared.history:
            for first in range(0, len(seeds), 4096):  # in chunks: children are listed per seed
                part = slice(first, first + 4096)
                owner, _ = children_at(graph, key, np.asarray(seeds.rows)[part], ticks[part])
                total[part] += np.bincount(owner, minlength=len(total[part]))
    return total


def entity_names(run: Run, rows: NDArray[np.int64], table: str | None = None) -> list[str]:
    """The keys of rows in the source, as text."""
    dataset = run.prepared.dataset
    table = table or run.prepared.task.entity_table
    frame = key_frame(dataset.dataset_dir, table, dataset.manifest.tables[table].pkey, rows)
    return [", ".join(map(str, values)) for values in frame.itertuples(index=False)]


def target_names(run: Run, truth: NDArray[Any], predicted: NDArray[Any]) -> dict[int, str]:
    """The keys in the source of the targets in the lists shown, by row."""
    rows = sorted(
        {
            row
            for i in shown_lists(truth, predicted)[0]
            for row in (*listed(predicted[i]), *missed(truth[i], predicted[i])[:ENTRIES])
        }
    )
    table = run.prepared.task.dst_entity_table
    names = entity_names(run, np.array(rows, np.int64), table)
    return dict(zip(rows, names, strict=True))


def seeds_to_explain(found: Material, count: int) -> list[int]:
    """Seeds to explain: a confident hit, the worst mistake, the lowest, and some in between."""
    answers = found.answers
    assert answers is not None
    truth, predicted = answers.truth, answers.predicted
    if TASK_KINDS[found.kind].scalar:
        truth = truth.astype(float)
        order = np.argsort(predicted, kind="stable")
        error = np.abs(truth - predicted)
        right = order[::-1][error[order[::-1]] <= np.median(error)]
        chosen = [*right[:1], int(np.argmax(error)), int(order[0])]
        chosen += order[np.linspace(0, len(order) - 1, count + 2).astype(int)[1:-1]].tolist()
    else:
        chosen = np.linspace(0, len(predicted) - 1, count).astype(int).tolist()
    return [int(number) for number in dict.fromkeys(chosen)][:count]
