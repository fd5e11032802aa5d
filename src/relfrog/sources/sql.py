"""SQL databases reflected by SQLAlchemy: PostgreSQL, MySQL and MariaDB, SQLite.

Each is read inside one read-only transaction, so all tables belong to the same moment. Identifiers
are quoted by SQLAlchemy; no name is ever pasted into a statement.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from relfrog.errors import SourceError
from relfrog.sources.base import (
    BATCH_ROWS,
    Kind,
    ReadAgain,
    Source,
    SourceColumn,
    SourceKey,
    SourceTable,
    hide_password,
    readable,
    scrub,
    secrets_in,
    settled,
)
from relfrog.sources.duck import has_mark
from relfrog.sources.rows import column_array, fitted

if TYPE_CHECKING:
    import sqlalchemy as sa


def sql_kind(declared: Any) -> Kind:
    """The kind of a type that SQLAlchemy reflected."""
    import sqlalchemy.types as t

    name = type(declared).__name__.upper()
    if name == "DOMAIN":
        return sql_kind(declared.data_type)
    if name == "TINYINT" and getattr(declared, "display_width", None) == 1:
        return "boolean"
    if name == "BIT":
        return "boolean" if getattr(declared, "length", None) in (None, 1) else "blob"
    if name == "YEAR":
        return "integer"
    if isinstance(declared, t.Boolean):
        return "boolean"
    if isinstance(declared, t.Integer):
        wide = name == "BIGINT" and getattr(declared, "unsigned", False)
        return "decimal" if wide else "integer"
    if isinstance(declared, t.Float):
        return "number"
    if isinstance(declared, t.Numeric) or name == "MONEY":
        if getattr(declared, "scale", None) == 0 and declared.precision is not None:
            return "integer" if declared.precision <= 18 else "decimal"
        # A numeric of unknown scale may be a key: it stays exact until its values are seen.
        return "number" if getattr(declared, "scale", None) else "decimal"
    if isinstance(declared, t.Date | t.DateTime):
        return "time"
    if isinstance(declared, t.Interval | t.Time) or name == "INTERVAL":
        return "seconds"
    if isinstance(declared, t.ARRAY):
        inner = sql_kind(declared.item_type)
        return "other" if inner in ("blob", "other") else "list"
    if isinstance(declared, t.LargeBinary | t._Binary):
        return "blob"
    if isinstance(declared, t.String | t.Uuid | t.JSON) or name in ("INET", "CIDR", "MACADDR"):
        return "text"
    return "other"


class _Database(Source):
    """What the three databases share: reflection, and errors without passwords."""

    schemes: ClassVar[tuple[str, ...]]

    @classmethod
    def accepts(cls, address: str) -> bool:
        """By the scheme of the URL; a driver after ``+`` is replaced by ours."""
        scheme = address.split(":", 1)[0] if "://" in address else ""
        return scheme.split("+")[0].lower() in cls.schemes

    def __init__(self, address: str, schemas: tuple[str, ...]) -> None:
        import sqlalchemy as sa
        import sqlalchemy.exc

        self.label = hide_password(address)
        self.secrets = secrets_in(address)
        scheme, mark, rest = address.partition("://")
        address = f"{scheme.lower()}{mark}{rest}"
        self.schemas = schemas
        self._prefixed = len(schemas) > 1
        try:
            self._engine = self._open(address)
            self._connection = self._engine.connect()
            self._begin()
            self._inspector = sa.inspect(self._connection)
        except (sa.exc.SQLAlchemyError, OSError, TypeError, ValueError) as error:
            raise SourceError(
                f"{self.label} cannot be opened: {self._plain(error)}. "
                "Check host, port, user, password and database name."
            ) from None

    def _open(self, address: str) -> sa.Engine:
        """The engine, set up so that the server or driver refuses to write."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Begin the one read-only transaction."""

    def _plain(self, error: BaseException) -> str:
        """The database's own first line of an error, without secrets."""
        original = getattr(error, "orig", None) or error
        text = str(original.args[-1] if getattr(original, "args", None) else original)
        return scrub(" ".join(text.split("\n")[0].split()), self.secrets)

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """Tables with their declared keys, in the order of their names."""
        import sqlalchemy.exc

        tables = []
        for schema in self.schemas or (None,):
            try:
                names = list(self._table_names(schema))
                names += [v for v in self._view_names(schema) if v in also]
            except sqlalchemy.exc.SQLAlchemyError as error:
                raise SourceError(f"{self.label}: {self._plain(error)}") from None
            if schema is not None and not names:
                present = ", ".join(sorted(self._inspector.get_schema_names()))
                raise SourceError(f"there is no table in schema {schema}; schemas: {present}")
            tables += [self._table(schema, name) for name in sorted(names)]
        return settled(tables)

    def _table_names(self, schema: str | None) -> Sequence[str]:
        return self._inspector.get_table_names(schema)

    def _view_names(self, schema: str | None) -> Sequence[str]:
        return self._inspector.get_view_names(schema)

    def _table(self, schema: str | None, local: str) -> SourceTable:
        import sqlalchemy.exc

        try:
            with warnings.catch_warnings():
                # An unknown type is our case "other", not a reason to warn.
                warnings.simplefilter("ignore", sqlalchemy.exc.SAWarning)
                columns = self._inspector.get_columns(local, schema)
                primary = self._inspector.get_pk_constraint(local, schema)
                foreign = self._inspector.get_foreign_keys(local, schema)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise SourceError(
                f"table {local} cannot be reflected: {self._plain(error)}. "
                f"Leave it out with --exclude {local}"
            ) from None
        keys = []
        default = self._inspector.default_schema_name
        own = schema or default
        for key in foreign:
            parent = key["referred_table"]
            parent_schema = key["referred_schema"] or default
            if self._prefixed or parent_schema != own:
                # In full, so that a table of another schema is not mistaken for one of ours.
                parent = f"{parent_schema}.{parent}"
            keys.append(
                SourceKey(
                    tuple(key["constrained_columns"]),
                    parent,
                    tuple(c for c in key["referred_columns"] if c is not None),
                )
            )
        return SourceTable(
            name=f"{schema}.{local}" if self._prefixed else local,
            columns=tuple(
                SourceColumn(c["name"], sql_kind(c["type"]), _declared(c["type"])) for c in columns
            ),
            primary_key=tuple(primary["constrained_columns"]) if primary else (),
            # Databases list constraints in no particular order.
            foreign_keys=tuple(sorted(keys, key=lambda k: (k.columns, k.parent))),
            schema=schema,
            local_name=local,
        )

    def _select(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Any:
        """``SELECT`` of the readable columns; a literal where there is none."""
        import sqlalchemy as sa

        relation = sa.table(
            sa.sql.quoted_name(table.local_name, quote=True),
            *(sa.column(sa.sql.quoted_name(c.name, quote=True)) for c in columns),
            schema=sa.sql.quoted_name(table.schema, quote=True) if table.schema else None,
        )
        if not columns:
            return sa.select(sa.literal_column("1").label("no_column")).select_from(relation)
        return sa.select(*(self._expression(relation.c[c.name], c) for c in columns))

    def _expression(self, expression: Any, column: SourceColumn) -> Any:
        import sqlalchemy as sa

        return sa.func.lower(sa.func.hex(expression)) if column.kind == "hex" else expression

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()
        self._engine.dispose()


def _declared(declared: Any) -> str:
    try:
        return str(declared)
    except Exception:  # some types cannot be spelled without a dialect
        return type(declared).__name__


class PostgreSQL(_Database):
    """PostgreSQL, through ``COPY``: the server refuses to write in this session."""

    what: ClassVar[str] = "a PostgreSQL database"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")

    def _open(self, address: str) -> sa.Engine:
        import sqlalchemy as sa

        url = sa.make_url(address.replace("postgres://", "postgresql://", 1))
        url = url.set(drivername="postgresql+psycopg")
        # One order of rows at every import, all times in UTC, and no way to write.
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

    def _table_names(self, schema: str | None) -> Sequence[str]:
        """Without the parts of partitioned tables, whose rows the whole has already."""
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

        columns = readable(table)
        # The named style keeps a percent sign in a name as it is: COPY takes no parameters.
        dialect: Any = postgresql.dialect
        dialect = dialect(paramstyle="named")
        select = str(self._select(table, columns).compile(dialect=dialect))
        types = {c.name: _COPY_TYPES[c.kind] for c in columns} or {"no_column": "int64"}
        names = list(types)
        try:
            driver: Any = self._connection.connection.driver_connection
            statement = f"COPY ({select}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                pieces = iter(copy)
                first = next(pieces, b"")
                if not first:
                    return
                reader = pc.open_csv(
                    pa.PythonFile(_Chunks(bytes(first), pieces), mode="r"),
                    read_options=pc.ReadOptions(
                        # Positions, not names: Arrow wants them distinct and so do we.
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
                # NaN in a whole number, say: the text will tell.
                raise ReadAgain(table.with_kind(columns[int(odd[1])].name, "decimal")) from None
            raise SourceError(
                f"table {table.name} cannot be read: {self._plain(error)}. "
                f"Leave it out with --exclude {table.name}"
            ) from None


#: COPY writes text; numbers are parsed at once, the rest when it is staged.
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
    """A readable file over the pieces that COPY sends."""

    def __init__(self, first: bytes, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._kept = [first]
        self._size = len(first)
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        while size < 0 or self._size < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._kept.append(bytes(piece))
            self._size += len(piece)
        whole = b"".join(self._kept)
        out = whole if size < 0 else whole[:size]
        self._kept = [whole[len(out) :]]
        self._size = len(self._kept[0])
        return out

    def close(self) -> None:
        self.closed = True


class _Rows(_Database):
    """A database whose driver hands over rows of Python values."""

    def _rows(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Iterator[Any]:
        raise NotImplementedError

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Turn the driver's rows into Arrow, column by column."""
        import pyarrow as pa

        columns = readable(table)
        names = [c.name for c in columns] or ["no_column"]
        try:
            for rows in self._rows(table, columns):
                values = list(zip(*rows, strict=True))
                arrays = [column_array(v, c, table) for v, c in zip(values, columns, strict=False)]
                yield pa.RecordBatch.from_arrays(arrays or [pa.array(values[0])], names=names)
        except self._driver_errors() as error:
            raise SourceError(
                f"table {table.name} cannot be read: {self._plain(error)}. "
                f"Leave it out with --exclude {table.name}"
            ) from None

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import sqlalchemy.exc

        return (sqlalchemy.exc.SQLAlchemyError,)


class MySQL(_Rows):
    """MySQL or MariaDB: the transaction is declared read-only at the server."""

    what: ClassVar[str] = "a MySQL or MariaDB database"
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def _open(self, address: str) -> sa.Engine:
        import sqlalchemy as sa

        url = sa.make_url(address).set(drivername="mysql+pymysql")
        if not url.database and not self.schemas:
            raise SourceError(f"{self.label} names no database. Add it: mysql://user@host/NAME")
        return sa.create_engine(
            url,
            connect_args={
                "charset": "utf8mb4",
                "init_command": "SET SESSION TRANSACTION "
                "ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            },
        )

    def _begin(self) -> None:
        # TIMESTAMP columns are converted to the session's zone by the server.
        self._connection.exec_driver_sql("SET time_zone = '+00:00'")

    def _rows(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Iterator[Any]:
        streaming = self._connection.execution_options(stream_results=True, yield_per=BATCH_ROWS)
        yield from streaming.execute(self._select(table, columns)).partitions(BATCH_ROWS)


class SQLite(_Rows):
    """A SQLite file, opened with ``mode=ro``."""

    what: ClassVar[str] = "a SQLite database"
    schemes: ClassVar[tuple[str, ...]] = ("sqlite",)

    @classmethod
    def accepts(cls, address: str) -> bool:
        """``sqlite:///file``, or a file that carries SQLite's mark."""
        return super().accepts(address) or has_mark(address, b"SQLite format 3\x00")

    def _open(self, address: str) -> sa.Engine:
        import sqlalchemy as sa

        path = Path(address)
        if address.lower().startswith("sqlite"):
            tail = re.sub(r"^sqlite(\+\w+)?://", "", address, flags=re.I).removeprefix("/")
            path = Path(tail if Path(tail).exists() else unquote(tail))
        path = path.expanduser()
        if not path.is_file():
            raise SourceError(
                f"there is no SQLite file at {path}. An absolute path has four slashes: "
                "sqlite:////data/shop.db"
            )
        self.label = f"sqlite:///{path}"
        # mode=ro: SQLite itself refuses to write, and never creates a missing file.
        self._place = f"file:{quote(str(path.absolute()))}?mode=ro"
        return sa.create_engine(f"sqlite:///{self._place}&uri=true")

    def _begin(self) -> None:
        # One snapshot for all tables; also finds out whether the file is a database at all.
        self._connection.exec_driver_sql("BEGIN")
        self._connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
        self._arrow: Any = None
        self._by_row: set[str] = set()

    def _table_names(self, schema: str | None) -> Sequence[str]:
        """Without the tables in which full-text search keeps its index."""
        listed = self._connection.exec_driver_sql("PRAGMA table_list").fetchall()
        hidden = {row[1] for row in listed if row[2] == "shadow"}
        return [n for n in self._inspector.get_table_names(schema) if n not in hidden]

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import sqlite3

        return (*super()._driver_errors(), sqlite3.Error)

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """As reflected; but SQLite's types are hints, so the narrowest kind is tried first."""
        hints: dict[Kind, Kind] = {"decimal": "integer", "other": "integer", "time": "integer"}
        tables = []
        for table in super().tables(also):
            if self._connection.execute(self._select(table, []).limit(1)).first() is not None:
                columns = (replace(c, kind=hints.get(c.kind, c.kind)) for c in table.columns)
                table = replace(table, columns=tuple(columns))
            tables.append(table)
        return tables

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream Arrow batches that the driver makes itself, four times as fast as by rows.

        It finds a column's type in the first batch; where a later one differs, the table is read
        again row by row, which takes anything.
        """
        import adbc_driver_sqlite.dbapi as adbc

        if table.name in self._by_row:
            yield from super().read(table)
            return
        columns = readable(table)
        select = str(self._select(table, columns).compile(dialect=self._engine.dialect))
        try:
            if self._arrow is None:
                self._arrow = adbc.connect(self._place)
            with self._arrow.cursor() as cursor:
                cursor.adbc_statement.set_options(
                    **{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}
                )
                cursor.execute(select)
                for batch in cursor.fetch_record_batch():
                    yield fitted(batch, columns, table)
        except (adbc.Error, OSError, ValueError):
            # A type that changes, text that is not UTF-8, a date the driver stumbles over.
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
            # SQLite lets any bytes stand as TEXT; decoding must not stop at them.
            if "decode" not in str(error) or _NOT_UTF8 in table.notes:
                raise
            raise ReadAgain(replace(table, notes=[*table.notes, _NOT_UTF8])) from None


_NOT_UTF8 = "text that is not UTF-8 was read with replacement characters"


def _lenient(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
