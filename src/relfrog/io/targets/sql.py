"""Targets that are written through SQLAlchemy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from relfrog.io.marks import MARK
from relfrog.io.targets.base import Existing, Target
from relfrog.io.targets.columns import column_type

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.schema import CreateTable

__all__ = ["SqlTarget"]

#: Rows per INSERT.
_ROWS = 10_000


class SqlTarget(Target):
    """A table that is written through SQLAlchemy."""

    _remedy: ClassVar[str] = "Check host, port, user, password and database name."
    #: The driver's placeholder for a value.
    _placeholder: ClassVar[str]

    @abstractmethod
    def _engine(self) -> sa.Engine:
        """Create the engine, without connecting."""

    def _begin(self, connection: sa.Connection) -> None:
        """Begin the transaction."""

    @abstractmethod
    def _find_existing(self, connection: sa.Connection) -> Existing | None:
        """What already has the name of the table, if anything."""

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        import sqlalchemy.exc

        try:
            engine = self._engine()
            connection = engine.connect()
        except (sqlalchemy.exc.SQLAlchemyError, OSError, TypeError, ValueError) as error:
            raise self._open_error(error, self._remedy) from None
        try:
            with self._reporting():
                self._begin(connection)
                yield connection
        finally:
            # Rolls back what was not committed.
            connection.close()
            engine.dispose()

    def _check(self, overwrite: bool) -> None:
        """Create a table and roll it back."""
        import pyarrow as pa

        with self._connected() as connection:
            self._check_existing(self._find_existing(connection), overwrite)
            try:
                self._create(connection, pa.table({"x": pa.array([], pa.int64())}))
            finally:
                self._undo(connection)

    def _write(self, data: Any, overwrite: bool) -> None:
        """Write in one transaction, where the database supports that."""
        with self._connected() as connection:
            found = self._find_existing(connection)
            self._check_existing(found, overwrite)
            try:
                convert = self._create(connection, data)
                self._insert(connection, len(convert), _rows(data, convert))
                self._put_in_place(connection, found)
                connection.commit()
            except BaseException:
                self._undo(connection)
                raise

    def _create(self, connection: sa.Connection, data: Any) -> list[Callable[[Any], Any] | None]:
        """Create the table; return how to convert the values of each column."""
        import sqlalchemy as sa
        from sqlalchemy.schema import CreateTable

        columns, convert = [], []
        for i, name in enumerate(data.column_names):
            kind, function = column_type(data.column(i), connection.dialect.name)
            columns.append(sa.Column(sa.sql.quoted_name(name, quote=True), kind))
            convert.append(function)
        table = sa.Table(
            sa.sql.quoted_name(self._partial, quote=True),
            sa.MetaData(),
            *columns,
            schema=None if self.schema is None else sa.sql.quoted_name(self.schema, quote=True),
            comment=MARK,
            **self._options(connection),
        )
        self._execute(connection, CreateTable(table))
        return convert

    def _execute(self, connection: sa.Connection, creation: CreateTable) -> None:
        """Create the table with its comment."""
        connection.execute(creation)

    def _options(self, connection: sa.Connection) -> dict[str, Any]:
        return {}

    def _insert(
        self, connection: sa.Connection, width: int, batches: Iterator[list[tuple[Any, ...]]]
    ) -> None:
        # Without column names, which might contain a placeholder.
        marks = ", ".join([self._placeholder] * width)
        place = self._quoted(connection, self._partial)
        for rows in batches:
            connection.exec_driver_sql(f"INSERT INTO {place} VALUES ({marks})", rows)

    def _quoted(self, connection: sa.Connection, name: str, bare: bool = False) -> str:
        quote = connection.dialect.identifier_preparer.quote_identifier
        return quote(name) if bare or not self.schema else f"{quote(self.schema)}.{quote(name)}"

    def _put_in_place(self, connection: sa.Connection, found: Existing | None) -> None:
        if found is not None:
            connection.exec_driver_sql(f"DROP TABLE {self._quoted(connection, found.name)}")
        old = self._quoted(connection, self._partial)
        new = self._quoted(connection, self.name, bare=True)
        connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")

    def _undo(self, connection: sa.Connection) -> None:
        connection.rollback()


def _rows(data: Any, convert: list[Callable[[Any], Any] | None]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of an Arrow table as Python values, in chunks."""
    for batch in data.to_batches(max_chunksize=_ROWS):
        columns = []
        for values, function in zip(batch.columns, convert, strict=True):
            listed = values.to_pylist()
            columns.append(
                listed if function is None else [None if v is None else function(v) for v in listed]
            )
        yield list(zip(*columns, strict=True))
