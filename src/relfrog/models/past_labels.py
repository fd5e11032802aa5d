"""Baselines from past labels: means and medians, per entity or global, of all or recent labels.

A label is known from the end of its window on. So these models use the labels whose windows had
closed by the time of the seed, or by the time at which the database ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relfrog.errors import RunError
from relfrog.graph.popularity import ListRequest
from relfrog.models.backtest import Backtests, Fold
from relfrog.models.model import Model, TableChange
from relfrog.models.out_of_time import earlier_folds, training_seeds
from relfrog.models.run_forms import Constant
from relfrog.store.file_table import read_column
from relfrog.support.arrays import class_numbers, unique_pairs
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.support.lists import matrix
from relfrog.support.text import text_digest
from relfrog.training.budget import UNLIMITED, Budget
from relfrog.training.callbacks import Callback, announce
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EntityMean",
    "EntityMedian",
    "GlobalMean",
    "GlobalMedian",
    "PastLabels",
    "RecentMean",
    "label_rows",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Labels of slices that are sorted at once, to bound the memory.
AT_ONCE = 2_000_000


def label_rows(kind: str, labels: NDArray[Any], about: dict[str, Any]) -> Floats:
    """Labels as numbers whose mean is a prediction; NaN for an unseen class. Shape [n, outputs].

    A value, or 0 or 1; one-hot for multiclass labels; 0 or 1 per label for multilabel ones.
    """
    if kind == "multilabel_classification":
        if not len(labels):
            return np.zeros((0, int(about["labels"])))
        return matrix(labels).astype(float)
    if kind == "multiclass_classification":
        classes = about["classes"]
        codes = class_numbers(labels, classes, unseen=-1)
        rows = np.zeros((len(labels), len(classes)))
        rows[np.arange(len(labels)), codes] = 1.0
        rows[codes < 0] = np.nan
        return rows
    return labels.astype(float)[:, None]


class PastLabels:
    """All past labels, and lookup of those that a seed can see.

    Attributes:
        values: labels as numbers, sorted by entity and end of window. Shape [labels, outputs].
        rows: their rows in the table of earlier labels. Shape [labels].
        in_time: the values, sorted by end of window.
        rows_in_time: their rows.
    """

    def __init__(self, prepared: Prepared, about: dict[str, Any]) -> None:
        kind = prepared.kind
        assert prepared.history is not None
        table = prepared.db.table_dict[prepared.history]
        values = label_rows(kind, read_column(table, "label").to_numpy(), about)
        ends = prepared.graph.time(prepared.history)
        assert ends is not None
        known = ~np.isnan(values).any(1)
        entity, ends = read_column(table, "entity").to_numpy(np.int64)[known], ends[known]
        order = np.argsort(ends, kind="stable")
        self.in_time, self._ends = values[known][order], ends[order]
        self.rows_in_time = np.flatnonzero(known)[order]
        self._moments = np.unique(ends)
        order = order[np.argsort(entity[order], kind="stable")]
        self.values, self.rows = values[known][order], np.flatnonzero(known)[order]
        self._places = entity[order] * self._step + np.searchsorted(self._moments, ends[order])

    @property
    def _step(self) -> int:
        return len(self._moments) + 1

    def own(self, rows: Ints, limits: Ints) -> tuple[Ints, Ints]:
        """Begin and end in `values` of the labels of each seed's entity that it can see."""
        begin = np.searchsorted(self._places, rows * self._step)
        moment = np.searchsorted(self._moments, limits, "right")
        return begin, np.searchsorted(self._places, rows * self._step + moment)

    def all(self, limits: Ints) -> Ints:
        """Number of entries of `in_time` that each seed can see."""
        return np.searchsorted(self._ends, limits, "right")


def slice_means(values: Floats, begin: Ints, end: Ints) -> Floats:
    """Means of values[begin:end], NaN for empty slices. Shape [n, outputs]."""
    found = np.full((len(begin), values.shape[1]), np.nan)
    some = np.flatnonzero(end > begin)
    if len(some):
        pairs = np.stack([begin[some], end[some]], 1).ravel()
        # reduceat needs a row at the end of the last slice.
        padded = np.concatenate([values, np.zeros((1, values.shape[1]))])
        sums = np.add.reduceat(padded, pairs, axis=0)[::2]
        found[some] = sums / (end - begin)[some, None]
    return found


