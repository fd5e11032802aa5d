"""MySQL and MariaDB as targets, which have no transactional DDL."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

from relfrog.errors import UsageError
from relfrog.io.targets.base import Existing, no_schema
from relfrog.io.targets.sql import SqlTarget

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["MySQLTable"]


class MySQLTable(SqlTarget):
    """A table in MySQL or MariaDB, which commit at every CREATE TABLE."""

    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    max_name_bytes: ClassVar[int] = 4 * 64
    _placeholder: ClassVar[str] = "%s"

    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa

        url = sa.make_url(self.address).set(drivername="mysql+pymysql")
        if not url.database and self.schema is None:
            raise UsageError(f"{self.label} has no database name. Add it: mysql://user@host/NAME")
        # TRADITIONAL: a value that does not fit is an error; it is not changed silently.
        return sa.create_engine(
            url,
            connect_args={
                "charset": "utf8mb4",
                "init_command": "SET SESSION sql_mode = 'TRADITIONAL', time_zone = '+00:00'",
            },
        )

    def _errors(self) -> tuple[type[Exception], ...]:
        import pymysql
        import sqlalchemy.exc

        return (pymysql.err.Error, sqlalchemy.exc.SQLAlchemyError)

    def _place(self, connection: sa.Connection) -> dict[str, str]:
        return {"schema": self.schema or str(connection.engine.url.database), "name": self.name}

    def _find_existing(self, connection: sa.Connection) -> Existing | None:
        import sqlalchemy as sa

        place = self._place(connection)
        listed = sa.text("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY 1")
        schemas = connection.execute(listed).scalars().all()
        folded = connection.execute(sa.text("SELECT @@lower_case_table_names")).scalar() != 0

        def same(one: str, two: str) -> bool:
            return one.lower() == two.lower() if folded else one == two

        if not any(same(s, place["schema"]) for s in schemas):
            raise no_schema(place["schema"], schemas)
        rows = connection.execute(
            sa.text(
                "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES "
                "WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name"
            ),
            place,
        ).all()
        row = next((r for r in rows if same(r[0], self.name)), None)
        if row is None:
            return None
        needed = connection.execute(
            sa.text(
                "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE "
                "WHERE REFERENCED_TABLE_SCHEMA = :schema AND REFERENCED_TABLE_NAME = :name "
                "ORDER BY 1, 2"
            ),
            place,
        ).all()
        others = (f"{s}.{t}" for s, t in needed if (s, t) != (place["schema"], row[0]))
        kind = "table" if row[1] == "BASE TABLE" else str(row[1]).lower()
        return Existing(kind, row[0], tuple(others))

    def _options(self, connection: sa.Connection) -> dict[str, Any]:
        import sqlalchemy as sa

        query = "SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA "
        charset = connection.execute(
            sa.text(f"{query} WHERE SCHEMA_NAME = :schema"), self._place(connection)
        ).scalar()
        # With the database's own collation, keys can be joined with those of other tables.
        return {} if str(charset).startswith("utf8mb4") else {"mysql_charset": "utf8mb4"}

    def _put_in_place(self, connection: sa.Connection, found: Existing | None) -> None:
        connection.commit()
        new, here = self._quoted(connection, self._partial), self._quoted(connection, self.name)
        if found is None:
            connection.exec_driver_sql(f"RENAME TABLE {new} TO {here}")
            return
        old, aside = (self._quoted(connection, n) for n in (found.name, f"{self._partial}_old"))
        # One atomic rename: at any moment there is a table of this name.
        connection.exec_driver_sql(f"RENAME TABLE {old} TO {aside}, {new} TO {here}")
        try:
            connection.exec_driver_sql(f"DROP TABLE {aside}")
        except Exception:
            connection.exec_driver_sql(f"RENAME TABLE {here} TO {new}, {aside} TO {old}")
            raise

    def _undo(self, connection: sa.Connection) -> None:
        # The connection may be in the middle of a statement.
        connection.invalidate()
        with contextlib.suppress(Exception), connection.engine.connect() as fresh:
            fresh.exec_driver_sql(f"DROP TABLE IF EXISTS {self._quoted(fresh, self._partial)}")
