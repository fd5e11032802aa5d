"""Primary and foreign keys: declared ones are checked, missing ones proposed, with evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relfrog.coltypes import ColumnType, type_sql
from relfrog.names import singular, words
from relfrog.staging import StagedColumn, StagedTable, Staging

__all__ = [
    "Evidence",
    "KeyCheck",
    "TypedTable",
    "check_unique",
    "match_keys",
    "propose_foreign_keys",
    "propose_primary_key",
    "with_words",
]

#: Names that say "key" and nothing else.
_GENERIC = {("id",), ("uuid",), ("guid",), ("pk",), ("key",), ("rowid",)}
_KEY_WORDS = {"id", "uuid", "guid", "pk", "key", "code", "no", "nr", "num", "number", "ref"}
_SURE_KEY_WORDS = {"id", "uuid", "guid", "pk"}
#: Words for a row of the same table.
_SELF_WORDS = {"parent", "manager", "supervisor", "boss", "reports", "reply", "root", "previous"}
_SELF_WORDS |= {"prev", "next", "original", "ancestor", "duplicate", "superseded", "replaces"}

#: From this share of matching values on, a key that does not hold is still worth a suggestion.
_SUGGEST = 0.5
#: ... and this much without any help from its name.
_SURELY = 0.9


@dataclass(frozen=True)
class TypedTable:
    """A staged table with the natural type of each column."""

    staged: StagedTable
    types: dict[str, ColumnType]
    #: The words for one row of it, and the words of its columns, freed of common prefixes.
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
        duplicates: Rows whose key an earlier row has already.
        missing: Rows with a NULL in the key.
        examples: Some of the repeated keys, with the number of rows.
    """

    duplicates: int
    missing: int
    examples: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Evidence:
    """How well the values of child columns are found among the parent's.

    Attributes:
        values: Rows of the child with a value (no NULL in any of the columns).
        matched: Those whose value the parent has.
        distinct: Different values in the child.
        distinct_matched: Those that the parent has.
        parent_rows: Rows of the parent.
        examples: Some values that the parent lacks.
    """

    values: int
    matched: int
    distinct: int
    distinct_matched: int
    parent_rows: int
    examples: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of values that have a parent; 1 if there is no value."""
        return self.matched / self.values if self.values else 1.0

    @property
    def dangling(self) -> int:
        """Values that have no parent."""
        return self.values - self.matched

    def __str__(self) -> str:
        share = f"{100 * self.share:.1f} %" if self.dangling else "all"
        return (
            f"{share} of {self.values:,} values found; {self.distinct:,} distinct "
            f"among {self.parent_rows:,} rows"
        )


def comparable(
    child: StagedColumn, child_type: ColumnType, parent: StagedColumn, parent_type: ColumnType
) -> tuple[str, str]:
    """SQL for the two columns in a form in which equal keys are equal."""
    numeric = {"integer", "number"}
    if child_type.name in numeric and parent_type.name in numeric:
        # A nullable integer often arrives as 12.0; as a key it is 12.
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
    """Look every value of the child up among the parent's."""
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
    """SQL of the child's and the parent's side, column by column.

    Args:
        child: The table that refers.
        columns: Its columns.
        parent: The table referred to.
        parent_columns: Its columns.
        loose: Whether text is compared without regard to case and to spaces at the end.
    """
    pairs = [
        comparable(child.column(c), child.types[c], parent.column(p), parent.types[p])
        for c, p in zip(columns, parent_columns, strict=True)
    ]
    if loose:
        pairs = [(_loose(a), _loose(b)) for a, b in pairs]
    return pairs


def _loose(expression: str) -> str:
    return f"lower(rtrim(CAST({expression} AS VARCHAR)))"


def is_unique_loosely(staging: Staging, table: TypedTable, columns: Sequence[str]) -> bool:
    """Whether keys stay different without regard to case and to spaces at the end."""
    keys = ", ".join(_loose(type_sql(table.column(c), table.types[c])) for c in columns)
    everything, different = staging.row(
        f"SELECT (SELECT count(*) FROM (SELECT DISTINCT {keys.replace('lower(', '(')} FROM "
        f"{table.staged.sql})), (SELECT count(*) FROM (SELECT DISTINCT {keys} FROM "
        f"{table.staged.sql}))"
    )
    return bool(everything == different)


