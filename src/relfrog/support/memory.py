"""How much memory there is, and which errors mean that it ran out."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["free_memory", "is_out_of_memory", "total_memory"]


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


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
