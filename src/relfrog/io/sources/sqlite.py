"""Read SQLite files: as Arrow batches, or row by row where a column mixes types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from relfrog.errors import SourceError
from relfrog.io.marks import MARK
from relfrog.io.sources.base import (
    BATCH_ROWS,
    Kind,
    ReadAgain,
    SourceColumn,
    SourceTable,
    readable_columns,
)
from relfrog.io.sources.duck import has_magic
from relfrog.io.sources.rows import cast_batch, change_kind
from relfrog.io.sources.sql import RowDatabase
from relfrog.support.files import maybe_path, user_path

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["SQLite"]


class SQLite(RowDatabase):
    """A SQLite file, opened with ``mode=ro``."""

    what: ClassVar[str] = "a SQLite database"
    schemes: ClassVar[tuple[str, ...]] = ("sqlite",)
    _remedy: ClassVar[str] = "Check that the path is that of a SQLite database."

    @classmethod
    def accepts(cls, address: str) -> bool:
        """``sqlite:///file``, or a file that starts as SQLite files do."""
        return super().accepts(address) or has_magic(address, b"SQLite format 3\x00")

    def _open(self, address: str) -> sa.Engine:
        import sqlalchemy as sa

        if address.lower().startswith("sqlite"):
            tail = re.sub(r"^sqlite(\+\w+)?://", "", address, flags=re.I).removeprefix("/")
            path = maybe_path(tail)
            path = (
                path
                if path is not None and path.exists()
                else user_path(unquote(tail), SourceError)
            )
        else:
            path = user_path(address, SourceError)
        if not path.is_file():
            raise SourceError(
                f"there is no SQLite file at {path}. An absolute path has four slashes: "
                "sqlite:////data/shop.db"
            )
        self.label = f"sqlite:///{path}"
        # mode=ro: SQLite itself refuses to write or to create a missing file.
        self._uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        return sa.create_engine(f"sqlite:///{self._uri}&uri=true")

    def _begin(self) -> None:
        # One snapshot for all tables; fails if the file is not a database.
        self._connection.exec_driver_sql("BEGIN")
        self._connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
        self._arrow: Any = None
        self._by_row: set[str] = set()
        self._seen: set[str] = set()

    def _table_names(self, schema: str | None) -> Sequence[str]:
        """Table names without the shadow tables of full-text search."""
        listed = self._connection.exec_driver_sql("PRAGMA table_list").fetchall()
        hidden = {row[1] for row in listed if row[2] == "shadow"}
        return [n for n in self._inspector.get_table_names(schema) if n not in hidden]

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import sqlite3

        return (*super()._driver_errors(), sqlite3.Error)

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """Tables as reflected; the types of undeclared columns are inferred when they are read."""
        return [
            replace(
                t,
                columns=tuple(
                    replace(c, kind="untyped") if c.kind == "other" else c for c in t.columns
                ),
            )
            for t in super().tables(also)
        ]

    def is_marked(self, table: SourceTable) -> bool:
        """Whether the statement that created the table says so."""
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        row = self._connection.exec_driver_sql(query, (table.local_name,)).first()
        return row is not None and f"/* {MARK} */" in str(row[0])

    def _expression(self, expression: Any, column: SourceColumn) -> Any:
        import sqlalchemy as sa

        if column.kind == "number":
            # Otherwise the Arrow driver takes a column that begins with integers for integers.
            return sa.cast(expression, sa.REAL)
        return super()._expression(expression, column)

    def _with_stored_kinds(self, table: SourceTable) -> SourceTable:
        """The table with kinds that fit all values, since SQLite's declared types are only hints.

        A few columns are queried at a time, so that there are few combinations of types.
        """
        import sqlalchemy as sa

        alias = table.primary_key if len(table.primary_key) == 1 else ()
        columns = {
            c.name: c
            for c in readable_columns(table)
            if c.kind != "hex" and not (c.declared == "INTEGER" and c.name in alias)
        }
        names = list(columns)
        for start in range(0, len(names), 4):
            group = names[start : start + 4]
            as_text = [replace(columns[n], kind="text") for n in group]
            relation = self._select(table, as_text).subquery()
            types = sa.select(*(sa.func.typeof(c) for c in relation.c)).distinct()
            try:
                found = list(zip(*self._connection.execute(types).fetchall(), strict=True))
            except self._driver_errors() as error:  # a damaged page
                text = self._error_text(error)
                raise SourceError(f"table {table.name} cannot be read: {text}") from None
            for name, seen in zip(group, found, strict=False):
                kind, by_row = _stored_kind(set(seen) - {"null"}, columns[name].kind)
                if by_row:
                    self._by_row.add(table.name)
                if kind != columns[name].kind:
                    table = change_kind(table, columns[name], kind)
        return table

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream Arrow batches from the driver, four times as fast as row by row.

        Tables with a column of mixed types are read row by row.
        """
        import adbc_driver_sqlite.dbapi as adbc

        if table.name not in self._seen:
            self._seen.add(table.name)
            raise ReadAgain(self._with_stored_kinds(table))
        if table.name in self._by_row:
            yield from super().read(table)
            return
        columns = readable_columns(table)
        select = str(self._select(table, columns).compile(dialect=self._engine.dialect))
        try:
            if self._arrow is None:
                self._arrow = adbc.connect(self._uri)
            with self._arrow.cursor() as cursor:
                cursor.adbc_statement.set_options(
                    **{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}
                )
                cursor.execute(select)
                for batch in cursor.fetch_record_batch():
                    yield cast_batch(batch, columns, table)
        except (adbc.Error, OSError, ValueError):
            # Text that is not UTF-8, or something else that the driver cannot read.
            self._by_row.add(table.name)
            raise ReadAgain(table) from None

    def close(self) -> None:
        """Close both connections."""
        if self._arrow is not None:
            self._arrow.close()
        super().close()

    def _rows(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Iterator[Any]:
        import sqlite3

        select = str(self._select(table, columns).compile(dialect=self._engine.dialect))
        driver: Any = self._connection.connection.driver_connection
        driver.text_factory = _lenient if _NOT_UTF8 in table.notes else str
        cursor = driver.cursor()
        try:
            cursor.execute(select)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield rows
        except sqlite3.OperationalError as error:
            # SQLite stores any bytes as TEXT.
            if "decode" not in str(error) or _NOT_UTF8 in table.notes:
                raise
            raise ReadAgain(replace(table, notes=[*table.notes, _NOT_UTF8])) from None


def _stored_kind(seen: set[str], declared: Kind) -> tuple[Kind, bool]:
    """The kind for these storage classes, and whether to read the table row by row."""
    if not seen:
        return ("number" if declared == "decimal" else declared), False
    if "blob" in seen:
        return "blob", False
    if seen == {"text"}:
        return (declared, declared == "seconds") if declared in _TEXTUAL else ("untyped", False)
    if "text" in seen:
        return "untyped", True
    if "real" in seen:
        return "number", False
    return (declared if declared in ("boolean", "number") else "integer"), False


_TEXTUAL = ("text", "untyped", "seconds")

_NOT_UTF8 = "text that is not UTF-8 was read with replacement characters"


def _lenient(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
