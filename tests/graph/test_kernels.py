"""What the compiled kernels have in common with the rest of the package."""

from __future__ import annotations

from relfrog.graph import _kernels
from relfrog.support import times


def test_a_missing_time_is_the_same_number_inside_and_outside_of_the_kernels() -> None:
    # Stated twice: a kernel must not take a constant from another file, see relfrog.support.jit.
    assert _kernels.MISSING == times.MISSING
    assert type(_kernels.MISSING) is type(times.MISSING)
