"""Read PostgreSQL through ``COPY``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from relfrog.errors import SourceError
from relfrog.io.sources.base import Kind, ReadAgain, SourceColumn, SourceTable, readable_columns
from relfrog.io.sources.sql import SqlDatabase

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["PostgreSQL"]


class PostgreSQL(SqlDatabase):
    """PostgreSQL, read through ``COPY`` in a session that the server keeps read-only."""

    what: ClassVar[str] = "a PostgreSQL database"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")

    def _open(self, address: str) -> sa.Engine:
        import sqlalchemy as sa

        url = sa.make_url(address.replace("postgres://", "postgresql://", 1))
        url = url.set(drivername="postgresql+psycopg")
        # The same order of rows at every import, all times in UTC, and read-only.
        options = (
            "-c default_transaction_read_only=on -c TimeZone=UTC -c DateStyle=ISO "
            "-c synchronize_seqscans=off -c max_parallel_workers_per_gather=0 "
            "-c extra_float_digits=1 -c bytea_output=hex"
        )
        theirs = url.query.get("options", "")
        url = url.difference_update_query(["options"])
        options = f"{theirs if isinstance(theirs, str) else ' '.join(theirs)} {options}".strip()
        return sa.create_engine(
            url,
            isolation_level="REPEATABLE READ",
            connect_args={"options": options, "client_encoding": "utf8"},
        )

    def _default_schemas(self) -> tuple[str, ...]:
        """All schemas with tables or views, where the default one has none."""
        if self._table_names(None) or self._view_names(None):
            return ()
        others = [n for n in self._inspector.get_schema_names() if n != "information_schema"]
        return tuple(n for n in others if self._table_names(n) or self._view_names(n))

    def _table_names(self, schema: str | None) -> Sequence[str]:
        """Table names without partitions, whose rows are part of the partitioned table."""
        import sqlalchemy as sa

        parts = self._connection.execute(
            sa.text(
                "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.relispartition AND n.nspname = coalesce(:schema, current_schema())"
            ),
            {"schema": schema},
        ).scalars()
        hidden = set(parts)
        return [n for n in self._inspector.get_table_names(schema) if n not in hidden]

    def _view_names(self, schema: str | None) -> Sequence[str]:
        stored = self._inspector.get_materialized_view_names(schema)
        return [*super()._view_names(schema), *stored]

    def _expression(self, expression: Any, column: SourceColumn) -> Any:
        import sqlalchemy as sa

        if column.kind == "seconds":
            return sa.extract("epoch", expression)
        if column.kind == "list":
            return sa.func.array_to_json(expression)
        if column.kind == "hex":
            return sa.func.encode(expression, sa.literal_column("'hex'"))
        if column.declared.upper() == "MONEY":
            return sa.cast(expression, sa.Numeric)
        return expression

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream ``COPY ... TO STDOUT`` through Arrow's CSV reader."""
        import psycopg
        import pyarrow as pa
        import pyarrow.csv as pc
        from sqlalchemy.dialects import postgresql

        columns = readable_columns(table)
        # With the style "named", a percent sign in a name is not doubled; COPY has no parameters.
        dialect: Any = postgresql.dialect
        dialect = dialect(paramstyle="named")
        select = str(self._select(table, columns).compile(dialect=dialect))
        types = {c.name: _COPY_TYPES[c.kind] for c in columns} or {"no_column": "int64"}
        names = list(types)
        try:
            driver: Any = self._connection.connection.driver_connection
            statement = f"COPY ({select}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                chunks = iter(copy)
                first = next(chunks, b"")
                if not first:
                    return
                reader = pc.open_csv(
                    pa.PythonFile(_Chunks(bytes(first), chunks), mode="r"),
                    read_options=pc.ReadOptions(
                        # Positions: Arrow needs distinct names.
                        column_names=[str(i) for i in range(len(names))],
                        block_size=1 << 24,
                    ),
                    parse_options=pc.ParseOptions(newlines_in_values=True),
                    convert_options=pc.ConvertOptions(
                        column_types={str(i): types[n] for i, n in enumerate(names)},
                        null_values=[""],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                        true_values=["t", "1"],
                        false_values=["f", "0"],
                    ),
                )
                for batch in reader:
                    yield batch.rename_columns(names)
        except (psycopg.Error, pa.ArrowException) as error:
            odd = re.search(r"In CSV column #(\d+): CSV conversion error", str(error))
            if odd is not None and columns[int(odd[1])].kind in _TYPED:
                # NaN in an integer column, for example: read the column as text.
                raise ReadAgain(table.with_kind(columns[int(odd[1])].name, "decimal")) from None
            raise SourceError(
                f"table {table.name} cannot be read: {self._error_text(error)}. "
                f"Leave it out with --exclude {table.name}"
            ) from None


#: COPY writes text. Numbers are parsed here, everything else in the staging database.
_COPY_TYPES: dict[Kind, str] = {
    "integer": "int64",
    "number": "float64",
    "seconds": "float64",
    "boolean": "bool",
    "decimal": "string",
    "time": "string",
    "text": "string",
    "untyped": "string",
    "list": "string",
    "hex": "string",
}


_TYPED = ("integer", "number", "seconds", "boolean")


class _Chunks:
    """A file object over the chunks that COPY sends."""

    def __init__(self, first: bytes, chunks: Iterator[Any]) -> None:
        self._chunks = chunks
        self._buffer = [first]
        self._size = len(first)
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        while size < 0 or self._size < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._buffer.append(bytes(chunk))
            self._size += len(chunk)
        whole = b"".join(self._buffer)
        out = whole if size < 0 else whole[:size]
        self._buffer = [whole[len(out) :]]
        self._size = len(self._buffer[0])
        return out

    def close(self) -> None:
        self.closed = True
