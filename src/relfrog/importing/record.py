"""`import.json`: what an import recorded of itself, and its form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from relfrog.errors import DatasetError
from relfrog.support.forms import read_json

__all__ = ["FILE", "read_record"]

FILE = "import.json"


class _Column(msgspec.Struct):
    source: list[str]
    role: str
    parent: str | None = None
    parent_columns: list[str] | None = None


class _Table(msgspec.Struct):
    key: list[str]
    columns: dict[str, _Column]
    source: str | None = None
    rows: int | None = None
    inherited_from: list[str] | None = None


class _Record(msgspec.Struct):
    tables: dict[str, _Table]
    selection: dict[str, list[str]] | None = None
    options: dict[str, str | None] | None = None


def read_record(folder: Path) -> dict[str, Any] | None:
    """What the import recorded; None for a folder that `relfrog import` did not make.

    Raises:
        DatasetError: The file is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    found: dict[str, Any] = read_json(
        folder / FILE, _Record, DatasetError, "Import the database again."
    )
    return found
