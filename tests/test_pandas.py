"""Where pandas is: where tables come in and go out, and not between label SQL and the trainer.

RelBench's tables are frames, and their columns series; so are our tables in files, so that both are
read alike, a column at a time. What users get is frames, too. What is computed of seeds, rows and
batches is arrays. This test holds the lists of who imports pandas where it is not at home; a module
that no longer does has to be taken from its list.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "relfrog"

#: Folders of arrays, and who in them deals with tables: with columns as they are read, or with what
#: users get.
OF_ARRAYS = {
    "cluster": set(),
    "features": {
        # Columns are series when they are fitted and encoded, tensors from then on.
        "coded", "column_fit", "column_kinds", "columns", "novelty", "stored", "table", "values",
    },
    "graph": {
        "pointers",  # keys of tables in memory
        "pyg", "resolution",  # a graph as other libraries and users take it
    },
    "models": {"boosting"},  # the importance of features, for users
    "nn": set(),
    "support": {
        "lists", "parquet",  # between frames and Arrow
        "times",  # times in all forms that pandas knows
    },
    "training": set(),
}  # fmt: skip
#: Folders whose business is tables: reading and checking them, and answering in them.
OF_TABLES = {
    "analysis", "cli", "datasets", "experiments", "importing", "io", "queries", "reporting", "runs",
    "store",
}  # fmt: skip


def imports_pandas(path: Path) -> bool:
    """Whether a module imports pandas when it runs, at its top or in a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.partition(".")[0] == "pandas" for name in names):
            return True
    return False


@pytest.mark.parametrize("folder", sorted(OF_ARRAYS))
def test_who_imports_pandas(folder: str) -> None:
    found = {
        ".".join(path.relative_to(PACKAGE / folder).with_suffix("").parts)
        for path in (PACKAGE / folder).rglob("*.py")
        if imports_pandas(path)
    }
    assert found == OF_ARRAYS[folder]


def test_every_folder_is_one_or_the_other() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"presets"}
    assert folders == OF_ARRAYS.keys() | OF_TABLES


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import pandas as pd", True),
        ("from pandas.api import types", True),
        ("def f():\n    import pandas.core", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas as pd", False),
        ("import pandas_like", False),
    ],
)
def test_what_counts(tmp_path: Path, code: str, expected: bool) -> None:
    (tmp_path / "module.py").write_text(code)
    assert imports_pandas(tmp_path / "module.py") is expected
