"""The current folder may be a stranger's: nothing in it is imported, and it sets nothing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import relfrog

PACKAGE = Path(relfrog.__file__).parent
#: Modules that Python's own processes, ours or Ray's import when they begin.
MODULES = ("json", "multiprocessing", "numpy", "pickle", "relfrog", "signal", "threading", "yaml")


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder with modules that say that they were run, and settings of Numba."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    for name in MODULES:
        text = f"open({str(tmp_path / 'owned')!r}, 'a').write({name!r})\nraise SystemExit\n"
        (folder / f"{name}.py").write_text(text)
    (folder / ".numba_config.yaml").write_text("cache_dir: ./pickles\n")
    return folder


def run_script(text: str, folder: Path) -> str:
    """What a script says that lies elsewhere and is run in a folder."""
    script = folder.parent / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(textwrap.dedent(text))
    unset = {"PYTHONSAFEPATH", "NUMBA_CACHE_DIR"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    path = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env={**kept, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_processes_import_nothing_of_it(stranger: Path) -> None:
    said = run_script(
        """
        import operator, os
        from pathlib import Path
        from relfrog.cluster.processes import run_jobs

        if __name__ == "__main__":
            log = Path(__file__).with_name("log")
            print(sorted(a for _, a in run_jobs(operator.neg, [4, 5], 2, 1, log)))
            print(os.environ.get("PYTHONSAFEPATH"))
        """,
        stranger,
    )
    assert said.splitlines() == ["[-5, -4]", "None"]
    assert not (stranger.parent / "owned").exists()


def test_commands_start_processes_that_import_nothing_of_it(stranger: Path) -> None:
    said = run_script(
        """
        import subprocess, sys
        from relfrog.cli import main

        sys.argv[1:] = ["--version"]
        try:
            main()
        except SystemExit:
            child = "import sys; print('' in sys.path, sys.flags.safe_path)"
            subprocess.run([sys.executable, "-c", child], check=True)
        """,
        stranger,
    )
    if sys.version_info >= (3, 11):
        assert said.splitlines()[-1] == "False True"
    assert not (stranger.parent / "owned").exists()


def test_numba_takes_no_settings_from_it(stranger: Path) -> None:
    said = run_script(
        """
        import warnings

        warnings.simplefilter("error")
        from relfrog.support.jit import compiled
        import numba, yaml

        @compiled
        def twice(x):
            return 2 * x

        print(twice(21), repr(numba.core.config.CACHE_DIR), yaml.safe_load("1"))
        """,
        stranger,
    )
    assert said == "42 '' 1"
    assert not (stranger / "pickles").exists()


@pytest.mark.slow
def test_ray_imports_nothing_of_it(stranger: Path) -> None:
    pytest.importorskip("ray")
    said = run_script(
        """
        from relfrog.cluster.ray_cluster import connect

        with connect("local") as cluster:
            work = cluster.ray.remote(num_cpus=0)(lambda: __import__("sys").path)
            print(cluster.ray.get(work.remote()))
        """,
        stranger,
    )
    assert str(stranger) not in said
    assert not (stranger.parent / "owned").exists()


def test_processes_are_started_in_few_places() -> None:
    """Where they are started, somebody has thought of the current folder."""
    starts = {"get_context", "ProcessPoolExecutor", "Popen", "run_path", "spawnv", "fork", "run"}
    modules = {"multiprocessing", "subprocess", "concurrent.futures", "os", "runpy"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in starts:
                named = ast.unparse(node.value) in modules
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                named = any(name.name in starts for name in node.names)
            else:
                continue
            if named:
                found.add(path.stem)
    assert found == {"processes", "sandbox", "sandbox_child"}
