"""A folder appears complete or not at all, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from helpers import csv_folder, sqlite
from relfrog import import_database
from relfrog.errors import DatasetError, RunError, SchemaError
from relfrog.support.files import atomic_folder, clear_partials, locked, recover


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
    assert any(n.text.startswith("tasks kept") and n.text.endswith(": x") for n in result.notices)
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


KILL = """
import os, pathlib, shutil, sys
from relfrog.support.files import atomic_folder
folder, left = pathlib.Path(sys.argv[1]), int(sys.argv[2])

def counted(function):
    def count(*given, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)  # like kill -9: nothing is tidied up
        return function(*given, **options)
    return count

pathlib.Path.rename = counted(pathlib.Path.rename)
shutil.rmtree = counted(shutil.rmtree)
with atomic_folder(folder, True, lambda _: "") as partial:
    (partial / "m").write_text("new")
"""


def test_killed_anywhere_while_replacing_a_complete_folder_is_there(tmp_path: Path) -> None:
    steps = found = 0
    while True:
        place = tmp_path / str(steps)
        (place / "a").mkdir(parents=True)
        (place / "a" / "m").write_text("old")
        killed = subprocess.run([sys.executable, "-c", KILL, str(place / "a"), str(steps)])
        found += not (place / "a").exists()  # killed between the two renames
        recover(place)
        expected = "old" if steps < 2 else "new"
        assert (place / "a" / "m").read_text() == expected
        with atomic_folder(place / "a", True, ours) as folder:
            (folder / "m").write_text("newest")
        assert (place / "a" / "m").read_text() == "newest"
        assert left_behind(place) == ["a"]
        if not killed.returncode:
            break
        assert killed.returncode == 9
        steps += 1
    assert (steps, found) == (5, 1)


@pytest.mark.parametrize("step", range(3))
def test_interrupted_while_replacing_nothing_has_to_be_recovered(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with atomic_folder(tmp_path / "a", False, ours) as folder:
        (folder / "m").write_text("old")
    rename, calls = Path.rename, iter(range(99))

    def interrupted(path: Path, target: Path) -> Path:
        if next(calls) == step:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "a", True, ours) as folder:
        (folder / "m").write_text("new")
    assert (tmp_path / "a" / "m").read_text() == ("old" if step < 2 else "new")
    assert left_behind(tmp_path) == ["a"]


def test_readers_that_recover_do_not_disturb_a_writer(tmp_path: Path) -> None:
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            recover(tmp_path)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for i in range(100):
            with atomic_folder(tmp_path / "a", True, ours) as folder:
                (folder / "m").write_text(str(i))
            assert (tmp_path / "a" / "m").read_text() == str(i)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert left_behind(tmp_path) == ["a"]


def test_only_what_was_moved_aside_is_put_back(tmp_path: Path) -> None:
    for name in (".a.partial-1", ".b.partial-x-old", ".c.partial-2-old", ".d.partial-3-old", "d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m").write_text(name)
    recover(tmp_path, "a")
    recover(tmp_path, "d")
    recover(tmp_path / "none", "a")
    assert not (tmp_path / "c").exists()
    recover(tmp_path)
    assert left_behind(tmp_path) == [
        ".a.partial-1", ".b.partial-x-old", ".d.partial-3-old", "c", "d"
    ]  # fmt: skip
    assert (tmp_path / "d" / "m").read_text() == "d"


def test_partial_files_and_folders_in_a_run_are_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".run.json.partial-1").write_text("half")
    for name in ("x/.a.partial-1", "x/.a.partial-1-old", "x/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "m").write_text(name)
    clear_partials(tmp_path)
    assert left_behind(tmp_path) == ["x"]
    assert left_behind(tmp_path / "x") == ["a", "b"]
    assert (tmp_path / "x" / "a" / "m").read_text() == "x/.a.partial-1-old"


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


HOLD = """
import sys, time
from pathlib import Path
from relfrog.support.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_keeps_others_out_and_ends_with_its_process(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        refused = pytest.raises(RunError, match=f"^{tmp_path} is in use: another process")
        with refused, locked(tmp_path):
            pass
        other.kill()
    for _ in range(2):  # the file that was left does not matter, nor does one's own
        with locked(tmp_path):
            assert (tmp_path / ".lock").exists()
            with pytest.raises(RunError, match="is in use"), locked(tmp_path):
                pass


def test_a_lock_is_released_by_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        _ = 1 / 0
    with locked(tmp_path):
        pass
