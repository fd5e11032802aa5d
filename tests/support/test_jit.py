"""Cached kernels never go stale, and a cache folder is not needed."""

from __future__ import annotations

import ast
import builtins
import dis
import importlib
import importlib.util
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest
from numba.core.dispatcher import Dispatcher

import relfrog

PACKAGE = Path(relfrog.__file__).parent


def globals_of(code: CodeType) -> set[str]:
    """Names that a function looks up in its module, and those of functions inside of it."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return names.union(*map(globals_of, inner))


class Definitions:
    """Where the names of a source file come from."""

    def __init__(self, source: str) -> None:
        self.defined: dict[str, ast.AST] = {}
        self.imported: dict[str, str] = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                node.decorator_list = []  # `compiled` is of the package, and is not baked in
                self.defined[node.name] = node
            elif isinstance(node, ast.Import):
                for name in node.names:
                    self.imported[name.asname or name.name.partition(".")[0]] = name.name
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    self.imported[name.asname or name.name] = f"{node.module}.{name.name}"
            else:
                for part in ast.walk(node):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        self.defined[part.id] = node

    def foreign(self, name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """What a name rests on that another file of the package defines."""
        source = self.imported.get(name, "")
        if source.startswith(("relfrog", ".", "None")):
            yield source
        if name in self.defined and name not in seen:
            for part in ast.walk(self.defined[name]):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                    yield from self.foreign(part.id, seen | {name})


def kernels_of(module: ModuleType) -> dict[str, FunctionType]:
    """The compiled functions that a module defines."""
    found = {n: v.py_func for n, v in vars(module).items() if isinstance(v, Dispatcher)}
    return {n: f for n, f in found.items() if f.__module__ == module.__name__}


def borrowed(module: ModuleType) -> list[str]:
    """What its kernels use that is neither a builtin, nor a module, nor of the same file."""
    assert module.__file__
    definitions = Definitions(Path(module.__file__).read_text(encoding="utf-8"))
    found = []
    for kernel, function in kernels_of(module).items():
        for name in function.__code__.co_freevars:
            found.append(f"{kernel} uses {name} of the function around it")
        for name in sorted(globals_of(function.__code__)):
            value = vars(module).get(name)
            if name not in vars(module) and hasattr(builtins, name):
                continue
            if isinstance(value, ModuleType) and not value.__name__.startswith("relfrog"):
                continue
            if name not in definitions.defined:
                found.append(f"{kernel} uses {name}, which {module.__name__} does not define")
            found += [f"{kernel} uses {what}" for what in sorted(set(definitions.foreign(name)))]
    return found


def test_every_global_of_a_kernel_is_defined_in_its_own_file() -> None:
    kernels = 0
    for found in pkgutil.walk_packages([str(PACKAGE)], "relfrog."):
        if found.name != "relfrog.__main__":
            module = importlib.import_module(found.name)
            kernels += len(kernels_of(module))
            assert borrowed(module) == []
    assert kernels > 20


MADE_UP = """
import math
import numpy as np
import relfrog.support.times
from math import pi
from numpy import arange
from relfrog.support import times
from relfrog.support.jit import compiled
from relfrog.support.times import MISSING, PER_SECOND

OWN = math.inf
ALIAS = MISSING
TWICE = min(ALIAS, 0)

@compiled
def kernel(x):
    return {}

@compiled
def other(x):
    return OWN
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("MISSING", "relfrog.support.times.MISSING"),
        ("ALIAS", "relfrog.support.times.MISSING"),
        ("TWICE", "relfrog.support.times.MISSING"),
        ("times.MISSING", "relfrog.support.times"),
        ("relfrog.support.times.MISSING", "relfrog.support.times"),
        ("pi", "uses pi, which made_up does not define"),
        ("arange(3)", "uses arange, which made_up does not define"),
        ("[MISSING for _ in range(3)]", "relfrog.support.times.MISSING"),
        ("undefined", "uses undefined, which made_up does not define"),
        ("OWN + other(x) + len(np.zeros(int(math.pi)))", ""),
    ],
)
def test_a_kernel_that_takes_from_another_file_is_found(
    body: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made_up.py"
    path.write_text(MADE_UP.format(body), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("made_up", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "made_up", module)
    spec.loader.exec_module(module)
    assert set(kernels_of(module)) == {"kernel", "other"}
    found = borrowed(module)
    assert bool(found) == bool(words)
    assert words in "\n".join(found)


#: What a kernel may need of Numba besides its compiler: an instruction of the processor.
ALLOWED = {"numba.core.types", "numba.extending.intrinsic"}


def numba_imports(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)) if "numba" in source else ():
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return {name for name in found if name.split(".")[0] == "numba"}


def test_only_one_module_calls_the_compiler() -> None:
    paths = set(PACKAGE.rglob("*.py")) - {PACKAGE / "support" / "jit.py"}
    found = {str(p): numba_imports(p.read_text(encoding="utf-8")) for p in paths}
    assert {name: what - ALLOWED for name, what in found.items() if what - ALLOWED} == {}
    assert found[str(PACKAGE / "graph" / "_kernels.py")] == ALLOWED
    for text in ("import numba", "from numba import njit", "def f():\n import numba.core as n"):
        assert numba_imports(text) - ALLOWED


SAMPLE = """
    import json, numba, relfrog
    import pandas as pd
    from relbench.base import Database, Table
    from relfrog.graph._kernels import walk
    from relfrog.graph.relational import build_graph
    from relfrog.graph.sampler import TemporalSampler
    from relfrog.nn.batch_plan import _sort, make_plan
    parents = Table(pd.DataFrame({"id": [0, 1]}), {}, "id", None)
    times = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
    orders = pd.DataFrame({"id": [0, 1, 2], "who": [0, 1, 0], "at": times})
    db = Database({"people": parents, "orders": Table(orders, {"who": "people"}, "id", "at")})
    batch = TemporalSampler(build_graph(db), "people", [-1]).sample([0], ["2020-01-02"])
    plan = make_plan(batch, 1)
    try:
        numba.njit(walk.py_func, cache=True)
        refused = ""
    except RuntimeError as error:
        refused = str(error)
    print(json.dumps({
        "file": relfrog.__file__, "refused": refused,
        "orders": batch.tables["orders"].rows.tolist(),
        "links": sum(len(links) for links in plan.layers[0].up.values()),
        "cached": [f.stats.cache_path for f in (walk, _sort)],
    }))
"""


@pytest.mark.slow
def test_sampling_needs_no_cache_folder(tmp_path: Path) -> None:
    # Permissions do not stop root: what would have to be a folder is a file instead.
    package = tmp_path / "src" / "relfrog"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(p for p in package.rglob("*") if p.is_dir())]:
        (folder / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SAMPLE)],
        capture_output=True, text=True, timeout=300,
        env=kept | {
            "HOME": str(home / "me"),
            "MPLCONFIGDIR": str(tmp_path),
            "NUMBA_CACHE_DIR": str(home / "numba"),
            "NUMBA_OPT": "0",  # compiles faster
            "PYTHONPATH": str(package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )  # fmt: skip
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["file"]).parent == package
    assert (found["orders"], found["links"]) == ([0], 1)
    assert "cannot cache function" in found["refused"]
    assert found["cached"] == [None, None]
