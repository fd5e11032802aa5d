"""What a report is made of: the run folder, and what can be computed from the data it names.

Everything may be missing: then there is a sentence that says so instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.describing import describe_database, fingerprint
from relfrog.errors import RelFrogError
from relfrog.explaining import Explanation, explain_row
from relfrog.importance import Importance, importance
from relfrog.models import NETWORKS
from relfrog.popularity import children_at
from relfrog.preparing import Seeds
from relfrog.reporting.schema_graph import Schema, read_schema
from relfrog.runs import Run

__all__ = ["METRICS", "Answers", "Material", "gather"]

#: Per type of task its main metric, whether more of it is better, and the metric's name.
METRICS = {
    "binary_classification": ("roc_auc", True),
    "regression": ("mae", False),
    "multiclass_classification": ("accuracy", True),
    "multilabel_classification": ("roc_auc_macro", True),
    "recommendation": ("map", True),
}
#: Whatever reading labels and data may raise, of ours and of RelBench.
ERRORS = (RelFrogError, OSError, ValueError, LookupError, RuntimeError, AssertionError)


@dataclass(frozen=True, eq=False)
class Answers:
    """Predictions on test, in the rolling regime.

    Attributes:
        seeds: whom for, and when.
        truth: what became of them.
        predicted: what was predicted.
        past: rows that refer to each entity at its time: how much history it had.
    """

    seeds: Seeds
    truth: NDArray[Any]
    predicted: NDArray[Any]
    past: NDArray[np.int64]


@dataclass(eq=False)
class Material:
    """Everything that a report shows; None, with a reason in `why`, where it is not there."""

    run: Run
    schema: Schema | None = None
    database: dict[str, Any] | None = None
    roles: list[dict[str, Any]] = field(default_factory=list)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    metrics: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, Any] | None = None
    answers: Answers | None = None
    keys: pd.Series | None = None
    importance: Importance | None = None
    explanations: list[Explanation] = field(default_factory=list)
    differences: Any = None
    same_data: bool | None = None
    why: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type of task."""
        return str(self.run.about["task_type"])

    @property
    def network(self) -> bool:
        """Whether the model is a network."""
        return self.run.config.model in NETWORKS

    @property
    def metric(self) -> tuple[str, bool]:
        """The main metric, and whether more of it is better."""
        return METRICS[self.kind]

    def score(self, split: str, regime: str, metric: str | None = None) -> float | None:
        """A score from the run folder."""
        value = self.metrics.get(split, {}).get(regime, {}).get(metric or self.metric[0])
        return None if value is None else float(value)


def gather(
    run: Run,
    *,
    deep: bool = False,
    brief: bool = False,
    told: Callable[[str], None] = lambda text: None,
) -> Material:
    """Read the run folder, then compute what needs the data.

    Args:
        run: the run.
        deep: whether to take more time for the worth of tables and for more explanations.
        brief: whether the run folder alone will do, if it holds the schema.
        told: what is being done.
    """
    found = Material(run)
    _read_folder(found)
    try:
        if brief and found.database is not None:
            raise ValueError("it is not needed.")
        told("reading the data")
        prepared = run.prepared
        if found.database is None:
            found.database = describe_database(prepared, run.about["task"])
        found.same_data = found.database.get("fingerprint") == fingerprint(prepared)
    except ERRORS as error:
        reason = f"The dataset cannot be read: {_sentence(error)}"
        found.why |= dict.fromkeys(("answers", "importance", "explanations", "differences"), reason)
    if found.database is not None:
        history = run.config.history != "off"
        found.schema = read_schema(found.database, found.roles, history=history)
    else:
        found.why["schema"] = (
            "The run folder does not hold its schema (database.json is missing), and the dataset "
            "cannot be read."
        )
    if "answers" not in found.why:
        _compute(found, deep, told)
    return found


