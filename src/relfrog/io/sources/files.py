"""Folders of CSV or of Parquet files, read by DuckDB: one table per file, no declared keys."""

from __future__ import annotations

import csv
import gzip
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from relfrog.errors import SourceError
from relfrog.io.marks import is_marked_file
from relfrog.io.sources.base import ReadAgain, Source, SourceColumn, SourceTable
from relfrog.io.sources.duck import duckdb_kind, memory_connection, read_relation
from relfrog.support.duckdb import literal, path_literal
from relfrog.support.files import maybe_path, user_path
from relfrog.support.lines import LONGEST_LINE, bounded_lines
from relfrog.support.text import free_name

__all__ = ["CsvFolder", "ParquetFolder"]


class _Folder(Source):
    """A folder with one table per file and no declared keys."""

    suffixes: ClassVar[tuple[str, ...]]

    @classmethod
    def accepts(cls, address: str) -> bool:
        """Whether the address is a folder with files of this type, not only of RelFrog's own."""
        folder = maybe_path(address)
        return folder is not None and folder.is_dir() and cls._has_tables(folder)

    @classmethod
    def _has_tables(cls, folder: Path) -> bool:
        return any(not is_marked_file(path) for _, path in cls._files(folder))

    def is_marked(self, table: SourceTable) -> bool:
        """Whether the file says so, or a list beside it."""
        return is_marked_file(self._given[table.name])

    @classmethod
    def _files(cls, folder: Path) -> Iterator[tuple[str, Path]]:
        for path in sorted(folder.iterdir()):
            lower = path.name.lower()
            for suffix in cls.suffixes:
                if lower.endswith(suffix) and path.is_file() and not path.name.startswith("."):
                    yield path.name[: -len(suffix)], path
                    break

    def __init__(self, address: str, schemas: tuple[str, ...]) -> None:
        folder = user_path(address, SourceError)
        if schemas:
            raise SourceError(f"{folder} is a folder and has no schemas. Leave out --schema.")
        others = [kind for kind in (CsvFolder, ParquetFolder) if kind is not type(self)]
        for other in others:
            if other._has_tables(folder):
                raise SourceError(
                    f"{folder} holds both {self.what} and {other.what}. "
                    "Move one type into a folder of its own."
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
        self._given = dict(self.paths)
        self._connection = memory_connection()

    def close(self) -> None:
        """Close DuckDB."""
        self._connection.close()


@dataclass(frozen=True)
class _Csv:
    """The format of a CSV file."""

    delimiter: str
    names: tuple[str, ...]
    escape: str
    notes: tuple[str, ...]


class CsvFolder(_Folder):
    """A folder of CSV files, separated by comma, semicolon, tab or bar; optionally gzipped."""

    what: ClassVar[str] = "CSV files"
    suffixes: ClassVar[tuple[str, ...]] = (".csv.gz", ".tsv.gz", ".csv", ".tsv")

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """One table per file; all columns are text whose type is inferred later."""
        self._converted = tempfile.TemporaryDirectory(prefix="relfrog-")
        self._formats: dict[str, _Csv] = {}
        tables = []
        for name, path in self.paths.items():
            self.paths[name], notes = _readable_csv(path, Path(self._converted.name))
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
        # No auto-detection: on a ragged file it ends up with a single column.
        relation = (
            f"read_csv({path_literal(self.paths[table.name])}, columns = {{{columns}}}, "
            f"auto_detect = false, header = true, delim = {literal(form.delimiter)}, quote = '\"', "
            f"escape = {literal(form.escape)}, allow_quoted_nulls = false, "
            f"max_line_size = {LONGEST_LINE})"
        )
        try:
            yield from read_relation(self._connection.cursor(), table, relation)
        except SourceError as error:
            if form.escape == '"' and _has_backslashes(self.paths[table.name]):
                # MySQL, for one, writes \\" for a quote inside quotes.
                self._formats[table.name] = replace(form, escape="\\")
                notes = [*table.notes, "quotes are escaped with a backslash"]
                raise ReadAgain(replace(table, notes=notes)) from None
            found = re.search(r"CSV Error on Line: (\d+)\s+Original Line: (.*)\n(.*)", str(error))
            if found is None:
                raise
            raise SourceError(
                f"{table.name}.csv, line {found[1]}: {found[3].strip()} in {found[2][:80]!r}. "
                f"Fix the line, or leave the table out with --exclude {table.name}"
            ) from None

    def close(self) -> None:
        """Close DuckDB and remove converted copies."""
        super().close()
        if hasattr(self, "_converted"):
            self._converted.cleanup()


def _readable_csv(path: Path, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The file itself; or a converted copy, if it is not UTF-8 or mixes line endings."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    encoding, windows, unix = "utf-8", False, False
    try:
        with opener(path, "rb") as file:
            head = file.read(2)
            if head in (b"\xff\xfe", b"\xfe\xff"):
                encoding = "utf-16"
            file.seek(0)
            while encoding == "utf-8" and (chunk := file.read(1 << 22)):
                # Read on to the end of the line, so that no character is cut in two.
                chunk += next(bounded_lines(file), b"")
                windows = windows or b"\r\n" in chunk
                unix = unix or chunk.count(b"\n") > chunk.count(b"\r\n")
                try:
                    chunk.decode("utf-8")
                except UnicodeDecodeError:
                    encoding = "cp1252"
        if encoding == "utf-8" and not (windows and unix):
            return path, ()
        notes = [f"read as {encoding}, not UTF-8"] if encoding != "utf-8" else []
        notes += ["mixed line endings"] if windows and unix else []
        copy = folder / f"{len(list(folder.iterdir()))}.csv"
        with (
            opener(path, "rt", encoding=encoding, errors="replace", newline="") as text,
            open(copy, "w", encoding="utf-8", newline="") as out,
        ):
            while part := text.read(1 << 22):
                part += text.read(1) if part.endswith("\r") else ""
                out.write(part.replace("\r\n", "\n"))
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
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
    """Find the delimiter and the column names of a CSV file from its header."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            first = next(bounded_lines(text), "")
            delimiter = max(",;\t|", key=lambda d: (first.count(d), d == ","))
            text.seek(0)
            header = next(csv.reader(bounded_lines(text), delimiter=delimiter), [])
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise SourceError(f"{path.name} cannot be read: {error}") from None
    taken: set[str] = set()
    names = (free_name(n.strip() or f"column_{i + 1}", taken) for i, n in enumerate(header))
    return _Csv(delimiter, tuple(names), '"', notes)


class ParquetFolder(_Folder):
    """A folder of Parquet files; a table may also be a subfolder of part files."""

    what: ClassVar[str] = "Parquet files"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    @classmethod
    def _files(cls, folder: Path) -> Iterator[tuple[str, Path]]:
        yield from super()._files(folder)
        for path in sorted(p for p in folder.iterdir() if p.is_dir()):
            if not path.name.startswith(".") and any(path.rglob("*.parquet")):
                yield path.name, path

    def _relation(self, name: str) -> str:
        path = self.paths[name]
        if path.is_dir():
            # Folder names may hold a column (country=DE/).
            below = path_literal(path, "/**/*.parquet")
            return f"read_parquet({below}, hive_partitioning = true)"
        return f"read_parquet({path_literal(path)})"

    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """One table per file or subfolder, with the types that Parquet declares."""
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
        """Stream the file, or its parts in order of their names."""
        return read_relation(self._connection.cursor(), table, self._relation(table.name))
