"""Training curves: loss, validation metric and gates by epoch."""

from __future__ import annotations

from typing import Any

import pandas as pd

from relfrog.kinds import MODELS
from relfrog.reporting.charts import axis, chart, colour, layers, lines
from relfrog.reporting.html import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Markup,
    amount,
    columns,
    figure,
    gate_colour,
    join,
    metric_name,
    missing,
    note,
    sheet,
    tag,
)
from relfrog.reporting.material import Material
from relfrog.reporting.sections.backtests import backtests

__all__ = ["training"]

#: The most routes whose gates are drawn: those furthest from 0.5 at the end.
MOST = 24


def training(m: Material) -> Markup:
    """The section."""
    frame = m.history
    if "history" in m.why:
        return missing(m.why["history"])
    if not len(frame) or "epoch" not in frame or "loss" not in frame:
        return _trials(m, frame)
    metric, higher = m.metric
    name = metric_name(metric)
    epochs = [int(e) for e in frame["epoch"]]
    scores = [_number((val or {}).get(metric)) for val in frame["val"]]
    best = max(
        (e for e, kept in zip(epochs, frame["best"], strict=True) if kept), default=epochs[-1]
    )
    known = {e: s for e, s in zip(epochs, scores, strict=True) if s is not None}
    text = f"{len(epochs)} epoch{'' if len(epochs) == 1 else 's'}"
    if best in known:
        score = amount(known[best])
        text += f"; the weights of epoch {best} were kept, with {name} {score} on validation"
    step = -(-len(epochs) // 10)
    x = axis("epoch", "epoch", values=epochs[::step], format="d")
    return join([
        note(m.member_note) if m.member_note else None,
        tag("p", f"{text}. Selection looks at validation alone ({m.run.config.regime})."),
        columns(_loss(frame, epochs, x), _metric(known, best, x, name, higher), _pairs(frame, x),
                _gates(m, frame, epochs, x)),
        backtests(m),
    ])  # fmt: skip


def _trials(m: Material, frame: pd.DataFrame) -> Markup:
    """What a model without epochs tried: settings of LightGBM, numbers of labels."""
    metric, higher = m.metric
    if not len(frame) or "val" not in frame:
        how = "was trained once, without epochs or trials"
        if m.network:
            how = "is shown without epochs or trials: the history in its run folder is empty"
        elif not MODELS[m.run.config.model].learns:
            how = "looks at earlier labels, without epochs or trials"
        return missing(f"Model {m.run.config.model} {how}.")
    name = metric_name(metric)
    scores = [_number((val or {}).get(metric)) for val in frame["val"]]
    known = [score for score in scores if score is not None]
    best = (max if higher else min)(known, default=None)
    rows = []
    for number, (entry, score) in enumerate(zip(frame.to_dict("records"), scores, strict=True)):
        chosen = entry.get("settings")
        if not isinstance(chosen, dict):
            last = entry.get("last")
            chosen = {"labels": "all" if last is None or pd.isna(last) else int(last)}
        words = ", ".join(f"{key} {value}" for key, value in chosen.items())
        mark = "best" if score is not None and score == best else ""
        rows.append([f"{number + 1}", words, (amount(score, 4), score or 0.0), mark])
    text = f"{len(rows)} trial{'' if len(rows) == 1 else 's'}"
    tested = backtests(m)
    by = "backtests" if tested else "validation alone"
    return join([
        tag("p", f"{text} on validation ({m.run.config.regime}); the best {name} was "
            f"{amount(best, 4)}. Selection looks at {by}."),
        tested,
        sheet(["trial", "settings", f"{name} on validation", ""], rows, numbers=[0, 2],
              label="Trials", sorts=True),
    ])  # fmt: skip


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _loss(frame: pd.DataFrame, epochs: list[int], x: dict[str, Any]) -> Markup:
    data = [{"epoch": e, "loss": v} for e, v in zip(epochs, frame["loss"], strict=True)]
    alt = f"Training loss by epoch, from {amount(data[0]['loss'])} to {amount(data[-1]['loss'])}"
    return figure(
        chart(lines(data, x, axis("loss", "training loss of the task", zero=False)), alt),
        "Loss of the task in training, mean over an epoch.",
    )


def _metric(
    known: dict[int, float], best: int, x: dict[str, Any], name: str, higher: bool
) -> Markup | None:
    if not known:
        return None
    data = [{"epoch": e, "score": s} for e, s in known.items()]
    y = axis("score", f"{name} on validation", zero=False)
    marked = [row for row in data if row["epoch"] == best]
    spec = layers(
        {"mark": {"type": "line", "point": {"size": 28}}, "encoding": {"x": x, "y": y}},
        {"data": {"values": marked}, "mark": {"type": "point", "filled": False, "size": 160,
         "color": ORANGE, "strokeWidth": 2}, "encoding": {"x": x, "y": y}},
        data=data,
    )  # fmt: skip
    alt = f"{name} on validation by epoch, best at epoch {best}"
    word = "more" if higher else "less"
    return figure(
        chart(spec, alt), f"{name} on validation ({word} is better); the ring is what was kept."
    )


def _pairs(frame: pd.DataFrame, x: dict[str, Any]) -> Markup | None:
    """The pair loss of the functional dependencies, if the run has it."""
    if "fd_pair" not in frame or not frame["fd_pair"].fillna(0).any():
        return None
    data = [{"epoch": int(r.epoch), "loss": r.fd_pair} for r in frame.itertuples()]
    alt = (
        "Loss of foreign-key pairs by epoch, from "
        f"{amount(data[0]['loss'])} to {amount(data[-1]['loss'])}"
    )
    return figure(
        chart(lines(data, x, axis("loss", "loss of true against wrong parents", zero=False)), alt),
        "How hard it is to tell a row's true parent from wrong ones; less is better.",
    )


def _gates(m: Material, frame: pd.DataFrame, epochs: list[int], x: dict[str, Any]) -> Markup | None:
    if "gates" not in frame or not any(frame["gates"].map(bool)):
        return None
    routes = {r: [g.get(r) for g in frame["gates"]] for r in frame["gates"].iloc[-1]}
    moved = sorted(routes, key=lambda r: -abs((routes[r][-1] or 0) - 0.5))[:MOST]
    data = [
        {"epoch": e, "gate": g, "route": r}
        for r in moved
        for e, g in zip(epochs, routes[r], strict=True)
        if g is not None
    ]
    names = sorted(moved, key=lambda r: -(routes[r][-1] or 0))
    few = len(names) <= 5
    hue: dict[str, Any] = colour("route", names, [BLUE, ORANGE, GREEN, PURPLE, GREY] if few else
                                 [gate_colour(routes[r][-1] or 0) for r in names])  # fmt: skip
    if not few:
        hue["legend"] = None
    spec = lines(data, x, axis("gate", "gate: 0 node, 1 edge", scale={"domain": [0, 1]}), hue)
    if few:
        hue["legend"] = {"orient": "bottom", "columns": 1}
    rest = (
        f" The {len(moved)} of {len(routes)} routes furthest from 0.5."
        if len(routes) > len(moved)
        else ""
    )
    alt = "Gates by epoch. At the end: " + "; ".join(
        f"{r} {amount(routes[r][-1], 2)}" for r in names
    )
    return figure(
        chart(spec, alt),
        f"Gate of each route after every epoch, coloured by where it ended.{rest} Point at a dot "
        "for its route.",
    )  # fmt: skip
