"""Public names of a package that are imported on first use, so that importing it stays fast."""

from __future__ import annotations

import gc
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

__all__ = ["deferred", "lazy_exports", "loading"]


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
def deferred(name: str, *, inner: bool = False) -> Iterator[None]:
    """Whoever imports a module inside gets one that is loaded when it is first used.

    For libraries that import others at the top which only some of their functions need.

    Args:
        name: A module inside a package, such as ``sklearn.metrics``.
        inner: Whether it is the package that imports it: the package is imported as usual.
    """
    package, _, _ = name.partition(".")
    outer = types.ModuleType(package)
    placed: dict[str, types.ModuleType] = {name: _Later(name)}
    if package not in sys.modules and not inner:
        placed[package] = outer
        setattr(outer, name.rpartition(".")[2], placed[name])
    placed = {key: module for key, module in placed.items() if key not in sys.modules}
    sys.modules.update(placed)
    try:
        yield
    finally:
        for key, module in placed.items():
            if sys.modules.get(key) is module:
                del sys.modules[key]


#: What PyTorch loads for tensors without values: its compiler computes with them, and libraries of
#: language models, which import it themselves (`relfrog.features.text`).
_WITHOUT_VALUES = "torch._meta_registrations"


@contextmanager
def loading(*, training: bool = True) -> Iterator[None]:
    """Import inside what a command needs, in less time.

    Nobody looks for garbage among the functions and classes of modules, now or later. They stay,
    but there are so many that Python searches them again and again: a fifth of the time to import
    PyTorch. In a process that has PyTorch already, nothing is done: there, other things might be
    left out.

    Args:
        training: Whether models may be trained. Otherwise a part of PyTorch waits until it is used.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        with nullcontext() if training else deferred(_WITHOUT_VALUES, inner=True):
            yield
    finally:
        gc.freeze()
        gc.enable()


class _Later(types.ModuleType):
    """A module that is loaded when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # how the import system asks what kind of module it is
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
