"""Compile loops with Numba, cached on disk where any folder can be written."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["compiled", "inlined"]


F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with Numba, cached on disk where any folder can be written."""
    try:
        return typing.cast(F, numba.njit(function, cache=True, nogil=True, error_model="numpy"))
    except RuntimeError:  # no writable folder at all: compile anew in each process
        return typing.cast(F, numba.njit(function, nogil=True, error_model="numpy"))


def inlined(function: F) -> F:
    """Compile into every caller.

    A call would count its references to each array it is given, and count them back: slow in a
    loop, and slower when threads count references to the arrays of one graph.
    """
    return typing.cast(F, numba.njit(function, inline="always", nogil=True, error_model="numpy"))
