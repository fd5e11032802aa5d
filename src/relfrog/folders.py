"""Folders and files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relfrog.errors import DatasetError, OutputError

__all__ = ["appearing", "appearing_file", "refuse_file"]


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
    partial = dest.parent / f".{dest.name}.partial-{os.getpid()}"
    # All in one: whenever an interruption comes, what has been made is removed.
    try:
        _make_parents(dest, made)
        _clear_away(dest)
        _refuse(dest, overwrite, ours)
        partial.mkdir()
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


@contextmanager
def appearing_file(dest: Path, overwrite: bool) -> Iterator[Path]:
    """A path to write a file at, which becomes ``dest`` at the end if nothing went wrong.

    Raises:
        OutputError: Something is in the way.
    """
    dest = dest.expanduser().resolve()
    refuse_file(dest, overwrite)
    made: list[Path] = []
    partial = dest.parent / f".{dest.name}.partial-{os.getpid()}"
    try:
        _make_parents(dest, made)
        _clear_away(dest)
        yield partial
        refuse_file(dest, overwrite)
        partial.replace(dest)
        made = []
    except OSError as error:
        raise OutputError(
            f"{dest} cannot be written: {error.strerror or error}. Choose another place."
        ) from None
    finally:
        # Databases keep journals beside their files.
        for left in [partial, *dest.parent.glob(f"{_escaped(partial.name)}[.-]*")]:
            with contextlib.suppress(OSError):
                left.unlink()
        _unmake(made)


def refuse_file(dest: Path, overwrite: bool) -> None:
    """Refuse to write a file where it could not appear.

    Raises:
        OutputError: Something is in the way, or the folder cannot be written.
    """
    dest = dest.expanduser().resolve()
    remedy = "Choose another place."
    try:
        if dest.is_dir():
            raise OutputError(f"{dest} is a folder. Name a file in it.")
        if dest.exists() and not overwrite:
            raise OutputError(f"{dest} exists already. Replace it with --overwrite.")
        parent = next(p for p in dest.parents if p.exists())
    except OSError as error:
        raise OutputError(f"{dest} cannot be written: {error.strerror}. {remedy}") from None
    if not parent.is_dir():
        raise OutputError(f"{dest} cannot be written: {parent} is a file. {remedy}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{dest} cannot be written: {parent} is read-only. {remedy}")


def _make_parents(dest: Path, made: list[Path]) -> None:
    for parent in reversed(dest.parents):
        if not parent.exists():
            parent.mkdir()
            made.append(parent)


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
        elif stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


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
