"""Where results go: tables of databases, each written whole or not at all.

A new table gets its rows under a name of its own; only then does it take its place, and that of
the old one if that shall be replaced. Identifiers are quoted by SQLAlchemy; no name is ever pasted
into a statement as it is.
"""

from __future__ import annotations

from relfrog.errors import UsageError
from relfrog.io.targets.base import Target
from relfrog.io.targets.files import DuckDBTable, SQLiteTable
from relfrog.io.targets.mysql import MySQLTable
from relfrog.io.targets.postgresql import PostgreSQLTable

__all__ = ["TARGETS", "Target", "open_target"]

#: The classes asked, in this order, whether they can write to an address.
TARGETS: list[type[Target]] = [PostgreSQLTable, MySQLTable, SQLiteTable, DuckDBTable]


def open_target(address: str, table: str | None) -> Target | None:
    """The table at a database URL, not opened yet; None if no database has such an address.

    Raises:
        UsageError: There is no name for the table, or it can be none.
    """
    for target in TARGETS:
        if target.accepts(address):
            if table is None:
                raise UsageError("a database needs a name for the table. Give it: --table NAME")
            return target(address, table)
    return None
