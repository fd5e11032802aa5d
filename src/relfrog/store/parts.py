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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from relfrog._version import __version__
from relfrog.errors import DatasetError, RelFrogWarning, StoreError
from relfrog.store.fingerprint import fingerprint, hash_file
from relfrog.store.location import FOLDER, LIMIT, cache_folder, size_limit
from relfrog.support.files import is_alive

__all__ = ["Part", "Store", "open_store", "versions"]

FORMAT, HEADER = 1, "part.json"
#: Seconds after its last use for which a part stays: another process may be reading it.
IN_USE = 3600
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
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(folder) from None
        warnings.warn(
            f"the cache folder {folder} cannot be written ({error.strerror or error}), so what is "
            f"prepared is thrown away at the end. Choose another: {FOLDER}=FOLDER",
            RelFrogWarning,
            stacklevel=4,
        )
        return Store(_temporary())
    return Store(folder)


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

    def fingerprint(self, path: Path) -> str:
        """A hash of the bytes of a file."""
        return fingerprint(path, self.folder / "files")

    def use(
        self,
        kind: str,
        made_of: Mapping[str, Any],
        build: Callable[[Path], None],
        load: Callable[[Path], Loaded],
        about: str = "",
    ) -> Loaded:
        """Load a part, which is built first if it is not there.

        Args:
            kind: what it is.
            made_of: everything that its content depends on, as JSON values.
            build: writes its files into a folder.
            load: reads them; whatever it raises of a damaged file has the part built anew.
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
            except (OSError, ValueError, KeyError, TypeError, EOFError, DatasetError):
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
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        return {file: (int(size), str(digest)) for file, (size, digest) in header["files"].items()}

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
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            files = json.loads((folder / HEADER).read_text(encoding="utf-8"))["files"]
            if all((folder / file).stat().st_size == size for file, (size, _) in files.items()):
                return folder
        return None

    def _build(self, name: str, kind: str, build: Callable[[Path], None], about: str) -> None:
        from filelock import FileLock

        final = self.folder / "parts" / name
        try:
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "locks" / f"{name}.lock"):
                if self._there(name) is not None:
                    return  # another process was faster
                self._clear()
                shutil.rmtree(final, ignore_errors=True)
                partial = self.folder / "building" / f"{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
                partial.mkdir(parents=True)
                try:
                    build(partial)
                    files = {
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
            self.trim(keep=name)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full(self.folder) from None
            if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise StoreError(
                    f"the cache folder {self.folder} cannot be written: {error.strerror}. Choose "
                    f"another: {FOLDER}=FOLDER"
                ) from None
            raise

    def _touch(self, folder: Path, name: str) -> None:
        if name not in self._used:
            self._used.add(name)
            with contextlib.suppress(OSError):
                os.utime(folder / HEADER)

    def _clear(self) -> None:
        """Remove what killed processes left."""
        for partial in (self.folder / "building").glob("*"):
            process = partial.name.split(".")[-2] if partial.name.count(".") >= 2 else ""
            gone = process.isdigit() and int(process) != os.getpid()
            if gone and not is_alive(int(process)):
                shutil.rmtree(partial, ignore_errors=True)

    # For the command.

    def parts(self) -> Iterator[Part]:
        """All parts, the one used last first."""
        found = []
        for folder in (self.folder / "parts").glob("*"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
                size = sum(int(size) for size, _ in header["files"].values())
                used = (folder / HEADER).stat().st_mtime
                kind, about = str(header["kind"]), str(header["about"])
                found.append(Part(folder.name, kind, about, size, used))
        yield from sorted(found, key=lambda part: -part.used)

    def damaged(self, name: str) -> list[str]:
        """The files of a part that are missing or not what was written."""
        folder = self.folder / "parts" / name
        try:
            files = json.loads((folder / HEADER).read_text(encoding="utf-8"))["files"]
            wrong = []
            for file, (_, digest) in files.items():
                path = folder / file
                if not path.is_file() or hash_file(path) != digest:
                    wrong.append(file)
            return wrong
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return [HEADER]

    def remove(self, name: str) -> None:
        """Remove a part; whoever has it open keeps it until then."""
        folder = self.folder / "parts" / name
        with contextlib.suppress(OSError):
            (folder / HEADER).unlink()  # first, so that half of a part is no part
        shutil.rmtree(folder, ignore_errors=True)

    def trim(self, keep: str = "") -> list[str]:
        """Remove the parts used longest ago until the rest fits into the size limit.

        Those used in the last hour stay, whatever the limit.
        """
        limit, total, removed = size_limit(), 0, []
        for part in self.parts():
            total += part.bytes
            own = part.name == keep or part.name in self._used
            if total > limit and not own and time.time() - part.used > IN_USE:
                self.remove(part.name)
                removed.append(part.name)
        if total > limit and not removed:
            warnings.warn(
                f"what is being used of the cache folder {self.folder} is larger than its limit. "
                f"Raise it: {LIMIT}={2 * total / (1 << 30):.0f}",
                RelFrogWarning,
                stacklevel=4,
            )
        return removed


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
