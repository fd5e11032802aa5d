"""The code passes its own linters, where they are of the pinned versions."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "arguments", [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]],
    ids=lambda a: " ".join(a[:2]),
)  # fmt: skip
def test_lint(arguments: list[str]) -> None:
    if importlib.util.find_spec(arguments[0]) is None:
        pytest.skip(f"needs {arguments[0]}: pip install 'relfrog[dev]'")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the linters' verdict depends on library stubs; 3.11 is where it counts")
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
