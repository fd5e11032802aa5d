"""What a report is made of, and the part of it that lies in every run folder.

Everything may be missing: then there is a sentence that says so instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.explanation import Explanation
from relfrog.analysis.fd_space import Differences
from relfrog.analysis.importance import Importance
from relfrog.errors import RelFrogError
from relfrog.kinds import MODELS, TASK_KINDS
from relfrog.models.run_folder import BLEND, MEMBERS
from relfrog.reporting.schema import Schema
from relfrog.runs.run import Run
from relfrog.training.seeds import Seeds

__all__ = [
    "ENTRIES",
    "Answers",
    "Material",
    "listed",
    "missed",
    "read_folder",
    "sentence",
    "shown_lists",
]


@dataclass(frozen=True, eq=False)
class Answers:
    """Predictions on test, in the rolling regime.

    Attributes:
        seeds: whom for, and when.
        truth: what became of them.
        predicted: what was predicted.
        past: rows that refer to each entity at its time: how much history it had.
        keys: the source's names of the entities.
        targets: for recommendations, the source's names of those targets that are shown, by row.
    """

    seeds: Seeds
    truth: NDArray[Any]
    predicted: NDArray[Any]
    past: NDArray[np.int64]
    keys: list[str]
    targets: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False)
class Material:
    """Everything that a report shows; None, with a reason in `why`, where it is not there.

    Attributes:
        run: the run.
        schema: tables and routes, to be drawn.
        database: what the run was trained on.
        roles: the gates.
        history: the epochs.
        metrics: the scores.
        baselines: scores of others; of `auto` those of its members.
        blend: of `auto` the members, their weights, and who was left out.
        answers: predictions on test.
        importance: what tables are worth.
        explanations: some predictions explained.
        differences: of foreign-key pairs.
        same_data: whether the dataset is still what was trained on; None if it was not read.
        kept: whether what comes from the data was kept by an earlier report.
        why: why something is missing.
    """

    run: Run
    schema: Schema | None = None
    database: dict[str, Any] | None = None
    roles: list[dict[str, Any]] = field(default_factory=list)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    metrics: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, Any] | None = None
    blend: dict[str, Any] | None = None
    answers: Answers | None = None
    importance: Importance | None = None
    explanations: list[Explanation] = field(default_factory=list)
    differences: Differences | None = None
    same_data: bool | None = None
    kept: bool = False
    why: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type of task."""
        return str(self.run.about["task_type"])

    @property
    def network(self) -> bool:
        """Whether the model is a network."""
        return MODELS[self.run.config.model].network

    @property
    def other(self) -> str:
        """What the others are that the model is compared with."""
        return "member" if self.blend else "simple answer"

    @property
    def metric(self) -> tuple[str, bool]:
        """The main metric, and whether more of it is better."""
        kind = TASK_KINDS[self.kind]
        return kind.metric, kind.higher

    def score(self, split: str, regime: str, metric: str | None = None) -> float | None:
        """A score from the run folder."""
        value = self.metrics.get(split, {}).get(regime, {}).get(metric or self.metric[0])
        return None if value is None else float(value)


def read_folder(found: Material) -> None:
    """What training itself left."""
    folder = found.run.folder
    found.database = _json(folder / "database.json", dict)
    found.roles = _json(folder / "roles.json", list) or []
    found.metrics = _json(folder / "metrics.json", dict) or {}
    baselines = _json(folder / "baselines.json", dict)
    found.baselines = (baselines or {}).get("models") or None
    found.blend = _json(folder / BLEND, dict)
    if found.blend:  # the others are the members, with all their scores
        scores = {
            name: _json(folder / MEMBERS / name / "metrics.json", dict) or known
            for name, known in (found.blend.get("members") or {}).items()
        }
        found.baselines = scores or None
    try:
        found.history = found.run.history()
    except RelFrogError as error:
        found.why["history"] = sentence(error)


def _json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, kind) else None


def sentence(error: BaseException) -> str:
    """An error in words."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


#: Entities that are shown, and entries of their lists.
LISTS, ENTRIES = 10, 10


def shown_lists(
    truth: NDArray[Any], predicted: NDArray[Any]
) -> tuple[list[int], NDArray[np.float64]]:
    """Numbers of lists from the best to the worst, evenly spread; and the hits of every list.

    Args:
        truth: the rows that came, per seed.
        predicted: rows and scores. Shape [seeds, k, 2].

    Returns:
        The numbers, and the share of each list that came. Shape [seeds].
    """
    lists = predicted[:, :, 0].astype(np.int64)
    hits = np.array([np.isin(row, some).mean() for row, some in zip(lists, truth, strict=True)])
    order = np.argsort(-hits, kind="stable")
    return order[np.unique(np.linspace(0, len(order) - 1, LISTS).astype(int))].tolist(), hits


def listed(predicted: NDArray[Any]) -> list[int]:
    """Rows of a list that are shown. Shape of the list [k, 2]."""
    return [int(row) for row in predicted[:ENTRIES, 0] if row >= 0]


def missed(truth: NDArray[Any], predicted: NDArray[Any]) -> list[int]:
    """Rows that came, but are not in the list."""
    there = set(predicted[:, 0].astype(np.int64).tolist())
    return [int(row) for row in truth if int(row) not in there]
