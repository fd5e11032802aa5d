"""Decision thresholds: from which probability on the answer is yes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.kinds import ThresholdRule

__all__ = ["choose_threshold"]


def choose_threshold(
    truth: NDArray[Any], predicted: NDArray[Any], rule: ThresholdRule
) -> tuple[float, str]:
    """Choose a threshold on labelled predictions.

    All sets of the highest predictions are compared. The threshold lies in the middle between the
    lowest prediction inside and the highest outside.

    Args:
        truth: 0 and 1. Shape [n].
        predicted: probabilities. Shape [n].
        rule: what to choose it for.

    Returns:
        The threshold, and why it is not what was asked for, or nothing.
    """
    if rule.kind == "fixed":
        return rule.value, ""
    positive = float(np.sum(truth))
    if not len(truth):
        return 0.5, "validation has no labels"
    if rule.kind != "top" and not positive:
        return 0.5, "validation has no positive label"
    order = np.argsort(-predicted, kind="stable")
    values = predicted[order]
    last = np.flatnonzero(np.append(np.diff(values) != 0, True))  # of each group of equal values
    flagged = np.append(0, last + 1)
    hits = np.append(0, np.cumsum(np.asarray(truth, float)[order])[last])
    if rule.kind == "f1":
        loss = -2 * hits / (flagged + positive)
    elif rule.kind == "cost":
        loss = rule.value * (positive - hits) + (flagged - hits)
    else:
        loss = np.abs(flagged / len(values) - rule.value)
    best = int(np.argmin(loss))
    edges = np.concatenate([[1.0], values[last], [0.0]])
    inside, outside = float(edges[best]), float(edges[best + 1])
    if not best:  # nobody at all
        return max((inside + outside) / 2, float(np.nextafter(outside, 2))), ""
    middle = (inside + outside) / 2
    return (middle if outside < middle else inside), ""
