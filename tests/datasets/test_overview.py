"""What inspect tells, and what it draws."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from relfrog import import_database, inspect
from relfrog.cli.data_summaries import inspection
from relfrog.errors import DatasetError
from relfrog.reporting.schema_drawing import schema_svg
from relfrog.testing import random_database


@pytest.mark.slow
def test_rel_f1_in_numbers(shared_data: Path) -> None:
    found = inspect(shared_data / "rel-f1")
    json.dumps(found)
    assert len(found["tables"]) == 9
    assert sum(t["rows"] for t in found["tables"]) == 96_675
    assert len(found["foreign_keys"]) == 13
    assert found["routes"] == {"co_occurrence": 18, "completion": 5}
    tasks = {t["name"]: t for t in found["tasks"]}
    assert tasks["driver-top3"]["splits"]["train"]["rows"] == 1353
    assert "13 foreign keys, 18 co-occurrence routes, 5 completion routes" in inspection(found)


@pytest.mark.parametrize("name", ["flights", "olist-sample", "travel-exchange"])
def test_other_real_datasets(name: str, shared_data: Path) -> None:
    found = inspect(shared_data / name)
    assert all("error" not in task for task in found["tasks"])
    assert all(set(task["splits"]) == {"train", "val", "test"} for task in found["tasks"])
    inspection(found)


def test_shares_of_null_and_time_spans(tmp_path: Path) -> None:
    import_database(random_database(5).to_sqlite(tmp_path / "a.db"), tmp_path / "out")
    found = inspect(tmp_path / "out")
    keys = {(k["table"], k["column"]): k for k in found["foreign_keys"]}
    assert 0 < keys["customers", "country"]["null_share"] < 1
    orders = next(t for t in found["tables"] if t["name"] == "order")
    assert orders["time_column"] == "placed_at"
    assert orders["first_time"] < orders["last_time"]
    assert found["tasks"] == []


def test_the_drawing_is_whole_and_escaped(tmp_path: Path) -> None:
    import_database(random_database(5).to_sqlite(tmp_path / "a.db"), tmp_path / "out")
    found = inspect(tmp_path / "out")
    found["tables"][0]["columns"]["<script>alert(1)</script>"] = "text"
    drawn = schema_svg(found)
    assert "var(" not in drawn, "not every program that shows SVG knows variables"
    assert "prefers-color-scheme:dark" in drawn
    root = ET.fromstring(drawn)
    texts = [element.text for element in root.iter() if element.text]
    for table in found["tables"]:
        assert table["name"] in texts
        assert {name for name in table["columns"] if len(name) <= 20} <= set(texts)
    for key in found["foreign_keys"]:
        assert f"{key['table']}.{key['column']} refers to {key['parent']}" in texts
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}


def test_cards_do_not_overlap(tmp_path: Path) -> None:
    tables = [
        {"name": f"t{i}", "rows": i, "primary_key": "id", "time_column": None,
         "columns": {"id": "integer", **{f"c{j}": "number" for j in range(i % 30)}}}
        for i in range(40)
    ]  # fmt: skip
    keys = [{"table": f"t{i}", "column": f"c{0}", "parent": f"t{i // 3}"} for i in range(1, 40)]
    keys.append({"table": "t0", "column": "c0", "parent": "t39"})  # a circle
    root = ET.fromstring(schema_svg({"name": "many", "tables": tables, "foreign_keys": keys}))
    boxes = [
        [float(r.attrib[k]) for k in ("x", "y", "width", "height")]
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(boxes) == 40
    for i, (x, y, w, h) in enumerate(boxes):
        for a, b, c, d in boxes[i + 1 :]:
            assert x + w <= a or a + c <= x or y + h <= b or b + d <= y


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"manifest\.yaml is missing"):
        inspect(tmp_path)
    with pytest.raises(DatasetError, match="does not exist"):
        inspect(tmp_path / "none")
    (tmp_path / "f.db").touch()
    with pytest.raises(DatasetError, match="Import it first"):
        inspect(tmp_path / "f.db")
