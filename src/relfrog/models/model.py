"""The interface of all models: fit, save, load, predict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relfrog.graph.popularity import ListRequest
from relfrog.kinds import TaskKind, task_kind
from relfrog.models.backtest import Fold
from relfrog.models.postprocessing.bundle import Postprocessing
from relfrog.nn.task_heads import HEADS
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback
from relfrog.training.opened_task import OpenedTask
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

    from relfrog.cluster.team import Team
    from relfrog.cluster.workers import Workers

__all__ = ["Model", "TableChange"]


@dataclass(frozen=True, eq=False)
class TableChange:
    """A task as it is but for one table.

    Attributes:
        opened: the task with the change.
        table: the table.
        order: the row whose values each row takes; None if all rows are hidden. Shape [rows].
        column: the only column that is shuffled; None for all.
    """

    opened: OpenedTask
    table: str
    order: NDArray[np.int64] | None
    column: str | None


class Model(ABC):
    """Learns from a prepared task, and predicts for seeds from what was known at their times.

    Graph networks, boosted trees, statistics of past labels and `auto` are models;
    `relfrog.kinds.MODELS` registers each with the task types that it supports.

    Args:
        prepared: the database and the task.
        labels: description of the training labels, from `Prepared.describe_labels`.
        device: the device to compute on.
        gates: fixed gates by route, if roles are not learned.
    """

    #: Whether it reads columns encoded as tensors; otherwise it reads the tables themselves.
    encoded: ClassVar[bool] = False

    def __init__(
        self,
        prepared: Prepared,
        labels: dict[str, Any],
        *,
        device: str = "cpu",
        gates: Mapping[str, float] | None = None,
    ) -> None:
        self.prepared, self.labels = prepared, labels
        self.device, self.gates = device, gates
        #: Workers to train a network with; None for this process alone.
        self.team: Team | None = None
        #: Processes that run jobs of models that are no networks; None for this process alone.
        self.workers: Workers | None = None
        #: The lines of `history.jsonl`: epochs, or trials of a search.
        self.trials: list[dict[str, Any]] = []
        #: Facts about the fitted model for `run.json`.
        self.facts: dict[str, Any] = {}
        #: What turns predictions into answers; nothing until it is fitted on validation.
        self.postprocessing = Postprocessing()
        #: Whether to refit with setting "auto": somebody else knows whether newer labels help.
        self.refit_helps = False
        #: The folder of the model selected by validation, for a refitted model; None otherwise.
        self.selected_folder: Path | None = None
        #: Predictions for whole splits, by split and cut-off.
        self._known: dict[tuple[str, pd.Timestamp | None], NDArray[Any]] = {}

    @property
    def kind(self) -> TaskKind:
        """The task type."""
        return task_kind(self.prepared.kind, str(self.labels.get("loss", "l1")))

    @abstractmethod
    def fit(
        self,
        folder: Path,
        budget: Budget = UNLIMITED,
        callbacks: Sequence[Callback] = (),
        *,
        resume: bool = False,
    ) -> None:
        """Learn from the training labels.

        Args:
            folder: the run folder, for checkpoints.
            budget: time budget.
            callbacks: notified of progress.
            resume: whether to resume from the checkpoints in the folder.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the fitted state to a folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read the fitted state from a folder.

        Raises:
            RunError: A file is missing or damaged.
        """

    @abstractmethod
    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """Predict for seeds, from rows up to each seed's time, in the form of the metrics.

        Predictions are raw: not calibrated. Members of an ensemble are combined as they are, and
        calibrated once, together.

        Args:
            seeds: entities and times.
            cutoff: where the database ends for all seeds; None for each seed's own time.
            request: for a recommendation, length and content of the lists.
        """

    def foretell(self, folds: Sequence[Fold]) -> list[NDArray[Any]] | None:
        """What a model that was trained at the time of each fold predicts for its scored seeds.

        Returns:
            The predictions, by fold; None if the model would have to be trained anew for that.
        """
        return None

    def predict_alone(self, seeds: Seeds, request: ListRequest | None = None) -> NDArray[Any]:
        """As `predict`, at each seed's own time, for each seed as if no other were asked about.

        Scores are computed as models are trained, which for a network may mean that seeds of a
        batch share a sampled past. Whoever asks about an entity gets the same answer each time.
        """
        return self.predict(seeds, None, request)

    def predict_once(self, seeds: Seeds, cutoff: pd.Timestamp | None) -> NDArray[Any]:
        """As `predict`, and remembered where these are all seeds of a split.

        Scores of a run, the choice of a blend and the report look at the same predictions. Where
        no seed is later than the cut-off, it makes no difference, as if there were none.
        """
        split = self.prepared.opened.split_of(seeds)
        if split is None:
            return self.predict(seeds, cutoff)
        return self._once(split, seeds, cutoff, lambda: self.predict(seeds, cutoff))

    def remember(self, seeds: Seeds, cutoff: pd.Timestamp | None, predicted: NDArray[Any]) -> None:
        """Take what `predict` would give, as training has just computed it."""
        split = self.prepared.opened.split_of(seeds)
        if split is not None:
            self._once(split, seeds, cutoff, lambda: predicted)

    def _once(
        self,
        split: str,
        seeds: Seeds,
        cutoff: pd.Timestamp | None,
        predict: Callable[[], NDArray[Any]],
    ) -> NDArray[Any]:
        """Predictions for all seeds of a split, made if nobody has made them before."""
        if cutoff is not None and not (seeds.times > cutoff).any():
            cutoff = None
        if (split, cutoff) not in self._known:
            self._known[split, cutoff] = self._stored(split, cutoff, predict)
        return self._known[split, cutoff]

    def _stored(
        self, split: str, cutoff: pd.Timestamp | None, predict: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
        """Predictions from the store, if the same model was asked before."""
        parts, content = self.prepared.opened.parts, self.content()
        if parts is None or content is None:
            return predict()
        about = {
            "model": content, "settings": vars(self.prepared.config), "labels": self.labels,
            "gates": self.gates, "device": self.device, "split": split, "cutoff": str(cutoff),
            "history": self.prepared.history,
        }  # fmt: skip
        return parts.predictions(about, self.prepared.opened.db, predict)

    def content(self) -> str | None:
        """A hash of what was learned; None if predictions are not worth keeping."""
        return None

    def answer(self, seeds: Seeds, cutoff: pd.Timestamp | None) -> NDArray[Any]:
        """As `predict_once`, calibrated."""
        return self.postprocessing.apply(self.predict_once(seeds, cutoff))

    @cached_property
    def selected(self) -> Model:
        """The model selected by validation: this model, unless it was refitted afterwards.

        A model that was refitted on validation labels cannot be scored on them.
        """
        if self.selected_folder is None:
            return self
        other = self._copy()
        other.load(self.selected_folder)
        return other

    @property
    def refitted(self) -> bool:
        """Whether it has learned from validation labels, after they had selected it."""
        return self.selected_folder is not None or vars(self).get("selected", self) is not self

    def _copy(self) -> Self:
        """A shallow copy, to load other weights into."""
        other = copy(self)
        other.selected_folder, other._known = None, {}
        vars(other).pop("selected", None)
        return other

    def with_change(self, change: TableChange) -> Model | None:
        """The fitted model on a changed task; None if it has to be loaded anew there."""
        return None

    def _on(self, opened: OpenedTask) -> Self:
        """A copy on another state of the database, with the same columns and settings."""
        before, other = self.prepared, self._copy()
        columns, history = before.columns if self.encoded else None, before.history is not None
        other.prepared = replace(
            before, opened=opened, graph=opened.graph(history, columns),
            features=opened.encode(before.columns, history) if self.encoded else {},
        )  # fmt: skip
        return other

    @property
    def members(self) -> dict[str, Model]:
        """The members of an ensemble, by name; otherwise empty."""
        return {}

    def roles(self) -> list[dict[str, Any]]:
        """The learned role of each route, for `roles.json`; empty without a network."""
        return []

    def limits(self, seeds: Seeds, cutoff: pd.Timestamp | None) -> NDArray[np.int64]:
        """The cut-off of each seed, in ticks of the graph. Shape [seeds]."""
        limits = self.prepared.graph.ticks(seeds.times)
        if cutoff is not None:
            limits = np.minimum(limits, self.prepared.graph.ticks([cutoff])[0])
        return limits

    def score(self, split: str, regime: str) -> dict[str, float]:
        """Metrics on the seeds of a split."""
        seeds = self.prepared.seeds(split)
        model = self.selected if split == "val" else self
        return self.metrics(seeds, model.answer(seeds, self.prepared.cutoff(split, regime)))

    def truth(self, seeds: Seeds) -> Any:
        """Labels for the metrics: an array, or `Lists` of a recommendation. Shape [seeds]."""
        assert seeds.labels is not None
        return HEADS[self.kind.name].truth(self.labels, seeds.labels)

    def metrics(self, seeds: Seeds, predicted: NDArray[Any]) -> dict[str, float]:
        """Metrics of calibrated predictions for seeds."""
        truth, labels = self.truth(seeds), self.labels
        return self.postprocessing.metrics(
            self.kind.name, truth, predicted, labels.get("std"), labels.get("quantile")
        )
