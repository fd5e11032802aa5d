"""Targets for results: tables of databases, written all or nothing.

Rows are written to a table with a temporary name, which is then renamed, replacing the old table
if that is wanted. Identifiers are always quoted; no name is ever pasted into a statement.
"""

from __future__ import annotations

from relfrog.errors import UsageError
from relfrog.io.targets.base import Target
from relfrog.io.targets.files import DuckDBTable, SQLiteTable
from relfrog.io.targets.mysql import MySQLTable
from relfrog.io.targets.postgresql import PostgreSQLTable

__all__ = ["TARGETS", "Target", "open_target"]

#: Tried in this order: the first class that accepts an address writes to it.
TARGETS: list[type[Target]] = [PostgreSQLTable, MySQLTable, SQLiteTable, DuckDBTable]


def open_target(address: str, table: str | None) -> Target | None:
    """The target for a table at a database URL, not opened yet; None if it is no such URL.

    Raises:
        UsageError: The name of the table is missing or invalid.
    """
    for target in TARGETS:
        if target.accepts(address):
            if table is None:
                raise UsageError("a database needs the name of a table. Give it: --table NAME")
            return target(address, table)
    return None