def slice_medians(values: Floats, begin: Ints, end: Ints) -> Floats:
    """Medians of values[begin:end], NaN for empty slices. Shape [n, outputs]."""
    found = np.full((len(begin), values.shape[1]), np.nan)
    some = np.flatnonzero(end > begin)
    first, last, place = unique_pairs(begin[some], end[some])
    medians = np.empty((len(first), values.shape[1]))
    lengths = last - first
    # Slices of the same length are one array; long ones are looked at a few at a time.
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        for part in np.array_split(alike, 1 + len(alike) * length // AT_ONCE):
            medians[part] = np.median(values[first[part, None] + np.arange(length)], axis=1)
    found[some] = medians[place]
    return found


class PastModel(Model):
    """Predicts from past labels of the entity; without any, from those of all entities."""

    FILE = "baseline.json"
    #: Whether to use the median rather than the mean.
    median: ClassVar[bool] = False
    #: Whether to use the entity's own labels first.
    own: ClassVar[bool] = True
    #: The number of latest labels of the entity to use; None for all.
    last: int | None = None

    def __init__(self, prepared: Prepared, labels: dict[str, Any], **options: Any) -> None:
        super().__init__(prepared, labels, **options)
        self.constant: Floats = np.zeros(0)

    @cached_property
    def past(self) -> PastLabels:
        """All past labels."""
        return PastLabels(self.prepared, self.labels)

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Store the prediction for times before any label is known."""
        assert self.prepared.train_seeds is not None
        self.constant = self._middle(self.prepared.train_seeds)

    def _middle(self, seeds: Seeds) -> Floats:
        """The mean or median of the labels of seeds. Shape [outputs]."""
        assert seeds.labels is not None
        rows = label_rows(self.kind.name, seeds.labels, self.labels)
        return np.asarray(np.median(rows, 0) if self.median else np.mean(rows, 0))

    def save(self, folder: Path) -> None:
        """Write JSON."""
        found = {"constant": self.constant.tolist(), "last": self.last}
        write_json(folder / self.FILE, found)

    def load(self, folder: Path) -> None:
        """Read JSON."""
        found = read_json(folder / self.FILE, Constant)
        self.constant, self.last = np.array(found["constant"], float), found["last"]
        if len(self.constant) != self.past.values.shape[1]:
            raise RunError(f"{folder / self.FILE} does not fit the labels. Train again.")

    def content(self) -> str | None:
        """A hash of the rule."""
        rule = [type(self).__name__, self.constant.tolist(), self.last]
        return text_digest(json.dumps(rule))

    def predict(
        self, seeds: Seeds, cutoff: pd.Timestamp | None, request: ListRequest | None = None
    ) -> NDArray[Any]:
        """The mean or median of the known labels."""
        return self._answer(seeds, self.limits(seeds, cutoff), self.last, self.constant)

    def with_change(self, change: TableChange) -> PastModel:
        """Only the past labels are looked up anew."""
        other = self._on(change.opened)
        other.past = PastLabels(other.prepared, other.labels)
        return other

    def foretell(self, folds: Sequence[Fold]) -> list[NDArray[Any]]:
        """The predictions as they would have been at the time of each fold."""
        return self._foretold(folds, self.last)

    def _foretold(self, folds: Sequence[Fold], last: int | None) -> list[NDArray[Any]]:
        train, frozen = training_seeds(self.prepared), self.prepared.config.regime == "frozen"
        found = []
        for fold in folds:
            constant, asked = self._middle(train.take(fold.learned)), train.take(fold.scored)
            limits = self.limits(asked, fold.cut if frozen else None)
            found.append(self._answer(asked, limits, last, constant))
        return found

    def _answer(
        self, seeds: Seeds, limits: Ints, last: int | None, constant: Floats
    ) -> NDArray[Any]:
        found = np.full((len(seeds), len(constant)), np.nan)
        middle = slice_medians if self.median else slice_means
        if self.own:
            begin, end = self.past.own(np.asarray(seeds.rows), limits)
            if last is not None:
                begin = np.maximum(begin, end - last)
            found = middle(self.past.values, begin, end)
        count, place = np.unique(self.past.all(limits), return_inverse=True)
        everyone = middle(self.past.in_time, np.zeros_like(count), count)[place]
        found = np.where(np.isnan(found), everyone, found)
        found = np.where(np.isnan(found), constant, found)
        return found[:, 0] if self.kind.scalar else found


class EntityMean(PastModel):
    """The mean of the entity's past labels: a value, a share, or the shares of classes."""


class EntityMedian(PastModel):
    """The median of the entity's past labels."""

    median = True


class GlobalMean(PastModel):
    """The mean of all past labels."""

    own = False


class GlobalMedian(PastModel):
    """The median of all past labels."""

    own, median = False, True


class RecentMean(PastModel):
    """The mean of the entity's last n labels; n is selected by backtests."""

    #: The candidates for n; None for all labels.
    TRIED = (1, 2, 3, 5, 10, 20, 50, None)

    def fit(
        self, folder: Path, budget: Budget = UNLIMITED, callbacks: Sequence[Callback] = (), *,
        resume: bool = False,
    ) -> None:  # fmt: skip
        """Select n on seeds of earlier times and the validation seeds."""
        super().fit(folder, budget, callbacks, resume=resume)
        regime, metric = self.prepared.config.regime, self.kind.metric
        train, val = training_seeds(self.prepared), self.prepared.seeds("val")
        limits = self.limits(val, self.prepared.cutoff("val", regime))
        folds = earlier_folds(self.prepared)
        truth = [*(self.truth(train.take(fold.scored)) for fold in folds), self.truth(val)]
        tests = Backtests(self.kind, truth, self.labels.get("quantile"))
        reference: list[float] = []
        best: float | None = None
        for last in self.TRIED:
            predicted = [
                *self._foretold(folds, last),
                self._answer(val, limits, last, self.constant),
            ]
            scores = tests.scores(predicted)
            reference = reference or scores
            self.trials.append(
                {"last": last, "regime": regime, "val": self.metrics(val, predicted[-1]),
                 "backtests": scores}
            )  # fmt: skip
            gain = tests.gain(scores, reference)
            if best is None or gain > best or (np.isnan(best) and not np.isnan(gain)):
                best, self.last, said = gain, last, scores
        chosen = f"the last {self.last} labels" if self.last else "all labels"
        chosen = "the last label" if self.last == 1 else chosen
        words = f"recent: mean of {chosen}, val {metric} {said[-1]:.4f}"
        if folds:
            words += f", {len(said)} backtests {tests.mean(said):.4f}"
        announce(callbacks, words)
