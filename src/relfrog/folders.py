"""Folders that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relfrog.errors import DatasetError

__all__ = ["appearing"]


@contextmanager
def appearing(dest: Path, overwrite: bool, ours: Callable[[Path], str]) -> Iterator[Path]:
    """A folder to write into, which becomes ``dest`` at the end if nothing went wrong.

    Args:
        dest: Where the folder shall be; a link is followed.
        overwrite: Whether a folder that is there already may be replaced.
        ours: Says what speaks against replacing a folder that is there: empty if it is one of
            ours and holds nothing else.

    Raises:
        DatasetError: Something is in the way.
    """
    dest = dest.expanduser().resolve()
    made: list[Path] = []
    try:
        for parent in [*reversed(dest.parents)]:
            if not parent.exists():
                parent.mkdir()
                made.append(parent)
        _clear_away(dest)
        _refuse(dest, overwrite, ours)
        partial = dest.parent / f".{dest.name}.partial-{os.getpid()}"
        partial.mkdir()
    except OSError as error:
        _unmake(made)
        raise DatasetError(f"{dest} cannot be written: {error.strerror or error}") from None
    except DatasetError:
        _unmake(made)
        raise
    try:
        yield partial
        _refuse(dest, overwrite, ours)
        if dest.exists():
            old = dest.parent / f".{dest.name}.partial-{os.getpid()}-old"
            dest.rename(old)
            partial.rename(dest)
            shutil.rmtree(old)
        else:
            partial.rename(dest)
        made = []
    except OSError as error:
        raise DatasetError(f"{dest} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        _unmake(made)


def _unmake(made: list[Path]) -> None:
    for folder in reversed(made):
        with contextlib.suppress(OSError):  # something else has come to lie in it
            folder.rmdir()


def _refuse(dest: Path, overwrite: bool, ours: Callable[[Path], str]) -> None:
    if Path.cwd().is_relative_to(dest):
        raise DatasetError(f"you are in {dest}. Name a folder inside or beside it.")
    if not dest.exists() or (dest.is_dir() and not any(dest.iterdir())):
        return
    if not dest.is_dir():
        raise DatasetError(f"{dest} is a file. Choose another name for the folder.")
    if objection := ours(dest):
        raise DatasetError(f"{dest} exists and {objection}. Choose another folder.")
    if not overwrite:
        raise DatasetError(f"{dest} exists already. Replace it with --overwrite.")


def _clear_away(dest: Path) -> None:
    """Remove what a killed process left behind."""
    for stale in dest.parent.glob(f".{_escaped(dest.name)}.partial-*"):
        number, _, old = stale.name.rpartition("partial-")[2].partition("-")
        if not number.isdigit() or _alive(int(number)):
            continue
        if old and not dest.exists():
            # Killed between the two renames: what was there is still there, under this name.
            stale.rename(dest)
        else:
            shutil.rmtree(stale, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _alive(process: int) -> bool:
    if process == os.getpid():
        return False
    if os.name == "nt":  # there, signal 0 would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True
