"""Folders and files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from relfrog.errors import DatasetError, OutputError, RunError

__all__ = [
    "appearing",
    "appearing_file",
    "append_line",
    "clear_partials",
    "load_tensors",
    "locked",
    "plain",
    "read_json",
    "recover",
    "refuse_file",
    "save_tensors",
    "write_json",
    "write_text",
    "written",
]


@contextmanager
def appearing(dest: Path, overwrite: bool, ours: Callable[[Path], str]) -> Iterator[Path]:
    """A folder to write into, which becomes ``dest`` at the end if nothing went wrong.

    A folder that is there already is moved aside, and removed only once the new one is in its
    place: a process that is killed in between leaves the old folder for :func:`recover`.

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
    aside = dest.parent / f"{partial.name}-old"
    # All in one: whenever an interruption comes, what has been made is removed.
    try:
        _make_parents(dest, made)
        recover(dest.parent, dest.name)
        _clear_away(dest)
        _refuse(dest, overwrite, ours)
        partial.mkdir()
        yield partial
        _refuse(dest, overwrite, ours)
        _exchange(dest, partial, aside)
        made = []
    except OSError as error:
        raise DatasetError(f"{dest} cannot be written: {error.strerror or error}") from None
    finally:
        recover(dest.parent, dest.name)
        shutil.rmtree(partial, ignore_errors=True)
        if dest.exists():
            shutil.rmtree(aside, ignore_errors=True)
        _unmake(made)


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
        if not number.isdigit() or _alive(int(number)) or (old and not dest.exists()):
            continue
        if stale.is_dir():
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


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Write a file that is complete or as it was: beside, then renamed, and on the disk by then."""
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
    """Make a renaming last; not every system can."""
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
    """Write a file that is complete or as it was."""
    with written(path) as file:
        file.write(text.encode())


def plain(data: Any) -> Any:
    """The same for JSON, which has no NaN: what is not a number is null."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def write_json(path: Path, data: object) -> None:
    """Write JSON that is complete or as it was."""
    write_text(path, json.dumps(plain(data), indent=1, ensure_ascii=False, default=str) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        RunError: It is missing or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}). Train again.") from None


def save_tensors(path: Path, tensors: dict[str, Any], about: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, complete or as it was."""
    from safetensors.torch import save

    content = save({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, about)
    with written(path) as file:
        file.write(content)


def load_tensors(path: Path) -> dict[str, Any]:
    """Read safetensors.

    Raises:
        RunError: The file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read ({error}). Train again.") from None
    return tensors


def append_line(path: Path, data: object) -> None:
    """Add one line of JSON to a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(plain(data), ensure_ascii=False, default=str) + "\n")
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

    try:
        held = FileLock(folder / ".lock").acquire(blocking=False)
    except Timeout:
        raise RunError(f"{folder} is in use: another process is training there.") from None
    with held:
        yield
