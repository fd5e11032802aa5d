"""SQL databases through SQLAlchemy: reflection of the schema, and errors without passwords.

A database is read in one read-only transaction, so all tables are of the same moment. SQLAlchemy
quotes identifiers; no name is ever pasted into a statement.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from relfrog.errors import SourceError
from relfrog.io.marks import MARK
from relfrog.io.secrets import hide_password, scrub, secrets_in
from relfrog.io.sources.base import (
    VIEW,
    Kind,
    Source,
    SourceColumn,
    SourceKey,
    SourceTable,
    fix_keys,
    readable_columns,
)
from relfrog.io.sources.rows import column_array

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["RowDatabase", "SqlDatabase", "error_text", "sql_kind"]


def error_text(error: BaseException, secrets: Sequence[str]) -> str:
    """The first line of the database's own error message, without secrets."""
    original = getattr(error, "orig", None) or error
    text = str(original.args[-1] if getattr(original, "args", None) else original)
    return scrub(" ".join(text.split("\n")[0].split()), secrets)


def sql_kind(declared: Any) -> Kind:
    """The kind of a column with this SQLAlchemy type."""
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
        # A numeric of unknown scale may be a key: keep it exact until its values are known.
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


class SqlDatabase(Source):
    """A database that SQLAlchemy can reflect."""

    schemes: ClassVar[tuple[str, ...]]
    _remedy: ClassVar[str] = "Check host, port, user, password and database name."

    @classmethod
    def accepts(cls, address: str) -> bool:
        """Whether the scheme of the URL is known; a driver after ``+`` is replaced."""
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
        try:
            self._engine = self._open(address)
            self._connection = self._engine.connect()
            self._begin()
            self._inspector = sa.inspect(self._connection)
            self.schemas = schemas or self._default_schemas()
        except (sa.exc.SQLAlchemyError, OSError, TypeError, ValueError) as error:
            raise SourceError(
                f"{self.label} cannot be opened: {self._error_text(error)}. {self._remedy}"
            ) from None
        self._prefixed = len(self.schemas) > 1

    def _default_schemas(self) -> tuple[str, ...]:
        """The schemas to read if none is named; the connection's own if empty."""
        return ()

    @abstractmethod
    def _open(self, address: str) -> sa.Engine:
        """Create an engine for which the server or the driver refuses to write."""

    def _begin(self) -> None:
        """Begin the read-only transaction."""

    def _error_text(self, error: BaseException) -> str:
        return error_text(error, self.secrets)

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """Tables with their declared keys, ordered by name."""
        import sqlalchemy.exc

        tables = []
        for schema in self.schemas or (None,):
            try:
                names = list(self._table_names(schema))
                views = [v for v in self._view_names(schema) if self._name(schema, v) in also]
            except sqlalchemy.exc.SQLAlchemyError as error:
                raise SourceError(f"{self.label}: {self._error_text(error)}") from None
            if schema is not None and not names + views:
                present = ", ".join(sorted(self._inspector.get_schema_names()))
                raise SourceError(f"there is no table in schema {schema}. Schemas: {present}")
            tables += [self._table(schema, name) for name in sorted(names)]
            tables += [replace(self._table(schema, name), notes=[VIEW]) for name in sorted(views)]
        return fix_keys(tables)

    def views(self) -> list[str]:
        """The names of all views."""
        import sqlalchemy.exc

        try:
            return sorted(
                self._name(schema, view)
                for schema in self.schemas or (None,)
                for view in self._view_names(schema)
            )
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise SourceError(f"{self.label}: {self._error_text(error)}") from None

    def _name(self, schema: str | None, local: str) -> str:
        return f"{schema}.{local}" if self._prefixed else local

    def _table_names(self, schema: str | None) -> Sequence[str]:
        return self._inspector.get_table_names(schema)

    def _view_names(self, schema: str | None) -> Sequence[str]:
        return self._inspector.get_view_names(schema)

    def _table(self, schema: str | None, local: str) -> SourceTable:
        import sqlalchemy.exc

        try:
            with warnings.catch_warnings():
                # Unknown types become "other"; no warning is needed.
                warnings.simplefilter("ignore", sqlalchemy.exc.SAWarning)
                columns = self._inspector.get_columns(local, schema)
                primary = self._inspector.get_pk_constraint(local, schema)
                foreign = self._inspector.get_foreign_keys(local, schema)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise SourceError(
                f"table {local} cannot be reflected: {self._error_text(error)}. "
                f"Leave it out with --exclude {local}"
            ) from None
        keys = []
        default = self._inspector.default_schema_name
        own = schema or default
        for key in foreign:
            parent = key["referred_table"]
            parent_schema = key["referred_schema"] or default
            if self._prefixed or parent_schema != own:
                # Qualified, so that a table of another schema is not mistaken for one we read.
                parent = f"{parent_schema}.{parent}"
            keys.append(
                SourceKey(
                    tuple(key["constrained_columns"]),
                    parent,
                    tuple(c for c in key["referred_columns"] if c is not None),
                )
            )
        return SourceTable(
            name=self._name(schema, local),
            columns=tuple(
                SourceColumn(c["name"], sql_kind(c["type"]), _declared(c["type"])) for c in columns
            ),
            primary_key=tuple(primary["constrained_columns"]) if primary else (),
            # Databases list constraints in no fixed order.
            foreign_keys=tuple(sorted(keys, key=lambda k: (k.columns, k.parent))),
            schema=schema,
            local_name=local,
        )

    def is_marked(self, table: SourceTable) -> bool:
        """Whether the table's comment says so."""
        import sqlalchemy.exc

        try:
            found = self._inspector.get_table_comment(table.local_name, table.schema)
        except (NotImplementedError, sqlalchemy.exc.SQLAlchemyError):
            return False
        return found["text"] == MARK

    def _select(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Any:
        """``SELECT`` the given columns, or a literal if there are none."""
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
    except Exception:  # some types cannot be rendered without a dialect
        return type(declared).__name__


class RowDatabase(SqlDatabase):
    """A database whose driver returns rows of Python values."""

    @abstractmethod
    def _rows(self, table: SourceTable, columns: Sequence[SourceColumn]) -> Iterator[Any]:
        """Yield the driver's rows in chunks."""

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Convert the driver's rows to Arrow, column by column."""
        import pyarrow as pa

        columns = readable_columns(table)
        names = [c.name for c in columns] or ["no_column"]
        try:
            for rows in self._rows(table, columns):
                values = list(zip(*rows, strict=True))
                arrays = [column_array(v, c, table) for v, c in zip(values, columns, strict=False)]
                yield pa.RecordBatch.from_arrays(arrays or [pa.array(values[0])], names=names)
        except self._driver_errors() as error:
            raise SourceError(
                f"table {table.name} cannot be read: {self._error_text(error)}. "
                f"Leave it out with --exclude {table.name}"
            ) from None

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import sqlalchemy.exc

        return (sqlalchemy.exc.SQLAlchemyError,)
