"""What is public is documented, generated pages are up to date, and no file names a machine."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relfrog
from relfrog.cli import cli

PACKAGE = Path(relfrog.__file__).parent
ROOT = Path(__file__).parents[1]


def test_every_public_name_is_documented_once() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    paths = [path.rpartition(".") for path in re.findall(r"^::: (\S+)$", reference, re.M)]
    names = [name for _, _, name in paths]
    assert len(names) == len(set(names))
    for home in ("relfrog", "relfrog.io", "relfrog.graph", "relfrog.nn", "relfrog.models"):
        public = set(importlib.import_module(home).__all__) - {"__version__"}
        assert public <= set(names), home
    for home, _, name in paths:
        module = importlib.import_module(home)
        assert name in module.__all__, f"{home}.{name}"
        assert inspect.getdoc(getattr(module, name)), f"{home}.{name}"


def test_every_command_and_option_is_documented() -> None:
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        assert f"## relfrog {name}" in commands
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert option in commands, f"{name} {option}"


@pytest.mark.parametrize("page", ["commands.md", "settings.md"])
def test_generated_pages_are_up_to_date(page: str) -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == generate.PAGES[page](), "run: python docs/generate.py"


def test_public_names_of_modules_exist() -> None:
    for module in pkgutil.walk_packages(relfrog.__path__, "relfrog."):
        if module.name == "relfrog.__main__":
            continue
        found = importlib.import_module(module.name)
        for public in getattr(found, "__all__", ()):
            assert hasattr(found, public), f"{module.name}.{public}"
            # A submodule of the same name would hide what is exported lazily.
            assert not inspect.ismodule(getattr(found, public)), f"{module.name}.{public}"


def test_importing_the_public_packages_loads_no_library() -> None:
    code = (
        "import sys, relfrog.io, relfrog.graph, relfrog.nn, relfrog.models; "
        "print({'duckdb', 'numpy', 'pandas', 'sqlalchemy', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


def test_no_file_names_a_machine() -> None:
    anywhere = [
        "/work" + "/",
        "/ro" + "ot/",
        "/ho" + "me/",
        "file" + "pythonhosted",
        "pypi" + ".org",
    ]
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip("needs git to list the files")
    for name in filter(None, done.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file():  # removed, not yet committed
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        # Tests try to write into the temporary folder, and must not; no command was run there.
        forbidden = anywhere if name.startswith("tests/") else [*anywhere, "/t" + "mp/"]
        for word in forbidden:
            assert word not in text, f"{name}: {word}"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--out", f"{ROOT}/benchmarks/a.json"], "--out benchmarks/a.json"),
        ([f"--out={ROOT}/benchmarks/a.json"], "--out=benchmarks/a.json"),
        (["--on", "/somewhere/shop:buys", "../data"], "--on shop:buys ../data"),
        (["--format", "kept labels.parquet"], "--format 'kept labels.parquet'"),
    ],
)
def test_commands_are_kept_without_the_folders_of_a_machine(
    words: list[str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from measuring import command_line

    monkeypatch.setattr(sys, "argv", ["/anywhere/benchmarks/some.py", *words])
    assert command_line() == f"python benchmarks/some.py {kept}"
