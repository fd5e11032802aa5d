"""The workshop of an import: a temporary DuckDB file that holds the source's rows.

Everything an import must find out (which keys are unique, which values have a parent, what a text
column means) is asked here and not of the source, so that all sources get the same answers and the
source is read once. Tables and columns have numbers for names in here (``t3.c0``): names from the
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

#: The DuckDB type in which values of a kind are kept.
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

#: Batches gathered before they are inserted; more would cost memory, fewer time.
_BATCHES_AT_ONCE = 4

#: What people write into text where a value is missing.
MISSING = (
    *("", "NA", "N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "-", "?", r"\N"),
    *("0000-00-00", "0000-00-00 00:00:00"),
)


def listed(texts: tuple[str, ...]) -> str:
    """Texts as a list in SQL."""
    return "(" + ", ".join(f"'{text}'" for text in texts) + ")"


#: Text with a time in ISO 8601. The zone, if there is one, is honoured; otherwise UTC.
ISO = (
    r"^\s*\d{4}-\d{1,2}-\d{1,2}"
    r"([ T]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|UTC|[+-]\d{2}(:?\d{2})?)?)?\s*$"
)


def iso_time(column: str) -> str:
    """SQL for text in ISO 8601 as a timestamp in UTC; NULL where it cannot be read."""
    return sane_time(f"make_timestamp(epoch_us(TRY_CAST({column} AS TIMESTAMPTZ)))")


def sane_time(timestamp: str) -> str:
    """SQL for a timestamp that a calendar has; NULL for infinity and years beyond 9999."""
    return (
        f"CASE WHEN {timestamp} BETWEEN TIMESTAMP '0001-01-01' "
        f"AND TIMESTAMP '9999-12-31 23:59:59.999999' THEN {timestamp} END"
    )


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of a column's values.

    Attributes:
        present: Values that are not NULL.
        distinct: Different values, approximately.
        low: The smallest value, for a time in microseconds since 1970; None if there is none.
        high: The largest value.
        infinite: NaN and infinite values.
    """

    present: int
    distinct: int
    low: Any
    high: Any
    infinite: int = 0

    @property
    def constant(self) -> bool:
        """Whether all present values are one and the same."""
        return self.present > 0 and self.low is not None and bool(self.low == self.high)


