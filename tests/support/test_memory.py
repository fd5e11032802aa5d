"""Memory: reused while that is asked for, and given back."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from relfrog.support.memory import kept_memory


def _faults() -> int:
    """Fresh pages that this process was given so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _allocate(size: int) -> None:
    """Allocate and free large blocks, again and again."""
    for _ in range(8):
        torch.zeros(size, dtype=torch.uint8)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_freed_memory_is_reused_meanwhile() -> None:
    size = 40 << 20  # larger than anything that is reused by itself
    pages = size // resource.getpagesize()
    with kept_memory():
        _allocate(size)
        before = _faults()
        _allocate(size)
        assert _faults() - before < pages
    before = _faults()
    _allocate(size)
    assert _faults() - before > 4 * pages
