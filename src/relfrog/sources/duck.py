"""Sources that DuckDB reads: its own files, and folders of CSV or Parquet files."""

from __future__ import annotations

import csv
import gzip
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from relfrog.errors import SourceError
from relfrog.names import free_name
from relfrog.sources.base import (
    BATCH_ROWS,
    Kind,
    ReadAgain,
    Source,
    SourceColumn,
    SourceKey,
    SourceTable,
    readable,
    settled,
)


def quoted(name: str) -> str:
    """An identifier for DuckDB: always in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string for DuckDB, where a parameter is not allowed."""
    return "'" + text.replace("'", "''") + "'"


def arrow_batches(connection: Any, query: str, rows: int = BATCH_ROWS) -> Iterator[Any]:
    """The query's result as Arrow batches, one at a time."""
    result = connection.sql(query)
    # DuckDB renamed this method in version 2.
    reader = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
    yield from reader(rows)


_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}


def duckdb_kind(declared: str) -> Kind:
    """The kind of a DuckDB type."""
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
    """The SELECT expression that gives a column in the form its kind promises."""
    name = quoted(column.name)
    if column.kind == "integer":
        return f"CAST({name} AS BIGINT)"
    if column.kind == "number":
        return f"CAST({name} AS DOUBLE)"
    if column.kind == "seconds":
        # TIME WITH TIME ZONE has no epoch of its own.
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


def _read(connection: Any, table: SourceTable, relation: str) -> Iterator[Any]:
    """The rows of a relation with ``table``'s columns."""
    import duckdb

    columns = readable(table)
    if not columns:
        yield from arrow_batches(connection, f"SELECT 1 AS no_column FROM {relation}")
        return
    wanted = ", ".join(f"{_expression(c)} AS {quoted(c.name)}" for c in columns)
    try:
        yield from arrow_batches(connection, f"SELECT {wanted} FROM {relation}")
    except duckdb.Error as error:
        raise SourceError(f"table {table.name} cannot be read: {error}") from None


def _memory_connection() -> Any:
    import duckdb

    return _settled(duckdb.connect())


