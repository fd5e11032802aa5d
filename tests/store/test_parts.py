"""Parts: complete or not there, made once, never stale, never more than the limit."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from relfrog.errors import RelFrogWarning, StoreError
from relfrog.store import fingerprint as hashes
from relfrog.store import parts
from relfrog.store.location import LIMIT
from relfrog.store.parts import HEADER, Store, open_store


def write(text: str = "x"):
    return lambda folder: (folder / "a.txt").write_text(text)


def read(folder: Path) -> str:
    return (folder / "a.txt").read_text()


def refuse(folder: Path) -> None:
    raise AssertionError("built twice")


def test_a_part_is_made_once_and_another_for_other_content(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.use("k", {"a": 1}, write("one"), read) == "one"
    assert store.use("k", {"a": 1}, refuse, read) == "one"
    assert Store(tmp_path).use("k", {"a": 1}, refuse, read) == "one"
    assert store.use("k", {"a": 2}, write("two"), read) == "two"
    assert {part.bytes for part in store.parts()} == {3}


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fails(folder: Path) -> None:
        (folder / "a.txt").write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.use("k", {}, fails, read)
    assert not list(store.parts())
    assert not list((tmp_path / "building").iterdir())
    assert store.use("k", {}, write(), read) == "x"


@pytest.mark.parametrize("damage", ["gone", "shorter", "other bytes", "header"])
def test_a_damaged_part_is_found_or_made_anew(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    store.use("k", {}, write("12345"), read)
    name = next(store.parts()).name
    file = tmp_path / "parts" / name / ("part.json" if damage == "header" else "a.txt")
    if damage == "gone":
        file.unlink()
    else:
        file.write_text({"shorter": "1", "other bytes": "12a45", "header": "[]"}[damage])
    assert store.damaged(name)

    def whole(folder: Path) -> str:
        if (found := read(folder)) != "12345":
            raise ValueError("damaged")
        return found

    assert store.use("k", {}, write("12345"), whole) == "12345"
    assert not store.damaged(name)


def slow(folder: Path) -> None:
    (folder / "a.txt").write_text(str(os.getpid()))
    with open(folder.parents[1] / "built", "a") as file:
        file.write("x")
    time.sleep(0.3)


def use(folder: Path) -> None:
    Store(folder).use("k", {}, slow, read)


@pytest.mark.slow
def test_two_processes_build_one_part_and_a_killed_one_none(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    killed = context.Process(target=use, args=(tmp_path,))
    killed.start()
    while not (tmp_path / "built").exists():
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    assert not list(Store(tmp_path).parts())
    (tmp_path / "built").unlink()
    both = [context.Process(target=use, args=(tmp_path,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert (tmp_path / "built").read_text() == "x"
    assert not list((tmp_path / "building").iterdir())  # nor what the killed one left


def test_the_oldest_parts_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        Store(tmp_path).use("k", {"n": number}, write("x" * 100), read)
        header = tmp_path / "parts" / Store(tmp_path).name("k", {"n": number}) / HEADER
        os.utime(header, (number, number))
    monkeypatch.setenv("RELFROG_CACHE_GB", str(250 / 1e9))
    store = Store(tmp_path)
    assert store.use("k", {"n": 0}, refuse, read)  # used again: it stays
    store.use("k", {"n": 9}, write("x" * 100), read)
    assert {part.name for part in store.parts()} == {
        store.name("k", {"n": 0}), store.name("k", {"n": 9})
    }  # fmt: skip


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match=r"is full\. Make room"):
        Store(tmp_path).use("k", {}, full, read)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(RelFrogWarning, match="cannot be used"):
        store = open_store()
    assert store.use("k", {}, write(), read) == "x"


def test_a_fingerprint_follows_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, known = tmp_path / "a", tmp_path / "known"
    path.write_text("one")
    first = hashes.fingerprint(path, known)
    # Changed so soon that size and time are the same.
    about = path.stat()
    path.write_text("two")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert hashes.fingerprint(path, known) != first
    now = time.time_ns()
    monkeypatch.setattr(hashes.time, "time_ns", lambda: now + 10_000_000_000)
    old = now - 10_000_000_000
    os.utime(path, ns=(old, old))
    second = hashes.fingerprint(path, known)
    monkeypatch.setattr(hashes, "hash_file", lambda path: "read again")
    assert hashes.fingerprint(path, known) == second
    os.utime(path, ns=(old, old + 1))
    assert hashes.fingerprint(path, known) == "read again"


@pytest.mark.skipif(os.name == "nt", reason="the system keeps no time of its own")
def test_a_time_that_was_set_back_hides_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, known = tmp_path / "a", tmp_path / "known"
    path.write_text("one")
    now = time.time_ns()
    monkeypatch.setattr(hashes.time, "time_ns", lambda: now + 10_000_000_000)
    first, about = hashes.fingerprint(path, known), path.stat()
    time.sleep(0.02)  # the system's clock ticks
    with path.open("r+") as file:
        file.write("two")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        about.st_size, about.st_mtime_ns, about.st_ino
    )  # fmt: skip
    assert hashes.fingerprint(path, known) != first


def test_a_part_that_a_process_uses_is_not_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, "0")
    monkeypatch.setattr(parts, "IN_USE", -1)
    reader, other = Store(tmp_path), Store(tmp_path)  # locks are of opened files, not of processes

    def build(folder: Path) -> None:
        (folder / "a.txt").write_text("x")

    with pytest.warns(RelFrogWarning, match="larger than its limit"):
        reader.use("a", {}, build, lambda folder: folder)
    with pytest.warns(RelFrogWarning, match="larger than its limit"):
        kept = other.trim()
    assert kept == []
    del reader
    gc.collect()
    assert len(other.trim()) == 1


def test_that_the_limit_is_too_small_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, "0")
    store = Store(tmp_path)
    with pytest.warns(RelFrogWarning, match="larger than its limit") as said:
        found = [store.use("k", {"n": number}, write("x"), read) for number in range(5)]
    assert found == ["x"] * 5
    assert len(said) == 1


def test_halves_of_parts_are_cleared_away(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "building" / "graph-1.ab12").mkdir(parents=True)
    (tmp_path / "building" / "graph-2.ab12").mkdir()
    (tmp_path / "parts" / "labels-1").mkdir(parents=True)
    with store._lock("graph-2"):  # somebody builds it, on this machine or another
        store.use("a", {}, lambda folder: None, lambda folder: None)
    assert [f.name for f in (tmp_path / "building").iterdir()] == ["graph-2.ab12"]
    assert [f.name[:2] for f in (tmp_path / "parts").iterdir()] == ["a-"]


def test_numpy_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(folder: Path) -> None:
        raise OSError("1024 requested and 0 written")  # in its words, without a number

    with pytest.raises(OSError, match="requested"):
        Store(tmp_path).use("a", {}, build, lambda folder: None)
    monkeypatch.setattr(parts, "NO_ROOM", 1 << 62)
    with pytest.raises(StoreError, match="is full"):
        Store(tmp_path).use("a", {}, build, lambda folder: None)


def test_to_build_a_part_is_not_to_look_at_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    real = Store.parts
    monkeypatch.setattr(Store, "parts", lambda self: looked.append(1) or real(self))
    for number in range(20):
        Store(tmp_path).use("k", {"n": number}, write("x" * 100), read)
    assert len(looked) == 1
    # But their sizes are known, whoever built them: the limit holds, and what is gone is not
    # counted any more.
    monkeypatch.setattr(parts, "IN_USE", -1)
    monkeypatch.setenv(LIMIT, str(2250 / 1e9))
    for number in range(20, 40):
        Store(tmp_path).use("k", {"n": number}, write("x" * 100), read)
        gc.collect()
        assert sum(part.bytes for part in real(Store(tmp_path))) <= 2250
    assert 1 < len(looked) <= 19
    # Nor does half a line of a process that was killed, or a file from elsewhere, stop anybody.
    for odd in ("12\n3x", "-5\n" * 5, "\0"):
        (tmp_path / parts.GROWN).write_text(odd)
        Store(tmp_path).use("k", {"odd": odd}, write("x" * 100), read)
    assert sum(part.bytes for part in real(Store(tmp_path))) <= 2250
