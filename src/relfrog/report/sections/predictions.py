"""Predictions on test: how good, for whom, when, and where they went wrong most confidently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.report.charts import axis, chart, curve, layers
from relfrog.report.colours import BLUE, GREY
from relfrog.report.markup import Html, amount, columns, figure, join, missing, note, sheet, tag
from relfrog.report.material import Answers, Material
from relfrog.report.sections.lists import example_lists
from relfrog.report.words import metric_name
from relfrog.resampling import quick_metric, resample

__all__ = ["predictions"]

#: Rows of the list of mistakes.
MISTAKES = 12
#: Points of a curve, dots of a cloud.
POINTS, DOTS = 160, 800
DAY = "%Y-%m-%d"


def predictions(m: Material) -> Html:
    """The section."""
    answers = m.answers
    if answers is None:
        return missing(m.why.get("answers", "There are no predictions on test."))
    parts: list[Any] = [
        tag("p", f"{len(answers.truth):,} predictions on test at "
            f"{answers.seeds.times.nunique():,} times, for {len(np.unique(answers.seeds.rows)):,} "
            "entities, each from what was known at its own time (rolling).")
    ]  # fmt: skip
    figures: list[Html | None] = []
    if m.kind == "binary_classification":
        figures += [_calibration(answers.truth.astype(int), answers.predicted),
                    _roc(answers.truth.astype(int), answers.predicted),
                    _precision_recall(answers.truth.astype(int), answers.predicted)]  # fmt: skip
    elif m.kind == "regression":
        figures += [_residuals(m, answers), _against(m, answers)]
    elif m.kind == "multiclass_classification":
        figures += [_top_calibration(answers)]
    elif m.kind == "multilabel_classification":
        truth = np.stack(answers.truth.tolist()).astype(int)
        figures += [_calibration(truth.ravel(), answers.predicted.ravel())]
    figures += [_by_time(m, answers), _by_past(m, answers)]
    parts.append(columns(*figures))
    if m.kind == "recommendation":
        parts.append(example_lists(m))
    else:
        parts.append(_mistakes(m, answers))
    return join(parts)


def _thin(count: int, most: int = POINTS) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _square() -> dict[str, Any]:
    return {"scale": {"domain": [0, 1]}, "format": ".1f", "tickCount": 5}


def _calibration(truth: NDArray[Any], predicted: NDArray[Any], what: str = "label 1") -> Html:
    """Tenths of the predictions, from low to high: what was predicted, what came."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(10, len(predicted)))
    data = []
    for some in parts:
        p = float(truth[some].mean())
        error = 1.96 * float(np.sqrt(max(p * (1 - p), 1e-12) / len(some)))
        data.append({"predicted": float(predicted[some].mean()), "observed": p, "n": len(some),
                     "low": max(0.0, p - error), "high": min(1.0, p + error)})  # fmt: skip
    top = min(1.0, max([0.1, *(max(d["high"], d["predicted"]) for d in data)]) * 1.05)
    scale = {"domain": [0, top]}
    x = axis("predicted", f"predicted probability of {what}", scale=scale, format=".0%", tickCount=5)
    y = axis("observed", "observed share", scale=scale, format=".0%", tickCount=5)
    diagonal = [{"predicted": v, "observed": v} for v in (0, top)]
    spec = layers(
        {"data": {"values": diagonal}, "mark": {"type": "line", "strokeDash": [4, 3],
         "strokeWidth": 1, "color": GREY}, "encoding": {"x": x, "y": y}},
        {"mark": {"type": "rule", "color": BLUE, "opacity": 0.5, "strokeWidth": 2},
         "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}},
        {"mark": {"type": "line", "point": {"size": 40}}, "encoding": {"x": x, "y": y}},
        data=data,
    )  # fmt: skip
    off = sum(abs(d["predicted"] - d["observed"]) * d["n"] for d in data) / max(len(predicted), 1)
    alt = "Calibration: " + "; ".join(
        f"predicted {d['predicted']:.0%}, observed {d['observed']:.0%}" for d in data
    )
    return figure(
        chart(spec, alt),
        f"Calibration in tenths of the predictions; on the dashed line they mean what they say. "
        f"Mean distance {100 * off:.1f} points.",
    )  # fmt: skip


def _top_calibration(answers: Answers) -> Html:
    chosen = answers.predicted.argmax(1)
    right = (chosen == answers.truth).astype(int)
    return _calibration(right, answers.predicted.max(1), "the chosen class")


def _roc(truth: NDArray[Any], predicted: NDArray[Any]) -> Html | None:
    from sklearn.metrics import roc_auc_score, roc_curve

    if truth.min() == truth.max():
        return missing("All test labels are the same: there is no ROC curve.")
    wrong, right, _ = roc_curve(truth, predicted)
    data = [{"x": float(wrong[i]), "y": float(right[i]), "order": int(i)} for i in _thin(len(wrong))]
    x, y = axis("x", "false positive rate", **_square()), axis("y", "true positive rate", **_square())
    spec = layers(
        {"data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]}, "mark": {"type": "line",
         "strokeDash": [4, 3], "strokeWidth": 1, "color": GREY}, "encoding": {"x": x, "y": y}},
        curve(data, x, y, color=BLUE),
    )  # fmt: skip
    area = roc_auc_score(truth, predicted)
    return figure(chart(spec, f"ROC curve with area {area:.4f}"), f"ROC curve, area {area:.4f}.")


