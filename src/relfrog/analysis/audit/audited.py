"""Audit predictions that others made: do they know what could not be known at their time?

A certificate (`relfrog.analysis.certificate`) asks the model itself; an audit has the predictions
alone. So it can show that something is wrong, never that nothing is.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.analysis.audit.predictions import Predictions, read_predictions
from relfrog.analysis.audit.signs import beyond_the_past, copied, spike
from relfrog.analysis.bootstrap import Interval, Scorer, resample
from relfrog.config import Config
from relfrog.datasets.checks.findings import CheckReport
from relfrog.datasets.labels import SPLITS
from relfrog.datasets.metrics import compute_metrics
from relfrog.errors import RelFrogError, TaskError
from relfrog.kinds import TASK_KINDS, models_for
from relfrog.models.boosting import BoostedTrees, QuickBoostedTrees
from relfrog.models.model import Model
from relfrog.models.rankers import QuickBoostedRanker
from relfrog.nn.task_heads import HEADS
from relfrog.training.opened_task import OpenedTask, open_task
from relfrog.training.seeds import Seeds

__all__ = ["LIMITS", "Audit", "Auditor", "audit"]

#: The fewest seeds from which a score, a spike or a correlation says anything.
FEWEST = 50
#: From where on signs are suspicious: measured on honest and on leaking predictions, see
#: `benchmarks/audit.py`.
SPIKE, BEYOND, HALVED, COPIED = 0.0, 0.2, 0.5, 0.2

LIMITS = (
    "An audit sees predictions, not the model: it can show a leak, never that there is none. "
    "Ask for the run and certify it: relfrog predict RUN --certify."
)


@dataclass
class Audit:
    """What an audit found.

    Attributes:
        task: dataset and task.
        split: the split that the predictions are about.
        predictions: number of predictions.
        metrics: metrics of the predictions for seeds of the split.
        baseline: the best quick model on validation, and its metrics on the same seeds.
        numbers: the evidence by name.
        report: findings, and what passed.
    """

    task: str
    split: str
    predictions: int
    metrics: dict[str, float]
    baseline: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    report: CheckReport = field(default_factory=CheckReport)

    @property
    def ok(self) -> bool:
        """Whether nothing impossible was found; there may be warnings."""
        return self.report.ok


def audit(
    predictions: str | Path | pd.DataFrame,
    dataset: str | Path,
    task: str,
    *,
    split: str = "test",
    column: str | None = None,
    time: str | None = None,
) -> Audit:
    """Look for signs of a leak in predictions for a task.

    Args:
        predictions: a CSV or Parquet file as `relfrog predict` writes it, or a file of RelBench's
            leaderboard, or a frame.
        dataset: a dataset folder, or the name of a dataset that RelBench hosts.
        task: one of its tasks.
        split: the split that the predictions are about: test or val.
        column: the column with predictions, if it cannot be told by its name.
        time: the column with times, if it cannot be told by its name.

    Raises:
        TaskError: There is no such task, or the predictions cannot be read.
    """
    return Auditor(dataset, task, split=split).audit(predictions, column=column, time=time)


class Auditor:
    """Audits predictions for a task; the models to compare them with are trained once."""

    def __init__(self, dataset: str | Path, task: str, *, split: str = "test") -> None:
        self.name, self.split, self.opened = task, split, open_task(dataset, task)
        self.seeds = self.opened.seeds(split)

    @cached_property
    def models(self) -> dict[str, Model]:
        """The honest models, trained when they are first asked for.

        Raises:
            TaskError: None could be trained.
        """
        models = _quick_models(self.opened)
        if not models:
            raise TaskError(f"{self.name}: no model could be trained to compare with.")
        return models

    @cached_property
    def honest(self) -> Model:
        """The best honest model on validation."""
        return _best(self.models)

    def audit(
        self,
        predictions: str | Path | pd.DataFrame,
        *,
        column: str | None = None,
        time: str | None = None,
    ) -> Audit:
        """Look for signs of a leak in predictions for the task: see `audit`."""
        opened, seeds, split = self.opened, self.seeds, self.split
        # Before anything is trained: a file that cannot be read is refused at once.
        prepared = opened.prepare(Config(model="lightgbm"), encode=False)
        assert prepared.train_seeds is not None
        labels = prepared.describe_labels(prepared.train_seeds)
        found = read_predictions(predictions, prepared, labels, seeds, column=column, time=time)
        known, values = found.of_seeds(len(seeds))
        if not len(known):
            raise TaskError(
                f"none of the {len(found):,} predictions is about a seed of the {split} split of "
                f"{self.name} ({_example(opened, found)}, for example). Check keys and "
                "times, or choose another --split."
            )
        scored, honest = seeds.take(known), self.honest
        truth, theirs = honest.truth(scored), honest.predict_once(seeds, None)[known]
        about = f"{opened.dataset.manifest.name}/{self.name}"
        metrics = compute_metrics(opened.kind, truth, values)
        audited = Audit(about, split, len(found), metrics)
        _check_rows(audited, opened, found, seeds, known)
        _check_times(audited, opened, found)
        _check_scores(audited, honest, scored, truth, values, theirs)
        if TASK_KINDS[opened.kind].scalar:
            y, p, q = (np.asarray(some, float) for some in (truth, values, theirs))
            _check_copies(audited, y, p, q)
            _check_spike(audited, opened, scored, p)
            trees = next((m for m in self.models.values() if isinstance(m, BoostedTrees)), None)
            if trees is not None:
                _check_beyond(audited, trees, scored, y, p, q)
        return audited


def _quick_models(opened: OpenedTask) -> dict[str, Model]:
    """The baselines that take seconds, trained."""
    models: dict[str, Model] = {}
    for kind in models_for(opened.kind):
        if not kind.baseline:
            continue
        made: type[Model] = kind.load(opened.kind)
        if kind.learns:
            made = QuickBoostedRanker if made.encoded else QuickBoostedTrees
        try:
            prepared = opened.prepare(Config(model=kind.name, trials=1), encode=made.encoded)
            assert prepared.train_seeds is not None
            model = made(prepared, prepared.describe_labels(prepared.train_seeds))
            with tempfile.TemporaryDirectory(prefix="relfrog-") as folder:
                model.fit(Path(folder))
            models[kind.name] = model
        except RelFrogError:
            continue  # the others do
    return models


def _best(models: dict[str, Model]) -> Model:
    """The best on validation."""
    best: Model | None = None
    leader: float | None = None
    for model in models.values():
        value = model.score("val", "rolling")[model.kind.metric]
        if model.kind.better(value, leader):
            best, leader = model, value
    assert best is not None
    return best


def _example(opened: OpenedTask, found: Predictions) -> str:
    return f"row {found.rows[0]} of {opened.task.entity_table} at {found.times.iloc[0]}"


def _check_rows(
    audited: Audit, opened: OpenedTask, found: Predictions, seeds: Seeds, known: NDArray[np.int64]
) -> None:
    """Whether there is one prediction for each seed, and none for others."""
    report, split = audited.report, audited.split
    missing, outside = len(seeds) - len(known), int((found.seed < 0).sum())
    twice = len(found) - outside - len(known)
    audited.numbers["seeds"] = {
        "split": len(seeds), "predicted": len(known), "outside": outside, "repeated": twice,
    }  # fmt: skip
    if missing:
        report.warning(
            "seeds", f"{missing:,} of {len(seeds):,} seeds of the {split} split have no prediction",
            "a score over some of them does not compare with one over all: ask which were left out",
        )  # fmt: skip
    if twice:
        report.error(
            "seeds", f"{twice:,} predictions are for a seed that has one already",
            "the first of each is scored here; ask which one counts",
        )  # fmt: skip
    if outside:
        place = int(np.flatnonzero(found.seed < 0)[0])
        some = f"row {found.rows[place]} of {opened.task.entity_table} at {found.times.iloc[place]}"
        report.warning(
            "seeds", f"{outside:,} predictions are for no seed of the {split} split ({some})",
            "they are not scored",
        )  # fmt: skip
    if not (missing or twice or outside):
        report.passed.append(f"one prediction for each of {len(seeds):,} seeds of {split}")


def _check_times(audited: Audit, opened: OpenedTask, found: Predictions) -> None:
    """Whether entities, and targets in lists, were known at the time."""
    graph, report = opened.graph(history=False), audited.report
    limits = graph.ticks(found.times)

    def late(table: str, rows: NDArray[np.int64], limits: NDArray[np.int64]) -> int:
        known = graph.time(table)
        return 0 if known is None else int((known[rows] > limits).sum())

    entity = opened.task.entity_table
    early = late(entity, found.rows, limits)
    if early:
        report.error(
            entity, f"{early:,} of {len(found):,} predictions are for rows that were not there yet "
            "at their time", "whoever made them saw rows of the future",
        )  # fmt: skip
    target = opened.task.dst_entity_table if TASK_KINDS[opened.kind].ranks else None
    unborn = 0
    if target is not None:
        lists = found.values[:, :, 0].astype(np.int64)
        who, rank = np.nonzero(lists >= 0)
        rows = lists[who, rank]
        beyond = int((rows >= graph.num_rows[target]).sum())
        if beyond:
            report.error(target, f"{beyond:,} recommended rows do not exist", "check the keys")
            who, rows = (some[rows < graph.num_rows[target]] for some in (who, rows))
        unborn = late(target, rows, limits[who])
        if unborn:
            report.error(
                target, f"{unborn:,} of {len(rows):,} recommended rows were not there yet at the "
                "time of the prediction", "whoever made them saw rows of the future",
            )  # fmt: skip
    audited.numbers["not_there_yet"] = {"entities": early, "targets": unborn}
    if not early and not unborn:
        report.passed.append("everything that is named was known at the time of its prediction")


def _check_scores(
    audited: Audit, honest: Model, seeds: Seeds, truth: NDArray[Any], values: NDArray[Any],
    theirs: NDArray[Any],
) -> None:  # fmt: skip
    """Whether the score is too good beside that of the best quick model."""
    kind, report = TASK_KINDS[honest.prepared.kind], audited.report
    metric, name = kind.metric, honest.prepared.config.model
    scorers = [Scorer(kind.name, metric, truth, some) for some in (values, theirs)]
    own = resample(np.asarray(seeds.rows), scorers[0])
    other = scorers[1](np.arange(len(seeds)))
    perfect = 1.0 if kind.higher else 0.0

    def left(at: NDArray[np.int64]) -> float:
        """The part of the honest model's error that the predictions leave."""
        ours, known = (abs(perfect - scorer(at)) for scorer in scorers)
        return ours / known if known else float("nan")

    halved = resample(np.asarray(seeds.rows), left)
    audited.baseline = {"model": name, "metrics": {metric: other}}
    audited.numbers["score"] = {"metric": metric, **_numbers(own), "error_left": _numbers(halved)}
    said = f"{metric} {own.value:.4f} (95 % range {own.low:.4f} to {own.high:.4f})"
    if len(seeds) < FEWEST:
        report.passed.append(f"{said}, on too few seeds ({len(seeds)}) to judge")
    elif own.value == perfect:
        report.error(
            "score", f"{said} is perfect on {len(seeds):,} seeds; {name} has {other:.4f}",
            "no forecast of real events is: look for the label, or something made from it, among "
            "the features",
        )  # fmt: skip
    elif halved.high < HALVED:
        report.warning(
            "score", f"{said} leaves {halved.value:.0%} of the error of {name} ({other:.4f}), the "
            "best quick model on validation",
            "ask what was known that these features do not show",
        )  # fmt: skip
    else:
        report.passed.append(f"{said}; {name}, the best quick model on validation, has {other:.4f}")