def propose_primary_key(
    staging: Staging, table: TypedTable, others: Iterable[TypedTable]
) -> tuple[str, str] | None:
    """The column that is most likely the primary key, and why; None if there is none.

    It must be unique and complete, and its name or place must say that it is a key.
    """
    rows = table.staged.rows
    elsewhere = {w for other in others if other is not table for w in other.words.values()}
    best: tuple[int, int, str, str] | None = None
    for position, (name, column) in enumerate(table.staged.columns.items()):
        if table.types[name].name not in ("integer", "text") or not rows:
            continue
        if column.facts.present < rows or column.facts.distinct < 0.8 * rows:
            continue
        score, reasons = _key_name(table.noun, table.words[name])
        if position == 0:
            score, reasons = score + 1, [*reasons, "first column"]
        if table.words[name] in elsewhere and table.words[name] not in _GENERIC:
            score, reasons = score + 1, [*reasons, "the name occurs in another table"]
        if position == 0 and table.types[name].name == "text" and _is_code(staging, table, name):
            score, reasons = score + 1, [*reasons, "short codes"]
        better = best is None or (score, -position) > (best[0], best[1])
        if score >= 2 and better and not check_unique(staging, table, [name]).duplicates:
            best = (score, -position, name, f"{rows:,} distinct values; {', '.join(reasons)}")
    return (best[2], best[3]) if best else None


def _key_name(owner: tuple[str, ...], name: tuple[str, ...]) -> tuple[int, list[str]]:
    """How much a column's name says that it is its table's key."""
    if name in _GENERIC or _is_owners(name, owner):
        return 4, ["named as this table's key"]
    if name and name[-1] in _SURE_KEY_WORDS:
        return 2, ["named as a key"]
    if name and name[-1] in _KEY_WORDS:
        return 1, ["named as a code"]
    return 0, []


def _is_code(staging: Staging, table: TypedTable, column: str) -> bool:
    name = table.column(column).sql
    longest, spaced = staging.row(
        f"SELECT max(length({name})), count(*) FILTER (WHERE contains({name}, ' ')) "
        f"FROM {table.staged.sql}"
    )
    return bool(longest <= 40 and not spaced)


def with_words(tables: Iterable[TypedTable]) -> dict[str, TypedTable]:
    """The tables with the words of their names.

    What most tables share (``olist_orders_dataset``) says nothing, nor what all columns of a table
    share (``c_custkey``, ``c_name``).
    """
    tables = list(tables)
    names = [words(t.name.rsplit(".", 1)[-1]) for t in tables]
    names = _without_common(names)
    names = [n[::-1] for n in _without_common([n[::-1] for n in names])]
    out = {}
    for table, name in zip(tables, names, strict=True):
        columns = {c: words(c) for c in table.types}
        firsts = {w[:1] for w in columns.values()}
        if len(columns) > 2 and len(firsts) == 1 and all(len(w) > 1 for w in columns.values()):
            columns = {c: w[1:] for c, w in columns.items()}
        noun = tuple(singular(w) for w in name)
        out[table.name] = replace(table, noun=noun, words=columns)
    return out