def _precision_recall(truth: NDArray[Any], predicted: NDArray[Any]) -> Html | None:
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
        f"Precision and recall, average precision {area:.4f}; dashed: the {share:.1%} of positives.",
    )


def _label(m: Material) -> str:
    return str(((m.database or {}).get("task") or {}).get("label") or "label")


def _residuals(m: Material, answers: Answers) -> Html:
    times = answers.seeds.times.reset_index(drop=True)
    error = answers.truth.astype(float) - answers.predicted
    shown = _thin(len(error), DOTS)
    data = [{"time": f"{times[i]:%Y-%m-%dT%H:%M}", "error": float(error[i])} for i in shown]
    frame = pd.DataFrame({"time": times, "error": error}).groupby("time")["error"]
    middle = [
        {"time": f"{time:%Y-%m-%dT%H:%M}", "error": float(part.median()),
         "low": float(part.quantile(0.25)), "high": float(part.quantile(0.75))}
        for time, part in frame
    ]  # fmt: skip
    low, high = np.quantile(error, [0.005, 0.995])
    x = axis("time", "time of the prediction", "temporal", tickCount=5, format=DAY)
    y = axis("error", f"residual of {_label(m)}", scale={"domain": [float(low), float(high)]})
    spec = layers(
        {"data": {"values": data}, "mark": {"type": "point", "size": 12, "opacity": 0.35, "clip": True,
         "color": GREY}, "encoding": {"x": x, "y": y}},
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
        "Residuals (label minus prediction) over time: median, middle half, and single ones.",
    )


def _against(m: Material, answers: Answers) -> Html:
    shown = _thin(len(answers.truth), DOTS)
    data = [{"x": float(answers.predicted[i]), "y": float(answers.truth[i])} for i in shown]
    values = np.concatenate([answers.predicted, answers.truth.astype(float)])
    low, high = (float(v) for v in np.quantile(values, [0.005, 0.995]))
    x = axis("x", f"predicted {_label(m)}", zero=False)
    y = axis("y", f"true {_label(m)}", scale={"domain": [low, high]})
    ends = sorted((low, min(high, float(answers.predicted.max()))))
    spec = layers(
        {"data": {"values": data}, "mark": {"type": "point", "size": 14, "opacity": 0.4,
         "color": BLUE, "clip": True}, "encoding": {"x": x, "y": y}},
        {"data": {"values": [{"x": v, "y": v} for v in ends]}, "mark": {"type": "line",
         "strokeDash": [4, 3], "strokeWidth": 1, "color": GREY, "clip": True},
         "encoding": {"x": x, "y": y}},
    )  # fmt: skip
    both = np.corrcoef(answers.predicted, answers.truth.astype(float))[0, 1] if np.std(answers.predicted) else float("nan")  # fmt: skip
    words = f"correlation {amount(float(both), 2)}"
    return figure(
        chart(spec, f"Predictions against labels, {words}"), f"Predictions against labels, {words}."
    )


def _part_scores(
    m: Material, answers: Answers, groups: list[tuple[str, NDArray[Any]]]
) -> list[dict[str, Any]]:  # fmt: skip
    metric = m.metric[0]
    data = []
    for name, at in groups:
        if len(at):
            truth, predicted = answers.truth[at], answers.predicted[at]
            found = resample(
                np.asarray(answers.seeds.rows)[at],
                lambda i, t=truth, p=predicted: quick_metric(m.kind, metric, t[i], p[i]),
                times=60,
            )
            low, high = (found.low, found.high) if found.low == found.low else (None, None)
            data.append({"name": f"{name}|{len(at):,}", "n": len(at), "low": low, "high": high,
                         "score": None if np.isnan(found.value) else found.value})  # fmt: skip
    return data


def _scores(m: Material, data: list[dict[str, Any]], title: str, caption: str) -> Html | None:
    known = [row for row in data if row["score"] is not None]
    if not known:
        return None
    metric = metric_name(m.metric[0], ((m.database or {}).get("task") or {}).get("k"))
    order = [row["name"] for row in data]
    x = {"field": "name", "type": "nominal", "title": title, "sort": order,
         "axis": {"labelAngle": -35 if len(order) > 5 else 0, "labelLimit": 110, "grid": False,
                  "labelExpr": "split(datum.label, '|')" if len(order) < 6
                  else "split(datum.label, '|')[0]"}}  # fmt: skip
    y = axis("score", metric, zero=False)
    whisker = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    spec = layers(
        {"mark": {"type": "line", "color": GREY, "strokeWidth": 1.5}, "encoding": {"x": x, "y": y}},
        {"transform": [{"filter": "isValid(datum.low)"}], "mark": {"type": "rule", "color": BLUE,
         "opacity": 0.5, "strokeWidth": 2.5}, "encoding": {"x": x} | whisker},
        {"mark": {"type": "point", "size": 75}, "encoding": {"x": x, "y": y}},
        data=known,
    )  # fmt: skip
    alt = f"{metric} by {title}: " + "; ".join(
        f"{r['name'].split('|')[0]} {amount(r['score'])} ({r['n']:,} labels)" for r in known
    )
    counted = "; below, the number of labels" if len(order) < 6 else ""
    return figure(chart(spec, alt), f"{metric} {caption}, with 95 % ranges{counted}.")


