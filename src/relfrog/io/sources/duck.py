"""DuckDB files, and reading with DuckDB in general."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from relfrog.errors import SourceError
from relfrog.io.marks import MARK
from relfrog.io.sources.base import (
    BATCH_ROWS,
    VIEW,
    Kind,
    Source,
    SourceColumn,
    SourceKey,
    SourceTable,
    fix_keys,
    readable_columns,
)
from relfrog.support.duckdb import quoted
from relfrog.support.files import maybe_path, user_path


def arrow_batches(connection: Any, query: str, rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Stream the result of a query as Arrow batches."""
    result = connection.sql(query)
    # DuckDB renamed this method in version 2.
    reader = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
    yield from reader(rows)


_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


def duckdb_kind(declared: str) -> Kind:
    """The kind of a column with this DuckDB type."""
    name = declared.upper()
    if name.endswith("]"):
        inner = duckdb_kind(declared[: declared.rindex("[")])
        return "other" if inner in ("blob", "other", "list") else "list"
    if name in _INTEGERS:
        return "integer"
    if name in ("HUGEINT", "UHUGEINT", "UBIGINT", "BIGNUM", "VARINT"):
        return "decimal"
    if match := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name):
        precision, scale = int(match[1]), int(match[2])
        return "number" if scale else "integer" if precision <= 18 else "decimal"
    if name in ("FLOAT", "DOUBLE", "REAL"):
        return "number"
    if name == "BOOLEAN":
        return "boolean"
    if name == "DATE" or name.startswith("TIMESTAMP"):
        return "time"
    if name.startswith("TIME") or name == "INTERVAL":
        return "seconds"
    if name in ("VARCHAR", "UUID", "JSON") or name.startswith("ENUM"):
        return "text"
    return "blob" if name in ("BLOB", "BIT") else "other"


def _expression(column: SourceColumn) -> str:
    """A SELECT expression for a column in the representation of its kind."""
    name = quoted(column.name)
    if column.kind == "integer":
        return f"CAST({name} AS BIGINT)"
    if column.kind == "number":
        return f"CAST({name} AS DOUBLE)"
    if column.kind == "seconds":
        # epoch() does not take TIME WITH TIME ZONE.
        name = f"CAST({name} AS TIME)" if column.declared.upper().startswith("TIME ") else name
        return f"CAST(epoch({name}) AS DOUBLE)"
    if column.kind == "time" and column.declared.upper() == "DATE":
        return f"CAST({name} AS TIMESTAMP)"
    if column.kind == "list":
        return f"CAST({name} AS VARCHAR[])"
    if column.kind in ("text", "decimal"):
        return f"CAST({name} AS VARCHAR)"
    if column.kind == "hex":
        return f"lower(hex({name}))"
    return name


def read_relation(connection: Any, table: SourceTable, relation: str) -> Iterator[Any]:
    """Stream the rows of a relation that has the columns of ``table``."""
    import duckdb

    columns = readable_columns(table)
    if not columns:
        yield from arrow_batches(connection, f"SELECT 1 AS no_column FROM {relation}")
        return
    wanted = ", ".join(f"{_expression(c)} AS {quoted(c.name)}" for c in columns)
    try:
        yield from arrow_batches(connection, f"SELECT {wanted} FROM {relation}")
    except duckdb.Error as error:
        raise SourceError(f"table {table.name} cannot be read: {error}") from None


def memory_connection() -> Any:
    """An in-memory DuckDB, for reading files."""
    import duckdb

    return _configured(duckdb.connect())


