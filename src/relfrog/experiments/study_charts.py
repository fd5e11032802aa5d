"""Charts of studies, as SVG for light and dark pages with a text alternative."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from relfrog.experiments.score_tables import ScoreSummary
from relfrog.reporting.charts import axis, chart, colour, intervals, layers
from relfrog.reporting.html import BLUE, GREEN, GREY, MUTED, ORANGE, PURPLE, standalone

__all__ = ["Panels", "compare_values", "compare_variants", "plot_pairs", "plot_shares"]

#: Scores by title of a panel, and by variant or value.
Panels = Mapping[str, Mapping[str, ScoreSummary]]
#: Colours of foreign keys.
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#a08a10", "#7463c9", "#c24b4b", "#4f8f96", "#8a6d5b",
           "#6b8f23", "#3d63d6", "#cc7fb4", "#b8863b", "#17a2a2", "#9a4fd0", GREY)  # fmt: skip


def _figure(text: str, specs: Sequence[Mapping[str, Any]], columns: int, **more: Any) -> str:
    return standalone(chart({"concat": list(specs), "columns": columns, **more}, text))


def _rows(scores: Mapping[str, ScoreSummary]) -> list[dict[str, Any]]:
    spread = {name: score.deviation or 0.0 for name, score in scores.items()}
    return [
        {"name": name, "value": score.mean, "low": score.mean - spread[name],
         "high": score.mean + spread[name]}
        for name, score in scores.items() if math.isfinite(score.mean)
    ]  # fmt: skip


def _in_words(title: str, panels: Panels) -> str:
    each = (
        f"{name}: " + ", ".join(f"{row['name']} {row['value']:.4g}" for row in _rows(scores))
        for name, scores in panels.items()
    )
    return ". ".join([title, *each])


def compare_variants(title: str, panels: Panels) -> str:
    """A panel per task, a row per variant: mean and standard deviation over seeds."""
    specs = [
        intervals(_rows(scores), "value", "")
        | {"title": name, "width": 190, "height": {"step": 20}}
        for name, scores in panels.items()
    ]
    return _figure(_in_words(title, panels), specs, 3)


def compare_values(title: str, panels: Panels) -> str:
    """A panel per task and setting: the score by value, equally spaced."""
    specs = []
    for name, scores in panels.items():
        x = axis("name", "", "ordinal", sort=None, labelAngle=0)
        y = axis("value", "", zero=False, tickCount=5)
        low = {"field": "low", "type": "quantitative"}
        specs.append(layers(
            {"mark": {"type": "rule", "color": BLUE},
             "encoding": {"x": x, "y": low, "y2": {"field": "high"}}},
            {"mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": y}},
            data=_rows(scores), title=name, width=300, height=130,
        ))  # fmt: skip
    return _figure(_in_words(title, panels), specs, 2)


def plot_shares(
    title: str,
    rows: Mapping[str, Mapping[str, Mapping[str, float]]],
    questions: Mapping[str, Sequence[str]],
) -> str:
    """Stacked bars of shares: a row per task, a panel per question.

    Args:
        title: title of the chart.
        rows: the share of each answer by task and question; empty if it does not apply.
        questions: the answers to each question.
    """
    specs: list[dict[str, Any]] = []
    for question, answers in questions.items():
        data = []
        for name, found in rows.items():
            shares = found.get(question) or {answers[0]: 0.0}
            for answer, share in shares.items():
                label = f"{share:.0%}" if share > 0.15 else "" if found.get(question) else "none"
                data.append({"name": name, "answer": answer, "share": share, "label": label,
                             "order": answers.index(answer)})  # fmt: skip
        y = axis(
            "name", "", "nominal", sort=list(rows), labels=not specs, ticks=False, domain=False
        )
        x = axis("share", "", stack="zero", format="%", tickCount=3, scale={"domain": [0, 1]})
        both = {"y": y, "order": {"field": "order"}}
        hue = colour("answer", answers, [BLUE, ORANGE, GREY])
        ink = {"condition": {"test": "datum.share > 0", "value": "#fff"}, "value": MUTED}
        text = {"type": "text", "align": "left", "dx": 4, "fontSize": 10}
        specs.append(layers(
            {"mark": "bar", "encoding": both | {"x": x, "color": hue}},
            {"mark": text, "encoding": both | {"x": x | {"bandPosition": 0},
             "text": {"field": "label"}, "color": ink}},
            data=data, title=question, width=190, height={"step": 22},
        ))  # fmt: skip
    said = [
        f"{name}: " + ", ".join(
            f"{question} {answer} {share:.0%}"
            for question, shares in found.items() for answer, share in shares.items()
        )
        for name, found in rows.items()
    ]  # fmt: skip
    return _figure(
        ". ".join([title, *said]), specs, len(specs), resolve={"scale": {"color": "independent"}}
    )


def plot_pairs(title: str, entries: Sequence[Mapping[str, Any]], text: str) -> str:
    """Scatter plots of h_parent - h_child, a panel per run; mismatched pairs are hollow.

    Args:
        title: title of the chart.
        entries: entries with `variant`, `seed`, and `points`, `key` and `matched` of each pair.
        text: the text alternative.
    """
    keys = list(dict.fromkeys(key for entry in entries for key in entry["key"]))
    bare: dict[str, Any] = {"labels": False, "ticks": False, "grid": False, "zero": False}
    x, y = axis("x", "first component", **bare), axis("y", "second component", **bare)
    hue = colour("key", keys, COLOURS) | {"legend": {"orient": "bottom", "columns": 2}}
    fill = {"field": "pair", "type": "nominal", "legend": {"orient": "bottom"},
            "scale": {"domain": ["true", "mismatched"], "range": [0.75, 0.0]}}  # fmt: skip
    specs = [
        {
            "title": f"{entry['variant']}, seed {entry['seed']}", "width": 320, "height": 300,
            "data": {"values": [
                {"x": point[0], "y": point[1], "key": key, "pair": "true" if true else "mismatched"}
                for point, key, true in
                zip(entry["points"], entry["key"], entry["matched"], strict=True)
            ]},
            "mark": {"type": "point", "filled": False, "size": 18, "strokeWidth": 0.8,
                     "aria": False},
            "encoding": {"x": x, "y": y, "stroke": hue, "fill": hue, "fillOpacity": fill},
        }
        for entry in entries
    ]  # fmt: skip
    how = {"text": "filled: true pairs; hollow: mismatched pairs", "fontWeight": "normal"}
    return _figure(f"{title}. {text}", specs, len(specs), title=how)
