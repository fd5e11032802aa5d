"""Quote names and strings for DuckDB, and turn off its progress bar."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

__all__ = ["literal", "path_literal", "quoted", "silence"]


def quoted(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def silence(connection: Any) -> None:
    """Turn off the progress bar, which would go to standard output.

    In a notebook without ipywidgets DuckDB has no bar, and rejects the setting.
    """
    import duckdb

    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")


def literal(text: str) -> str:
    """Quote a string, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def path_literal(path: Path, below: str = "") -> str:
    """Quote the path of a file to read, which DuckDB would take for a pattern: ``[1]``, ``*``.

    Args:
        path: The path.
        below: A pattern of files in it.
    """
    return literal("".join(f"[{c}]" if c in "*?[" else c for c in str(path)) + below)
