"""Memory: how much there is, and which errors mean that it is too little."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["free_memory", "is_out_of_memory", "total_memory"]


#: Words in which libraries say that memory is short.
WORDS = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory is short, in whatever way it is said."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in WORDS)


def total_memory() -> int:
    """Bytes of memory that this process could ever have; 0 if nobody knows."""
    found = [
        int(text)
        for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
        if (text := _read(path)).isdigit()
    ]
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not there on Windows
        pass
    return min(found, default=0)


def free_memory() -> int:
    """Bytes of memory that are free now; 0 if nobody knows."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
