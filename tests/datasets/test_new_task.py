"""A task that is replaced is never lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import relbench
import yaml

from relfrog import add_task, import_database, inspect, open_dataset
from relfrog.datasets.tasks import load_task, task_names
from relfrog.support.files import recover

#: Replaces a task in one copy of a store after the other; each copy has a process of its own, and
#: each process dies one step later.
REPLACE = """
import os, pathlib, shutil, sys
from relfrog.datasets.new_task import add_task

def dying(function, counter, place):
    def count(path, *given, **options):
        if not str(path).startswith(str(place)):
            return function(path, *given, **options)
        if not counter:
            os._exit(9)  # like kill -9: nothing is tidied up
        counter.pop()
        return function(path, *given, **options)
    return count

copies = sorted(pathlib.Path(sys.argv[1]).iterdir())
for steps, place in enumerate(copies):
    child = os.fork()
    if not child:
        counter = [None] * steps
        pathlib.Path.rename = dying(pathlib.Path.rename, counter, place)
        shutil.rmtree = dying(shutil.rmtree, counter, place)
        add_task(
            place, "buys", sys.argv[2], type="binary", entity="people", horizon="25 days",
            overwrite=True,
        )
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def sql_of(store: Path, task: str) -> str:
    manifest = yaml.safe_load((store / "tasks" / task / "manifest.yaml").read_text())
    return str(manifest["sql"])


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_killed_while_replacing_a_task_it_can_still_be_read(store: Path, tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(store, tmp_path / "stores" / str(i))) for i in range(6)]
    sql = sql_of(store, "buys")
    done = subprocess.run(
        [sys.executable, "-c", REPLACE, str(tmp_path / "stores"), sql],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["9"] * 5 + ["0"], done.stderr
    old, new = files_of(store / "tasks" / "buys"), files_of(copies[-1] / "tasks" / "buys")
    gone = [copy for copy in copies if not (copy / "tasks" / "buys").exists()]
    assert gone == [copies[1]]  # killed between the two renames
    for steps, copy in enumerate(copies):
        dataset = open_dataset(copy)
        assert files_of(copy / "tasks" / "buys") == (old if steps < 2 else new)
        assert task_names(dataset) == task_names(open_dataset(store))
        task = load_task(dataset, "buys")
        assert len(task.get_table("val").df) > 0
    assert [t["name"] for t in inspect(copies[2])["tasks"]] == task_names(open_dataset(store))
    for copy in copies[1:4]:
        add_task(
            copy, "buys", sql, type="binary", entity="people", horizon="25 days", overwrite=True
        )
        assert files_of(copy / "tasks" / "buys") == new
        assert sorted(p.name for p in (copy / "tasks").iterdir()) == task_names(open_dataset(copy))
        assert relbench.load_dataset(copy).load_task("buys").timedelta.days == 25


def test_a_failed_replacement_keeps_the_task(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    from relfrog.errors import DatasetError

    copy = Path(shutil.copytree(store, tmp_path / "copy"))
    before = files_of(copy / "tasks" / "buys")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(DatasetError, match="No space left on device"):
        add_task(
            copy, "buys", sql_of(copy, "buys"), type="binary", entity="people", horizon="25 days",
            overwrite=True,
        )  # fmt: skip
    assert files_of(copy / "tasks" / "buys") == before
    assert sorted(p.name for p in (copy / "tasks").iterdir()) == task_names(open_dataset(copy))


def test_what_a_killed_process_had_moved_aside_is_found(store: Path, tmp_path: Path) -> None:
    address = f"sqlite:///{store.parent / 'store.db'}"
    (tmp_path / "here").symlink_to(tmp_path / "there")
    aside = Path(shutil.copytree(store, tmp_path / ".there.partial-99999-old"))
    (aside / "tasks" / "buys").rename(aside / "tasks" / ".buys.partial-99999-old")
    assert "buys" in task_names(open_dataset(tmp_path / "here"))
    assert not aside.exists()
    # An import in its place keeps all tasks, and nothing else.
    (tmp_path / "here" / "tasks" / "buys").rename(tmp_path / "here/tasks/.buys.partial-99999-old")
    (tmp_path / "here" / "tasks" / ".spends.partial-99999").mkdir()
    import_database(
        address, tmp_path / "here", val="2020-08-01", test="2020-10-01", time=("people.joined",),
        overwrite=True,
    )  # fmt: skip
    names = sorted(p.name for p in (tmp_path / "there" / "tasks").iterdir())
    assert names == task_names(open_dataset(store))
    recover(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "there"]
