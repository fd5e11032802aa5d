"""Databases and files: read-only on the way in, all or nothing on the way out."""

from relfrog.io.output import write_frame
from relfrog.io.sources import SOURCES, Source, SourceColumn, SourceKey, SourceTable

__all__ = ["SOURCES", "Source", "SourceColumn", "SourceKey", "SourceTable", "write_frame"]
