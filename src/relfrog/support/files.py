"""Atomic writes: a file or a folder appears complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from relfrog.errors import DatasetError, OutputError, RelFrogError, RunError, UsageError

__all__ = [
    "append_line",
    "atomic_file",
    "atomic_folder",
    "atomic_write",
    "check_file",
    "clear_partials",
    "is_address",
    "is_alive",
    "jsonable",
    "locked",
    "maybe_path",
    "recover",
    "user_path",
    "write_json",
    "write_text",
]


#: The longest name of a file or folder in bytes, on the file systems there are.
LONGEST_NAME = 255


@contextmanager
def atomic_folder(dest: Path, overwrite: bool, objection: Callable[[Path], str]) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``dest`` when the block succeeds.

    A folder that is there already is moved aside, and removed only once the new one is in its
    place: a process that is killed in between leaves the old folder for :func:`recover`.

    Args:
        dest: The folder to create; symbolic links are followed.
        overwrite: Whether an existing folder may be replaced.
        objection: Called with an existing folder; returns why it must not be replaced, or an empty
            string if RelFrog made everything in it.

    Raises:
        DatasetError: The folder exists and may not be replaced, or cannot be written.
    """
    if is_address(dest):
        raise DatasetError(f"{dest} is an address. Choose a folder to write to.")
    dest = user_path(dest, DatasetError).resolve()
    made: list[Path] = []
    partial = dest.parent / f".{dest.name}.partial-{os.getpid()}"
    aside = dest.parent / f"{partial.name}-old"
    # All in one: whenever an interruption comes, what has been made is removed.
    try:
        _make_parents(dest, made)
        recover(dest.parent, dest.name)
        _remove_stale(dest)
        _check_folder(dest, overwrite, objection)
        partial.mkdir()
        yield partial
        _check_folder(dest, overwrite, objection)
        _exchange(dest, partial, aside)
        made = []
    except OSError as error:
        raise DatasetError(f"{dest} cannot be written: {error.strerror or error}") from None
    finally:
        recover(dest.parent, dest.name)
        shutil.rmtree(partial, ignore_errors=True)
        if dest.exists():
            shutil.rmtree(aside, ignore_errors=True)
        _remove_parents(made)


def _exchange(dest: Path, new: Path, aside: Path) -> None:
    """Put a folder in the place of another, which ends up where the new one was.

    No system call that is everywhere does this at once. A reader that comes between the two
    renames may put the old folder back, see :func:`recover`: then they are tried again.
    """
    while True:
        if dest.exists():
            dest.rename(aside)
        try:
            new.rename(dest)
            break
        except OSError:
            if not dest.exists():
                raise
    if aside.exists():
        # Under this name it is not put back: while it is being removed, it is not complete.
        aside.rename(new)


_ASIDE = re.compile(r"\.(.+)\.partial-\d+-old")


def recover(folder: Path, name: str | None = None) -> None:
    """Put back what a killed process had moved aside to replace it, if nothing took its place.

    Args:
        folder: Where to look.
        name: What to put back; everything if None.
    """
    pattern = "*" if name is None else _escaped(name)
    for old in folder.glob(f".{pattern}.partial-*-old"):
        match = _ASIDE.fullmatch(old.name)
        with contextlib.suppress(OSError):  # read-only, or another process was faster
            if match and match[1] == (name or match[1]) and not (folder / match[1]).exists():
                old.rename(folder / match[1])