def _settled(connection: Any) -> Any:
    """All times in UTC; and one thread, which alone keeps the order of rows while streaming."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    return connection


class DuckDBFile(Source):
    """A DuckDB database file, opened with ``read_only``."""

    what: ClassVar[str] = "a DuckDB database"

    @classmethod
    def accepts(cls, address: str) -> bool:
        """``duckdb:///file``, or a file that carries DuckDB's mark."""
        return address.startswith("duckdb:") or has_mark(address, b"DUCK", 8)

    def __init__(self, address: str, schemas: tuple[str, ...]) -> None:
        import duckdb

        path = Path(address.removeprefix("duckdb://").removeprefix("/")).expanduser()
        if not address.startswith("duckdb:"):
            path = Path(address).expanduser()
        if not path.is_file():
            raise SourceError(
                f"there is no DuckDB file at {path}. An absolute path has four slashes: "
                "duckdb:////data/shop.duckdb"
            )
        self.label = f"duckdb:///{path}"
        self.schemas = schemas
        try:
            self._connection = _settled(duckdb.connect(str(path), read_only=True))
        except duckdb.Error as error:
            raise SourceError(f"{path} cannot be opened: {error}") from None

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """Tables from DuckDB's own catalogue."""
        rows = self._connection.execute(
            "SELECT schema_name, table_name, false FROM duckdb_tables() "
            "WHERE NOT internal AND NOT temporary AND database_name = current_database() UNION ALL "
            "SELECT schema_name, view_name, true FROM duckdb_views() "
            "WHERE NOT internal AND database_name = current_database() ORDER BY ALL"
        ).fetchall()
        present = {schema for schema, _, _ in rows}
        wanted = self.schemas or ("main",)
        for schema in self.schemas:
            if schema not in present:
                raise SourceError(
                    f"there is no table in schema {schema}; schemas with tables: "
                    f"{', '.join(sorted(present)) or 'none'}"
                )
        tables = []
        for schema, local, is_view in rows:
            name = f"{schema}.{local}" if len(wanted) > 1 else local
            if schema in wanted and (not is_view or name in also):
                tables.append(self._table(schema, local, name, len(wanted) > 1))
        return settled(tables)

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

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream the table."""
        relation = f"{quoted(table.schema or 'main')}.{quoted(table.local_name)}"
        return _read(self._connection.cursor(), table, relation)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class _Folder(Source):
    """What the two kinds of folders share: one table per file, no declared keys."""

    endings: ClassVar[tuple[str, ...]]

    @classmethod
    def accepts(cls, address: str) -> bool:
        """A folder that holds files of this kind."""
        folder = Path(address).expanduser()
        return folder.is_dir() and any(True for _ in cls._files(folder))

    @classmethod
    def _files(cls, folder: Path) -> Iterator[tuple[str, Path]]:
        for path in sorted(folder.iterdir()):
            lower = path.name.lower()
            for ending in cls.endings:
                if lower.endswith(ending) and path.is_file() and not path.name.startswith("."):
                    yield path.name[: -len(ending)], path
                    break

    def __init__(self, address: str, schemas: tuple[str, ...]) -> None:
        folder = Path(address).expanduser()
        if schemas:
            raise SourceError(f"{folder} is a folder; it has no schemas. Leave out --schema.")
        others = [kind for kind in (CsvFolder, ParquetFolder) if kind is not type(self)]
        for other in others:
            if any(True for _ in other._files(folder)):
                raise SourceError(
                    f"{folder} holds both {self.what} and {other.what}. "
                    "Put the files of one kind into a folder of their own."
                )
        self.label = str(folder)
        self.paths: dict[str, Path] = {}
        for name, path in self._files(folder):
            if name in self.paths:
                raise SourceError(
                    f"{self.paths[name].name} and {path.name} would both be table {name}. "
                    "Rename or move one of them."
                )
            self.paths[name] = path
        self.paths = dict(sorted(self.paths.items()))
        self._connection = _memory_connection()

    def close(self) -> None:
        """Close DuckDB."""
        self._connection.close()


@dataclass(frozen=True)
class _Csv:
    """How one CSV file is written."""

    delimiter: str
    names: tuple[str, ...]
    escape: str
    notes: tuple[str, ...]


class CsvFolder(_Folder):
    """A folder of CSV files (comma, semicolon, tab or bar; plain or gzipped)."""

    what: ClassVar[str] = "CSV files"
    endings: ClassVar[tuple[str, ...]] = (".csv.gz", ".tsv.gz", ".csv", ".tsv")

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """One table per file; all columns are text whose type is found later."""
        self._rewritten = tempfile.TemporaryDirectory(prefix="relfrog-")
        self._formats: dict[str, _Csv] = {}
        tables = []
        for name, path in self.paths.items():
            self.paths[name], notes = _readable_csv(path, Path(self._rewritten.name))
            self._formats[name] = form = _csv_format(self.paths[name], notes)
            columns = tuple(SourceColumn(n, "untyped", "CSV text") for n in form.names)
            tables.append(SourceTable(name, columns, local_name=name, notes=list(form.notes)))
        return tables

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream the file."""
        form = self._formats[table.name]
        if not form.names:
            return
        columns = ", ".join(f"{literal(n)}: 'VARCHAR'" for n in form.names)
        # Nothing is guessed here: a guess on a ragged file turns it into a single column.
        relation = (
            f"read_csv({literal(_plain_path(self.paths[table.name]))}, columns = {{{columns}}}, "
            f"auto_detect = false, header = true, delim = {literal(form.delimiter)}, quote = '\"', "
            f"escape = {literal(form.escape)}, allow_quoted_nulls = false, "
            "max_line_size = 33554432)"
        )
        try:
            yield from _read(self._connection.cursor(), table, relation)
        except SourceError as error:
            if form.escape == '"' and _has_backslashes(self.paths[table.name]):
                # MySQL and others write \\" for a quote inside quotes.
                self._formats[table.name] = replace(form, escape="\\")
                notes = [*table.notes, "quotes are escaped with a backslash"]
                raise ReadAgain(replace(table, notes=notes)) from None
            found = re.search(r"CSV Error on Line: (\d+)\s+Original Line: (.*)\n(.*)", str(error))
            if found is None:
                raise
            raise SourceError(
                f"{table.name}.csv, line {found[1]}: {found[3].strip()} in {found[2][:80]!r}. "
                f"Mend the line, or leave the table out with --exclude {table.name}"
            ) from None

    def close(self) -> None:
        """Close DuckDB, and remove what had to be rewritten."""
        super().close()
        if hasattr(self, "_rewritten"):
            self._rewritten.cleanup()


