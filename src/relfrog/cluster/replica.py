"""Copies on a node's own disk of a dataset folder and of what was prepared from it.

Both never change under their name, so they can be copied: from a folder that all machines see, or
from an address that fsspec can read (`file`, `s3`, `gs`, `hdfs`, ... with the user's driver). Every
file is compared with the hash that the sender gave; the processes of one node copy once.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from relfrog.cluster.addresses import Address
from relfrog.errors import StoreError
from relfrog.store.fingerprint import hash_file
from relfrog.store.parts import Part, Store, open_store
from relfrog.support.files import user_path
from relfrog.support.folder_check import check_inside

__all__ = ["SHARE", "Bundle", "Replica", "bundle", "obtain", "replicate", "share"]

#: Environment variable: a folder or address that all machines can read, and this one write.
SHARE = "RELFROG_SHARE"
#: Bytes read at a time.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Bundle:
    """A folder that can be copied.

    Attributes:
        label: the name of the folder, for people and for the copy.
        source: the folder or address to copy it from.
        files: size and hash of every file in it, by its path.
        part: the part of a store that it is, if it is one.
        shared: whether it was put there for other nodes; see `share`.
    """

    label: str
    source: str
    files: dict[str, tuple[int, str]]
    part: Part | None = None
    shared: bool = False

    @property
    def name(self) -> str:
        """Its name: a hash of the names and the content of its files."""
        listing = json.dumps(sorted((path, *about) for path, about in self.files.items()))
        return hashlib.blake2b(listing.encode(), digest_size=16).hexdigest()

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(size for size, _ in self.files.values())


@dataclass(frozen=True)
class Replica:
    """Folders, and parts of the store made from them, that a node needs on its own disk.

    Attributes:
        folders: the folders by what they are, such as "dataset".
        parts: the parts.
        home: the cache folder of the machine that has them, and a file in it: a process that sees
            the file is on the same disk and copies nothing.
        paths: where the folders are on that disk.
    """

    folders: dict[str, Bundle]
    parts: tuple[Bundle, ...] = ()
    home: str = ""
    paths: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What a node copies at most."""
        return sum(one.bytes for one in (*self.folders.values(), *self.parts))


def bundle(folder: Path, *, skip: Callable[[str], bool] = lambda path: False) -> Bundle:
    """Describe a folder by what is in its files.

    Args:
        folder: the folder.
        skip: which paths in it to leave out.
    """
    folder = folder.resolve()
    check_inside(folder)
    store, files = open_store(), {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        if path.is_file() and not skip(inside):
            files[inside] = (path.stat().st_size, store.fingerprint(path))
    return Bundle(folder.name, str(folder), files)


def replicate(
    folders: dict[str, Path],
    parts: Iterable[str] = (),
    *,
    skip: Callable[[str], bool] = lambda path: False,
) -> Replica:
    """What other nodes need of this machine: folders, and parts of the store.

    If RELFROG_SHARE is set, all of it is put there first, unless it is there.

    Args:
        folders: the folders by what they are.
        parts: names of parts; see `Store.used`.
        skip: which paths in the folders to leave out.
    """
    store = open_store()
    token = store.folder / "home"
    if not token.is_file():
        token.write_text(uuid.uuid4().hex, encoding="utf-8")
    wanted = set(parts)
    found = []
    for part in store.parts():
        if part.name in wanted:
            source = str(store.folder / "parts" / part.name)
            found.append(Bundle(part.name, source, store.files(part.name), part))
    replica = Replica(
        {what: bundle(folder, skip=skip) for what, folder in folders.items()},
        tuple(sorted(found, key=lambda one: one.label)), token.read_text(encoding="utf-8"),
        {what: str(folder.resolve()) for what, folder in folders.items()},
    )  # fmt: skip
    url = os.environ.get(SHARE, "").strip()
    if url and "://" not in url:
        url = str(user_path(url).absolute())  # others stand elsewhere
    return share(replica, url) if url else replica


def share(replica: Replica, url: str) -> Replica:
    """Put everything at an address that all nodes can read, by the name of its content.

    Args:
        replica: what to put there.
        url: the folder or address.

    Returns:
        The same, to be copied from there.

    Raises:
        UsageError: There is no driver for the address.
        StoreError: It cannot be written.
    """

    def put(one: Bundle) -> Bundle:
        place = f"{url.rstrip('/')}/{one.name}"
        address = Address(place)
        there = address.sizes()
        for path, (size, _) in one.files.items():
            if there.get(path) != size:
                address.put(Path(one.source) / path, path)
        return replace(one, source=place, shared=True)

    Address(url)  # what is wrong with it concerns all of them
    folders = {what: put(one) for what, one in replica.folders.items()}
    return Replica(folders, tuple(map(put, replica.parts)), replica.home, replica.paths)


def obtain(replica: Replica) -> dict[str, Path]:
    """Copy everything to this node's disk, unless it is there; return where the folders are.

    Raises:
        StoreError: Something cannot be read, or is not what was sent.
    """
    store = open_store()
    token = store.folder / "home"
    if token.is_file() and token.read_text(encoding="utf-8") == replica.home:
        return {what: Path(path) for what, path in replica.paths.items()}
    for one in replica.parts:
        assert one.part is not None
        store.adopt(one.part, partial(_copy, one))
    return {what: _folder(store, one) for what, one in replica.folders.items()}


def _folder(store: Store, one: Bundle) -> Path:
    """The copy of a folder: a part of this node's store, under the name of its content."""

    def copy(folder: Path) -> None:
        (folder / one.label).mkdir()
        _copy(one, folder / one.label)

    return (
        store.adopt(Part(f"copy-{one.name}", "copy", one.label, one.bytes, 0.0), copy) / one.label
    )


def _copy(one: Bundle, folder: Path) -> None:
    """Copy the files of a bundle and compare them with what was sent."""
    address = Address(one.source)
    for path, (size, digest) in one.files.items():
        source, target = f"{one.source}/{path}", folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            address.get(path, target)
        except FileNotFoundError:
            raise StoreError(f"{source} cannot be found from this node. {_remedy(one)}") from None
        if target.stat().st_size != size or hash_file(target) != digest:
            again = f", after deleting {one.source}, which is then put there anew"
            raise StoreError(
                f"{source} was damaged on its way or changed since: {target.stat().st_size:,} of "
                f"{size:,} bytes came, or others than were sent. Run the command again"
                f"{again if one.shared else ''}."
            )


def _remedy(one: Bundle) -> str:
    """What to do about a bundle that a node does not find."""
    if one.shared:
        return f"Run the command again, with a {SHARE} that all nodes can read."
    return (
        f"Put {one.label} on a path that all nodes share, or let them copy it from an address: "
        f"{SHARE}=s3://BUCKET/FOLDER"
    )
