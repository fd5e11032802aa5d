"""Folders that jobs on other machines fill: directly if they see them, or sent back packed."""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MeetingPlace", "meeting_place", "pack", "unpack"]


@dataclass(frozen=True)
class MeetingPlace:
    """A folder that other machines may see, too: on a shared path, or because they are this one.

    Attributes:
        path: the folder.
        mark: the name of a file in it: who finds it there sees the same folder.
    """

    path: str
    mark: str

    def is_seen(self) -> bool:
        """Whether this process sees it."""
        return (Path(self.path) / self.mark).is_file()


@contextmanager
def meeting_place(folder: Path) -> Iterator[MeetingPlace]:
    """Mark a folder, so that others can tell whether they see it."""
    mark = f".seen-{uuid.uuid4().hex}"
    (folder / mark).touch()
    try:
        yield MeetingPlace(str(folder.resolve()), mark)
    finally:
        (folder / mark).unlink(missing_ok=True)


def pack(folder: Path) -> bytes:
    """The files of a folder in one piece."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.add(path, path.relative_to(folder).as_posix())
    return held.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Write what was packed into a folder."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
