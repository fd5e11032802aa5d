"""The staging database: a temporary DuckDB file with the rows of the source.

This is the first step of an import. Everything else (which keys are unique, which values have a
parent, what a text column holds) is a query of this database, so the source is read only once and
all sources are treated alike. Tables and columns are numbered here (``t3.c0``): names from the
source never become SQL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relfrog.io.sources import ReadAgain, Source, SourceColumn, SourceTable
from relfrog.io.sources.base import Kind, readable_columns
from relfrog.io.sources.duck import arrow_batches
from relfrog.support.duckdb import silence
from relfrog.support.threads import read_ahead

__all__ = ["ColumnFacts", "StagedColumn", "StagedTable", "Staging"]

#: The DuckDB type for each kind.
_STAGED: dict[Kind, str] = {
    "integer": "BIGINT",
    "decimal": "VARCHAR",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "time": "TIMESTAMP",
    "seconds": "DOUBLE",
    "text": "VARCHAR",
    "untyped": "VARCHAR",
    "list": "VARCHAR[]",
    "hex": "VARCHAR",
}

#: Batches per insert; more would cost memory, fewer would cost time.
_BATCHES_AT_ONCE = 4

#: Texts that stand for a missing value.
MISSING_TEXTS = (
    *("", "NA", "N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "-", "?", r"\N"),
    *("0000-00-00", "0000-00-00 00:00:00"),
)


def sql_list(texts: tuple[str, ...]) -> str:
    """SQL for a list of texts."""
    return "(" + ", ".join(f"'{text}'" for text in texts) + ")"


#: A time in ISO 8601; without a zone it is UTC.
ISO = (
    r"^\s*\d{4}-\d{1,2}-\d{1,2}"
    r"([ T]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|UTC|[+-]\d{2}(:?\d{2})?)?)?\s*$"
)


def iso_time(column: str) -> str:
    """SQL for text in ISO 8601 as a timestamp in UTC; NULL where it cannot be read."""
    return valid_time(f"make_timestamp(epoch_us(TRY_CAST({column} AS TIMESTAMPTZ)))")


def valid_time(timestamp: str) -> str:
    """SQL for a timestamp; NULL for infinity and for years before 1 or after 9999."""
    return (
        f"CASE WHEN {timestamp} BETWEEN TIMESTAMP '0001-01-01' "
        f"AND TIMESTAMP '9999-12-31 23:59:59.999999' THEN {timestamp} END"
    )


@dataclass(frozen=True)
class ColumnFacts:
    """Statistics of a column's values.

    Attributes:
        present: Number of values that are not NULL.
        distinct: Approximate number of distinct values.
        low: The smallest value, for a time in microseconds since 1970; None if there is none.
        high: The largest value.
        infinite: Number of NaN and infinite values.
    """

    present: int
    distinct: int
    low: Any
    high: Any
    infinite: int = 0

    @property
    def constant(self) -> bool:
        """Whether all values that are not NULL are equal."""
        return self.present > 0 and self.low is not None and bool(self.low == self.high)


@dataclass(frozen=True)
class StagedColumn:
    """A column of the staging database; ``sql`` is its name there."""

    source: SourceColumn
    sql: str
    facts: ColumnFacts
    unreadable: int = 0

    @property
    def name(self) -> str:
        """The name in the source."""
        return self.source.name

    @property
    def kind(self) -> Kind:
        """What it holds."""
        return self.source.kind


@dataclass(frozen=True)
class StagedTable:
    """A table of the staging database; ``sql`` is its name there, ``rowid`` the source's order."""

    source: SourceTable
    sql: str
    rows: int
    columns: dict[str, StagedColumn] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in the source."""
        return self.source.name


def is_out_of_space(error: BaseException) -> bool:
    """Whether DuckDB ran out of disk space or memory."""
    import duckdb

    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
        return True
    phrases = ("No space left", "Could not write", "failed to allocate", "Out of Memory")
    return isinstance(error, duckdb.Error) and any(phrase in str(error) for phrase in phrases)


class Staging:
    """A temporary DuckDB database with the rows of all tables.

    Args:
        folder: Where to put the file; the caller removes it.
        memory: How much memory DuckDB may use before it spills to disk, such as ``2GB``.
    """

    def __init__(self, folder: Path, memory: str = "2GB") -> None:
        import duckdb

        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.connection = duckdb.connect(str(folder / "staging.duckdb"))
        for setting, value in {
            "memory_limit": memory,
            "temp_directory": str(folder),
            "TimeZone": "UTC",
        }.items():
            self.connection.execute(f"SET {setting} = '{value.replace(chr(39), chr(39) * 2)}'")
        # Every scan must return rows in the order of the source.
        self.connection.execute("SET preserve_insertion_order = true")
        silence(self.connection)
        self._tables = 0

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def row(self, query: str) -> tuple[Any, ...]:
        """The first row of a query's result."""
        return self.rows(query)[0]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a statement to its end and fetch all rows; for small results."""
        found: list[tuple[Any, ...]] = self.connection.execute(query).fetchall()
        return found

    def batches(self, query: str) -> Iterator[Any]:
        """Stream the result of a query as Arrow batches, in any order; for large results."""
        yield from read_ahead(arrow_batches(self.connection.cursor(), query, 1 << 17))

    def ordered_batches(self, query: str) -> Iterator[Any]:
        """Stream a scan of one table as Arrow batches, in the order of its rows.

        DuckDB keeps the order of a streamed result only on a single thread.
        """
        self.rows("SET threads = 1")
        try:
            yield from self.batches(query)
        finally:
            self.rows("RESET threads")

    def load(
        self, source: Source, table: SourceTable, advance: Callable[[int], None]
    ) -> StagedTable:
        """Copy a table from the source.

        Args:
            source: The source.
            table: The table to read.
            advance: Called repeatedly with the number of rows read so far.
        """
        sql = f"t{self._tables}"
        self._tables += 1
        guessed: dict[str, Kind] = {}
        while True:
            self.rows("BEGIN")
            try:
                rows, unreadable = self._fill(sql, source, table, advance, guessed)
            except ReadAgain as again:
                self.rows("ROLLBACK")
                table = again.table
                continue
            except BaseException:
                with contextlib.suppress(Exception):  # report the first error
                    self.rows("ROLLBACK")
                raise
            self.rows("COMMIT")
            break
        columns = {}
        facts = self._facts(sql, table)
        for position, column in enumerate(readable_columns(table)):
            columns[column.name] = StagedColumn(
                column, f"c{position}", facts[position], unreadable.get(position, 0)
            )
        return StagedTable(table, sql, rows, columns)

    def add(self, table: SourceTable, query: str) -> StagedTable:
        """Stage a table of one column, ``c0``, from a query of this database."""
        sql = f"t{self._tables}"
        self._tables += 1
        (column,) = table.columns
        self.rows(f"CREATE TABLE {sql} (c0 {_STAGED[column.kind]})")
        self.rows(f"INSERT INTO {sql} {query}")
        (rows,) = self.row(f"SELECT count(*) FROM {sql}")
        columns = {column.name: StagedColumn(column, "c0", self._facts(sql, table)[0])}
        return StagedTable(table, sql, rows, columns)

    def _fill(
        self,
        sql: str,
        source: Source,
        table: SourceTable,
        advance: Callable[[int], None],
        guessed: dict[str, Kind],
    ) -> tuple[int, dict[int, int]]:
        """Insert all batches; return the number of rows, and of unreadable values per column.

        Text that starts with times in ISO 8601 is assumed to hold times, and parsed on insert. If
        a later value is no time, the table is read again; ``guessed`` remembers the columns.
        """
        columns = readable_columns(table)
        types = ", ".join(f"c{i} {_STAGED[c.kind]}" for i, c in enumerate(columns))
        self.rows(f"CREATE OR REPLACE TABLE {sql} ({types or 'no_column INTEGER'})")
        rows, unreadable = 0, dict.fromkeys(range(len(columns)), 0)
        pending: list[Any] = []
        for batch in read_ahead(source.read(table)):
            if not rows and not pending:
                _guess_times(table, batch, guessed)
            pending.append(batch)
            if len(pending) == _BATCHES_AT_ONCE:
                rows += self._insert(sql, columns, pending, unreadable)
                pending = []
                advance(rows)
        if pending:
            rows += self._insert(sql, columns, pending, unreadable)
        advance(rows)
        for position, column in enumerate(columns):
            if column.name in guessed and column.kind == "time" and unreadable[position]:
                raise ReadAgain(table.with_kind(column.name, guessed[column.name]))
        return rows, unreadable

    def _insert(
        self, sql: str, columns: list[SourceColumn], pending: list[Any], unreadable: dict[int, int]
    ) -> int:
        import pyarrow as pa

        names = [f"c{i}" for i in range(len(columns))] or ["no_column"]
        arrived = pa.Table.from_batches([b.rename_columns(names) for b in pending])
        expressions = []
        for position, column in enumerate(columns):
            field_type = arrived.schema.field(position).type
            name, expression = f"c{position}", f"c{position}"
            is_text = pa.types.is_string(field_type) or pa.types.is_large_string(field_type)
            if pa.types.is_timestamp(field_type):
                # Times with a zone become UTC.
                naive = arrived.column(position).cast(pa.timestamp("us"), safe=False)
                arrived = arrived.set_column(position, name, naive)
                expression = valid_time(name)
            elif column.kind == "time" and is_text:
                times = _parsed(arrived.column(position))
                if times is not None:
                    arrived = arrived.set_column(position, name, times)
                    expression = valid_time(name)
                else:
                    expression = iso_time(name)
            elif column.kind == "list" and is_text:
                expression = f"CAST(TRY_CAST({name} AS JSON) AS VARCHAR[])"
            expressions.append(expression)
        self.connection.register("arrived", arrived)
        try:
            self.rows(f"INSERT INTO {sql} SELECT {', '.join(expressions or names)} FROM arrived")
            for position, expression in enumerate(expressions):
                if expression != f"c{position}":
                    lost = f"c{position} IS NOT NULL AND ({expression}) IS NULL"
                    if pa.types.is_string(arrived.schema.field(position).type):
                        lost += f" AND trim(c{position}) NOT IN {sql_list(MISSING_TEXTS)}"
                    (count,) = self.row(f"SELECT count(*) FILTER (WHERE {lost}) FROM arrived")
                    unreadable[position] += count
        finally:
            self.connection.unregister("arrived")
        return int(arrived.num_rows)

    def _facts(self, sql: str, table: SourceTable) -> list[ColumnFacts]:
        """Compute the statistics of all columns in one pass."""
        wanted: list[str] = []
        for position, column in enumerate(readable_columns(table)):
            name = f"c{position}"
            finite = name
            infinite = "0"
            if _STAGED[column.kind] == "DOUBLE":
                finite = f"CASE WHEN isfinite({name}) THEN {name} END"
                infinite = f"count(*) FILTER (WHERE NOT isfinite({name}))"
            elif _STAGED[column.kind] == "TIMESTAMP":
                finite = f"epoch_us({name})"
            wanted += [
                f"count({name})",
                f"approx_count_distinct({name})",
                f"min({finite})",
                f"max({finite})",
                infinite,
            ]
        if not wanted:
            return []
        answer = self.row(f"SELECT {', '.join(wanted)} FROM {sql}")
        return [ColumnFacts(*answer[i : i + 5]) for i in range(0, len(answer), 5)]


def _parsed(text: Any) -> Any:
    """Parse text in ISO 8601 with Arrow, to times in UTC; None if any value cannot be parsed.

    DuckDB parses more formats, at a fifth of the speed.
    """
    import pyarrow as pa

    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return text.cast(kind).cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            continue
    return None


def _parses(values: Any) -> bool:
    return len(values) > 0 and _parsed(values) is not None


def _guess_times(table: SourceTable, batch: Any, guessed: dict[str, Kind]) -> None:
    """Look for text columns whose first batch holds only times.

    Raises:
        ReadAgain: There are such columns.
    """
    again = table
    for column in readable_columns(table):
        if column.kind not in ("text", "untyped") or column.name in guessed:
            continue
        values = batch.column(column.name).drop_null()
        # Arrow composes an error for each value it cannot parse: try a few first.
        few = values.slice(0, 100)
        if all(len(v) >= 8 for v in few.to_pylist()) and all(map(_parses, (few, values))):
            guessed[column.name] = column.kind
            again = again.with_kind(column.name, "time")
    if again is not table:
        raise ReadAgain(again)