def _configured(connection: Any) -> Any:
    """Set UTC, and one thread: only then does streaming keep the order of rows."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    return connection


class DuckDBFile(Source):
    """A DuckDB database file, opened with ``read_only``."""

    what: ClassVar[str] = "a DuckDB database"

    @classmethod
    def accepts(cls, address: str) -> bool:
        """``duckdb:///file``, or a file that starts as DuckDB files do."""
        return address.startswith("duckdb:") or has_magic(address, b"DUCK", 8)

    def __init__(self, address: str, schemas: tuple[str, ...]) -> None:
        import duckdb

        is_url = address.startswith("duckdb:")
        place = address.removeprefix("duckdb://").removeprefix("/") if is_url else address
        path = user_path(place, SourceError)
        if not path.is_file():
            raise SourceError(
                f"there is no DuckDB file at {path}. An absolute path has four slashes: "
                "duckdb:////data/shop.duckdb"
            )
        self.label = f"duckdb:///{path}"
        self.schemas = schemas
        try:
            # A view could read any file or address, and load extensions: only the file is read.
            self._connection = _configured(
                duckdb.connect(
                    str(path), read_only=True, config={"enable_external_access": "false"}
                )
            )
        except duckdb.Error as error:
            raise SourceError(f"{path} cannot be opened: {error}") from None

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """Tables from DuckDB's catalogue."""
        rows = self._relations()
        present = {schema for schema, _, _ in rows}
        wanted = self._wanted(present)
        for schema in self.schemas:
            if schema not in present:
                raise SourceError(
                    f"there is no table in schema {schema}. Schemas with tables: "
                    f"{', '.join(sorted(present)) or 'none'}"
                )
        tables = []
        for schema, local, is_view in rows:
            name = f"{schema}.{local}" if len(wanted) > 1 else local
            if schema in wanted and (not is_view or name in also):
                table = self._table(schema, local, name, len(wanted) > 1)
                tables.append(replace(table, notes=[VIEW]) if is_view else table)
        return fix_keys(tables)

    def views(self) -> list[str]:
        """The names of all views."""
        rows = self._relations()
        wanted = self._wanted({schema for schema, _, _ in rows})
        return sorted(
            f"{schema}.{local}" if len(wanted) > 1 else local
            for schema, local, is_view in rows
            if is_view and schema in wanted
        )

    def _wanted(self, present: set[str]) -> tuple[str, ...]:
        """The schemas to read: those named, else the default one, else all there are."""
        if self.schemas or "main" in present:
            return self.schemas or ("main",)
        return tuple(sorted(present))

    def _relations(self) -> list[tuple[str, str, bool]]:
        """All tables and views: schema, name, and whether it is a view."""
        found: list[tuple[str, str, bool]] = self._connection.execute(
            "SELECT schema_name, table_name, false FROM duckdb_tables() "
            "WHERE NOT internal AND NOT temporary AND database_name = current_database() UNION ALL "
            "SELECT schema_name, view_name, true FROM duckdb_views() "
            "WHERE NOT internal AND database_name = current_database() ORDER BY ALL"
        ).fetchall()
        return found

    def _table(self, schema: str, local: str, name: str, prefixed: bool) -> SourceTable:
        columns = self._connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? "
            "AND table_name = ? AND database_name = current_database() ORDER BY column_index",
            [schema, local],
        ).fetchall()
        primary: tuple[str, ...] = ()
        foreign = []
        for kind, names, parent, parent_names in self._connection.execute(
            "SELECT constraint_type, constraint_column_names, referenced_table, "
            "referenced_column_names FROM duckdb_constraints() WHERE schema_name = ? "
            "AND table_name = ? AND database_name = current_database() ORDER BY constraint_index",
            [schema, local],
        ).fetchall():
            if kind == "PRIMARY KEY":
                primary = tuple(names)
            elif kind == "FOREIGN KEY":
                parent = f"{schema}.{parent}" if prefixed else parent
                foreign.append(SourceKey(tuple(names), parent, tuple(parent_names)))
        return SourceTable(
            name=name,
            columns=tuple(SourceColumn(n, duckdb_kind(t), t) for n, t in columns),
            primary_key=primary,
            foreign_keys=tuple(foreign),
            schema=schema,
            local_name=local,
        )

    def is_marked(self, table: SourceTable) -> bool:
        """Whether the table's comment says so."""
        found = self._connection.execute(
            "SELECT comment FROM duckdb_tables() WHERE schema_name = ? AND table_name = ? "
            "AND database_name = current_database()",
            [table.schema or "main", table.local_name],
        ).fetchone()
        return found is not None and found[0] == MARK

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream the table."""
        relation = f"{quoted(table.schema or 'main')}.{quoted(table.local_name)}"
        try:
            yield from read_relation(self._connection.cursor(), table, relation)
        except SourceError as error:
            if "disabled by configuration" not in str(error):
                raise
            raise SourceError(
                f"view {table.name} reads files or addresses outside the database, which an import "
                f"does not. Make a table of it: CREATE TABLE ... AS SELECT * FROM {table.name}"
            ) from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def has_magic(address: str, magic: bytes, offset: int = 0) -> bool:
    """Whether there is a file with these magic bytes."""
    path = maybe_path(address)
    if path is None:
        return False
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(len(magic)) == magic
    except (OSError, ValueError):
        return False
