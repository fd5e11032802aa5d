"""SQLite and DuckDB files as targets; a new file appears only when it is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from relfrog.errors import OutputError, UsageError
from relfrog.io.marks import MARK
from relfrog.io.targets.base import Existing, Target, no_schema
from relfrog.io.targets.sql import SqlTarget
from relfrog.support.duckdb import quoted
from relfrog.support.files import atomic_file, check_file, user_path

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.schema import CreateTable

__all__ = ["DuckDBTable", "SQLiteTable"]


class _FileTarget(Target):
    """A table of a database file."""

    def __init__(self, address: str, table: str) -> None:
        super().__init__(address, table)
        tail = re.sub(r"^\w+(\+\w+)?://", "", self.address).removeprefix("/")
        if tail in ("", ":memory:"):
            scheme = self.schemes[0]
            raise UsageError(f"{self.label} has no file name. Write {scheme}:///FILE.{scheme}")
        path = user_path(tail, OutputError)
        path = path if path.exists() else user_path(unquote(tail), OutputError)
        self.path = path.absolute()
        self.label, self.secrets = f"{self.schemes[0]}:///{path}", ()

    def check(self, overwrite: bool) -> None:
        """Check that a new file can be created, or that an existing one can take the table."""
        check_file(self.path, overwrite=True)
        if self.path.exists():
            self._check(overwrite)

    def write(self, data: Any, overwrite: bool) -> None:
        """Write to the file; a new one appears only when it is complete."""
        self._check_columns(data.column_names)
        check_file(self.path, overwrite=True)
        if self.path.exists():
            self._write(data, overwrite)
            return
        final = self.path
        try:
            with atomic_file(final, overwrite=False) as self.path:
                self._write(data, overwrite)
        finally:
            self.path = final


class SQLiteTable(_FileTarget, SqlTarget):
    """A table in a SQLite file."""

    schemes: ClassVar[tuple[str, ...]] = ("sqlite",)
    has_schemas: ClassVar[bool] = False
    _placeholder: ClassVar[str] = "?"
    _remedy: ClassVar[str] = (
        "Check the path; an absolute one has four slashes: sqlite:////data/a.db"
    )

    def _engine(self) -> sa.Engine:
        import sqlite3

        import sqlalchemy as sa
        import sqlalchemy.pool

        def connect() -> sqlite3.Connection:
            # No implicit transactions: tables are created inside ours.
            return sqlite3.connect(self.path, isolation_level=None)

        return sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.NullPool)

    def _errors(self) -> tuple[type[Exception], ...]:
        import sqlite3

        import sqlalchemy.exc

        return (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError)

    def _execute(self, connection: sa.Connection, creation: CreateTable) -> None:
        # SQLite has no comments on tables, but keeps the statement as it was written.
        text = str(creation.compile(dialect=connection.dialect)).rstrip().removesuffix(")")
        connection.exec_driver_sql(f"{text} /* {MARK} */)")

    def _begin(self, connection: sa.Connection) -> None:
        # Otherwise the rename fails if a view refers to the table that was dropped for it.
        connection.exec_driver_sql("PRAGMA legacy_alter_table = ON")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _find_existing(self, connection: sa.Connection) -> Existing | None:
        import sqlalchemy as sa

        place = {"name": self.name}
        row = connection.execute(
            sa.text("SELECT name, type, sql FROM sqlite_master WHERE lower(name) = lower(:name)"),
            place,
        ).first()
        if row is None:
            return None
        virtual = str(row[2]).upper().startswith("CREATE VIRTUAL")
        needed = connection.execute(
            sa.text(
                "SELECT DISTINCT m.name FROM sqlite_master m "
                "JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' "
                'AND lower(f."table") = lower(:name) AND lower(m.name) <> lower(:name) ORDER BY 1'
            ),
            place,
        ).scalars()
        return Existing("virtual table" if virtual else row[1], row[0], tuple(needed))


class DuckDBTable(_FileTarget):
    """A table in a DuckDB file, written by DuckDB itself."""

    schemes: ClassVar[tuple[str, ...]] = ("duckdb",)

    def _errors(self) -> tuple[type[Exception], ...]:
        import duckdb

        return (duckdb.Error,)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import duckdb

        try:
            connection = duckdb.connect(str(self.path))
        except duckdb.Error as error:
            remedy = "Check the path, and that no other program has the file open."
            raise self._open_error(error, remedy) from None
        try:
            with self._reporting():
                connection.execute("BEGIN")
                yield connection
        finally:
            # Rolls back what was not committed.
            connection.close()

    def _check(self, overwrite: bool) -> None:
        with self._connected() as connection:
            self._check_existing(self._find_existing(connection), overwrite)
            connection.execute(f"CREATE TABLE {self._quoted(self._partial)} (x INTEGER)")
            connection.execute("ROLLBACK")

    def _write(self, data: Any, overwrite: bool) -> None:
        with self._connected() as connection:
            found = self._find_existing(connection)
            self._check_existing(found, overwrite)
            connection.register(self._partial, data)
            new = "TABLE" if found is None else "OR REPLACE TABLE"
            place = self._quoted(self.name)
            connection.execute(f"CREATE {new} {place} AS SELECT * FROM {quoted(self._partial)}")
            connection.execute(f"COMMENT ON TABLE {place} IS '{MARK}'")
            connection.execute("COMMIT")

    def _quoted(self, name: str) -> str:
        return quoted(name) if self.schema is None else f"{quoted(self.schema)}.{quoted(name)}"

    def _find_existing(self, connection: Any) -> Existing | None:
        def ask(query: str, *values: str) -> list[Any]:
            query = f"{query} database_name = current_database()"
            return list(connection.execute(query, values).fetchall())

        schema = self.schema or "main"
        schemas = [r[0] for r in ask("SELECT schema_name FROM duckdb_schemas() WHERE")]
        if schema.lower() not in map(str.lower, schemas):
            raise no_schema(schema, sorted(schemas))
        where = "lower(schema_name) = lower(?) AND lower({}) = lower(?) AND"
        for kind in ("table", "view"):
            column = where.format(f"{kind}_name")
            query = f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE {column}"
            for (name,) in ask(query, schema, self.name):
                column = where.format("referenced_table")
                query = f"SELECT DISTINCT table_name FROM duckdb_constraints() WHERE {column}"
                needed = [t for (t,) in ask(query, schema, self.name) if t != name]
                return Existing(kind, name, tuple(sorted(needed)))
        return None
