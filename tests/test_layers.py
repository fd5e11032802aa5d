"""The order of the folders: each imports only from those before it, as pyproject.toml says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"], cwd=folder, capture_output=True, text=True
    )


def test_each_folder_knows_only_those_before_it() -> None:
    pytest.importorskip("importlinter", reason="needs import-linter: pip install import-linter")
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_the_folders_are_few_and_their_files_short() -> None:
    package = ROOT / "src" / "relfrog"
    assert len(list(package.glob("*.py"))) <= 10
    for path in package.rglob("*.py"):
        if path.name != "_kernels.py":  # one file, because of how compiled code is stored
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines < 500, f"{path.name}: {lines} lines"
