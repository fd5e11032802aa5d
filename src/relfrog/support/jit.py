"""Compile loops with Numba: the only module that calls its compiler.

Machine code is cached on disk: beside the source file, or in the user's cache folder where the
package is read-only, or not at all where neither can be written.

A cached kernel is compiled anew when its own source file changes, and only then. It has the value
of every constant and the code of every kernel it uses baked in, so it must take none of them from
another file of this package: a change there would not reach the cached code.

Whoever imports anything of Numba imports this module first: it keeps settings away that Numba would
take from the current folder.
"""

from __future__ import annotations

import sys
import typing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from relfrog.support.lazy import deferred


@contextmanager
def _no_settings_of_the_folder() -> Iterator[None]:
    """Import Numba inside, without settings from the current folder.

    That folder may be a stranger's, and one setting says where cached code lies: in pickles, which
    run what they hold. Numba reads the file (`.numba_config.yaml`) when it is imported and whenever
    it compiles, but not where there is no YAML. Those who imported it themselves have its settings.
    """
    if "numba" in sys.modules:
        yield
        return
    modules: dict[str, Any] = sys.modules
    yaml = modules.get("yaml")
    modules["yaml"] = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A Numba config file")
            yield
    finally:
        del modules["yaml"]
        if yaml is not None:
            modules["yaml"] = yaml
    config: Any = sys.modules["numba.core.config"]
    config._config_fname = ""


with _no_settings_of_the_folder():
    import numba

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
