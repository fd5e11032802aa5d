"""Check keys against the data: duplicates, NULLs, and values without a parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relfrog.importing.column_types import ColumnType, type_sql
from relfrog.importing.staging import StagedColumn, StagedTable, Staging

__all__ = [
    "Evidence",
    "KeyCheck",
    "TypedTable",
    "check_unique",
    "is_unique_loosely",
    "join_columns",
    "match_keys",
]


@dataclass(frozen=True)
class TypedTable:
    """A staged table with the inferred type of each column."""

    staged: StagedTable
    types: dict[str, ColumnType]
    #: The words of its name in the singular, and of its columns' names, without common prefixes.
    noun: tuple[str, ...] = ()
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in the source."""
        return self.staged.name

    def column(self, name: str) -> StagedColumn:
        """A column by its name in the source."""
        return self.staged.columns[name]


@dataclass(frozen=True)
class KeyCheck:
    """How far columns are from being a primary key.

    Attributes:
        duplicates: Number of rows whose key an earlier row has.
        missing: Number of rows with a NULL in the key.
        examples: Some duplicate keys, with their numbers of rows.
    """

    duplicates: int
    missing: int
    examples: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Evidence:
    """How many values of a foreign key are found in the parent.

    Attributes:
        values: Number of rows of the child with no NULL in the key.
        matched: How many of them have a parent.
        distinct: Number of distinct values in the child.
        distinct_matched: How many of them have a parent.
        parent_rows: Number of rows of the parent.
        examples: Some values without a parent.
    """

    values: int
    matched: int
    distinct: int
    distinct_matched: int
    parent_rows: int
    examples: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of values with a parent; 1 if there are no values."""
        return self.matched / self.values if self.values else 1.0

    @property
    def dangling(self) -> int:
        """Number of values without a parent."""
        return self.values - self.matched

    def __str__(self) -> str:
        share = f"{100 * self.share:.1f} %" if self.dangling else "all"
        share = f"all but {self.dangling:,}" if share == "100.0 %" else share
        return (
            f"{share} of {self.values:,} values found; {self.distinct:,} distinct "
            f"among {self.parent_rows:,} rows"
        )


def comparable(
    child: StagedColumn, child_type: ColumnType, parent: StagedColumn, parent_type: ColumnType
) -> tuple[str, str]:
    """SQL for both columns, converted so that equal keys compare as equal."""
    numeric = {"integer", "number"}
    if child_type.name in numeric and parent_type.name in numeric:
        # A nullable integer is often stored as 12.0.
        whole = ColumnType("integer")
        if "integer" in (child_type.name, parent_type.name):
            return type_sql(child, whole), type_sql(parent, whole)
    if child_type.name == parent_type.name:
        return type_sql(child, child_type), type_sql(parent, parent_type)
    text = ColumnType("text")
    return type_sql(child, text), type_sql(parent, text)


def check_unique(staging: Staging, table: TypedTable, columns: Sequence[str]) -> KeyCheck:
    """Count duplicates and NULLs among the values of a key."""
    names = [type_sql(table.column(c), table.types[c]) for c in columns]
    absent = " OR ".join(f"({n}) IS NULL" for n in names)
    listed = ", ".join(names)
    total, missing = staging.row(
        f"SELECT count(*), count(*) FILTER (WHERE {absent}) FROM {table.staged.sql}"
    )
    (different,) = staging.row(
        f"SELECT count(*) FROM (SELECT DISTINCT {listed} FROM {table.staged.sql} "
        f"WHERE NOT ({absent}))"
    )
    duplicates = total - missing - different
    examples = []
    if duplicates:
        for *key, rows in staging.rows(
            f"SELECT {listed}, count(*) AS n FROM {table.staged.sql} WHERE NOT ({absent}) "
            f"GROUP BY {listed} HAVING n > 1 ORDER BY n DESC, {listed} LIMIT 3"
        ):
            examples.append((_shown(key), rows))
    return KeyCheck(duplicates, missing, tuple(examples))


def _shown(key: Sequence[object]) -> str:
    return str(key[0]) if len(key) == 1 else f"({', '.join(map(str, key))})"


def match_keys(
    staging: Staging,
    child: TypedTable,
    columns: Sequence[str],
    parent: TypedTable,
    parent_columns: Sequence[str],
    loose: bool = False,
) -> Evidence:
    """Look up every value of the child in the parent."""
    pairs = join_columns(child, columns, parent, parent_columns, loose)
    left = ", ".join(f"{a} AS k{i}" for i, (a, _) in enumerate(pairs))
    right = ", ".join(f"{b} AS k{i}" for i, (_, b) in enumerate(pairs))
    keys = [f"k{i}" for i in range(len(pairs))]
    joined = " AND ".join(f"c.{k} = p.{k}" for k in keys)
    present = " AND ".join(f"{k} IS NOT NULL" for k in keys)
    found = (
        f"SELECT c.*, p.k0 IS NOT NULL AS hit FROM (SELECT {', '.join(keys)}, count(*) AS n FROM "
        f"(SELECT {left} FROM {child.staged.sql}) WHERE {present} GROUP BY ALL) c LEFT JOIN "
        f"(SELECT DISTINCT {right} FROM {parent.staged.sql}) p ON {joined}"
    )
    values, matched, distinct, distinct_matched = staging.row(
        "SELECT coalesce(sum(n), 0)::BIGINT, coalesce(sum(n) FILTER (hit), 0)::BIGINT, "
        f"count(*), count(*) FILTER (WHERE hit) FROM ({found})"
    )
    examples: tuple[str, ...] = ()
    if matched < values:
        shown = staging.rows(
            f"SELECT {', '.join(keys)} FROM ({found}) WHERE NOT hit "
            f"ORDER BY n DESC, {', '.join(keys)} LIMIT 3"
        )
        examples = tuple(_shown(key) for key in shown)
    return Evidence(values, matched, distinct, distinct_matched, parent.staged.rows, examples)


def join_columns(
    child: TypedTable,
    columns: Sequence[str],
    parent: TypedTable,
    parent_columns: Sequence[str],
    loose: bool = False,
) -> list[tuple[str, str]]:
    """SQL for the pairs of columns to join on, (child, parent).

    Args:
        child: The referring table.
        columns: Its columns.
        parent: The referenced table.
        parent_columns: Its columns.
        loose: Whether to ignore case, accents and trailing spaces.
    """
    pairs = [
        comparable(child.column(c), child.types[c], parent.column(p), parent.types[p])
        for c, p in zip(columns, parent_columns, strict=True)
    ]
    if loose:
        pairs = [(_loose(a), _loose(b)) for a, b in pairs]
    return pairs


def _loose(expression: str) -> str:
    return f"strip_accents(lower(rtrim(CAST({expression} AS VARCHAR))))"


def is_unique_loosely(staging: Staging, table: TypedTable, columns: Sequence[str]) -> bool:
    """Whether keys stay distinct if case, accents and trailing spaces are ignored."""
    exact = [type_sql(table.column(c), table.types[c]) for c in columns]
    everything, different = staging.row(
        f"SELECT (SELECT count(*) FROM (SELECT DISTINCT {', '.join(exact)} FROM "
        f"{table.staged.sql})), (SELECT count(*) FROM (SELECT DISTINCT "
        f"{', '.join(map(_loose, exact))} FROM {table.staged.sql}))"
    )
    return bool(everything == different)
