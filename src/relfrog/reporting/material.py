"""The material of a report, and reading the part of it that every run folder contains.

Any part can be missing; a sentence that says why is shown instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.explanation import Explanation
from relfrog.analysis.fd_space import Differences
from relfrog.analysis.importance import Importance
from relfrog.errors import RelFrogError, RunError
from relfrog.kinds import MODELS
from relfrog.models.auto import NETWORK_MEMBER
from relfrog.models.postprocessing.bundle import Postprocessing, load_postprocessing
from relfrog.models.run_folder import BACKTESTS, BLEND, MEMBERS
from relfrog.models.run_forms import (
    BLEND_FORM,
    BacktestsFile,
    BaselinesFile,
    DatabaseFile,
    Metrics,
    RoleEntry,
)
from relfrog.reporting.schema_drawing import Schema
from relfrog.runs.run import Run
from relfrog.support.forms import read_json
from relfrog.support.lists import are_in
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
    """Test predictions, in the rolling regime.

    Attributes:
        seeds: entities and times.
        truth: the labels.
        predicted: the predictions.
        past: number of rows that refer to each entity by its time: the length of its history.
        keys: keys of the entities in the source.
        raw: the predictions before calibration; None if these are not known.
        targets: for recommendations, keys in the source of the targets shown, by row.
    """

    seeds: Seeds
    truth: NDArray[Any]
    predicted: NDArray[Any]
    past: NDArray[np.int64]
    keys: list[str]
    targets: dict[int, str] = field(default_factory=dict)
    raw: NDArray[Any] | None = None


@dataclass(eq=False)
class Material:
    """Everything that a report shows; missing parts are None, with a reason in `why`.

    Attributes:
        run: the run.
        schema: tables and routes, to be drawn.
        database: the content of `database.json`.
        roles: the gates.
        history: the training history, one row per epoch.
        metrics: the scores.
        baselines: scores of the baselines; for `auto`, of its members.
        blend: for `auto`, the members, their weights, and the members left out.
        backtests: what LightGBM's features and settings were chosen by.
        postprocessing: calibration, thresholds and intervals.
        answers: test predictions.
        importance: table and column importance.
        explanations: some predictions explained.
        differences: differences of foreign-key pairs in the embedding.
        same_data: whether the dataset is unchanged since training; None if it was not read.
        kept: whether the parts that need the data come from the cache of an earlier report.
        why: the reason why a part is missing.
    """

    run: Run
    schema: Schema | None = None
    database: dict[str, Any] | None = None
    roles: list[dict[str, Any]] = field(default_factory=list)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    metrics: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, Any] | None = None
    blend: dict[str, Any] | None = None
    backtests: dict[str, Any] | None = None
    postprocessing: Postprocessing = field(default_factory=Postprocessing)
    answers: Answers | None = None
    importance: Importance | None = None
    explanations: list[Explanation] = field(default_factory=list)
    differences: Differences | None = None
    same_data: bool | None = None
    kept: bool = False
    why: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """RelBench's name of the task type."""
        return str(self.run.about["task_type"])

    @property
    def network(self) -> bool:
        """Whether the model is a network, or has one as a member."""
        return self.network_run is not None

    @property
    def network_run(self) -> Run | None:
        """The run of the network: this one, or that of a member; None without one."""
        run = self.run
        return run if MODELS[run.config.model].network else run.network_member

    @property
    def member_note(self) -> str:
        """Of a blend: whose epochs, roles and embeddings are shown, and what they weigh."""
        if not self.blend or self.network_run is None:
            return ""
        weight = float((self.blend.get("weights") or {}).get(NETWORK_MEMBER) or 0.0)
        if weight:
            return f"This is the member frog, whose weight in the blend is {weight:.2f}."
        return (
            "This is the member frog. Its weight in the blend is 0, so predictions do not depend "
            "on it."
        )

    @property
    def other(self) -> str:
        """What the model is compared with."""
        return "member" if self.blend else "baseline"

    @property
    def metric(self) -> tuple[str, bool]:
        """The main metric, and whether higher is better."""
        kind = self.run.kind
        return kind.metric, kind.higher

    @property
    def quantile(self) -> float | None:
        """What was predicted, if it is a quantile."""
        return self.run.quantile

    def score(self, split: str, regime: str, metric: str | None = None) -> float | None:
        """A score from the run folder."""
        value = self.metrics.get(split, {}).get(regime, {}).get(metric or self.metric[0])
        return None if value is None else float(value)


def read_folder(found: Material) -> None:
    """Read what training wrote to the run folder."""
    folder = found.run.folder
    found.database = _json(folder / "database.json", DatabaseFile)
    network = (found.network_run or found.run).folder
    found.roles = _json(network / "roles.json", list[RoleEntry]) or []
    found.metrics = _json(folder / "metrics.json", Metrics) or {}
    baselines = _json(folder / "baselines.json", BaselinesFile)
    found.baselines = (baselines or {}).get("models") or None
    found.blend = _json(folder / BLEND, BLEND_FORM)
    for place in (folder, folder / MEMBERS / "lightgbm"):
        found.backtests = found.backtests or _json(place / BACKTESTS, BacktestsFile)
    if found.run.about.get("postprocessing"):
        found.postprocessing = load_postprocessing(folder, found.run.about["labels"])
    if found.blend:  # compare with the members
        scores = {
            name: _json(folder / MEMBERS / name / "metrics.json", Metrics) or known
            for name, known in (found.blend.get("members") or {}).items()
        }
        found.baselines = scores or None
    try:
        found.history = (found.network_run or found.run).history()
    except RelFrogError as error:
        found.why["history"] = sentence(error)


def _json(path: Path, form: Any) -> Any:
    """The content of a file; None if there is none, or it is damaged."""
    try:
        return read_json(path, form)
    except RunError:
        return None


def sentence(error: BaseException) -> str:
    """The message of an error as a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


#: Example lists to show, and entries of each.
LISTS, ENTRIES = 10, 10


def shown_lists(
    truth: NDArray[Any], predicted: NDArray[Any]
) -> tuple[list[int], NDArray[np.float64]]:
    """Choose example lists, evenly spread from the best to the worst.

    Args:
        truth: the true targets per seed.
        predicted: targets and scores. Shape [seeds, k, 2].

    Returns:
        The seeds of the lists, and the precision of every list. Shape [seeds].
    """
    lists = predicted[:, :, 0].astype(np.int64)
    hits = are_in(lists, truth).mean(1)
    order = np.argsort(-hits, kind="stable")
    return order[np.unique(np.linspace(0, len(order) - 1, LISTS).astype(int))].tolist(), hits


def listed(predicted: NDArray[Any]) -> list[int]:
    """The targets of a list to show. Shape of the list [k, 2]."""
    return [int(row) for row in predicted[:ENTRIES, 0] if row >= 0]


def missed(truth: NDArray[Any], predicted: NDArray[Any]) -> list[int]:
    """True targets that are not in the list."""
    there = set(predicted[:, 0].astype(np.int64).tolist())
    return [int(row) for row in truth if int(row) not in there]
