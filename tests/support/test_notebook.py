"""Results in notebooks: a table and a picture, with everything escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pytest

import relfrog
from relfrog.analysis.explained import Explanation, Reason, TableShare
from relfrog.runs.describe import Roles
from relfrog.support.notebook import Bar, bars, html_table


def pictures(html: str) -> list[ET.Element]:
    """The drawings in some HTML, which must be well-formed."""
    parts = [part.split("</svg>")[0] for part in html.split("<svg")[1:]]
    return [ET.fromstring(f"<svg{part}</svg>") for part in parts]


def test_bars_are_as_long_as_their_values() -> None:
    (svg,) = pictures(bars([Bar("a", 1.0, "1"), Bar("<b>", 0.5, "½"), Bar("c", float("nan"), "?")]))
    widths = [float(r.attrib["width"]) for r in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == [260.0, 130.0, 1.0]
    both = pictures(bars([Bar("a", 1.0, "1"), Bar("b", -1.0, "-1")]))[0]
    places = [float(r.attrib["x"]) for r in both.iter("{http://www.w3.org/2000/svg}rect")]
    assert places == [350.0, 220.0]
    assert bars([]) == ""


def test_tables_are_escaped() -> None:
    assert "<td>&lt;script&gt;</td>" in html_table(["x"], [["<script>"]])


def test_roles_are_a_frame_with_a_picture() -> None:
    roles = Roles({"route": ["a <- b -> c"], "gate": [0.9], "role": ["edge"]})
    assert type(roles[roles["gate"] > 0]) is pd.DataFrame
    assert len(pictures(roles._repr_html_())) == 1
    assert "a &lt;- b" in roles._repr_html_()


def test_explanations() -> None:
    rows = (Reason("orders", "7", pd.Timestamp("2020-01-01"), 1, 0.25, {"total": "3"}, (-1,)),)
    tables = (TableShare("orders", 1, None, 0.25), TableShare("people", 1, None, None))
    found = Explanation(
        "people", "<3>", pd.Timestamp("2020-02-01"), 0.5, "probability of x", tables, rows, 1
    )
    html = found._repr_html_()
    assert "&lt;3&gt;" in html
    assert "total 3" in html
    assert len(pictures(html)) == 1


@pytest.mark.slow
def test_tasks_and_runs(bare_shop: Path, tmp_path: Path) -> None:
    query = "PREDICT COUNT(orders.*, 0, 20, days) > 2 FOR EACH people.id"
    added = relfrog.add_task(bare_shop, "buys", query=query)
    html = added._repr_html_()
    assert "&gt; 2 FOR EACH people.id" in html
    assert len(pictures(html)) == 1
    run = relfrog.train(bare_shop, "buys", tmp_path / "run", model="mean")
    assert len(pictures(run._repr_html_())) == 1
    assert "<td>rolling</td>" in run._repr_html_()
