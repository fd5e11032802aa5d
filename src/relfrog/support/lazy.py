"""Public names of a package that are imported on first use, so that importing it stays fast."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["deferred", "lazy_exports"]


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package with an ``__all__``.

    >>> __getattr__, __dir__ = lazy_exports(__name__, {"Fraction": "fractions"})
    >>> __getattr__("Fraction")(1, 2)
    Fraction(1, 2)

    Args:
        package: The package's ``__name__``.
        homes: For each public name the module that defines it. A submodule of the package must not
            have the same name: it would hide the name once it is imported.
    """

    def getattribute(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattribute, lambda: sorted(sys.modules[package].__all__)


@contextmanager
def deferred(name: str) -> Iterator[None]:
    """Whoever imports a module inside gets one that is loaded when it is first used.

    For libraries that import others at the top which only some of their functions need.

    Args:
        name: A module inside a package, such as ``sklearn.metrics``.
    """
    package, _, _ = name.partition(".")
    if package in sys.modules:
        yield
        return
    later, outer = _Later(name), types.ModuleType(package)
    setattr(outer, name.rpartition(".")[2], later)
    sys.modules[package], sys.modules[name] = outer, later
    try:
        yield
    finally:
        del sys.modules[package], sys.modules[name]


class _Later(types.ModuleType):
    """A module that is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
