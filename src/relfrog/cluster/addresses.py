"""Files at an address for which fsspec has a driver: `file`, `s3`, `gs`, `hdfs`, `webhdfs`, ...

Every driver has errors of its own, of any class. Here they become one sentence each.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from relfrog.errors import StoreError, UsageError, without_passwords

__all__ = ["Address"]

#: What to install for an address, if fsspec's own words do not say it.
DRIVERS = {"s3": "relfrog[s3]", "s3a": "relfrog[s3]", "gs": "relfrog[gs]",
           "gcs": "relfrog[gs]",
           "abfs": "adlfs", "az": "adlfs"}  # fmt: skip
#: Stores in which an object is there once all of it is: there is no need to write it aside, and
#: renaming would copy it.
WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az"})
#: Letters of a driver's error that are quoted.
QUOTED = 300


class Address:
    """A folder at an address.

    Args:
        url: the address, or a path.

    Raises:
        UsageError: There is no driver for it, or the driver cannot be used.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.url, self._protocol = url, url.partition("://")[0] if "://" in url else "file"
        try:
            found = fsspec.core.url_to_fs(url if "://" in url else str(Path(url).absolute()))
        except ImportError as error:
            raise UsageError(f"{url} cannot be opened: {self._missing(error)}") from None
        except Exception as error:
            raise UsageError(f"{url} cannot be opened: {_words(error)}{self._hint()}") from None
        self._system: Any = found[0]
        # What a driver logs of a request that failed, with its traceback, is raised, too.
        log = logging.getLogger(type(self._system).__module__.partition(".")[0])
        if not log.handlers:
            log.addHandler(logging.NullHandler())
        self._root = str(found[1]).rstrip("/")
        # Drivers remember what they have listed, and other machines write there, too.
        self._system.invalidate_cache()

    def _missing(self, error: ImportError) -> str:
        package = DRIVERS.get(self._protocol)
        if package is None:
            return _words(error)
        return f"its driver is not installed. Install it on every node: pip install '{package}'"

    def _hint(self) -> str:
        return ". Without Java, take webhdfs://HOST:PORT/..." if self._protocol == "hdfs" else ""

    def sizes(self) -> dict[str, int]:
        """The sizes of the files in the folder, by their paths in it; none if it is not there."""
        with suppress(FileNotFoundError), self._said("be listed", ""):
            found = self._system.find(self._root, detail=True)
            start = len(self._root) + 1
            return {name[start:]: int(about["size"] or 0) for name, about in found.items()}
        return {}

    def put(self, source: Path, path: str) -> None:
        """Write a file into the folder: it is there once all of it is.

        Raises:
            StoreError: It cannot be written.
        """
        target = f"{self._root}/{path}"
        with self._said("be written", path):
            if self._protocol in WHOLE:
                self._system.put_file(str(source), target)
            else:
                self._put_aside(source, target)

    def _put_aside(self, source: Path, target: str) -> None:
        """Write a file under another name, and rename it."""
        system, size = self._system, source.stat().st_size
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        aside = f"{target}.partial-{uuid.uuid4().hex[:8]}"
        try:
            system.put_file(str(source), aside)
            # HDFS renames nothing to a name that is taken, by half of a file or by a machine that
            # was faster; and some drivers say nothing of it.
            if self._size(target) not in (None, size):
                system.rm_file(target)
            try:
                system.mv(aside, target)
            except Exception:
                if self._size(target) != size:
                    raise
            if self._size(target) != size:
                raise OSError(errno.EIO, "it has another size than what was written")
        finally:
            with suppress(Exception):
                if self._size(aside) is not None:
                    system.rm_file(aside)

    def _size(self, path: str) -> int | None:
        """The size of a file of now; None if it is not there."""
        self._system.invalidate_cache()
        try:
            return int(self._system.size(path) or 0)
        except FileNotFoundError:
            return None

    def get(self, path: str, target: Path) -> None:
        """Copy a file from the folder.

        Raises:
            FileNotFoundError: It is not there.
            StoreError: It cannot be read.
        """
        with self._said("be copied", path):
            self._system.get_file(f"{self._root}/{path}", str(target))

    @contextmanager
    def _said(self, what: str, path: str) -> Iterator[None]:
        """Say in one sentence what a driver raises, of whatever class it is."""
        try:
            yield
        except Exception as error:
            full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
            if full or (isinstance(error, FileNotFoundError) and what != "be written"):
                raise
            place = f"{self.url.rstrip('/')}/{path}".rstrip("/")
            raise StoreError(f"{place} cannot {what}: {_words(error)}") from None


def _words(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    else:
        text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError) and " " not in text:  # its name alone
        text = f"there is no such bucket or folder ({text})"
    # Before it is cut: half of an address does not show where its password ends.
    return (without_passwords(text) or type(error).__name__)[:QUOTED].rstrip(".")
