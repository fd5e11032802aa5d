"""Whether another process has the libraries that this one has."""

from __future__ import annotations

from collections.abc import Mapping

from relfrog.store.parts import versions

__all__ = ["REMEDY", "version_differences"]

#: What to do about differences.
REMEDY = "Install the same versions on all nodes, as results depend on them."


def version_differences(own: Mapping[str, str], expected: Mapping[str, str] | None = None) -> str:
    """In which versions somebody differs, in words; nothing if in none.

    Args:
        own: the versions there; see `relfrog.store.parts.versions`.
        expected: those that should be there; by default those here.
    """
    expected = versions() if expected is None else expected
    other = [
        f"{name} {own.get(name, 'missing')} instead of {value}"
        for name, value in expected.items()
        if name not in ("code", "python") and own.get(name) != value
    ]
    if not other and own.get("code") != expected["code"]:
        other = [f"another state of relfrog {expected['relfrog']}"]
    return ", ".join(other)
