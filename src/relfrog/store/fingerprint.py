"""What is in a file, as a hash of all of its bytes.

Hashing reads the whole file, so what was found is kept beside the parts, and trusted while the
file's size, its times and its place on the disk stay the same. One of the times is the system's
own, which nobody can set back. A file that changed in the second in which it was hashed is hashed
again: its times alone could not tell.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

import msgspec

from relfrog.errors import StoreError
from relfrog.support.forms import read_json

__all__ = ["file_state", "fingerprint", "hash_file"]

#: A file that changed later than so many nanoseconds before it was hashed may have changed since.
RECENT = 2_000_000_000


class _Known(msgspec.Struct):
    """What is known of a file."""

    state: list[int]
    hashed: int
    hash: str


def hash_file(path: Path) -> str:
    """A hash of the bytes of a file."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(path: Path, known: Path) -> str:
    """A hash of the bytes of a file, from what is known of it if it has not changed.

    Args:
        path: the file.
        known: the folder in which hashes are kept.

    Raises:
        OSError: The file cannot be read.
    """
    path = path.resolve()
    state = file_state(path)
    record = known / f"{hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()}.json"
    with contextlib.suppress(StoreError):
        about = read_json(record, _Known, StoreError)
        if about["state"] == state and about["hashed"] - max(state[:2]) > RECENT:
            return str(about["hash"])
    now = time.time_ns()
    found = hash_file(path)
    if file_state(path) == state:
        partial = record.with_name(f".{record.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # then it is hashed again next time
            known.mkdir(parents=True, exist_ok=True)
            about = {"path": str(path), "state": state, "hashed": now, "hash": found}
            partial.write_text(json.dumps(about), encoding="utf-8")
            partial.replace(record)
    return found


def file_state(path: Path) -> list[int]:
    """When a file was changed, by itself and by the system's word, its size and its place."""
    about = path.stat()
    # The time of the inode's change: where files are unpacked or put back, the first one is old.
    return [about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino, about.st_dev]
