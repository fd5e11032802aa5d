"""The documentation as a site: it builds, its links lead somewhere, its code runs."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import relfrog
from helpers import blocks, followed, inside

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def built(docs: Path, out: Path) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("material") is None:
        pytest.skip("needs MkDocs: pip install 'relfrog[docs]'")
    return subprocess.run(
        [sys.executable, str(docs / "build.py"), "--out", str(out)], capture_output=True, text=True
    )


def copied(folder: Path) -> Path:
    for name in ("experiments", "examples"):  # pictures that pages show, files that they name
        shutil.copytree(ROOT / name, folder / name)
    return Path(shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("_build")))


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = built(DOCS, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    for page in DOCS.glob("*.md"):
        text = (tmp_path / "site" / f"{page.stem}.html").read_text(encoding="utf-8")
        assert "(prefers-color-scheme: dark)" in text
    assert module(DOCS / "build.py").foreign(tmp_path / "site") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        # All that one build finds is said at once, and a build takes seconds.
        [
            ("index.md", "\n[gone](gone.md)\n", "'gone.md'"),
            ("index.md", "\n[gone](train.md#lost)\n", "'train.md#lost'"),
            ("lost.md", "# Lost\n", "lost.md"),
        ],
        [("index.md", "\n[gone](../gone.txt)\n", "../gone.txt")],
        [("index.md", "\n::: relfrog.gone\n", "relfrog.gone")],
        [
            ("index.md", '\n<script src="https://cdn.example/x.js"></script>\n', "cdn.example"),
            ("index.md", "\n![badge](https://badges.example/x.svg)\n", "badges.example"),
        ],
    ],
    ids=["links and navigation", "outside", "name", "other hosts"],
)
def test_what_stops_the_build(faults: list[tuple[str, str, str]], tmp_path: Path) -> None:
    docs = copied(tmp_path)
    for page, text, _ in faults:
        with open(docs / page, "a", encoding="utf-8") as file:
            file.write(text)
    done = built(docs, tmp_path / "site")
    assert done.returncode != 0
    for _, _, words in faults:
        assert words in done.stdout + done.stderr


@pytest.mark.slow
def test_a_page_that_is_not_there_is_not_in_the_navigation(tmp_path: Path) -> None:
    docs = copied(tmp_path)
    (docs / "questions.md").unlink()
    (tmp_path / "results.json").write_text("{}")
    with open(docs / "train.md", "a", encoding="utf-8") as file:
        file.write("\nAll of it is in [the results](../results.json).\n")
    done = built(docs, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert "questions.html" not in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    # A file beside the pages is named: a site has only pages.
    shown = (tmp_path / "site" / "train.html").read_text(encoding="utf-8")
    assert "the results (<code>results.json</code>)" in shown


def test_every_page_is_in_the_navigation() -> None:
    def targets(nav: list[dict[str, object]]) -> list[str]:
        found: list[str] = []
        for entry in nav:
            for target in entry.values():
                found += targets(target) if isinstance(target, list) else [str(target)]
        return found

    nav = targets(yaml.safe_load((DOCS / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert len(nav) == len(set(nav))
    assert {page.name for page in DOCS.glob("*.md")} <= set(nav)


def test_the_drawings_are_current_and_fit_light_and_dark() -> None:
    draw = module(DOCS / "draw.py")
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for name, make in draw.DRAWINGS.items():
        svg = (DOCS / "drawings" / name).read_text(encoding="utf-8")
        assert svg == make(), "run: python docs/draw.py"
        assert "prefers-color-scheme:dark" in svg
        assert "<title>" in svg
        assert f"](drawings/{name})" in text
    assert {p.name for p in (DOCS / "drawings").iterdir()} == set(draw.DRAWINGS)


def test_the_architecture_is_that_of_the_source() -> None:
    source = Path(relfrog.__file__).parent
    folders = {path.parent.name for path in source.glob("*/__init__.py")}
    drawn = list(module(DOCS / "draw.py").LAYERS)
    assert set(drawn) == folders
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11 or newer")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    assert drawn == [layer for layer in reversed(contract["layers"]) if layer in folders]
    for page in (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"^\| `(\w+)/` \|", text.partition("| folder |")[2], re.M)
        assert set(named) - {"tests", "docs", "examples"} == folders, page.name
    # The files and folders that the page names are there.
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text):
        assert (source / path).exists() or (ROOT / path).exists(), path


def test_readmes_picture_is_one_of_roles(demo: Path) -> None:
    made = module(DOCS / "draw.py").learned(str(demo / "run"))
    kept = (DOCS / "roles.svg").read_text(encoding="utf-8")
    routes = re.compile(r"<g><title>([^<]*): gate [\d.]+</title>")
    assert sorted(routes.findall(kept)) == sorted(routes.findall(made))
    gates = [float(g) for g in re.findall(r": gate ([\d.]+)</title>", kept)]
    assert gates == sorted(gates, reverse=True)
    # The session in README is that of the same run.
    for route, gate in re.findall(r"^(\S+ <-.*?) +co-occurrence +([\d.]+)", _readme(), re.M):
        shown = route.replace("<", "&lt;").replace(">", "&gt;")
        assert f"{shown}: gate {gate}" in kept


def _readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_type_of_task_as_the_guide_writes_it(
    demo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "relfrog-demo" / "flights"
    shutil.copytree(demo / "flights", place, copy_function=os.link)  # the tables stay as they are
    monkeypatch.chdir(tmp_path)
    page = DOCS / "write-a-task.md"
    said = followed(page, capfd, skip="relfrog check")  # it takes its time, and has its own tests
    for shown in blocks(page, "text")[1:]:  # the first is a pattern
        for line in shown.splitlines():
            assert line in said.splitlines(), line
    kinds = {task["task_type"] for task in relfrog.inspect(place, labels=False)["tasks"]}
    assert len(kinds) == 5


@pytest.fixture
def registries() -> Iterator[None]:
    """What the guide to extensions registers is forgotten afterwards."""
    from relfrog.io import SOURCES
    from relfrog.models import MODELS
    from relfrog.nn import HEADS, MESSAGES

    sources = list(SOURCES)
    kept = [(registry, dict(registry)) for registry in (MESSAGES, HEADS, MODELS)]
    yield
    SOURCES[:] = sources
    for registry, before in kept:
        registry.clear()
        registry.update(before)


@pytest.mark.usefixtures("registries")
@pytest.mark.slow
def test_the_code_that_extends_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from relfrog.nn.heads import BinaryHead
    from relfrog.nn.task_heads import HEADS

    example = module(ROOT / "examples" / "shop.py")
    monkeypatch.chdir(tmp_path)
    files = example.write_shop(tmp_path / "csv")
    relfrog.import_database(str(files), "relfrog-example/shop")
    relfrog.add_task(
        "relfrog-example/shop", "churn", example.CHURN, type="binary", entity="customers",
        horizon="30 days",
    )  # fmt: skip
    page: dict[str, object] = {"__name__": "page"}
    for block in blocks(DOCS / "extend.md", "python"):
        exec(compile(block, "extend.md", "exec"), page)
    said = capsys.readouterr().out
    assert said.startswith("{'people': 2, 'visits': 28}\n")
    assert re.search(r" -> \w+ <- .* 0\.\d+$", said, re.M)
    assert HEADS["binary_classification"] is BinaryHead
    assert said.splitlines()[-1].startswith("epoch 1: gates from ")
    # A run of a registered model is opened and used like any other.
    for name in ("siblings", "recurrent", "seasonal"):
        run = relfrog.load_run(name)
        known = pytest.approx(run.metrics["test"]["rolling"], rel=0, abs=0, nan_ok=True)
        assert run.evaluate("test") == known
    assert "seasonal" in relfrog.load_run("watched").baselines


def test_guides_and_examples_use_public_names_alone() -> None:
    public = {"relfrog", "relfrog.io", "relfrog.graph", "relfrog.nn", "relfrog.models"}
    notebook = json.loads((ROOT / "examples" / "first_look.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    scripts = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")]
    pages = [block for page in (ROOT / "README.md", *DOCS.glob("*.md"))
             for block in blocks(page, "python")]  # fmt: skip
    used = set()
    for code in (*cells, *scripts, *pages):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relfrog"):
                used.add(node.module)
                home = importlib.import_module(node.module or "")
                assert {alias.name for alias in node.names} <= set(home.__all__), node.module
            elif isinstance(node, ast.Import):
                used |= {a.name for a in node.names if a.name.startswith("relfrog")}
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "relfrog":
                assert node.attr in relfrog.__all__, node.attr
    assert used == public


@pytest.mark.usefixtures("registries")
def test_the_third_paradigm_of_the_guide_finds_what_a_loop_finds() -> None:
    import numpy as np

    from relfrog.graph import ForeignKey, Route

    block = next(b for b in blocks(DOCS / "extend.md", "python") if "SharedParent" in b)
    page: dict[str, object] = {"__name__": "page"}
    exec(block, page)
    paradigm = page["SharedParent"]()  # type: ignore[operator]
    a, b = ForeignKey("u", "v", "v"), ForeignKey("w", "v", "v")
    rng = np.random.default_rng(0)
    for first, second in ((a, b), (a, a)):
        parents = {a: rng.integers(-1, 4, 30), b: rng.integers(-1, 4, 20)}
        u, v, w = Route(paradigm, first, second).match(parents)
        expected = {
            (i, p, j)
            for i, p in enumerate(parents[first].tolist())
            for j, q in enumerate(parents[second].tolist())
            if p == q >= 0 and not (first == second and i == j)
        }
        assert len(u) == len(expected)
        assert set(zip(u.tolist(), v.tolist(), w.tolist())) == expected


@pytest.mark.slow
def test_get_started_runs(
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workplace)
    page = DOCS / "index.md"
    (block,) = blocks(page, "python")
    # The model's worth is not the point here.
    exec(block.replace("seed=0)", "seed=0, settings={'epochs': 1})"), {})
    assert "'roc_auc': " in capfd.readouterr().out
    monkeypatch.chdir(workplace / "runs")
    for command in blocks(page, "sh")[2].splitlines():
        words = shlex.split(command, comments=True)
        assert words[0] == "relfrog"
        code, out, _ = inside(capfd, words[1], "--help")
        assert code == 0
        for word in words:
            assert not word.startswith("--") or word in out
