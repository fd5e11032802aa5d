"""What the functional-dependency losses learned: h_parent - h_child of pairs, in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from relfrog.kinds import MODELS
from relfrog.reporting.charts import axis, chart, colour
from relfrog.reporting.html import (
    BLUE,
    ORANGE,
    Markup,
    amount,
    columns,
    figure,
    join,
    missing,
    note,
    sheet,
    tag,
)
from relfrog.reporting.material import Material

__all__ = ["dependencies"]

#: The most foreign keys with a chart, and the most points in it.
MOST, POINTS = 12, 80


def dependencies(m: Material) -> Markup:
    """The section."""
    found = m.differences
    if found is None:
        return missing(m.why.get("differences", "There are no foreign-key pairs to look at."))
    if not len(found.key):
        return missing("There is no foreign-key pair among the sampled rows.")
    keys = sorted(found.separation, key=lambda key: -_or_zero(_separated(found, key)))
    apart = [value for key in keys if not np.isnan(value := _separated(found, key))]
    learned = any(not np.isnan(value) for value in found.scored.values())
    how = "by the learned score of the key" if learned else "by their distance"
    parts: list[Any] = [
        tag("p", "A foreign key says which parent a row has. If the embeddings encode it, the "
            "difference between a parent and its child is similar for all true pairs of a key, and "
            "different for mismatched pairs."
            + (f" True and mismatched pairs are separated {how} with ROC-AUC "
               f"{amount(min(apart), 2)} to {amount(max(apart), 2)}, depending on the key (0.5 is "
               "chance, 1 is perfect)." if apart else "")),
    ]  # fmt: skip
    config = (m.network_run or m.run).config
    if m.member_note:
        parts.append(note(m.member_note))
    if not MODELS[config.model].roles or not (config.beta or config.gamma):
        parts.append(note("This run was trained without the functional-dependency losses."))
    marks = (
        tag("i", class_="dot", style=f"background:{BLUE}"),
        tag("b", "▲", style=f"color:{ORANGE}"),
    )
    legend = [marks[0], " true pairs", marks[1], " mismatched pairs"]
    parts.append(tag("div", *legend, class_="legend"))
    names = np.array(found.key)
    low, high = np.quantile(found.points, [0.005, 0.995], axis=0)
    pad = (high - low) * 0.05 + 1e-9
    window = np.stack([low - pad, high + pad])
    parts.append(columns(*(_one(found, names, key, window) for key in keys[:MOST])))
    share = ""
    if not np.isnan(found.explained):
        share = f" They explain {100 * found.explained:.0f} % of the variance."
    if len(keys) > MOST:
        share += f" {len(keys) - MOST} more foreign keys are in the table only."
    parts.append(note(
        "Both axes are the first two principal components of the true differences, the same in all "
        f"charts.{share}"
    ))  # fmt: skip
    rows = [
        [key, *((_number(some[key]), _or_zero(some[key])) for some in (found.scored,
                                                                       found.separation))]
        for key in keys
    ]  # fmt: skip
    heads = ["foreign key", "separation by the learned score (ROC-AUC)",
             "by distance from the mean (ROC-AUC)"]  # fmt: skip
    table = sheet(heads, rows, numbers=[1, 2], label="Separation by foreign key", sorts=True)
    parts.append(tag("details", tag("summary", f"All {len(keys)} foreign keys"), table))
    return join(parts)


def _separated(found: Any, key: str) -> float:
    """The ROC-AUC of true against mismatched pairs: by the learned score if there is one."""
    scored = float(found.scored[key])
    return float(found.separation[key]) if np.isnan(scored) else scored


def _number(value: float) -> str:
    return "" if np.isnan(value) else str(amount(value, 3))


def _or_zero(value: float) -> float:
    return 0.0 if np.isnan(value) else float(value)


def _one(found: Any, names: Any, key: str, window: Any) -> Markup | None:
    here = np.flatnonzero(names == key)
    data = []
    for true, word in ((False, "mismatched"), (True, "true")):
        some = here[found.matched[here] == true][:POINTS]
        data += [
            {"x": round(float(x), 3), "y": round(float(y), 3), "pair": word}
            for x, y in found.points[some]
            if (window[0] <= (x, y)).all() and ((x, y) <= window[1]).all()
        ]
    if not data:
        return None
    scales = [{"domain": window[:, i].tolist(), "nice": False, "zero": False} for i in (0, 1)]
    spec = {
        "data": {"values": data}, "width": 270, "height": 220,
        "mark": {"type": "point", "filled": True, "size": 18, "opacity": 0.6},
        "encoding": {
            "x": axis("x", "first component", scale=scales[0], labels=False, ticks=False),
            "y": axis("y", "second component", scale=scales[1], labels=False, ticks=False),
            "color": colour("pair", ["true", "mismatched"], [BLUE, ORANGE]) | {"legend": None},
            "shape": {"field": "pair", "type": "nominal", "legend": None,
                      "scale": {"domain": ["true", "mismatched"],
                                "range": ["circle", "triangle-up"]}},
        },
    }  # fmt: skip
    value = amount(_separated(found, key), 2)
    alt = f"Differences of {key}: true and mismatched pairs, separated with ROC-AUC {value}"
    return figure(chart(spec, alt), join([tag("code", key), f" · ROC-AUC {value}"]), class_="small")
