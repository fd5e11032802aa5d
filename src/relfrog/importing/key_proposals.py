"""Propose keys that are not declared, from names, types and values, with evidence."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from relfrog.importing.column_types import type_sql
from relfrog.importing.key_checks import Evidence, TypedTable, check_unique, match_keys
from relfrog.importing.reference_words import (
    acts_through,
    is_people,
    names_a_person,
    says_by_whom,
)
from relfrog.importing.staging import Staging
from relfrog.support.text import singular, words

__all__ = [
    "add_words",
    "matching_columns",
    "propose_composite_key",
    "propose_foreign_keys",
    "propose_primary_key",
]  # fmt: skip

#: Names that only say "key".
_GENERIC = {("id",), ("uuid",), ("guid",), ("pk",), ("key",), ("rowid",)}
_KEY_WORDS = {"id", "uuid", "guid", "pk", "key", "code", "no", "nr", "num", "number", "ref"}
_SURE_KEY_WORDS = {"id", "uuid", "guid", "pk"}
#: Words of columns in a composite key, such as (team, year).
_PART_WORDS = _KEY_WORDS | {"year", "yearid", "season", "date", "month", "week", "day", "quarter"}
#: The same written in one word; "paid" is ruled out by the rows.
_KEY_ENDINGS = ("id", "key", "code")
#: Words in references to another row of the same table.
_SELF_WORDS = {"parent", "manager", "supervisor", "boss", "reports", "reply", "root", "previous"}
_SELF_WORDS |= {"prev", "next", "original", "ancestor", "duplicate", "superseded", "replaces"}

#: The least share of matching values for a suggestion.
_SUGGEST = 0.5
#: ... if the name says nothing.
_SUGGEST_UNNAMED = 0.9


def propose_primary_key(
    staging: Staging, table: TypedTable, others: Iterable[TypedTable]
) -> tuple[tuple[str, ...], str] | None:
    """The column that is most likely the primary key, and why; None if there is none.

    It must be unique and without NULLs, and its name or position must suggest a key.
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
    return ((best[2],), best[3]) if best else _key_by_references(staging, table, others)


def _key_by_references(
    staging: Staging, table: TypedTable, others: Iterable[TypedTable]
) -> tuple[tuple[str, ...], str] | None:
    """A column whatever its name, if another table's column is named like this table's key.

    ``account.district_id`` refers to the column of ``district`` that has all of its values.
    """
    rows = table.staged.rows
    named = [
        (other, column)
        for other in others
        if other is not table
        for column, name in other.words.items()
        if _is_own_key(name, table.noun) and other.types[column].name in ("integer", "text")
    ]
    for name, column in table.staged.columns.items() if named else ():
        kind = table.types[name].name
        if not rows or column.facts.present < rows or column.facts.distinct < 0.8 * rows:
            continue
        if not any(other.types[c].name == kind for other, c in named):
            continue
        if check_unique(staging, table, [name]).duplicates:
            continue
        for other, reference in named:
            if other.types[reference].name != kind:
                continue
            found = match_keys(staging, other, [reference], table, [name])
            if found.distinct > 1 and not found.dangling:
                place = f"{other.name}.{reference}"
                return (name,), f"{rows:,} distinct values; {place} has no others"
    return None


def propose_composite_key(
    staging: Staging, table: TypedTable, others: Iterable[TypedTable]
) -> tuple[tuple[str, ...], str] | None:
    """Two or three columns that form the primary key, and why; None if there are none.

    They must be unique and without NULLs, and another table must refer to them: its columns of the
    same names hold only values found here, some of them repeatedly.
    """
    rows, others = table.staged.rows, [other for other in others if other is not table]
    distinct = {
        name: column.facts.distinct
        for name, column in table.staged.columns.items()
        if column.facts.present == rows
        and table.types[name].name in ("integer", "text", "time")
        and _is_key_part(table.words[name])
    }
    for size in (2, 3):
        for columns in itertools.combinations(distinct, size):
            if not rows or math.prod(distinct[c] for c in columns) < 0.9 * rows:
                continue  # distinct counts are approximate
            children = [(c, matching_columns(c, table, columns)) for c in others]
            children = [(child, names) for child, names in children if names]
            if not children or not _is_unique(staging, table, columns):
                continue
            for child, names in children:
                found = match_keys(staging, child, names, table, columns)
                if found.values > found.distinct and not found.dangling:
                    return columns, f"{rows:,} distinct values; {child.name} refers to them"
    return None


def _is_key_part(name: tuple[str, ...]) -> bool:
    """Whether a column's name suggests part of a key: ``season``, ``part_id`` and ``partkey``."""
    return not _PART_WORDS.isdisjoint(name) or (bool(name) and name[-1].endswith(_KEY_ENDINGS))