def _without_common(names: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Names without the first word that most of them share."""
    firsts = Counter(n[0] for n in names if len(n) > 1)
    word, count = firsts.most_common(1)[0] if firsts else ("", 0)
    if count < 3 or count <= len(names) / 2:
        return names
    return [n[1:] if len(n) > 1 and n[0] == word else n for n in names]


def _is_owners(name: tuple[str, ...], owner: tuple[str, ...]) -> bool:
    """Whether a name is a table's own key: ``user_id`` and ``userid`` are those of users."""
    if not name or not owner:
        return False
    stem = tuple(singular(w) for w in name[:-1])
    if name[-1] in _KEY_WORDS and stem == owner:
        return True
    joined = "".join(name)
    return any(
        joined.endswith(key) and singular(joined[: -len(key)]) == "".join(owner)
        for key in _SURE_KEY_WORDS | {"key"}
    )


def _reference_name(child: TypedTable, column: str, parent: TypedTable, key: str) -> int:
    """How much a column's name says that it refers to a table.

    0: nothing; 1: not enough; 2: enough if all values are found; 3 and 4: surely.
    """
    name, owner, key_name = child.words[column], parent.noun, parent.words[key]
    if not name or not owner:
        return 0
    if child.name == parent.name:
        # flight_number is the flight's own; only words such as "parent" lead to another row.
        return 2 if _SELF_WORDS & set(name) else 0
    if _is_owners(name, owner):
        return 4 if name[-1] in _SURE_KEY_WORDS | {"key"} or len(name) == 1 else 2
    if name == key_name and name not in _GENERIC:
        return 3
    stem = tuple(singular(w) for w in (name[:-1] if name[-1] in _KEY_WORDS else name))
    if stem and stem[-len(owner) :] == owner:
        if name[-1] in _SURE_KEY_WORDS | {"key", "code", "ref"}:
            return 3
        # "customer" names one; "customers", and "customer number", may count them.
        plural = name[-1] != singular(name[-1]) and name[-1] == words(parent.name)[-1]
        return 1 if plural or name[-1] in _KEY_WORDS else 2
    if (
        key_name not in _GENERIC
        and len(name) > len(key_name)
        and name[-len(key_name) :] == key_name
    ):
        return 2
    if len(owner) > 1 and stem and stem[-1:] == owner[-1:] and name[-1] in _KEY_WORDS:
        return 1
    return 0


def propose_foreign_keys(
    staging: Staging,
    child: TypedTable,
    parents: Mapping[str, tuple[TypedTable, str]],
    taken: Iterable[str],
    own_key: Sequence[str],
) -> list[tuple[str, str, Evidence, bool]]:
    """Foreign keys that nobody declared.

    Args:
        staging: The workshop.
        child: The table whose columns are looked at.
        parents: Per table that has a primary key of one column: the table and that column.
        taken: Columns that are foreign keys already.
        own_key: The child's own primary key.

    Returns:
        (column, parent, evidence, holds). It holds if every value has a parent and the name or,
        for text, the values themselves leave little doubt; otherwise it is a suggestion.
    """
    taken = set(taken)
    found = []
    for name, column in child.staged.columns.items():
        kind = child.types[name].name
        if name in taken or kind not in ("integer", "text", "number") or not column.facts.present:
            continue
        candidates = []
        for parent_name, (parent, key) in parents.items():
            if parent_name == child.name and name == key:
                continue
            strength = _reference_name(child, name, parent, key)
            if (name,) == tuple(own_key) and strength < 4:
                continue
            candidate = _candidate(staging, child, name, parent, key, strength)
            if candidate is not None:
                candidates.append((strength, candidate.share, parent_name, candidate))
        if candidates:
            strength, share, parent_name, evidence = max(
                candidates, key=lambda c: (c[0] >= 4, c[1] == 1, c[:2])
            )
            # Zero often stands for "none".
            holds = share == 1 or (strength >= 2 and evidence.examples == ("0",))
            by_itself = strength == 0 and kind == "text"
            if holds and (strength >= 2 or by_itself):
                found.append((name, parent_name, evidence, True))
            elif strength >= 1 or share >= _SURELY:
                found.append((name, parent_name, evidence, False))
    return found


def _candidate(
    staging: Staging, child: TypedTable, name: str, parent: TypedTable, key: str, strength: int
) -> Evidence | None:
    """The evidence for one pair of columns, if it is worth looking for."""
    kinds = {child.types[name].name, parent.types[key].name}
    if "text" in kinds and kinds != {"text"}:
        return None
    if not strength:
        # Small integers are found everywhere; only text can speak for itself.
        low, high = child.column(name).facts.low, child.column(name).facts.high
        key_facts = parent.column(key).facts
        if kinds != {"text"} or key_facts.present == 0 or parent.staged.rows < 3:
            return None
        if type(low) is not type(key_facts.low) or not isinstance(low, str):
            return None
        if low < key_facts.low or high > key_facts.high or child.column(name).facts.distinct < 3:
            return None
        if len(low) < 2:  # M and F are everywhere, too
            return None
    evidence = match_keys(staging, child, [name], parent, [key])
    return evidence if evidence.share >= _SUGGEST and evidence.values else None
