"""What a manager asks first: how good it is, what acting on it would catch, and what to trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.datasets.metrics import calibration_error
from relfrog.reporting.html import Markup, amount, join, note, sheet, tag
from relfrog.reporting.material import Answers, Material
from relfrog.reporting.question import rows_name
from relfrog.support.lists import matrix
from relfrog.support.text import percent

__all__ = ["Gain", "binary_in_short", "gains", "multiclass_in_short", "multilabel_in_short",
           "probabilities_words", "regression_in_short"]  # fmt: skip

#: Shares of the highest predictions that the table of gains shows.
SHARES = (0.01, 0.05, 0.1)
#: Mean distance of probabilities from observed shares that is called far off.
FAR = 0.05


@dataclass(frozen=True)
class Gain:
    """What acting on the highest predictions would catch.

    Attributes:
        share: of all predictions that they are.
        count: how many these are.
        hits: how many of them are positive; a fraction where predictions are tied.
        caught: share of all positives among them.
        lift: how many times more positives there are among them than among all.
    """

    share: float
    count: int
    hits: float
    caught: float
    lift: float


def gains(truth: NDArray[Any], predicted: NDArray[Any]) -> list[Gain]:
    """What the highest 1, 5 and 10 % would catch; of equal predictions, the mean of all choices."""
    truth, positive = np.asarray(truth, float), float(np.sum(truth))
    if not positive:
        return []
    order = np.argsort(-predicted, kind="stable")
    _, first, size = np.unique(-predicted[order], return_index=True, return_counts=True)
    mean = np.add.reduceat(truth[order], first) / size
    expected = np.concatenate([[0.0], np.cumsum(np.repeat(mean, size))])
    found = []
    for share in SHARES:
        count = max(1, round(share * len(truth)))
        hits = float(expected[count])
        lift = hits / count / (positive / len(truth))
        found.append(Gain(share, count, hits, hits / positive, lift))
    return found


def _who(m: Material) -> str:
    return rows_name(((m.database or {}).get("task") or {}).get("entity_table") or "entities")


def binary_in_short(m: Material, answers: Answers) -> Markup:
    """What the highest predictions catch, what the decisions are worth, and the probabilities."""
    truth, predicted = answers.truth.astype(int), answers.predicted
    share = float(truth.mean())
    parts: list[Any] = []
    found = gains(truth, predicted)
    if found:
        rows = [
            [(f"highest {100 * one.share:g} % ({one.count:,})", one.share),
             (percent(one.hits / one.count), one.hits / one.count),
             (percent(one.caught), one.caught), (f"{one.lift:.1f} ×", one.lift)]
            for one in found
        ]  # fmt: skip
        table = sheet(["predictions", "of these positive", "of all positives",
                       "against chance"], rows, numbers=range(1, 4),
                      label="What acting on the highest predictions would catch")  # fmt: skip
        parts += [
            tag("h3", "What acting on it would catch"),
            tag("p", f"Of {len(truth):,} predictions on test, {percent(share)} came true. "
                f"Choosing {_who(m)} by the highest predictions instead of at random:"),
            table,
        ]  # fmt: skip
    else:
        parts.append(note("No test label is positive: there is nothing to catch."))
    parts.append(_decisions(m, truth, predicted))
    parts.append(probabilities_words(m, truth, predicted, answers.raw))
    return join(parts)


def _decisions(m: Material, truth: NDArray[Any], predicted: NDArray[Any]) -> Markup | None:
    """What the threshold makes of the predictions."""
    if not m.postprocessing.thresholds:
        return None
    at = m.postprocessing.thresholds[0]
    evidence = m.postprocessing.evidence.get("threshold", {})
    chosen = predicted >= at
    why = evidence.get("problem")
    origin = f"0.5, as {why}" if why else f"{amount(at, 3)}, {evidence.get('words', '')}"
    text = f"Decisions: yes from a probability of {origin}. On test that is "
    if not chosen.any():
        text += (
            "nobody: F1 and recall are 0. Choose another rule, such as "
            "--set threshold=cost:5 or --set threshold=top:10%."
        )
        return tag("p", text)
    right = int((truth[chosen] == 1).sum())
    share = percent(right / chosen.sum())
    text += f"{int(chosen.sum()):,} of {len(truth):,}; {share} of them are right"
    if truth.any():
        text += f", and they are {percent(right / truth.sum())} of all positives"
    return tag("p", f"{text}.")


def probabilities_words(
    m: Material, truth: NDArray[Any], predicted: NDArray[Any], raw: NDArray[Any] | None
) -> Markup:
    """How far probabilities are off, before and after calibration, and why if it is far."""
    after = calibration_error(truth, predicted)
    evidence = m.postprocessing.evidence.get("calibration", {})
    text = f"Probabilities are {100 * after:.1f} points off on average"
    if m.postprocessing.calibration is not None and raw is not None:
        before = calibration_error(truth, raw)
        text += f" on test; they were {100 * before:.1f} before calibration on validation"
    elif evidence.get("reason"):
        text += f" on test. They are not calibrated: {evidence['reason']}"
    text += "."
    if after > max(FAR, _noise(predicted)):
        observed, mean = float(np.mean(truth)), float(np.mean(predicted))
        way = "high" if mean > observed else "low"
        text += " That is far off: use their order, not their size."
        if abs(mean - observed) > after / 2:
            text += (
                f" On average they are too {way} ({percent(mean)} predicted, {percent(observed)} "
                "observed): the rate of positives has moved between validation and test."
            )
    return tag("p", text)


def _noise(predicted: NDArray[Any], draws: int = 100) -> float:
    """The calibration error that perfect probabilities exceed once in 20 times, by chance."""
    rng = np.random.default_rng(0)
    values = np.asarray(predicted, float)
    errors = [
        calibration_error((rng.random(len(values)) < values).astype(int), values)
        for _ in range(draws)
    ]
    return float(np.quantile(errors, 0.95))


def regression_in_short(m: Material, answers: Answers) -> Markup:
    """The error in the label's unit, beside typical labels, and what the intervals contain."""
    truth, predicted = answers.truth.astype(float), answers.predicted
    label = str(((m.database or {}).get("task") or {}).get("label") or "label")
    error = np.abs(truth - predicted)
    typical = float(np.median(np.abs(truth)))
    measure = "median"
    if not typical:
        typical, measure = float(np.mean(np.abs(truth))), "mean"
    text = (
        f"On average the prediction is {amount(float(error.mean()), 3)} off, half of the time less "
        f"than {amount(float(np.median(error)), 3)}. "
    )
    if typical:
        text += (
            f"A typical “{label}” on test is {amount(typical, 3)} (its {measure}), so the average "
            f"error is {percent(float(error.mean()) / typical)} of that; "
        )
    text += (
        f"in total, {amount(float(predicted.sum()), 1)} were predicted and "
        f"{amount(float(truth.sum()), 1)} came."
    )
    parts: list[Any] = [tag("p", text)]
    interval = m.postprocessing.interval
    if interval is not None:
        low, high = interval.bounds(predicted)
        covered = float(((low <= truth) & (truth <= high)).mean())
        said = (
            f"Intervals for {100 * interval.share:g} % of labels contain {percent(covered)} of "
            f"those on test, and are {amount(float((high - low).mean()), 3)} wide on average."
        )
        if abs(covered - interval.share) > 0.1:
            way = "too narrow" if covered < interval.share else "wider than needed"
            said += f" They are {way}: test differs from validation, on which they were fitted."
        parts.append(tag("p", said))
    elif reason := m.postprocessing.evidence.get("interval", {}).get("reason"):
        parts.append(tag("p", f"There are no intervals: {reason}."))
    return join(parts)


def multiclass_in_short(m: Material, answers: Answers) -> Markup:
    """How often the likeliest class is right, beside always saying the commonest."""
    chosen = answers.predicted.argmax(1)
    right = float((chosen == answers.truth).mean())
    _, counts = np.unique(answers.truth, return_counts=True)
    text = (
        f"The likeliest class is right for {percent(right)} of the {_who(m)}; always saying the "
        f"commonest class of test would be for {percent(counts.max() / counts.sum())}."
    )
    raw = None if answers.raw is None else answers.raw.max(1)
    truth = (chosen == answers.truth).astype(int)
    return join([tag("p", text), probabilities_words(m, truth, answers.predicted.max(1), raw)])


def multilabel_in_short(m: Material, answers: Answers) -> Markup:
    """How far the probabilities of all labels are off."""
    truth = matrix(answers.truth).astype(int).ravel()
    raw = None if answers.raw is None else answers.raw.ravel()
    return probabilities_words(m, truth, answers.predicted.ravel(), raw)