def _is_unique(staging: Staging, table: TypedTable, columns: Sequence[str]) -> bool:
    """Whether columns without NULLs are unique together; cheaper than check_unique."""
    listed = ", ".join(type_sql(table.column(c), table.types[c]) for c in columns)
    (different,) = staging.row(
        f"SELECT count(*) FROM (SELECT DISTINCT {listed} FROM {table.staged.sql})"
    )
    return bool(different == table.staged.rows)


def matching_columns(
    child: TypedTable, parent: TypedTable, columns: Sequence[str]
) -> tuple[str, ...]:
    """The child's columns with the same names as the parent's; empty if one is missing."""
    names = {child.words[name]: name for name in child.types}
    found = [names.get(parent.words[column], "") for column in columns]
    for name, column in zip(found, columns, strict=True):
        if not name or (child.types[name].name == "text") != (parent.types[column].name == "text"):
            return ()
    return tuple(found)


def _key_name(owner: tuple[str, ...], name: tuple[str, ...]) -> tuple[int, list[str]]:
    """Score how much a column's name suggests that it is its table's key, with reasons."""
    if name in _GENERIC or _is_own_key(name, owner):
        return 4, ["named like this table's key"]
    if name and name[-1] in _SURE_KEY_WORDS:
        return 2, ["named like a key"]
    if name and name[-1] in _KEY_WORDS:
        return 1, ["named like a code"]
    return 0, []


def _is_code(staging: Staging, table: TypedTable, column: str) -> bool:
    name = table.column(column).sql
    longest, spaced = staging.row(
        f"SELECT max(length({name})), count(*) FILTER (WHERE contains({name}, ' ')) "
        f"FROM {table.staged.sql}"
    )
    return bool(longest <= 40 and not spaced)


def add_words(tables: Iterable[TypedTable]) -> dict[str, TypedTable]:
    """Add the words of names to tables.

    Words that most tables share (``olist_orders_dataset``) are dropped, and so is a prefix that all
    columns of a table share (``c_custkey``, ``c_name``).
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
    """Drop the first word of names if most of them share it."""
    firsts = Counter(n[0] for n in names if len(n) > 1)
    word, count = firsts.most_common(1)[0] if firsts else ("", 0)
    if count < 3 or count <= len(names) / 2:
        return names
    return [n[1:] if len(n) > 1 and n[0] == word else n for n in names]


def _is_own_key(name: tuple[str, ...], owner: tuple[str, ...]) -> bool:
    """Whether a name is that of a table's key: ``user_id`` and ``userid`` for users."""
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
    """Score how much a column's name suggests that it refers to a table.

    0: not at all; 1: not enough; 2: enough if all values are found; 3 and 4: certainly.
    """
    name, owner, key_name = child.words[column], parent.noun, parent.words[key]
    if not name or not owner:
        return 0
    if child.name == parent.name:
        # flight_number belongs to the flight; only words such as "parent" mean another row.
        return 2 if _SELF_WORDS & set(name) else 0
    if _is_own_key(name, owner):
        return 4 if name[-1] in _SURE_KEY_WORDS | {"key"} or len(name) == 1 else 2
    if name == key_name and name not in _GENERIC:
        return 3
    stem = tuple(singular(w) for w in (name[:-1] if name[-1] in _KEY_WORDS else name))
    if stem and stem[-len(owner) :] == owner:
        if name[-1] in _SURE_KEY_WORDS | {"key", "code", "ref"}:
            return 3
        # "customer" refers to one; "customers" and "customer number" may be counts.
        plural = name[-1] != singular(name[-1]) and name[-1] == words(parent.name)[-1]
        return 1 if plural or name[-1] in _KEY_WORDS else 2
    if (
        key_name not in _GENERIC
        and len(name) > len(key_name)
        and name[-len(key_name) :] == key_name
    ):
        return 2
    if acts_through(name, owner):
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
    """Propose foreign keys that are not declared.

    Args:
        staging: The staging database.
        child: The table whose columns to examine.
        parents: The tables with a primary key of one column, each with that column.
        taken: Columns that already are foreign keys.
        own_key: The child's own primary key.

    Returns:
        (column, parent, evidence, holds). It holds if every value has a parent and the name or, for
        text and large numbers, the values themselves leave little doubt; otherwise it is only a
        suggestion.
    """
    taken = set(taken)
    found = []
    # Who did something is one of the people, if there is one table of people alone.
    crowd = [t for t, _ in parents.values() if is_people(t.noun)]
    people = crowd[0] if len(crowd) == 1 else None
    for name, column in child.staged.columns.items():
        kind = child.types[name].name
        if name in taken or kind not in ("integer", "text", "number") or not column.facts.present:
            continue
        candidates = []
        for parent_name, (parent, key) in parents.items():
            if parent_name == child.name and name == key:
                continue
            strength = _reference_name(child, name, parent, key)
            if not strength and parent is people and names_a_person(child.words[name]):
                strength = 2
            # A row that has another's key as its own says more about that one: order_no of a
            # table of order notes. So it is if not all of the others have one.
            same = child.words[name] == parent.words[key] and strength >= 2
            fewer = same and child.staged.rows < parent.staged.rows
            if (name,) == tuple(own_key) and not fewer:
                if not _is_own_key(child.words[name], parent.noun):
                    continue
            candidate = _candidate(staging, child, name, parent, key, strength)
            if candidate is not None:
                candidates.append((strength, candidate.share, parent_name, candidate))
        if not candidates and (name,) != tuple(own_key):
            found += _by_values(staging, child, name, parents)
        if candidates:
            strength, share, parent_name, evidence = max(
                candidates, key=lambda c: (c[0] >= 4, c[1] == 1, c[:2])
            )
            # Zero often means "none".
            holds = share == 1 or (strength >= 2 and evidence.examples == ("0",))
            by_values = strength == 0 and kind == "text"
            if holds and (strength >= 2 or by_values):
                found.append((name, parent_name, evidence, True))
            elif strength >= 1 or share >= _SUGGEST_UNNAMED:
                found.append((name, parent_name, evidence, False))
    return found