def _by_time(m: Material, answers: Answers) -> Html | None:
    times = answers.seeds.times.to_numpy()
    moments = np.unique(times)
    if len(moments) <= 12:
        groups = [(f"{pd.Timestamp(t):%d %b %y}", np.flatnonzero(times == t)) for t in moments]
        if len({name for name, _ in groups}) < len(groups):
            groups = [(f"{pd.Timestamp(t):%m-%d %H:%M}", np.flatnonzero(times == t)) for t in moments]
    else:
        groups = [
            (f"{pd.Timestamp(part[0]):%d %b %y}", np.flatnonzero(np.isin(times, part)))
            for part in np.array_split(moments, 10)
        ]
    return _scores(m, _part_scores(m, answers, groups), "time of the prediction", "by time")


def _by_past(m: Material, answers: Answers) -> Html | None:
    past = answers.past
    edges = np.unique(np.quantile(past, [0, 0.2, 0.4, 0.6, 0.8, 1]).astype(int))
    groups = []
    for number, (low, high) in enumerate(zip(edges, edges[1:], strict=False)):
        last = number == len(edges) - 2
        at = np.flatnonzero((past >= low) & ((past <= high) if last else (past < high)))
        top = high if last else high - 1
        groups.append((f"{low:,}" if low == top else f"{low:,}–{top:,}", at))
    if len(edges) == 1:
        groups = [(f"{edges[0]:,}", np.arange(len(past)))]
    return _scores(m, _part_scores(m, answers, groups), "rows that refer to the entity by then",
                   "by how much history an entity had")  # fmt: skip


def _mistakes(m: Material, answers: Answers) -> Html:
    """The predictions that were furthest off, with the keys of their entities."""
    truth, predicted = answers.truth, answers.predicted
    label = _label(m)
    if m.kind == "multiclass_classification":
        classes = m.run.about["labels"].get("classes", [])
        chosen = predicted.argmax(1)
        wrong = np.where(chosen != truth, predicted.max(1), -1.0)
        order = [i for i in np.argsort(-wrong, kind="stable") if wrong[i] >= 0][:MISTAKES]
        named = {i: str(value) for i, value in enumerate(classes)}
        cells = [(named.get(int(chosen[i]), "?"), amount(predicted[i].max(), 3),
                  named.get(int(truth[i]), "not seen in training")) for i in order]  # fmt: skip
        headers = ["predicted", "probability", "true"]
    elif m.kind == "multilabel_classification":
        real = np.stack(truth.tolist()).astype(int)
        error = np.abs(real - predicted).max(1)
        order = list(np.argsort(-error, kind="stable")[:MISTAKES])
        which = np.abs(real - predicted).argmax(1)
        cells = [(f"label {which[i]}", amount(predicted[i, which[i]], 3), str(real[i, which[i]]))
                 for i in order]  # fmt: skip
        headers = ["of", "probability", "true"]
    else:
        values = truth.astype(float)
        error = np.abs(values - predicted)
        order = [i for i in np.argsort(-error, kind="stable")[:MISTAKES] if error[i] > 0]
        digits = 3
        cells = [(amount(float(predicted[i]), digits), amount(float(values[i]), digits)
                  if m.kind == "regression" else str(int(values[i])),
                  amount(float(error[i]), digits)) for i in order]  # fmt: skip
        headers = [f"predicted {label}", f"true {label}", "off by"]
    if not len(order):
        return note("There is no mistake among the test predictions.")
    assert m.keys is not None
    times = answers.seeds.times.reset_index(drop=True)
    entity = ((m.database or {}).get("task") or {}).get("entity_table", "entity")
    rows = [[m.keys.iloc[i], f"{times[i]:%Y-%m-%d %H:%M}", *row, f"{answers.past[i]:,}"]
            for i, row in zip(order, cells, strict=True)]  # fmt: skip
    table = sheet([entity, "time", *headers, "rows of history"], rows,
                  numbers=range(2, 6), label="The most confident mistakes", sorts=True)  # fmt: skip
    return join([tag("h3", "The most confident mistakes"), table,
                 note("Explain any of them: ", tag("code", f"relfrog explain {m.run.folder} --entity "
                      "KEY --at TIME"), ".")])  # fmt: skip


