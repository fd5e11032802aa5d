"""Copies of folders and parts on another node's disk."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from relfrog.cluster import replica
from relfrog.cluster.replica import SHARE, bundle, obtain, replicate, share
from relfrog.errors import StoreError, UsageError
from relfrog.store.parts import open_store


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Go to a node with a cache folder of its own, by its name."""

    def go(name: str) -> Path:
        monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / name))
        return tmp_path / name

    return go


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "shop"
    (made / "db").mkdir(parents=True)
    (made / "manifest.yaml").write_text("name: shop\n")
    (made / "db" / "orders.parquet").write_bytes(bytes(range(256)) * 100)
    return made


def build(folder: Path) -> None:
    np.save(folder / "pointers.npy", np.arange(1000))


def make_part() -> str:
    store = open_store()
    store.use("graph", {"of": "shop"}, build, lambda path: np.load(path / "pointers.npy"), "shop")
    return store.name("graph", {"of": "shop"})


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize("way", ["path", "file", "memory"])
def test_a_node_has_the_same_files_and_builds_nothing(nodes, folder, tmp_path, monkeypatch, way):
    nodes("head")
    name = make_part()
    if way != "path":
        monkeypatch.setenv(
            SHARE, {"file": f"file://{tmp_path}/bucket", "memory": "memory://b"}[way]
        )
    sent = replicate({"dataset": folder}, open_store().used)
    assert [one.label for one in sent.parts] == [name]
    original = contents(folder)
    if way != "path":
        folder.rename(tmp_path / "elsewhere")
    there = nodes("other")
    found = obtain(sent)["dataset"]
    assert found.is_relative_to(there)
    assert found.name == "shop"
    assert contents(found) == original

    def never(folder: Path) -> None:
        raise AssertionError("built again")

    loaded = open_store().use(
        "graph", {"of": "shop"}, never, lambda path: np.load(path / "pointers.npy"), "shop"
    )
    assert (loaded == np.arange(1000)).all()
    assert open_store().damaged(name) == []


def test_on_the_same_disk_nothing_is_copied(nodes, folder):
    nodes("head")
    sent = replicate({"dataset": folder})
    assert obtain(sent) == {"dataset": folder}


def test_the_name_is_that_of_the_content(folder):
    before = bundle(folder).name
    assert bundle(folder).name == before
    (folder / "db" / "orders.parquet").write_bytes(b"other")
    assert bundle(folder).name != before
    only = bundle(folder, skip=lambda path: path.startswith("db/"))
    assert list(only.files) == ["manifest.yaml"]


def test_processes_of_one_node_copy_once(nodes, folder, monkeypatch):
    nodes("head")
    sent = replicate({"dataset": folder})
    nodes("other")
    copies, copy = [], replica._copy

    def counted(*given):
        copies.append(given)
        copy(*given)

    monkeypatch.setattr(replica, "_copy", counted)
    threads = [threading.Thread(target=obtain, args=(sent,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(copies) == 1


@pytest.mark.parametrize("what", ["dataset", "part"])
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_what_is_damaged_on_its_way_is_refused_and_leaves_nothing(
    nodes, folder, tmp_path, what, how
):
    nodes("head")
    make_part()
    sent = share(replicate({"dataset": folder}, open_store().used), str(tmp_path / "bucket"))
    file = "orders.parquet" if what == "dataset" else "pointers.npy"
    [target] = (tmp_path / "bucket").rglob(file)
    held = bytearray(target.read_bytes())
    held[10] ^= 1
    target.write_bytes(bytes(held if how == "flipped" else held[:-1]))
    there = nodes("other")
    with pytest.raises(
        StoreError, match=r"damaged on its way or changed since.* again, after deleting "
    ):
        obtain(sent)
    assert not list(there.rglob(file))
    target.unlink()
    with pytest.raises(StoreError, match=f"{file} cannot be found from this node.*{SHARE}"):
        obtain(sent)


def test_an_address_without_a_driver_is_said(nodes, folder):
    nodes("head")
    with pytest.raises(UsageError, match="nosuch://bucket cannot be opened"):
        share(replicate({"dataset": folder}), "nosuch://bucket")
