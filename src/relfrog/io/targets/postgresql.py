"""PostgreSQL as a target, written with ``COPY``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from relfrog.io.targets.base import Existing, no_schema
from relfrog.io.targets.sql import SqlTarget

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.schema import CreateTable

__all__ = ["PostgreSQLTable"]


class PostgreSQLTable(SqlTarget):
    """A table in PostgreSQL, written with ``COPY``."""

    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")
    max_name_bytes: ClassVar[int] = 63
    case_sensitive: ClassVar[bool] = True

    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa

        url = sa.make_url(re.sub("^postgres:", "postgresql:", self.address))
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"), connect_args={"client_encoding": "utf8"}
        )

    def _errors(self) -> tuple[type[Exception], ...]:
        import psycopg
        import sqlalchemy.exc

        return (psycopg.Error, sqlalchemy.exc.SQLAlchemyError)

    def _find_existing(self, connection: sa.Connection) -> Existing | None:
        import sqlalchemy as sa

        schemas = connection.execute(sa.text("SELECT nspname FROM pg_namespace")).scalars().all()
        if self.schema is not None and self.schema not in schemas:
            own = sorted(s for s in schemas if not s.startswith(("pg_", "information_")))
            raise no_schema(self.schema, own)
        row = connection.execute(
            sa.text(
                "SELECT c.oid, c.relkind, c.relispartition, CASE WHEN pg_has_role(c.relowner, "
                "'MEMBER') THEN '' ELSE pg_get_userbyid(c.relowner) END FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = coalesce(:schema, current_schema()) AND c.relname = :name"
            ),
            {"schema": self.schema, "name": self.name},
        ).first()
        if row is None:
            return None
        kind = "partition" if row[2] else _RELKINDS.get(row[1], "relation of another kind")
        needed = connection.execute(
            sa.text(
                "SELECT DISTINCT CAST(CAST(x.id AS regclass) AS text) FROM (SELECT conrelid AS id "
                "FROM pg_constraint WHERE confrelid = :id UNION SELECT r.ev_class FROM pg_depend d "
                "JOIN pg_rewrite r ON r.oid = d.objid WHERE d.refobjid = :id "
                "AND d.classid = CAST('pg_rewrite' AS regclass)) x WHERE x.id <> :id ORDER BY 1"
            ),
            {"id": row[0]},
        ).scalars()
        return Existing(kind, self.name, tuple(needed), row[3])

    def _execute(self, connection: sa.Connection, creation: CreateTable) -> None:
        from sqlalchemy.schema import SetTableComment

        connection.execute(creation)
        connection.execute(SetTableComment(creation.element))

    def _insert(
        self, connection: sa.Connection, width: int, batches: Iterator[list[tuple[Any, ...]]]
    ) -> None:
        from psycopg import sql

        place = [self._partial] if self.schema is None else [self.schema, self._partial]
        statement = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(*place))
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for rows in batches:
                for row in rows:
                    copy.write_row(row)


_RELKINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view"}
_RELKINDS |= {"f": "foreign table", "i": "index", "I": "index", "S": "sequence", "c": "type"}
