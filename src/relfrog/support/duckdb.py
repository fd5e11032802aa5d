"""Names, strings and a quiet connection for DuckDB."""

from __future__ import annotations

import contextlib
from typing import Any

__all__ = ["literal", "quoted", "silence"]


def quoted(name: str) -> str:
    """An identifier for DuckDB: always in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def silence(connection: Any) -> None:
    """No progress bar: it would go to standard output.

    In a notebook without ipywidgets DuckDB has no bar at all, and refuses to hear of one.
    """
    import duckdb

    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")


def literal(text: str) -> str:
    """A string for DuckDB, where a parameter is not allowed."""
    return "'" + text.replace("'", "''") + "'"
