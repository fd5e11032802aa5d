"""Choose a calibrator on validation labels, by how it does on labels it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.models.postprocessing.calibrators import (
    Calibrator,
    fit_isotonic,
    fit_per_label,
    fit_platt,
    fit_temperature,
)

__all__ = ["choose_calibrator", "folds"]

#: Folds of the cross-validation, made of entities.
FOLDS = 5
#: Labels of each class needed for any curve, for a label's own curve, and for isotonic regression.
FEWEST, FEWEST_OF_LABEL, FEWEST_ISOTONIC = 10, 20, 250
#: Probabilities are kept from 0 and 1 by this in the log loss.
CLIP = 1e-6

Fit = Callable[[NDArray[Any], NDArray[Any]], Calibrator]


def folds(groups: NDArray[Any], seed: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Splits into (rest, part), with all rows of a group on one side; none for too few groups."""
    names, codes = np.unique(groups, return_inverse=True)
    if len(names) < FOLDS:
        return
    part = np.random.default_rng(seed).permutation(len(names)) % FOLDS
    for number in range(FOLDS):
        inside = part[codes] == number
        yield np.flatnonzero(~inside), np.flatnonzero(inside)


def choose_calibrator(
    kind: str, truth: NDArray[Any], raw: NDArray[Any], groups: NDArray[Any], seed: int = 0
) -> tuple[Calibrator | None, dict[str, Any]]:
    """Choose and fit a calibrator; None if there are too few labels, or if none helps.

    A curve is used only if its log loss, on folds of entities that it was not fitted to, is lower
    than that of the raw probabilities, and its Brier score not higher.

    Args:
        kind: RelBench's name of the task type.
        truth: 0 and 1, class numbers (negative: unknown class), or a matrix of 0 and 1.
        raw: the model's probabilities for them.
        groups: the entity of each.
        seed: of the folds.

    Returns:
        The calibrator, and the evidence for JSON: what was tried, with losses out of fold.
    """
    truth = np.asarray(truth, np.int64)
    if kind == "multiclass_classification":
        known = truth >= 0
        truth, raw, groups = truth[known], raw[known], groups[known]
    candidates = _candidates(kind, truth)
    evidence: dict[str, Any] = {"labels": len(truth), "chosen": "none"}
    if not candidates:
        evidence["reason"] = "too few validation labels to calibrate with"
        return None, evidence
    splits = list(folds(groups, seed))
    if not splits:
        evidence["reason"] = f"fewer than {FOLDS} entities in validation"
        return None, evidence
    tried = {"none": _losses(kind, truth, raw)}
    for name, fit in candidates.items():
        held_out = np.zeros(raw.shape)
        for rest, part in splits:
            held_out[part] = fit(raw[rest], truth[rest]).apply(raw[part])
        tried[name] = _losses(kind, truth, held_out)
    evidence["log_loss"] = {name: losses[0] for name, losses in tried.items()}
    evidence["brier"] = {name: losses[1] for name, losses in tried.items()}
    best = min(tried, key=lambda name: tried[name][0])
    if best == "none" or tried[best][1] > tried["none"][1]:
        evidence["reason"] = "no curve improved on the raw probabilities out of fold"
        return None, evidence
    evidence["chosen"] = best
    return candidates[best](raw, truth), evidence


def _candidates(kind: str, truth: NDArray[Any]) -> dict[str, Fit]:
    """The curves that there are labels enough for, the simplest first."""
    if kind == "multiclass_classification":
        return {"temperature": fit_temperature} if len(truth) >= 2 * FEWEST else {}
    if kind == "multilabel_classification":
        if _rarer(truth.ravel()) < FEWEST:
            return {}
        found: dict[str, Fit] = {"platt": fit_platt}
        if max(_rarer(column) for column in truth.T) >= FEWEST_OF_LABEL:
            found["per label"] = lambda raw, y: fit_per_label(raw, y, FEWEST_OF_LABEL)
        return found
    if _rarer(truth) < FEWEST:
        return {}
    found = {"platt": fit_platt}
    if _rarer(truth) >= FEWEST_ISOTONIC:
        found["isotonic"] = fit_isotonic
    return found


def _rarer(truth: NDArray[Any]) -> int:
    """How often the rarer of 0 and 1 occurs."""
    positive = int(truth.sum())
    return min(positive, len(truth) - positive)


def _losses(kind: str, truth: NDArray[Any], found: NDArray[Any]) -> tuple[float, float]:
    """Log loss and Brier score."""
    if kind == "multiclass_classification":
        own = found[np.arange(len(truth)), truth]
        hot = np.eye(found.shape[1])[truth]
        return float(-np.log(np.clip(own, CLIP, 1)).mean()), float(
            ((found - hot) ** 2).sum(1).mean()
        )
    p = np.clip(found, CLIP, 1 - CLIP)
    loss = -np.where(truth > 0, np.log(p), np.log(1 - p)).mean()
    return float(loss), float(((found - truth) ** 2).mean())