@dataclass(frozen=True)
class StagedColumn:
    """A column in the workshop: ``sql`` is its name there."""

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
    """A table in the workshop: ``sql`` is its name there, ``rowid`` the source's order."""

    source: SourceTable
    sql: str
    rows: int
    columns: dict[str, StagedColumn] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in the source."""
        return self.source.name


def is_workshop_error(error: BaseException) -> bool:
    """Whether DuckDB ran out of disk or memory."""
    import duckdb

    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
        return True
    room = ("No space left", "Could not write", "failed to allocate", "Out of Memory")
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in room)


class Staging:
    """A temporary DuckDB file with everything that was read.

    Args:
        folder: Where the file may lie; removed by whoever made it.
        memory: How much DuckDB may use before it goes to disk, such as ``2GB``.
    """

    def __init__(self, folder: Path, memory: str = "2GB") -> None:
        import duckdb

        folder.mkdir(parents=True, exist_ok=True)
        self.connection = duckdb.connect(str(folder / "staging.duckdb"))
        for setting, value in {
            "memory_limit": memory,
            "temp_directory": str(folder),
            "TimeZone": "UTC",
        }.items():
            self.connection.execute(f"SET {setting} = '{value.replace(chr(39), chr(39) * 2)}'")
        # The order of rows is the source's order and must survive every scan.
        self.connection.execute("SET preserve_insertion_order = true")
        silence(self.connection)  # progress on the terminal is ours to show
        self._tables = 0

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def row(self, query: str) -> tuple[Any, ...]:
        """The first row of a query's result."""
        return self.rows(query)[0]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's result; for small ones. It is finished after this."""
        found: list[tuple[Any, ...]] = self.connection.execute(query).fetchall()
        return found

    def batches(self, query: str) -> Iterator[Any]:
        """A query's result as Arrow batches, in any order; for large ones."""
        yield from read_ahead(arrow_batches(self.connection.cursor(), query, 1 << 17))

    def ordered_batches(self, query: str) -> Iterator[Any]:
        """A scan of one table as Arrow batches, in the order of its rows.

        Only a single thread keeps the order of a result that is not collected first.
        """
        self.rows("SET threads = 1")
        try:
            yield from self.batches(query)
        finally:
            self.rows("RESET threads")

    def load(
        self, source: Source, table: SourceTable, advance: Callable[[int], None]
    ) -> StagedTable:
        """Read a whole table from the source.

        Args:
            source: Where it lies.
            table: What to read.
            advance: Told the number of rows read so far, ever again.
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
                with contextlib.suppress(Exception):  # the first error is the one to hear of
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

    def _fill(
        self,
        sql: str,
        source: Source,
        table: SourceTable,
        advance: Callable[[int], None],
        guessed: dict[str, Kind],
    ) -> tuple[int, dict[int, int]]:
        """Insert all batches; returns the rows, and per column the values that were lost.

        Text that begins as times in ISO 8601 is guessed to be times and parsed on the way in,
        once; if it does not go on so, the table is read again. ``guessed`` remembers the columns.
        """
        columns = readable_columns(table)
        types = ", ".join(f"c{i} {_STAGED[c.kind]}" for i, c in enumerate(columns))
        self.rows(f"CREATE OR REPLACE TABLE {sql} ({types or 'no_column INTEGER'})")
        rows, unreadable = 0, dict.fromkeys(range(len(columns)), 0)
        held: list[Any] = []
        for batch in read_ahead(source.read(table)):
            if not rows and not held:
                _guess_times(table, batch, guessed)
            held.append(batch)
            if len(held) == _BATCHES_AT_ONCE:
                rows += self._insert(sql, columns, held, unreadable)
                held = []
                advance(rows)
        if held:
            rows += self._insert(sql, columns, held, unreadable)
        advance(rows)
        for position, column in enumerate(columns):
            if column.name in guessed and column.kind == "time" and unreadable[position]:
                raise ReadAgain(table.with_kind(column.name, guessed[column.name]))
        return rows, unreadable

    def _insert(
        self, sql: str, columns: list[SourceColumn], held: list[Any], unreadable: dict[int, int]
    ) -> int:
        import pyarrow as pa

        names = [f"c{i}" for i in range(len(columns))] or ["no_column"]
        arrived = pa.Table.from_batches([b.rename_columns(names) for b in held])
        expressions = []
        for position, column in enumerate(columns):
            field_type = arrived.schema.field(position).type
            name, expression = f"c{position}", f"c{position}"
            is_text = pa.types.is_string(field_type) or pa.types.is_large_string(field_type)
            if pa.types.is_timestamp(field_type):
                # An instant with a zone becomes UTC without one.
                naive = arrived.column(position).cast(pa.timestamp("us"), safe=False)
                arrived = arrived.set_column(position, name, naive)
                expression = sane_time(name)
            elif column.kind == "time" and is_text:
                times = _parsed(arrived.column(position))
                if times is not None:
                    arrived = arrived.set_column(position, name, times)
                    expression = sane_time(name)
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
                        lost += f" AND trim(c{position}) NOT IN {listed(MISSING)}"
                    (count,) = self.row(f"SELECT count(*) FILTER (WHERE {lost}) FROM arrived")
                    unreadable[position] += count
        finally:
            self.connection.unregister("arrived")
        return int(arrived.num_rows)

    def _facts(self, sql: str, table: SourceTable) -> list[ColumnFacts]:
        """One pass over the table for the facts of all columns."""
        asked: list[str] = []
        for position, column in enumerate(readable_columns(table)):
            name = f"c{position}"
            finite = name
            infinite = "0"
            if _STAGED[column.kind] == "DOUBLE":
                finite = f"CASE WHEN isfinite({name}) THEN {name} END"
                infinite = f"count(*) FILTER (WHERE NOT isfinite({name}))"
            elif _STAGED[column.kind] == "TIMESTAMP":
                finite = f"epoch_us({name})"
            asked += [
                f"count({name})",
                f"approx_count_distinct({name})",
                f"min({finite})",
                f"max({finite})",
                infinite,
            ]
        if not asked:
            return []
        answer = self.row(f"SELECT {', '.join(asked)} FROM {sql}")
        return [ColumnFacts(*answer[i : i + 5]) for i in range(0, len(answer), 5)]


def _parsed(text: Any) -> Any:
    """Text in ISO 8601 as times in UTC, all of it, by Arrow; None if it cannot read something.

    DuckDB reads more forms, at a fifth of the speed.
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
    """Look for text that begins as times.

    Raises:
        ReadAgain: There is some.
    """
    again = table
    for column in readable_columns(table):
        if column.kind not in ("text", "untyped") or column.name in guessed:
            continue
        values = batch.column(column.name).drop_null()
        # Arrow words a complaint for each value it cannot read: a few are asked first.
        few = values.slice(0, 100)
        if all(len(v) >= 8 for v in few.to_pylist()) and all(map(_parses, (few, values))):
            guessed[column.name] = column.kind
            again = again.with_kind(column.name, "time")
    if again is not table:
        raise ReadAgain(again)