def _check_copies(audited: Audit, truth: Any, values: Any, theirs: Any) -> None:
    share, usual = copied(truth, values, theirs)
    audited.numbers["equal_to_label"] = {"share": share, "baseline": usual}
    if share - usual > COPIED and len(np.unique(values)) > 2:
        audited.report.error(
            "labels", f"{share:.0%} of the predictions equal their label exactly, where a label is "
            f"not the most frequent one; {usual:.0%} of those of an honest model do",
            "labels were copied",
        )  # fmt: skip
    else:
        audited.report.passed.append("no more predictions equal their label than by chance")


def _check_spike(audited: Audit, opened: OpenedTask, seeds: Seeds, values: Any) -> None:
    labels: dict[tuple[int, int], float] = {}
    for split in SPLITS:
        some = opened.seeds(split)
        assert some.labels is not None
        ticks = some.times.astype("datetime64[us]").astype(np.int64).tolist()
        truth = np.asarray(HEADS[opened.kind].truth({}, some.labels), float).tolist()
        labels |= zip(zip(np.asarray(some.rows).tolist(), ticks, strict=True), truth, strict=True)
    found, count = spike(values, seeds, labels, opened.task.timedelta)
    audited.numbers["spike"] = {**_numbers(found), "seeds": count}
    if count < FEWEST or np.isnan(found.low):
        audited.report.passed.append(
            f"too few seeds ({count}) have labels before and after to compare them in time"
        )
    elif found.low > SPIKE:
        audited.report.warning(
            "labels", "predictions agree with their own label far more than with the one before, "
            f"which was known (rank correlation {found.value:+.2f}, {found.low:+.2f} to "
            f"{found.high:+.2f}, over {count:,} seeds)",
            "innocent if something known in advance, such as a calendar, tells one window from "
            "the next; otherwise something of the window was seen",
        )  # fmt: skip
    else:
        audited.report.passed.append(
            "predictions agree with their own label no more than forecasts do, beside the labels "
            "before and after"
        )


def _check_beyond(
    audited: Audit, trees: BoostedTrees, seeds: Seeds, truth: Any, values: Any, theirs: Any
) -> None:
    rows = np.asarray(seeds.rows)
    if len(seeds) < FEWEST:
        return
    features = trees.maker.make(rows, trees.limits(seeds, None), seeds.times)
    found = beyond_the_past(features, theirs, truth, values, rows)
    audited.numbers["beyond_the_past"] = _numbers(found)
    if found.low > BEYOND:
        audited.report.warning(
            "labels", "predictions follow labels where the past says nothing (correlation of what "
            f"{len(trees.maker.names)} features of the past leave unexplained {found.value:+.2f}, "
            f"{found.low:+.2f} to {found.high:+.2f})",
            "innocent if the model knows something of the past that these features do not show; "
            "otherwise the future was seen",
        )  # fmt: skip
    else:
        audited.report.passed.append(
            "what the past leaves unexplained of the labels is not in the predictions "
            f"(correlation {found.value:+.2f})"
        )


def _numbers(found: Interval) -> dict[str, float | None]:
    return {
        name: None if np.isnan(value) else round(float(value), 4)
        for name, value in found._asdict().items()
    }