@contextmanager
def atomic_file(dest: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``dest`` when the block succeeds.

    Raises:
        OutputError: The file exists and may not be replaced, or cannot be written.
    """
    check_file(dest, overwrite)
    dest = user_path(dest, OutputError).resolve()
    made: list[Path] = []
    partial = dest.parent / f".{dest.name}.partial-{os.getpid()}"
    try:
        _make_parents(dest, made)
        _remove_stale(dest)
        yield partial
        check_file(dest, overwrite)
        partial.replace(dest)
        made = []
    except OSError as error:
        raise OutputError(
            f"{dest} cannot be written: {error.strerror or error}. Choose another path."
        ) from None
    finally:
        # Databases keep their journals next to the file.
        for left in [partial, *dest.parent.glob(f"{_escaped(partial.name)}[.-]*")]:
            with contextlib.suppress(OSError):
                left.unlink()
        _remove_parents(made)


def user_path(name: str | Path, error: type[RelFrogError] = UsageError) -> Path:
    """The path that somebody gives, by hand or in a file; ``~`` is a home folder.

    Args:
        name: Its name.
        error: What to raise if no file can have it.
    """
    text = str(name)
    try:
        path = Path(text).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.stat()
        if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    except (OSError, RuntimeError, ValueError) as wrong:
        if isinstance(wrong, OSError) and wrong.errno != errno.ENAMETOOLONG:
            return path
        why = wrong.strerror if isinstance(wrong, OSError) else str(wrong)
        shown = "an address" if is_address(text) else repr(text[:60])
        raise error(
            f"{shown} cannot be the name of a file or folder ({why}). Check where it comes from."
        ) from None
    return path


def maybe_path(name: str | Path) -> Path | None:
    """The same; None for what cannot be a path, such as a long address."""
    try:
        return user_path(name)
    except UsageError:
        return None


def check_file(dest: Path, overwrite: bool) -> None:
    """Check that a file can be written at this path.

    Raises:
        OutputError: The file exists and may not be replaced, or its folder is not writable.
    """
    if is_address(dest):
        raise OutputError(f"{dest} is an address. Choose a file to write to.")
    dest = user_path(dest, OutputError).resolve()
    remedy = "Choose another path."
    try:
        if dest.is_dir():
            raise OutputError(f"{dest} is a folder. Give the name of a file in it.")
        if dest.exists() and not overwrite:
            raise OutputError(f"{dest} already exists. Replace it with --overwrite.")
        parent = next(p for p in dest.parents if p.exists())
    except OSError as error:
        raise OutputError(f"{dest} cannot be written: {error.strerror}. {remedy}") from None
    if not parent.is_dir():
        raise OutputError(f"{dest} cannot be written: {parent} is a file. {remedy}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{dest} cannot be written: {parent} is read-only. {remedy}")


_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.I)


def is_address(path: str | Path) -> bool:
    """Whether a path is an address that was taken for one: a folder of its name has a password."""
    return _ADDRESS.match(str(path)) is not None


def _make_parents(dest: Path, made: list[Path]) -> None:
    for parent in reversed(dest.parents):
        if not parent.exists():
            parent.mkdir()
            made.append(parent)


def _remove_parents(made: list[Path]) -> None:
    for folder in reversed(made):
        with contextlib.suppress(OSError):  # no longer empty
            folder.rmdir()


def _check_folder(dest: Path, overwrite: bool, objection: Callable[[Path], str]) -> None:
    if Path.cwd().is_relative_to(dest):
        raise DatasetError(f"{dest} is or contains the current folder. Choose another folder.")
    if not dest.exists() or (dest.is_dir() and not any(dest.iterdir())):
        return
    if not dest.is_dir():
        raise DatasetError(f"{dest} is a file. Choose another name for the folder.")
    if reason := objection(dest):
        raise DatasetError(f"{dest} exists and {reason}. Choose another folder.")
    if not overwrite:
        raise DatasetError(f"{dest} already exists. Replace it with --overwrite.")


def _remove_stale(dest: Path) -> None:
    """Remove partial files and folders left behind by killed processes."""
    for stale in dest.parent.glob(f".{_escaped(dest.name)}.partial-*"):
        number, _, old = stale.name.rpartition("partial-")[2].partition("-")
        if not number.isdigit() or is_alive(int(number)) or (old and not dest.exists()):
            continue
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def is_alive(process: int) -> bool:
    """Whether another process of this number is running."""
    if process == os.getpid():
        return False
    if os.name == "nt":  # signal 0 would end the process on Windows
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OSError):
        return True
    return True


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing; it replaces ``path``, synced to disk, when the block succeeds."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Sync a rename to disk, where the system supports it."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def clear_partials(folder: Path) -> None:
    """Remove what a process that was killed was writing; the caller holds the lock."""
    for path in sorted(folder.rglob(".*.partial-*")):
        if path.is_dir():
            recover(path.parent)
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def jsonable(data: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by null."""
    if isinstance(data, dict):
        return {key: jsonable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [jsonable(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def write_json(path: Path, data: object) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(jsonable(data), indent=1, ensure_ascii=False, default=str) + "\n")


def append_line(path: Path, data: object) -> None:
    """Append one line of JSON to a file and sync it to disk."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(jsonable(data), ensure_ascii=False, default=str) + "\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder; the system releases it when the process ends or dies.

    The lock file itself stays and says nothing: what counts is who holds it open.

    Raises:
        RunError: Another process holds it.
    """
    from filelock import FileLock, Timeout

    path = folder / ".lock"
    if path.is_symlink() or (path.exists() and not path.is_file()):
        # Whoever opens it empties it: a stranger's could lead to any file.
        raise RunError(f"{path} is no file of RelFrog's. Remove it.")
    try:
        held = FileLock(path).acquire(blocking=False)
    except Timeout:
        raise RunError(f"{folder} is in use: another process is training there.") from None
    with held:
        yield
