"""What turns raw predictions of a run into answers, in `postprocessing.json` of the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from relfrog.config import Config
from relfrog.datasets.metrics import compute_metrics
from relfrog.errors import RunError
from relfrog.kinds import parse_threshold
from relfrog.models.postprocessing.calibrators import Calibrator, PerLabel, Temperature
from relfrog.models.postprocessing.choice import choose_calibrator
from relfrog.models.postprocessing.intervals import PredictionInterval, choose_interval
from relfrog.models.postprocessing.thresholds import choose_threshold
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.support.lists import matrix

__all__ = ["FILE", "Postprocessing", "fit_postprocessing", "load_postprocessing"]

FILE = "postprocessing.json"
#: Labels of either value that a label of a multilabel task needs for a threshold of its own.
FEWEST = 10


class Postprocessing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with raw predictions before anyone sees them; by default nothing.

    Attributes:
        calibration: the map from raw to calibrated probabilities; None for none.
        thresholds: from which calibrated probability on the answer is yes: of a binary task one, of
            a multilabel task one per label, otherwise none.
        interval: the prediction interval of a regression; None for none.
        evidence: how they were chosen on validation.
    """

    calibration: Calibrator | None = None
    thresholds: list[float] = msgspec.field(default_factory=list)
    interval: PredictionInterval | None = None
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)

    def apply(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Calibrated predictions, in the form of the metrics."""
        if self.calibration is None or not len(raw):
            return raw
        return self.calibration.apply(raw)

    def columns(self, predicted: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """What stands beside calibrated predictions in a table: decisions, or an interval."""
        if self.interval is not None:
            low, high = self.interval.bounds(predicted)
            return {"low": low, "high": high}
        decided = np.asarray(predicted) >= np.array(self.thresholds or [0.5])
        if len(self.thresholds) == 1 and predicted.ndim == 1:
            return {"decision": decided.astype(np.int64)}
        return {
            f"decision_{number}": decided.reshape(len(predicted), -1)[:, number].astype(np.int64)
            for number in range(len(self.thresholds))
        }

    def metrics(
        self, kind: str, truth: NDArray[Any], predicted: NDArray[Any], std: float | None,
        quantile: float | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """All metrics of calibrated predictions."""
        thresholds = np.array(self.thresholds) if self.thresholds else 0.5
        bounds = None if self.interval is None else self.interval.bounds(predicted)
        return compute_metrics(
            kind, truth, predicted, std, quantile=quantile, thresholds=thresholds, bounds=bounds
        )

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        write_json(folder / FILE, msgspec.to_builtins(self))


def load_postprocessing(folder: Path, labels: dict[str, Any]) -> Postprocessing:
    """Read it from a run folder.

    Args:
        folder: the run folder.
        labels: description of the training labels, which it must fit.

    Raises:
        RunError: The file is missing or damaged.
    """
    found = msgspec.convert(read_json(folder / FILE, Postprocessing), Postprocessing)
    count = labels.get("labels", 1)
    parts = [found.thresholds]
    if isinstance(found.calibration, PerLabel):
        parts.append(found.calibration.labels)  # type: ignore[arg-type]
    if any(len(part) not in (0, count) for part in parts) or (
        isinstance(found.calibration, Temperature) and "classes" not in labels
    ):
        raise RunError(f"{folder / FILE} is damaged (it is of other labels). Train again.")
    return found


def fit_postprocessing(
    kind: str,
    truth: NDArray[Any],
    raw: NDArray[Any],
    groups: NDArray[Any],
    config: Config,
    floor: float | None = None,
) -> Postprocessing:
    """Fit calibration, thresholds and intervals on validation labels.

    Args:
        kind: RelBench's name of the task type.
        truth: validation labels as the metrics want them.
        raw: raw predictions for them, of the model that validation has selected.
        groups: the entity of each.
        config: the settings.
        floor: lower bound of all labels of a regression, if there is one.
    """
    if kind == "recommendation":
        return Postprocessing()
    if kind == "regression":
        if not config.interval:
            return Postprocessing()
        found, why = choose_interval(truth, raw, groups, config.interval, floor, config.seed)
        return Postprocessing(interval=found, evidence={"interval": why})
    calibration: Calibrator | None = None
    evidence: dict[str, Any] = {}
    if kind == "multilabel_classification" and len(truth):
        truth = matrix(truth)
    if config.calibration == "auto":
        calibration, evidence["calibration"] = choose_calibrator(
            kind, truth, raw, groups, config.seed
        )
    if kind == "multiclass_classification":
        return Postprocessing(calibration, evidence=evidence)
    thresholds, evidence["threshold"] = _thresholds(
        np.asarray(truth, float), Postprocessing(calibration).apply(np.asarray(raw)), config
    )
    return Postprocessing(calibration, thresholds, evidence=evidence)


def _thresholds(
    truth: NDArray[Any], predicted: NDArray[Any], config: Config
) -> tuple[list[float], dict[str, Any]]:
    """One threshold, or one per label; labels that are too rare share one."""
    rule = parse_threshold(config.threshold)
    shared, problem = choose_threshold(truth.ravel(), predicted.ravel(), rule)
    evidence = {"rule": config.threshold, "words": rule.words, "labels": len(truth)}
    if problem:
        evidence["problem"] = problem
    if predicted.ndim == 1:
        return [shared], evidence
    count = truth.sum(0)
    rare = np.minimum(count, len(truth) - count) < FEWEST
    evidence["shared"] = int(rare.sum())
    return [
        shared
        if rare[number]
        else choose_threshold(truth[:, number], predicted[:, number], rule)[0]
        for number in range(predicted.shape[1])
    ], evidence
