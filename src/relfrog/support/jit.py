"""Compile loops with Numba: the only module that calls its compiler.

Machine code is cached on disk: beside the source file, or in the user's cache folder where the
package is read-only, or not at all where neither can be written.

A cached kernel is compiled anew when its own source file changes, and only then. It has the value
of every constant and the code of every kernel it uses baked in, so it must take none of them from
another file of this package: a change there would not reach the cached code.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeVar

import numba

from relfrog.support.lazy import deferred

# To compile anything, Numba imports this module, and with it SciPy's linear algebra, to see whether
# it is there: a tenth of the time of a short command. What uses it imports it itself.
with deferred("scipy.linalg.cython_blas"):
    import numba.np.arraymath

__all__ = ["compiled", "compiled_sums", "inlined"]


F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile when first called, without the GIL, and cache the machine code on disk."""
    return _compile(function)


def compiled_sums(function: F) -> F:
    """As `compiled`, but sums may be added up in any order: several numbers at a time."""
    return _compile(function, fastmath={"reassoc", "nsz"})


def _compile(function: F, **options: Any) -> F:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return typing.cast(F, numba.njit(function, cache=True, **options))
    except RuntimeError:  # no folder can be written: compile anew in each process
        return typing.cast(F, numba.njit(function, **options))


def inlined(function: F) -> F:
    """Compile into every caller.

    A call would increment and decrement the reference count of each array it is given: slow in a
    loop, and slower when threads contend for the counts of one graph's arrays.
    """
    return typing.cast(F, numba.njit(function, inline="always", nogil=True, error_model="numpy"))