#: A key is unlike other numbers if it begins no lower, or has no more of the numbers in between.
_LOWEST, _DENSEST = 1000, 0.2
#: The fewest different values that cannot all be in a key without gaps by chance; and how likely
#: that may be in one with gaps.
_FEWEST_VALUES, _BY_CHANCE = 10, 1e-6


def _by_values(
    staging: Staging,
    child: TypedTable,
    name: str,
    parents: Mapping[str, tuple[TypedTable, str]],
) -> list[tuple[str, str, Evidence, bool]]:
    """The one table whose key has all values of a column.

    Only keys count that are unlike other numbers: 1000, 1007, 1014; and, for a column that is
    named like a key, 10248 to 11077, but not 1 to 77. It holds if the name says that the column
    refers to something, be it by whom something was done.
    """
    if child.types[name].name != "integer":
        return []
    named = bool(_KEY_WORDS & set(child.words[name][-1:]))
    distinct = child.column(name).facts.distinct
    value = type_sql(child.column(name), child.types[name])
    low, high = staging.row(f"SELECT min({value}), max({value}) FROM {child.staged.sql}")
    found = []
    for other, (parent, key) in parents.items():
        if other == child.name or not _may_hold(parent, key, low, high, named):
            continue
        value = type_sql(parent.column(key), parent.types[key])
        first, between = staging.row(
            f"SELECT min({value}), count(*) FILTER (WHERE {value} BETWEEN {low} AND {high}) "
            f"FROM {parent.staged.sql}"
        )
        # Among the column's own numbers: one key far away makes no other sparse.
        density = between / (high - low + 1)
        sparse = density < _DENSEST and density**distinct < _BY_CHANCE
        if sparse or (named and first >= _LOWEST and distinct >= _FEWEST_VALUES):
            evidence = match_keys(staging, child, [name], parent, [key])
            if evidence.share == 1:
                holds = named or says_by_whom(child.words[name])
                found.append((name, other, evidence, holds))
    return found if len(found) == 1 else []


def _may_hold(parent: TypedTable, key: str, low: int, high: int, named: bool) -> bool:
    """Whether all whole numbers of a column may be in a key, by what is known of it already."""
    facts = parent.column(key).facts
    if parent.types[key].name != "integer" or not facts.present:
        return False
    if not isinstance(facts.low, int) or not isinstance(facts.high, int):
        return True
    gaps = facts.present < _DENSEST * (facts.high - facts.low + 1)
    return facts.low <= low and high <= facts.high and (named or gaps)


def _candidate(
    staging: Staging, child: TypedTable, name: str, parent: TypedTable, key: str, strength: int
) -> Evidence | None:
    """The evidence for one pair of columns; None if they are no candidates."""
    kinds = {child.types[name].name, parent.types[key].name}
    if "text" in kinds and kinds != {"text"}:
        return None
    if not strength:
        # Small integers match everywhere; without a name only text is evidence.
        low, high = child.column(name).facts.low, child.column(name).facts.high
        key_facts = parent.column(key).facts
        if kinds != {"text"} or key_facts.present == 0 or parent.staged.rows < 3:
            return None
        if type(low) is not type(key_facts.low) or not isinstance(low, str):
            return None
        if low < key_facts.low or high > key_facts.high or child.column(name).facts.distinct < 3:
            return None
        if len(low) < 2:  # so do M and F
            return None
    evidence = match_keys(staging, child, [name], parent, [key])
    return evidence if evidence.share >= _SUGGEST and evidence.values else None
