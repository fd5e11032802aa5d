"""The interface of a source: tables with their declared keys, and rows as Arrow batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

#: What a column holds, as far as the source knows before reading any row.
#: ``decimal`` is an exact number as text, ``hex`` a binary key as text, ``seconds`` an interval or
#: a time of day, ``untyped`` text whose type is inferred from the values (CSV); ``blob`` and
#: ``other`` are never read.
Kind = Literal[
    "integer",
    "decimal",
    "number",
    "boolean",
    "time",
    "seconds",
    "text",
    "untyped",
    "list",
    "hex",
    "blob",
    "other",
]

#: Said of a view that is read as a table.
VIEW = "a view of the source, read as a table"

#: Rows per Arrow batch: enough for speed, with bounded memory.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class SourceColumn:
    """A column as the source declares it.

    Attributes:
        name: Its name in the source.
        kind: What it holds.
        declared: The source's own name for the type, for messages.
    """

    name: str
    kind: Kind
    declared: str


@dataclass(frozen=True)
class SourceKey:
    """A foreign key declared in the source; empty ``parent_columns`` mean the primary key."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]


@dataclass(frozen=True)
class SourceTable:
    """A table as the source declares it.

    Attributes:
        name: Its name, prefixed with the schema if several schemas are read.
        schema: Its schema, if the source has schemas.
        local_name: Its name within the schema.
        columns: In the order of the source.
        primary_key: Column names; empty if none is declared.
        foreign_keys: As declared; the parent may be a table that is not read.
        notes: How it had to be read, for the import summary.
    """

    name: str
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[SourceKey, ...] = ()
    schema: str | None = None
    local_name: str = ""
    notes: list[str] = field(default_factory=list, compare=False)

    def with_kind(self, column: str, kind: Kind) -> SourceTable:
        """A copy of the table with another kind for one column."""
        columns = tuple(replace(c, kind=kind) if c.name == column else c for c in self.columns)
        return replace(self, columns=columns)


def fix_keys(tables: list[SourceTable]) -> list[SourceTable]:
    """Resolve the names in declared keys, and read binary keys as hexadecimal text.

    Databases ignore case in the names of a key's declaration, and UUIDs are often stored in binary
    columns.
    """
    lower = {t.name.lower(): t.name for t in tables}
    names = {t.name: {c.name.lower(): c.name for c in t.columns} for t in tables}
    keyed: dict[str, set[str]] = {t.name: set(t.primary_key) for t in tables}
    out = []
    for table in tables:
        keys = []
        for key in table.foreign_keys:
            parent = (
                key.parent if key.parent in names else lower.get(key.parent.lower(), key.parent)
            )
            own, theirs = names[table.name], names.get(parent, {})
            keys.append(
                SourceKey(
                    tuple(
                        own.get(c.lower(), c) if c not in own.values() else c for c in key.columns
                    ),
                    parent,
                    tuple(
                        theirs.get(c.lower(), c) if c not in theirs.values() else c
                        for c in key.parent_columns
                    ),
                )
            )
            keyed[table.name] |= set(keys[-1].columns)
            if parent in keyed:
                keyed[parent] |= set(keys[-1].parent_columns)
        out.append(replace(table, foreign_keys=tuple(keys)))
    return [
        replace(
            t,
            columns=tuple(
                replace(c, kind="hex") if c.kind == "blob" and c.name in keyed[t.name] else c
                for c in t.columns
            ),
        )
        for t in out
    ]


class ReadAgain(Exception):
    """Raised by a reader when a table must be read again from the first row, as ``table``.

    Typically a column holds values that do not fit its kind. The rows read so far are discarded.
    """

    def __init__(self, table: SourceTable) -> None:
        super().__init__(f"{table.name} must be read again")
        self.table = table


class Source(ABC):
    """A database or a folder of files, opened read-only.

    Attributes:
        label: The source's address for messages and files, without any password.
        secrets: Strings that must not appear in any message.
    """

    label: str
    secrets: tuple[str, ...] = ()
    #: What this class reads, for messages.
    what: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def accepts(cls, address: str) -> bool:
        """Whether this class can open ``address``; must not connect."""

    @abstractmethod
    def __init__(self, address: str, schemas: tuple[str, ...]) -> None:
        """Open the address, or raise :class:`~relfrog.errors.SourceError`."""

    @abstractmethod
    def tables(self, also: Sequence[str] = ()) -> list[SourceTable]:
        """All tables with their declared keys, and the views named in ``also``."""

    def views(self) -> list[str]:
        """The names of all views, as `tables` would name them."""
        return []

    @abstractmethod
    def read(self, table: SourceTable) -> Iterator[Any]:
        """Yield the rows as ``pyarrow.RecordBatch``, with one column per readable column.

        Raises:
            ReadAgain: A value does not fit its column's kind.
        """

    def is_marked(self, table: SourceTable) -> bool:
        """Whether RelFrog wrote the table; see `relfrog.io.marks`."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def readable_columns(table: SourceTable) -> list[SourceColumn]:
    """The columns to read: all but blobs and unknown types."""
    return [c for c in table.columns if c.kind not in ("blob", "other")]
