"""Parts: folders of plain files that are made once and then only read.

A part's name follows from what it is made of, so it is never stale: other content, another name.
It is built in a temporary folder and renamed into place, so it is complete or not there, whatever
kills the process. Processes that want the same part wait for the one that builds it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from relfrog._version import __version__
from relfrog.errors import RelFrogWarning, StoreError
from relfrog.store.fingerprint import fingerprint, hash_file
from relfrog.store.location import FOLDER, GB, LIMIT, cache_folder, size_limit
from relfrog.support.files import write_text
from relfrog.support.forms import read_json

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["Part", "Store", "open_store", "versions"]

FORMAT, HEADER = 1, "part.json"
#: A file with the size of all parts when they were looked at, and of those that were built since
#: then, a line each; and how many there may be.
GROWN, MOST_NOTED = "grown", 1000
#: Seconds after its last use for which a part stays: another process may be reading it.
IN_USE = 3600
#: Bytes of room below which a disk is full.
NO_ROOM = 16 << 20
Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Part:
    """A part that is complete.

    Attributes:
        name: its name, and that of its folder.
        kind: what it is, such as "graph".
        about: what it is made of, in words.
        bytes: its size.
        used: when it was last used, in seconds since 1970.
    """

    name: str
    kind: str
    about: str
    bytes: int
    used: float

    def belongs_to(self, dataset: str) -> bool:
        """Whether it was made of a dataset."""
        return self.about == dataset or self.about.startswith((f"{dataset} ", f"{dataset}:"))


class _Header(msgspec.Struct):
    """`part.json`: the size and the hash of each file."""

    kind: str
    about: str
    files: dict[str, tuple[Annotated[int, msgspec.Meta(ge=0)], str]]


def _header(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(folder / HEADER, _Header, StoreError)
    return found


def open_store() -> Store:
    """The store in the cache folder; in a temporary one, with a warning, if it is read-only."""
    return _opened(cache_folder())


@lru_cache(maxsize=8)
def _opened(folder: Path) -> Store:
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        (folder / "building").mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder / "building"):
            pass
        _refuse_strange(folder)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(folder) from None
        warnings.warn(
            f"the cache folder {folder} cannot be used ({error.strerror or error}), so what is "
            f"prepared is thrown away at the end. Choose another: {FOLDER}=FOLDER",
            RelFrogWarning,
            stacklevel=4,
        )
        return Store(_temporary())
    return Store(folder)


def _refuse_strange(folder: Path) -> None:
    """Refuse a folder to which others can write: what lies there decides what is computed.

    Raises:
        PermissionError: It is one.
    """
    for place in (folder, folder / "parts") if os.name == "posix" else ():
        about = place.stat()
        anybody = about.st_mode & 0o002 and not about.st_mode & 0o1000
        if anybody or (os.getuid() != 0 and about.st_uid not in (0, os.getuid())):
            raise PermissionError(errno.EPERM, "other accounts can change what is in it")


@cache
def _temporary() -> Path:
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="relfrog-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _full(folder: Path) -> StoreError:
    return StoreError(
        f"the disk of the cache folder {folder} is full. Make room (relfrog store remove --all), "
        f"or choose another folder: {FOLDER}=FOLDER"
    )


class Store:
    """Parts in a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: set[str] = set()
        self._warned = False

    def fingerprint(self, path: Path) -> str:
        """A hash of the bytes of a file."""
        return fingerprint(path, self.folder / "files")

    def use(
        self,
        kind: str,
        made_of: Mapping[str, Any],
        build: Callable[[Path], object],
        load: Callable[[Path], Loaded],
        about: str = "",
    ) -> Loaded:
        """Load a part, which is built first if it is not there.

        Args:
            kind: what it is.
            made_of: everything that its content depends on, as JSON values.
            build: writes its files into a folder.
            load: reads them; whatever it raises has the part built anew, as it is damaged then.
            about: what it is made of, in words, for lists.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
        """
        name = self.name(kind, made_of)
        for _ in range(3):
            folder = self._there(name)
            if folder is None:
                self._build(name, kind, build, about)
                continue
            try:
                found = load(folder)
            except Exception:
                if self._there(name) is not None:
                    self.remove(name)  # damaged, though its sizes are right
                continue  # or removed by another process in this very moment
            self._touch(folder, name)
            return found
        self._build(name, kind, build, about)
        return load(self.folder / "parts" / name)

    @property
    def used(self) -> frozenset[str]:
        """Names of the parts that this process has used: what another machine would need, too."""
        return frozenset(self._used)

    def files(self, name: str) -> dict[str, tuple[int, str]]:
        """The files of a complete part, with size and hash.

        Raises:
            StoreError: There is no such part.
        """
        folder = self._there(name)
        if folder is None:
            raise StoreError(f"{self.folder} has no complete part {name}.")
        return {file: (size, digest) for file, (size, digest) in _header(folder)["files"].items()}

    def adopt(self, part: Part, copy: Callable[[Path], None]) -> Path:
        """Put a part of another store here, unless it is here already.

        Args:
            part: the part.
            copy: writes its files into a folder.

        Returns:
            Its folder.
        """
        if self._there(part.name) is None:
            self._build(part.name, part.kind, copy, part.about)
        folder = self.folder / "parts" / part.name
        self._touch(folder, part.name)
        return folder

    def name(self, kind: str, made_of: Mapping[str, Any]) -> str:
        """The name of a part."""
        whole = {"format": FORMAT, "versions": versions(), "made_of": made_of}
        text = json.dumps(whole, sort_keys=True, default=str)
        return f"{kind}-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"

    def _there(self, name: str) -> Path | None:
        """The folder of a part, if it is complete: all files are there with their sizes."""
        folder = self.folder / "parts" / name
        with contextlib.suppress(OSError, ValueError, StoreError):
            files = _header(folder)["files"]
            if all((folder / file).stat().st_size == size for file, (size, _) in files.items()):
                return folder
        return None

    def _build(self, name: str, kind: str, build: Callable[[Path], object], about: str) -> None:
        final = self.folder / "parts" / name
        try:
            with self._lock(name):
                if self._there(name) is not None:
                    return  # another process was faster
                self._clear(name)
                shutil.rmtree(final, ignore_errors=True)
                partial = self.folder / "building" / f"{name}.{uuid.uuid4().hex[:8]}"
                partial.mkdir(parents=True)
                try:
                    build(partial)
                    files: dict[str, list[Any]] = {
                        str(file.relative_to(partial)): [file.stat().st_size, hash_file(file)]
                        for file in sorted(partial.rglob("*"))
                        if file.is_file()
                    }
                    header = {"kind": kind, "about": about, "made": time.time(), "files": files}
                    (partial / HEADER).write_text(json.dumps(header, indent=1), encoding="utf-8")
                    final.parent.mkdir(parents=True, exist_ok=True)
                    partial.rename(final)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
            if self._is_full(sum(size for size, _ in files.values())):
                self.trim(keep=name)
        except OSError as error:
            # NumPy does not say why it could not write.
            full = error.errno is None and shutil.disk_usage(self.folder).free < NO_ROOM
            if full or error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full(self.folder) from None
            if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise StoreError(
                    f"the cache folder {self.folder} cannot be written: {error.strerror}. Choose "
                    f"another: {FOLDER}=FOLDER"
                ) from None
            raise

    def _lock(self, name: str, seconds: float = -1) -> BaseFileLock:
        """What a process holds while it builds a part."""
        from filelock import FileLock

        (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / "locks" / f"{name}.lock", timeout=seconds)

    def _touch(self, folder: Path, name: str) -> None:
        """Note that a part is used, now and until this process ends."""
        if name not in self._used:
            self._used.add(name)
            with contextlib.suppress(OSError):
                os.utime(folder / HEADER)
                file = os.open(folder / HEADER, os.O_RDONLY)
                weakref.finalize(self, os.close, file)
                _share(file)

    def _is_full(self, built: int) -> bool:
        """Whether all parts may be larger than the limit, with one more of this size.

        To look at every part whenever one is built would take longer than to build it, so a file
        has their size when they were looked at, and that of each part since then.
        """
        file = self.folder / GROWN
        with file.open("a", encoding="utf-8") as grown:
            grown.write(f"{built}\n")
        try:
            sizes = [int(line) for line in file.read_text(encoding="utf-8").splitlines()]
        except ValueError:  # half a line of a killed process
            return True
        return not 1 < len(sizes) < MOST_NOTED or sum(sizes) > size_limit()

    def _clear(self, building: str = "") -> None:
        """Remove what killed processes left: nobody holds the lock of what they were building.

        Args:
            building: the part whose lock this process holds; for none, parts that were being
                removed are looked for, too.
        """
        from filelock import Timeout

        halves = [(f, f.name.split(".")[0]) for f in (self.folder / "building").glob("*")]
        if not building:
            halves += [
                (f, f.name) for f in (self.folder / "parts").glob("*") if not (f / HEADER).exists()
            ]
        for folder, name in halves:
            with contextlib.suppress(OSError, Timeout):
                with contextlib.nullcontext() if name == building else self._lock(name, 0):
                    if folder.parent.name == "building" or not (folder / HEADER).exists():
                        shutil.rmtree(folder, ignore_errors=True)

    # For the command.

    def parts(self) -> Iterator[Part]:
        """All parts, the one used last first."""
        found = []
        for folder in (self.folder / "parts").glob("*"):
            with contextlib.suppress(OSError, StoreError):
                header = _header(folder)
                size = sum(size for size, _ in header["files"].values())
                used = (folder / HEADER).stat().st_mtime
                found.append(Part(folder.name, header["kind"], header["about"], size, used))
        yield from sorted(found, key=lambda part: -part.used)

    def damaged(self, name: str) -> list[str]:
        """The files of a part that are missing or not what was written."""
        folder = self.folder / "parts" / name
        try:
            wrong = []
            for file, (_, digest) in _header(folder)["files"].items():
                path = folder / file
                if not path.is_file() or hash_file(path) != digest:
                    wrong.append(file)
            return wrong
        except (OSError, ValueError, StoreError):
            return [HEADER]

    def remove(self, name: str) -> None:
        """Remove a part; whoever has it open keeps it until then."""
        folder = self.folder / "parts" / name
        with contextlib.suppress(OSError):
            (folder / HEADER).unlink()  # first, so that half of a part is no part
        shutil.rmtree(folder, ignore_errors=True)

    def trim(self, keep: str = "") -> list[str]:
        """Remove the parts used longest ago until the rest fits into the size limit.

        Those that a process uses, or that were used in the last hour, stay, whatever the limit.
        """
        self._clear()
        limit, total, removed, size = size_limit(), 0, [], 0
        for part in self.parts():
            total += part.bytes
            size += part.bytes
            own = part.name == keep or part.name in self._used
            if total <= limit or own or time.time() - part.used <= IN_USE:
                continue
            if not _is_shared(self.folder / "parts" / part.name / HEADER):
                self.remove(part.name)
                removed.append(part.name)
                size -= part.bytes
        with contextlib.suppress(OSError):  # there is no folder yet
            write_text(self.folder / GROWN, f"{size}\n")
        if total > limit and not removed and not self._warned:
            self._warned = True  # once: every part that is built asks again
            warnings.warn(
                f"what is being used of the cache folder {self.folder} is larger than its limit. "
                f"Raise it: {LIMIT}={max(1, round(2 * total / GB))}",
                RelFrogWarning,
                stacklevel=4,
            )
        return removed


def _share(file: int) -> None:
    """Let other processes see that a file is in use, where the system can tell them."""
    try:
        import fcntl
    except ImportError:  # Windows does not let files go that are open
        return
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _is_shared(path: Path) -> bool:
    """Whether any process uses a file; see `_share`."""
    try:
        import fcntl

        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


@cache
def versions() -> dict[str, str]:
    """Versions of whatever may compute other numbers in another version."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"relfrog": __version__, "python": platform.python_version_tuple()[1]}
    code = hashlib.blake2b(digest_size=12)
    base = Path(__file__).parents[1]
    for file in sorted(base.rglob("*.py")):  # for whoever changes RelFrog itself
        code.update(str(file.relative_to(base)).encode() + file.read_bytes())
    found["code"] = code.hexdigest()
    for name in ("numpy", "pandas", "pyarrow", "duckdb", "scikit-learn", "scipy", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
