"""Charts of test predictions: calibration, ROC, precision-recall, residuals, scatter plot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.datasets.metrics import calibration_error, reliability
from relfrog.reporting.charts import axis, chart, curve, layers
from relfrog.reporting.html import BLUE, GREY, ORANGE, Markup, amount, figure, missing
from relfrog.reporting.material import Answers, Material

__all__ = ["against", "calibration", "label_name", "precision_recall", "residuals", "roc"]

#: The most points of a curve, and of a scatter plot.
POINTS, DOTS = 160, 800


def label_name(m: Material) -> str:
    """What the task calls its label."""
    return str(((m.database or {}).get("task") or {}).get("label") or "label")


def _thin(count: int, most: int = POINTS) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _square() -> dict[str, Any]:
    return {"scale": {"domain": [0, 1]}, "format": ".1f", "tickCount": 5}


def calibration(
    truth: NDArray[Any],
    predicted: NDArray[Any],
    what: str = "label 1",
    *,
    raw: NDArray[Any] | None = None,
) -> Markup:
    """Calibration curve: mean prediction and observed share in bins of the predictions.

    Args:
        truth: 0 and 1.
        predicted: the probabilities.
        what: what they are the probabilities of.
        raw: the probabilities before calibration, for a second curve; None for none.
    """
    data = []
    for one in reliability(truth, predicted):
        p = one.observed
        error = 1.96 * float(np.sqrt(max(p * (1 - p), 1e-12) / one.count))
        data.append({"predicted": one.predicted, "observed": p, "low": max(0.0, p - error),
                     "high": min(1.0, p + error)})  # fmt: skip
    before = [] if raw is None else [
        {"predicted": one.predicted, "observed": one.observed} for one in reliability(truth, raw)
    ]  # fmt: skip
    ends = [value for d in (*data, *before) for name, value in d.items() if name != "low"]
    top = min(1.0, max([0.1, *ends]) * 1.05)
    scale = {"domain": [0, top]}
    x = axis(
        "predicted", f"predicted probability of {what}", scale=scale, format=".0%", tickCount=5
    )
    y = axis("observed", "observed share", scale=scale, format=".0%", tickCount=5)
    diagonal = [{"predicted": v, "observed": v} for v in (0, top)]
    earlier = {
        "data": {"values": before}, "encoding": {"x": x, "y": y},
        "mark": {"type": "line", "color": ORANGE, "strokeWidth": 1.5, "opacity": 0.8,
                 "point": {"size": 22, "color": ORANGE}},
    }  # fmt: skip
    spec = layers(
        {"data": {"values": diagonal}, "mark": {"type": "line", "strokeDash": [4, 3],
         "strokeWidth": 1, "color": GREY}, "encoding": {"x": x, "y": y}},
        *([earlier] if before else []),
        {"mark": {"type": "rule", "color": BLUE, "opacity": 0.5, "strokeWidth": 2},
         "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"},
                      "y2": {"field": "high"}}},
        {"mark": {"type": "line", "point": {"size": 40}}, "encoding": {"x": x, "y": y}},
        data=data,
    )  # fmt: skip
    alt = "Calibration: " + "; ".join(
        f"predicted {d['predicted']:.0%}, observed {d['observed']:.0%}" for d in data
    )
    words = f"Mean distance {100 * calibration_error(truth, predicted):.1f} points"
    if raw is not None:
        words += f"; orange: before calibration, {100 * calibration_error(truth, raw):.1f} points"
    return figure(
        chart(spec, alt),
        f"Calibration in bins of the predictions; on the dashed line it is perfect. {words}.",
    )


def roc(truth: NDArray[Any], predicted: NDArray[Any]) -> Markup | None:
    """The ROC curve."""
    from sklearn.metrics import roc_auc_score, roc_curve

    if truth.min() == truth.max():
        return missing("All test labels are the same: there is no ROC curve.")
    wrong, right, _ = roc_curve(truth, predicted)
    data = [
        {"x": float(wrong[i]), "y": float(right[i]), "order": int(i)} for i in _thin(len(wrong))
    ]
    x, y = (
        axis("x", "false positive rate", **_square()),
        axis("y", "true positive rate", **_square()),
    )
    spec = layers(
        {"data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]}, "mark": {"type": "line",
         "strokeDash": [4, 3], "strokeWidth": 1, "color": GREY}, "encoding": {"x": x, "y": y}},
        curve(data, x, y, color=BLUE),
    )  # fmt: skip
    area = roc_auc_score(truth, predicted)
    return figure(chart(spec, f"ROC curve with area {area:.4f}"), f"ROC curve, area {area:.4f}.")


def precision_recall(truth: NDArray[Any], predicted: NDArray[Any]) -> Markup | None:
    """The precision-recall curve."""
    from sklearn.metrics import average_precision_score, precision_recall_curve

    if truth.min() == truth.max():
        return None
    precision, recall, _ = precision_recall_curve(truth, predicted)
    data = [{"x": float(recall[i]), "y": float(precision[i]), "order": int(i)}
            for i in _thin(len(recall))]  # fmt: skip
    share = float(truth.mean())
    x, y = axis("x", "recall", **_square()), axis("y", "precision", **_square())
    spec = layers(
        {"data": {"values": [{"x": 0, "y": share}, {"x": 1, "y": share}]}, "mark": {"type": "line",
         "strokeDash": [4, 3], "strokeWidth": 1, "color": GREY}, "encoding": {"x": x, "y": y}},
        curve(data, x, y, color=BLUE),
    )  # fmt: skip
    area = average_precision_score(truth, predicted)
    return figure(
        chart(spec, f"Precision-recall curve, average precision {area:.4f}, positives {share:.1%}"),
        f"Precision and recall, average precision {area:.4f}; dashed: the share of positives.",
    )


def residuals(m: Material, answers: Answers) -> Markup:
    """Residuals (labels minus predictions) over time."""
    times = pd.Series(answers.seeds.times)
    error = answers.truth.astype(float) - answers.predicted
    shown = _thin(len(error), DOTS)
    data = [{"time": f"{times[i]:%Y-%m-%dT%H:%M}", "error": float(error[i])} for i in shown]
    frame = pd.DataFrame({"time": times, "error": error}).groupby("time")["error"]
    middle: list[dict[str, Any]] = [
        {"time": f"{time:%Y-%m-%dT%H:%M}", "error": float(part.median()),
         "low": float(part.quantile(0.25)), "high": float(part.quantile(0.75))}
        for time, part in frame
    ]  # fmt: skip
    low, high = np.quantile(error, [0.005, 0.995])
    days = (times.max() - times.min()).days
    shown_as = "%b %Y" if days > 150 else "%d %b %y" if days > 3 else "%d %b %H:%M"
    x = axis("time", "time of the prediction", "temporal", tickCount=3, labelOverlap="greedy",
             format=shown_as)  # fmt: skip
    y = axis("error", f"residual of {label_name(m)}", scale={"domain": [float(low), float(high)]})
    spec = layers(
        {"data": {"values": data}, "mark": {"type": "point", "size": 12, "opacity": 0.35,
         "clip": True, "color": GREY}, "encoding": {"x": x, "y": y}},
        {"data": {"values": middle}, "mark": {"type": "rule", "color": BLUE, "strokeWidth": 5,
         "opacity": 0.55}, "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"},
         "y2": {"field": "high"}}},
        {"data": {"values": middle}, "mark": {"type": "line", "color": BLUE, "point": {"size": 40}},
         "encoding": {"x": x, "y": y}},
        {"data": {"values": [{"at": 0}]}, "mark": {"type": "rule", "strokeDash": [4, 3]},
         "encoding": {"y": {"field": "at", "type": "quantitative"}}},
    )  # fmt: skip
    alt = "Residuals over time. Medians: " + "; ".join(
        f"{d['time'][:10]} {amount(d['error'], 2)}" for d in middle[:12]
    )
    return figure(
        chart(spec, alt),
        "Residuals (label minus prediction) over time: median, quartiles, and single values.",
    )


def against(m: Material, answers: Answers) -> Markup:
    """Scatter plot of labels against predictions."""
    shown = _thin(len(answers.truth), DOTS)
    data = [{"x": float(answers.predicted[i]), "y": float(answers.truth[i])} for i in shown]
    values = np.concatenate([answers.predicted, answers.truth.astype(float)])
    low, high = (float(v) for v in np.quantile(values, [0.005, 0.995]))
    low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)  # no dot is cut in half
    x = axis("x", f"predicted {label_name(m)}", zero=False)
    y = axis("y", f"true {label_name(m)}", scale={"domain": [low, high]})
    ends = sorted((low, min(high, float(answers.predicted.max()))))
    spec = layers(
        {"data": {"values": data}, "mark": {"type": "point", "size": 14, "opacity": 0.4,
         "color": BLUE, "clip": True}, "encoding": {"x": x, "y": y}},
        {"data": {"values": [{"x": v, "y": v} for v in ends]}, "mark": {"type": "line",
         "strokeDash": [4, 3], "strokeWidth": 1, "color": GREY, "clip": True},
         "encoding": {"x": x, "y": y}},
    )  # fmt: skip
    both = float("nan")
    if np.std(answers.predicted) and np.std(answers.truth.astype(float)):
        both = float(np.corrcoef(answers.predicted, answers.truth.astype(float))[0, 1])
    words = (
        "no correlation: all are the same"
        if np.isnan(both)
        else f"correlation {round(both, 2) + 0.0:.2f}"
    )
    return figure(
        chart(spec, f"Predictions against labels, {words}"), f"Predictions against labels, {words}."
    )