def _readable_csv(path: Path, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The file itself; or a copy, if it is not UTF-8 or ends its lines in two ways."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    encoding, windows, unix = "utf-8", False, False
    try:
        with opener(path, "rb") as file:
            head = file.read(2)
            if head in (b"\xff\xfe", b"\xfe\xff"):
                encoding = "utf-16"
            file.seek(0)
            while encoding == "utf-8" and (chunk := file.read(1 << 22)):
                # A character may straddle two chunks: complete it to the end of the line.
                chunk += file.readline()
                windows = windows or b"\r\n" in chunk
                unix = unix or chunk.count(b"\n") > chunk.count(b"\r\n")
                try:
                    chunk.decode("utf-8")
                except UnicodeDecodeError:
                    encoding = "cp1252"
        if encoding == "utf-8" and not (windows and unix):
            return path, ()
        notes = [f"read as {encoding}, not UTF-8"] if encoding != "utf-8" else []
        notes += ["lines end in two ways"] if windows and unix else []
        copy = folder / f"{len(list(folder.iterdir()))}.csv"
        with (
            opener(path, "rt", encoding=encoding, errors="replace", newline="") as text,
            open(copy, "w", encoding="utf-8", newline="") as out,
        ):
            while piece := text.read(1 << 22):
                piece += text.read(1) if piece.endswith("\r") else ""
                out.write(piece.replace("\r\n", "\n"))
    except (OSError, EOFError, UnicodeError) as error:
        raise SourceError(f"{path.name} cannot be read: {error}") from None
    return copy, tuple(notes)


def _has_backslashes(path: Path) -> bool:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as file:
        while chunk := file.read(1 << 22):
            if b'\\"' in chunk:
                return True
    return False


def _csv_format(path: Path, notes: tuple[str, ...]) -> _Csv:
    """The delimiter and the column names of a CSV file, from its header."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            first = text.readline()
            delimiter = max(",;\t|", key=lambda d: (first.count(d), d == ","))
            text.seek(0)
            header = next(csv.reader(text, delimiter=delimiter), [])
    except (OSError, EOFError, csv.Error) as error:
        raise SourceError(f"{path.name} cannot be read: {error}") from None
    taken: set[str] = set()
    names = (free_name(n.strip() or f"column_{i + 1}", taken) for i, n in enumerate(header))
    return _Csv(delimiter, tuple(names), '"', notes)


class ParquetFolder(_Folder):
    """A folder of Parquet files; a table may also be a subfolder of part files."""

    what: ClassVar[str] = "Parquet files"
    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    @classmethod
    def _files(cls, folder: Path) -> Iterator[tuple[str, Path]]:
        yield from super()._files(folder)
        for path in sorted(p for p in folder.iterdir() if p.is_dir()):
            if not path.name.startswith(".") and any(path.rglob("*.parquet")):
                yield path.name, path

    def _relation(self, name: str) -> str:
        path = self.paths[name]
        place = _plain_path(path)
        if path.is_dir():
            # The parts' folders may hold a column ("country=DE/"); it is kept.
            return f"read_parquet({literal(place + '/**/*.parquet')}, hive_partitioning = true)"
        return f"read_parquet({literal(place)})"

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """One table per file or subfolder, with the types Parquet declares."""
        import duckdb

        tables = []
        for name in self.paths:
            try:
                described = self._connection.execute(
                    f"DESCRIBE SELECT * FROM {self._relation(name)}"
                ).fetchall()
            except duckdb.Error as error:
                raise SourceError(f"{self.paths[name].name} cannot be read: {error}") from None
            columns = tuple(SourceColumn(r[0], duckdb_kind(r[1]), r[1]) for r in described)
            tables.append(SourceTable(name, columns, local_name=name))
        return tables

    def read(self, table: SourceTable) -> Iterator[Any]:
        """Stream the file or the parts, in the order of their names."""
        return _read(self._connection.cursor(), table, self._relation(table.name))


def _plain_path(path: Path) -> str:
    """A path that DuckDB takes as it is: it would read ``[1]`` as a pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path))


def has_mark(address: str, mark: bytes, offset: int = 0) -> bool:
    """Whether the file begins with a database's mark."""
    try:
        with open(Path(address).expanduser(), "rb") as file:
            file.seek(offset)
            return file.read(len(mark)) == mark
    except (OSError, ValueError):
        return False
