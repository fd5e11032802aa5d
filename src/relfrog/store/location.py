"""Where the cache folder is, and how large it may get."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from relfrog.errors import UsageError
from relfrog.support.files import is_address, user_path

__all__ = ["FOLDER", "GB", "LIMIT", "cache_folder", "size_limit"]

#: Environment variables: the cache folder, and its size limit in GB.
FOLDER, LIMIT = "RELFROG_CACHE", "RELFROG_CACHE_GB"
#: Bytes of a GB, as in the sizes that are shown.
GB = 10**9
#: The size limit if nothing else is said, in GB.
DEFAULT_GB = 50.0


def cache_folder() -> Path:
    """The folder that RELFROG_CACHE names, or else RelFrog's in the platform's cache folder.

    Raises:
        UsageError: It names none: it is an address, or cannot be a path.
    """
    if said := os.environ.get(FOLDER, "").strip():
        if is_address(said):
            raise UsageError(f"{FOLDER}={said} is an address. Name a folder of this machine.")
        return user_path(said).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "relfrog"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "relfrog" / "Cache"
    said = os.environ.get("XDG_CACHE_HOME", "").strip()
    base = said if said.startswith("/") else str(Path.home() / ".cache")
    return Path(base) / "relfrog"


def size_limit() -> int:
    """The most bytes that the cache folder may hold.

    Raises:
        UsageError: RELFROG_CACHE_GB is no number.
    """
    said = os.environ.get(LIMIT, "").strip() or str(DEFAULT_GB)
    try:
        found = int(float(said.lower().removesuffix("gb").strip()) * GB)
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        raise UsageError(f"{LIMIT} must be a number of GB (got {said!r}).")
    return found
