"""Which processes there are, as Linux tells it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def descendants(process: int) -> set[int]:
    """All processes that a process has started, and those that these have."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, grown = {process}, 0
    while len(found) > grown:
        grown = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {process}


def running(processes: set[int]) -> set[int]:
    """Those that have not ended."""
    alive = set()
    for process in processes:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                alive.add(process)
    return alive
