"""Databases and files: sources are read-only, targets are written all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.io.output import check_output, write_frame
    from relfrog.io.sources import (
        SOURCES,
        ReadAgain,
        Source,
        SourceColumn,
        SourceKey,
        SourceTable,
        open_source,
    )
    from relfrog.io.targets import TARGETS, Target

__all__ = [
    "SOURCES",
    "TARGETS",
    "ReadAgain",
    "Source",
    "SourceColumn",
    "SourceKey",
    "SourceTable",
    "Target",
    "check_output",
    "open_source",
    "write_frame",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "SOURCES": "relfrog.io.sources",
        "TARGETS": "relfrog.io.targets",
        "ReadAgain": "relfrog.io.sources",
        "Source": "relfrog.io.sources",
        "SourceColumn": "relfrog.io.sources",
        "SourceKey": "relfrog.io.sources",
        "SourceTable": "relfrog.io.sources",
        "Target": "relfrog.io.targets",
        "check_output": "relfrog.io.output",
        "open_source": "relfrog.io.sources",
        "write_frame": "relfrog.io.output",
    },
)
