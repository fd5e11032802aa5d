"""How much memory there is, and which errors mean that it ran out."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["free_memory", "is_out_of_memory", "kept_memory", "total_memory"]

#: Parameters of the C library's mallopt, and what they are by default: how much free memory at the
#: end of the heap is given back, and how many large blocks are mapped one by one.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULTS = {_TRIM_THRESHOLD: 64 << 20, _MMAP_MAX: 65536}
#: Keep at most this much that is free, and map nothing.
_KEPT = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}


#: What libraries write in errors that are no MemoryError.
_PHRASES = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library means that memory ran out."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(phrase in text for phrase in _PHRASES)


def total_memory() -> int:
    """Bytes of memory this process may use, within its container's limit; 0 if unknown."""
    found = [
        int(text)
        for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
        if (text := _read(path)).isdigit()
    ]
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # no sysconf on Windows
        pass
    return min(found, default=0)


def free_memory() -> int:
    """Bytes of memory available now; 0 if unknown."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Reuse freed memory, up to 2 GB, instead of giving it back to the system at once.

    Fresh pages have to be found and cleared, which can take ten times as long as what is computed
    in them: a training step frees and allocates the same blocks again and again. Nothing happens
    where the C library is not GNU's.
    """
    adjust = _mallopt(_KEPT)
    try:
        yield
    finally:
        if adjust:
            _mallopt(_DEFAULTS)
            ctypes.CDLL(None).malloc_trim(0)


def _mallopt(values: dict[int, int]) -> bool:
    try:
        library = ctypes.CDLL(None)
        return all(library.mallopt(name, value) for name, value in values.items())
    except (AttributeError, OSError, TypeError):  # another C library, or none
        return False


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
