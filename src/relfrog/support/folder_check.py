"""What is in a folder that somebody else may have made: files of its own, and nothing else."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relfrog.errors import DatasetError, RelFrogError

__all__ = ["check_inside"]

#: So many bytes of a file may be missing on the disk: programs that copy leave zeros out.
LARGEST_HOLE = 1 << 30


def check_inside(folder: Path, error: type[RelFrogError] = DatasetError) -> None:
    """Refuse a folder in which something leads outside it, or is neither a file nor a folder.

    A stranger's folder could name any file with a link, wait for ever with a pipe, and have files
    that take no room and years to read.

    Args:
        folder: The folder, which may itself be a link.
        error: What to raise.
    """
    root = folder.resolve()
    for place, folders, files in os.walk(root):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink() and not _leads_into(path, root):
                raise error(
                    f"{folder}: {path.relative_to(root)} is a link that leads out of the folder. "
                    "Put the file itself there."
                )
            if path.exists() and not path.is_file() and not path.is_dir():
                raise error(
                    f"{folder}: {path.relative_to(root)} is neither a file nor a folder. Remove it."
                )
            if path.is_file() and _has_holes(path):
                raise error(
                    f"{folder}: {path.relative_to(root)} has {path.stat().st_size:,} bytes, most "
                    "of which were never written. Put a whole file there."
                )


def _has_holes(path: Path) -> bool:
    """Whether more than `LARGEST_HOLE` bytes of a file are not on the disk, which reads zeros."""
    size = path.stat().st_size
    if size <= LARGEST_HOLE or not hasattr(os, "SEEK_HOLE"):
        return False
    with (
        contextlib.suppress(OSError),
        open(path, "rb") as file,
    ):  # not every file system knows of holes
        end = left = 0
        while left <= LARGEST_HOLE and (hole := os.lseek(file.fileno(), end, os.SEEK_HOLE)) < size:
            try:
                end = os.lseek(file.fileno(), hole, os.SEEK_DATA)
            except OSError:  # there is no more
                end = size
            left += end - hole
        return left > LARGEST_HOLE
    return False


def _leads_into(link: Path, root: Path) -> bool:
    try:
        return link.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # it leads to itself, and so nowhere
        return False
