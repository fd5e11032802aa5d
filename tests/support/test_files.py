"""A folder appears complete or not at all, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import csv_folder, sqlite
from relfrog import DatasetError, SchemaError, import_database
from relfrog.support.files import atomic_folder


def ours(folder: Path) -> str:
    return "" if (folder / "m").exists() else "is not a dataset"


def left_behind(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "a", False, ours) as folder:
            (folder / "m").write_text("half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert left_behind(tmp_path) == []


def test_an_existing_folder_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n")
    import_database(address, tmp_path / "out")
    before = (tmp_path / "out" / "manifest.yaml").read_bytes()
    with pytest.raises(DatasetError, match="--overwrite"):
        import_database(address, tmp_path / "out")
    import_database(address, tmp_path / "out", overwrite=True, name="new")
    assert (tmp_path / "out" / "manifest.yaml").read_bytes() != before
    with pytest.raises(DatasetError, match="lies inside"):
        import_database(address, tmp_path / "csv" / "..", overwrite=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.yaml").write_text("kind: Deployment\n")
    with pytest.raises(DatasetError, match="is not a dataset"):
        import_database(address, mine, overwrite=True)
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(DatasetError, match=r"holds thesis\.tex, which would be lost"):
        import_database(address, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DatasetError, match="is a file"):
        import_database(address, tmp_path / "file", overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_source_is_never_eaten(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "ds" / "raw", t="id,v\n1,2\n2,3\n")
    database = sqlite(tmp_path / "ds" / "a.db", "CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    for source in (address, database):
        with pytest.raises(DatasetError, match="lies inside"):
            import_database(source, tmp_path / "ds", overwrite=True)
    assert (tmp_path / "ds" / "raw" / "t.csv").exists()


def test_a_link_is_followed_and_new_parents_do_not_stay(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n")
    import_database(address, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    import_database(address, tmp_path / "link", overwrite=True, name="again")
    assert (tmp_path / "link").is_symlink()
    assert "again" in (tmp_path / "real" / "manifest.yaml").read_text()
    with pytest.raises(SchemaError):
        import_database(address, tmp_path / "a" / "b" / "c", pk=["t.none_such"])
    assert left_behind(tmp_path) == ["csv", "link", "real"]


def test_tasks_of_a_replaced_dataset_are_kept(tmp_path: Path) -> None:
    address = csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n")
    import_database(address, tmp_path / "out")
    (tmp_path / "out" / "tasks" / "x").mkdir(parents=True)
    (tmp_path / "out" / "tasks" / "x" / "manifest.yaml").write_text("name: x\n")
    (tmp_path / "out" / "tasks" / "x" / "my.sql").write_text("SELECT 1")
    (tmp_path / "out" / "tasks" / "x" / "val.parquet").write_text("old labels")
    result = import_database(address, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "tasks" / "x" / "manifest.yaml").read_text() == "name: x\n"
    assert (tmp_path / "out" / "tasks" / "x" / "my.sql").read_text() == "SELECT 1"
    assert not (tmp_path / "out" / "tasks" / "x" / "val.parquet").exists()
    assert any("kept the tasks x" in n.text for n in result.notices)
    (tmp_path / "out" / "db" / "mine.csv").write_text("mine")
    with pytest.raises(DatasetError, match=r"holds db/mine\.csv"):
        import_database(address, tmp_path / "out", overwrite=True)


def test_a_failed_replacement_keeps_the_old(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a", False, ours) as folder:
        (folder / "m").write_text("old")

    def fail() -> None:
        with atomic_folder(tmp_path / "a", True, ours) as folder:
            (folder / "m").write_text("new")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert (tmp_path / "a" / "m").read_text() == "old"
    assert left_behind(tmp_path) == ["a"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale = tmp_path / f".a.partial-{dead.pid}"
    stale.mkdir()
    mine = tmp_path / ".a.partial-other"
    mine.mkdir()
    with atomic_folder(tmp_path / "a", False, ours) as folder:
        (folder / "m").touch()
    assert left_behind(tmp_path) == [".a.partial-other", "a"]


def test_killed_between_the_two_renames_nothing_is_lost(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old = tmp_path / f".a.partial-{dead.pid}-old"
    old.mkdir()
    (old / "m").write_text("old")
    with (
        pytest.raises(DatasetError, match="--overwrite"),
        atomic_folder(tmp_path / "a", False, ours),
    ):
        pass
    assert (tmp_path / "a" / "m").read_text() == "old"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_leaves_a_message_and_nothing_else(
    number: signal.Signals, tmp_path: Path
) -> None:
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600000) "
    address = sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b REAL);"
        f"INSERT INTO t {rows} SELECT i, 'text ' || i, i * 0.5 FROM n;",
    )
    out = tmp_path / "here" / "out"
    out.parent.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "relfrog", "import", address, str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(500):
        if left_behind(out.parent):
            break
        time.sleep(0.01)
    assert left_behind(out.parent) == [f".out.partial-{process.pid}"]
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "Interrupted. Nothing half-made is left behind."
    assert "Traceback" not in err
    assert left_behind(out.parent) == []


def test_a_full_disk_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    class Full:
        def __init__(self, *args: object) -> None:
            raise OSError(28, "No space left on device")

    address = csv_folder(tmp_path / "csv", t="id,v\n1,2\n2,3\n")
    monkeypatch.setattr(pq, "ParquetWriter", Full)
    with pytest.raises(DatasetError, match="No space left on device"):
        import_database(address, tmp_path / "out")
    assert left_behind(tmp_path) == ["csv"]
