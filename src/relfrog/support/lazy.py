"""Public names of a package that are imported on first use, so that importing it stays fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_exports"]


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