def _read_folder(found: Material) -> None:
    folder = found.run.folder
    found.database = _json(folder / "database.json", dict)
    found.roles = _json(folder / "roles.json", list) or []
    found.metrics = _json(folder / "metrics.json", dict) or {}
    baselines = _json(folder / "baselines.json", dict)
    found.baselines = (baselines or {}).get("models") or None
    try:
        found.history = found.run.history()
    except RelFrogError as error:
        found.why["history"] = _sentence(error)


def _json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, kind) else None


def _compute(found: Material, deep: bool, told: Callable[[str], None]) -> None:
    """What needs the data; each part may fail by itself."""
    run = found.run
    told("predicting the test labels")
    try:
        seeds, truth, predicted = run.answers("test", "rolling")
        if not len(seeds):
            raise ValueError("test has no labels.")
        past = count_past(run, seeds)
        found.answers = Answers(seeds, truth, predicted, past)
        found.keys = entity_names(run, seeds.rows)
    except ERRORS as error:
        found.why["answers"] = f"There are no predictions on test: {_sentence(error)}"
    if not found.network:
        words = f"Model {run.config.model} is no network: this part is about networks."
        found.why |= dict.fromkeys(("importance", "explanations", "differences"), words)
        return
    if found.answers is None:
        found.why["importance"] = found.why["explanations"] = found.why["answers"]
    else:
        try:
            found.importance = importance(run, deep=deep, told=told)
        except ERRORS as error:
            found.why["importance"] = _sentence(error)
        told("explaining some predictions")
        try:
            for number in telling(found, 6 if deep else 3):
                row = int(found.answers.seeds.rows[number])
                time = pd.Timestamp(found.answers.seeds.times.iloc[number])
                found.explanations.append(explain_row(run, row, time, rows=60 if deep else 28))
        except ERRORS as error:
            found.why["explanations"] = _sentence(error)
    _compare_pairs(found, told)


def _compare_pairs(found: Material, told: Callable[[str], None]) -> None:
    from relfrog.differences import differences

    told("comparing foreign-key pairs")
    try:
        found.differences = differences(found.run)
    except ERRORS as error:
        found.why["differences"] = _sentence(error)


def count_past(run: Run, seeds: Seeds) -> NDArray[np.int64]:
    """Rows that refer to each entity and were known at its time. Shape [seeds]."""
    prepared = run.prepared
    graph, table = prepared.graph, prepared.task.entity_table
    ticks = graph.ticks(seeds.times)
    total = np.zeros(len(seeds), np.int64)
    for key in graph.foreign_keys:
        if key.parent == table and key.table != prepared.history:
            for first in range(0, len(seeds), 4096):  # a child is named once per seed: not all
                part = slice(first, first + 4096)
                owner, _ = children_at(graph, key, np.asarray(seeds.rows)[part], ticks[part])
                total[part] += np.bincount(owner, minlength=len(total[part]))
    return total


def entity_names(run: Run, rows: NDArray[np.int64], table: str | None = None) -> pd.Series:
    """The source's keys of rows, as text."""
    from relfrog.entities import key_frame

    dataset = run.prepared.dataset
    table = table or run.prepared.task.entity_table
    frame = key_frame(dataset.dataset_dir, table, dataset.manifest.tables[table].pkey, rows)
    return frame.astype(str).agg(", ".join, axis=1) if len(frame) else pd.Series([], dtype=str)


def telling(found: Material, count: int) -> list[int]:
    """Seeds worth explaining: sure and right, sure and wrong, and some in between."""
    answers = found.answers
    assert answers is not None
    truth, predicted = answers.truth, answers.predicted
    if found.kind in ("binary_classification", "regression"):
        truth = truth.astype(float)
        order = np.argsort(predicted, kind="stable")
        error = np.abs(truth - predicted)
        right = order[::-1][error[order[::-1]] <= np.median(error)]
        chosen = [*right[:1], int(np.argmax(error)), int(order[0])]
        chosen += order[np.linspace(0, len(order) - 1, count + 2).astype(int)[1:-1]].tolist()
    else:
        chosen = np.linspace(0, len(predicted) - 1, count).astype(int).tolist()
    return [int(number) for number in dict.fromkeys(chosen)][:count]


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
