"""Read MySQL and MariaDB, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from relfrog.errors import SourceError
from relfrog.io.sources.base import BATCH_ROWS, SourceColumn, SourceTable
from relfrog.io.sources.sql import RowDatabase

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["MySQL"]


class MySQL(RowDatabase):
    """MySQL or MariaDB, read in one transaction that the server keeps read-only."""

    what: ClassVar[str] = "a MySQL or MariaDB database"
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def _open(self, address: str) -> sa.Engine:
        import sqlalchemy as sa

        url = sa.make_url(address).set(drivername="mysql+pymysql")
        if not url.database and not self.schemas:
            raise SourceError(f"{self.label} has no database name. Add it: mysql://user@host/NAME")
        return sa.create_engine(
            url,
            connect_args={
                "charset": "utf8mb4",
                "init_command": "SET SESSION TRANSACTION "
                "ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            },
        )

    def _begin(self) -> None:
        # The server converts TIMESTAMP columns to the session's time zone.
        self._connection.exec_driver_sql("SET time_zone = '+00:00'")

    def _rows(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Iterator[Any]:
        streaming = self._connection.execution_options(stream_results=True, yield_per=BATCH_ROWS)
        yield from streaming.execute(self._select(table, columns)).partitions(BATCH_ROWS)
