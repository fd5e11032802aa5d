"""Charts: Vega-Lite specifications, rendered offline as SVG by `vl-convert-python`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from relfrog.reporting.html import (
    BLUE,
    GREEN,
    GREY,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    Markup,
    tag,
)

__all__ = ["axis", "bars", "chart", "colour", "curve", "dots", "intervals", "layers", "lines"]

#: Default size of a chart, including its axes.
WIDTH, HEIGHT = 340, 250
#: Version of Vega-Lite, one of those bundled with `vl-convert-python`.
VERSION = "5.20"
_SHORT = re.compile(r"(\d+\.\d\d)\d+")
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, GREY)

_CONFIG: dict[str, Any] = {
    "font": "system-ui, sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED, "titleColor": INK, "gridColor": GRID, "domainColor": GREY,
        "tickColor": GREY, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": 500,
        "titlePadding": 8, "tickSize": 4, "labelPadding": 4, "labelFlush": False,
    },
    "legend": {
        "labelColor": MUTED, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11,
        "orient": "top", "title": None, "symbolSize": 70, "labelLimit": 300, "columnPadding": 12,
        "offset": 6,
    },
    "line": {"strokeWidth": 2, "color": BLUE},
    "point": {"filled": True, "size": 40, "color": BLUE},
    "bar": {"color": BLUE},
    "rule": {"color": GREY},
    "text": {"color": MUTED, "fontSize": 11},
    "header": {"labelColor": INK, "labelFontSize": 11, "labelFontWeight": 600, "title": None},
    "title": {"color": INK, "fontSize": 12, "fontWeight": 600, "anchor": "start"},
}  # fmt: skip


def chart(spec: Mapping[str, Any], alt: str) -> Markup:
    """Render a Vega-Lite specification as SVG.

    Args:
        spec: the specification; width and height have defaults.
        alt: the text alternative.
    """
    import vl_convert

    whole = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "config": _CONFIG}
    sized = {} if any(name in spec for name in ("facet", "concat")) else {
        "width": WIDTH, "height": HEIGHT, "autosize": {"type": "fit", "contains": "padding"},
    }  # fmt: skip
    svg = vl_convert.vegalite_to_svg(whole | sized | dict(spec), vl_version=VERSION)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    found = re.match(r'<svg[^>]*?width="([\d.]+)" height="([\d.]+)" viewBox="([^"]*)"[^>]*>', svg)
    assert found is not None
    inside = svg[found.end() : svg.rindex("</svg>")]
    # Two decimals are enough: coordinates are in pixels.
    inside = re.sub(r' (?:d|transform)="[^"]*"', lambda a: _SHORT.sub(r"\1", a[0]), inside)
    return tag(
        "svg", tag("title", alt), Markup(inside), class_="chart", role="img", aria_label=alt,
        viewBox=found[3], style=f"max-width:{float(found[1]) * 1.3:.0f}px",
        width=found[1],
    )  # fmt: skip


def axis(field: str, title: str, kind: str = "quantitative", **more: Any) -> dict[str, Any]:
    """An encoding by a field with a titled axis; `zero=False`: the axis need not include zero."""
    scale = more.pop("scale", {})
    if "zero" in more:
        scale = {**scale, "zero": more.pop("zero")}
    details = {k: more.pop(k) for k in list(more) if k in ("format", "grid", "tickCount", "values",
               "labels", "labelAngle", "labelLimit", "labelOverlap", "tickMinStep", "formatType",
               "ticks", "domain")}  # fmt: skip
    return {"field": _named(field), "type": kind, "title": title, "scale": scale, "axis": details,
            **more}  # fmt: skip


def colour(field: str, names: Sequence[str], colours: Sequence[str] = PALETTE) -> dict[str, Any]:
    """An encoding by colour with a fixed order."""
    scale = {"domain": list(names), "range": [colours[i % len(colours)] for i in range(len(names))]}
    return {"field": _named(field), "type": "nominal", "scale": scale}


def _named(field: str) -> str:
    """Escape a field name: Vega-Lite reads dots and brackets as paths."""
    return re.sub(r"([.\[\]\\])", r"\\\1", field)


def layers(
    *parts: Mapping[str, Any], data: Sequence[Mapping[str, Any]] = (), **more: Any
) -> dict[str, Any]:
    """Several marks in one chart."""
    return {"data": {"values": list(data)}, "layer": list(parts), **more}


def lines(
    data: Sequence[Mapping[str, Any]], x: dict[str, Any], y: dict[str, Any], hue: Any = None
) -> dict[str, Any]:
    """A line chart with a point at every value."""
    encoding = {"x": x, "y": y} | ({"color": hue} if hue else {})
    return {
        "data": {"values": list(data)},
        "mark": {"type": "line", "point": {"size": 28}},
        "encoding": encoding,
    }


def curve(
    data: Sequence[Mapping[str, Any]], x: dict[str, Any], y: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """A line without points, in the order of the data."""
    return {
        "data": {"values": list(data)},
        "mark": {"type": "line", **more},
        "encoding": {"x": x, "y": y, "order": {"field": "order", "type": "quantitative"}},
    }


def dots(
    data: Sequence[Mapping[str, Any]], x: dict[str, Any], y: dict[str, Any], hue: Any = None,
    **mark: Any,
) -> dict[str, Any]:  # fmt: skip
    """A scatter plot."""
    encoding = {"x": x, "y": y} | ({"color": hue} if hue else {})
    return {
        "data": {"values": list(data)},
        "mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.55, **mark},
        "encoding": encoding,
    }


def bars(data: Sequence[Mapping[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """A bar chart."""
    return {
        "data": {"values": list(data)},
        "mark": {"type": "bar", "cornerRadiusEnd": 2},
        "encoding": {"x": x, "y": y},
    }


def intervals(
    data: Sequence[Mapping[str, Any]],
    value: str,
    title: str,
    name: str = "name",
    *,
    hue: Any = None,
    height: int | None = None,
    zero: bool = False,
    reference: float | None = None,
) -> dict[str, Any]:
    """A dot plot with intervals, one row per name.

    Args:
        data: entries with fields `name`, `value`, `low`, `high`; the last two may be None.
        value: the field of the value.
        title: title of the axis.
        name: the field of the rows.
        hue: an encoding by colour; its field also offsets the points.
        height: height of a row.
        zero: whether the axis includes zero.
        reference: a value to mark by a dashed line.
    """
    order = list(dict.fromkeys(entry[name] for entry in data))
    y: dict[str, Any] = {
        "field": name, "type": "nominal", "title": None, "sort": order,
        "axis": {"labelLimit": 180, "grid": False, "ticks": False, "domain": False},
    }  # fmt: skip
    x = axis(value, title, zero=zero, tickCount=5, scale={"padding": 6})
    encoding: dict[str, Any] = {"y": y}
    if hue:
        encoding |= {"color": hue, "yOffset": {"field": hue["field"], "type": "nominal"}}
    parts: list[dict[str, Any]] = []
    if reference is not None:
        parts.append({
            "data": {"values": [{"at": reference}]}, "mark": {"type": "rule", "strokeDash": [4, 3]},
            "encoding": {"x": {"field": "at", "type": "quantitative"}},
        })  # fmt: skip
    span = {"x": x | {"field": "low"}, "x2": {"field": "high"}}
    plain = {} if hue else {"color": BLUE}
    parts.append({
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
        "mark": {"type": "rule", "strokeWidth": 2.5, "opacity": 0.55, **plain},
        "encoding": encoding | span,
    })  # fmt: skip
    mark = {"type": "point", "filled": True, "size": 75}
    parts.append({"mark": mark, "encoding": encoding | {"x": x}})
    step = height or (34 if hue else 28)
    # The reader's font may be wider than the one used for layout.
    longest = max((len(str(entry)) for entry in order), default=0)
    room = {"left": 6 + min(longest, 28) * 1.6, "right": 12, "top": 5, "bottom": 5}
    tall = step * len(order) + (95 if hue else 70)
    return {"data": {"values": list(data)}, "layer": parts, "height": tall, "padding": room}
