"""Decide on primary and foreign keys: declared, proposed, or chosen by the user.

:class:`ImportPlan` collects all decisions; `plan` adds those on types, times and splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from relfrog.errors import SchemaError, unknown
from relfrog.importing.column_types import type_sql
from relfrog.importing.corrections import TableCorrections
from relfrog.importing.key_checks import (
    Evidence,
    KeyCheck,
    TypedTable,
    check_unique,
    is_unique_loosely,
    match_keys,
)
from relfrog.importing.key_proposals import (
    matching_columns,
    propose_composite_key,
    propose_foreign_keys,
    propose_primary_key,
)
from relfrog.importing.mapping import ForeignKeyMapping, ImportMapping, Notice
from relfrog.importing.staging import Staging

if TYPE_CHECKING:
    import numpy as np

__all__ = ["REFUSED", "ImportPlan", "plan_foreign_keys", "plan_primary_key"]


@dataclass
class ImportPlan:
    """Everything decided about an import.

    Attributes:
        mapping: What each table, column and key becomes.
        typed: The staged tables with the types of their columns.
        checks: The check of each primary key, by table.
        evidence: The evidence for each foreign key in use, by (table, columns).
        notices: What the user should know.
        selection: What is read, as in :meth:`Selection.to_dict`.
        untimed: Rows without a time, of each table with a time column.
        known: From when on rows are known, in microseconds since 1970, of each table that inherits
            times; in the order of the staged table.
    """

    mapping: ImportMapping
    typed: dict[str, TypedTable]
    checks: dict[str, KeyCheck] = field(default_factory=dict)
    evidence: dict[tuple[str, tuple[str, ...]], Evidence] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    selection: dict[str, list[str]] = field(default_factory=dict)
    untimed: dict[str, int] = field(default_factory=dict)
    known: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)

    def time_of(self, table: str) -> tuple[str, str] | None:
        """SQL of a table and of its rows' own times; None if it has no time column."""
        typed, entry = self.typed[table], self.mapping.tables[table]
        if entry.time is None:
            return None
        return typed.staged.sql, type_sql(typed.column(entry.time), entry.columns[entry.time])


def _columns_exist(table: TypedTable, columns: Sequence[str], what: str) -> None:
    for column in columns:
        if column not in table.types:
            declared = {c.name: c.declared for c in table.staged.source.columns}
            if column in declared:
                raise SchemaError(
                    f"{what}: {table.name}.{column} is {declared[column]}, which cannot be a key. "
                    "Choose another column."
                )
            raise unknown(f"column in table {table.name}", column, table.types)


def plan_primary_key(
    staging: Staging, plan: ImportPlan, name: str, given: TableCorrections | None
) -> None:
    """Decide on a table's primary key: chosen by the user, else declared, else proposed."""
    table, entry = plan.typed[name], plan.mapping.tables[name]
    declared = tuple(table.staged.source.primary_key)
    if declared and all(c in table.types for c in declared):
        entry.primary_key, entry.primary_key_origin = declared, "declared"
    else:
        if declared:
            text = f"the declared primary key ({', '.join(declared)}) cannot be read"
            plan.notices.append(Notice("left out", name, "", text))
        tables = plan.typed.values()
        proposal = propose_primary_key(staging, table, tables)
        proposal = proposal or propose_composite_key(staging, table, tables)
        if proposal is not None:
            entry.primary_key, entry.primary_key_evidence = proposal
            entry.primary_key_origin = "proposed"
    if given is not None and given.primary_key not in (None, entry.primary_key):
        assert given.primary_key is not None
        _columns_exist(table, given.primary_key, "primary key")
        instead = f"instead of {', '.join(entry.primary_key)} ({entry.primary_key_origin})"
        entry.primary_key_evidence = instead if entry.primary_key else ""
        entry.primary_key, entry.primary_key_origin = given.primary_key, "chosen"
    for column in entry.primary_key:
        _check_key_type(staging, table, column)
    if entry.primary_key:
        check = check_unique(staging, table, entry.primary_key)
        plan.checks[name] = check
        if not entry.primary_key_evidence:
            entry.primary_key_evidence = (
                f"{check.duplicates:,} duplicates" if check.duplicates else "unique"
            )
        if check.missing:
            text = (
                f"{check.missing:,} rows have no key; they are kept, but nothing can refer to them"
            )
            plan.notices.append(Notice("changed", name, ", ".join(entry.primary_key), text))


def _check_key_type(staging: Staging, table: TypedTable, column: str) -> None:
    """Raise SchemaError if the type that the user chose would lose keys."""
    staged, kind = table.column(column), table.types[column]
    if kind.reason != "chosen":
        return
    (lost,) = staging.row(
        f"SELECT count({staged.sql}) - count({type_sql(staged, kind)}) FROM {table.staged.sql}"
    )
    if lost or kind.name in ("boolean", "time"):
        raise SchemaError(
            f"{table.name}.{column} is the primary key and cannot become {kind}: "
            f"{lost:,} keys would be lost. Keep its type."
        )


def plan_foreign_keys(
    staging: Staging, plan: ImportPlan, name: str, given: TableCorrections | None
) -> None:
    """Decide on a table's foreign keys: declared, proposed, or chosen by the user."""
    table, entry = plan.typed[name], plan.mapping.tables[name]
    given = given or TableCorrections()
    keys = [
        ForeignKeyMapping(k.columns, k.parent, k.parent_columns, "declared")
        for k in table.staged.source.foreign_keys
    ]
    for key in keys:
        key.parent_columns = key.parent_columns or _key_of(plan, key.parent)
    # A source may declare a key twice, under two names.
    keys = list({(k.columns, k.parent, k.parent_columns): k for k in keys}.values())
    taken = {k.columns for k in keys} | {k.columns for k in given.added_keys}
    keys += _proposed_keys(staging, plan, name, taken)
    found = keys
    if given.foreign_keys is not None:
        # Entries of the mapping file that the user did not change keep their origin.
        known = {(k.columns, k.parent, k.parent_columns): k for k in keys}
        keys = []
        for key in given.foreign_keys:
            columns = key.parent_columns or _key_of(plan, key.parent)
            same = known.get((key.columns, key.parent, columns))
            untouched = same is not None and same.used == key.used
            keys.append(same if untouched and same is not None else replace(key))
    added = {k.columns for k in given.added_keys}
    keys = [k for k in keys if k.columns not in added | given.refused_keys]
    keys += [replace(k) for k in given.added_keys]
    # Keys that the user refused stay visible in the mapping, unused.
    wanted = {(k.columns, k.parent) for k in keys}
    refused = [k for k in found if (k.columns, k.parent) not in wanted]
    keys += [replace(k, used=False, evidence=REFUSED) for k in refused]
    for key in keys:
        if key.evidence == REFUSED:
            continue
        if key.origin != "proposed":
            _check_key(staging, plan, name, key)
        elif key.used:
            _report_dangling(plan, name, key)
        else:
            text = f"may refer to {key.parent}.{key.parent_columns[0]} ({key.evidence}); not used. "
            text += f"To use it: --fk {name}.{key.columns[0]}={key.parent}.{key.parent_columns[0]}"
            plan.notices.append(Notice("suggestion", name, key.columns[0], text))
    entry.foreign_keys = keys


#: The evidence of a key that the user does not want.
REFUSED = "refused by the user"


def _key_of(plan: ImportPlan, table: str) -> tuple[str, ...]:
    return plan.mapping.tables[table].primary_key if table in plan.mapping.tables else ()


def _proposed_keys(
    staging: Staging, plan: ImportPlan, name: str, taken: set[tuple[str, ...]]
) -> list[ForeignKeyMapping]:
    single = {
        other: (plan.typed[other], mapped.primary_key[0])
        for other, mapped in plan.mapping.tables.items()
        if len(mapped.primary_key) == 1 and not plan.checks[other].duplicates
    }
    columns = {c[0] for c in taken if len(c) == 1}
    own = plan.mapping.tables[name].primary_key
    keys = []
    for column, parent, evidence, holds in propose_foreign_keys(
        staging, plan.typed[name], single, columns, own
    ):
        key = (single[parent][1],)
        keys.append(ForeignKeyMapping((column,), parent, key, "proposed", str(evidence), holds))
        plan.evidence[name, (column,)] = evidence
    return keys + _proposed_composites(staging, plan, name, taken)


def _proposed_composites(
    staging: Staging, plan: ImportPlan, name: str, taken: set[tuple[str, ...]]
) -> list[ForeignKeyMapping]:
    """Columns named like another table's composite key, if all their values are found."""
    child, keys = plan.typed[name], []
    for other, mapped in plan.mapping.tables.items():
        key = mapped.primary_key
        if len(key) < 2 or other == name or plan.checks[other].duplicates:
            continue
        columns = matching_columns(child, plan.typed[other], key)
        same = columns == plan.mapping.tables[name].primary_key
        if not columns or columns in taken or (same and child.staged.rows >= mapped.rows):
            continue
        if _are_siblings(plan, name, columns, other, key):
            continue
        evidence = match_keys(staging, child, columns, plan.typed[other], key)
        if evidence.values and not evidence.dangling:
            keys.append(ForeignKeyMapping(columns, other, key, "proposed", str(evidence)))
            plan.evidence[name, columns] = evidence
    return keys


def _are_siblings(
    plan: ImportPlan, child: str, columns: tuple[str, ...], parent: str, key: tuple[str, ...]
) -> bool:
    """Whether two tables share no more than a declared parent and times.

    An employee's first title and first salary begin on the same day, but are not one another's.
    """
    declared = {
        name: {k.columns: k.parent for k in plan.typed[name].staged.source.foreign_keys}
        for name in (child, parent)
    }
    rest = [
        column
        for column, own in zip(columns, key, strict=True)
        if declared[child].get((column,), "") != declared[parent].get((own,), None)
    ]
    times = [plan.typed[child].types[column].name == "time" for column in rest]
    return len(rest) < len(columns) and all(times)


def _has_text(table: TypedTable, columns: Sequence[str]) -> bool:
    return any(table.types[c].name == "text" for c in columns)


def _check_key(staging: Staging, plan: ImportPlan, name: str, key: ForeignKeyMapping) -> None:
    """Check a declared or chosen key, and collect its evidence."""
    table = plan.typed[name]
    by_user = key.origin == "chosen"
    if not key.used:
        key.evidence = "not used"
        return
    if key.parent not in plan.typed:
        if by_user:
            raise unknown("table", key.parent, plan.typed)
        key.used, key.evidence = False, f"table {key.parent} is not imported"
        text = f"the foreign key to {key.parent} is left out: that table is not imported"
        plan.notices.append(Notice("left out", name, ", ".join(key.columns), text))
        return
    parent = plan.typed[key.parent]
    if not key.parent_columns:
        key.parent_columns = plan.mapping.tables[key.parent].primary_key
    what = f"foreign key {name}.{', '.join(key.columns)} -> {key.parent}"
    try:
        if not key.parent_columns:
            raise SchemaError(
                f"{what}: {key.parent} has no primary key. Choose one: --pk {key.parent}.COLUMN"
            )
        if len(key.columns) != len(key.parent_columns):
            raise SchemaError(
                f"{what}: {len(key.columns)} columns cannot refer to {len(key.parent_columns)} "
                f"({', '.join(key.parent_columns)})"
            )
        _columns_exist(table, key.columns, what)
        _columns_exist(parent, key.parent_columns, what)
    except SchemaError as error:
        if by_user:
            raise
        key.used, key.evidence = False, "declared, but unusable"
        plan.notices.append(Notice("left out", name, ", ".join(key.columns), str(error)))
        return
    if key.parent_columns != plan.mapping.tables[key.parent].primary_key:
        repeated = check_unique(staging, parent, key.parent_columns)
        if repeated.duplicates:
            value, times = repeated.examples[0]
            text = (
                f"{key.parent}.{', '.join(key.parent_columns)} is not unique: "
                f"{repeated.duplicates:,} duplicates, such as {value} ({times} times)"
            )
            if by_user:
                raise SchemaError(f"{what}: {text}. Choose columns that are unique.")
            key.used, key.evidence = False, text
            plan.notices.append(Notice("left out", name, ", ".join(key.columns), text))
            return
    evidence = match_keys(staging, table, key.columns, parent, key.parent_columns, key.loose)
    if evidence.dangling and not key.loose and _has_text(table, key.columns):
        # The database may ignore case or trailing spaces, by its collation or CHAR columns.
        again = match_keys(staging, table, key.columns, parent, key.parent_columns, loose=True)
        if again.matched > evidence.matched and is_unique_loosely(
            staging, parent, key.parent_columns
        ):
            text = (
                f"{again.matched - evidence.matched:,} values match {key.parent} only if case, "
                "accents and trailing spaces are ignored; they are matched that way"
            )
            plan.notices.append(Notice("changed", name, ", ".join(key.columns), text))
            evidence, key.loose = again, True
    key.evidence = str(evidence)
    plan.evidence[name, key.columns] = evidence
    _report_dangling(plan, name, key)


def _report_dangling(plan: ImportPlan, name: str, key: ForeignKeyMapping) -> None:
    evidence = plan.evidence[name, key.columns]
    if evidence.dangling:
        shown = ", ".join(evidence.examples)
        text = (
            f"{evidence.dangling:,} of {evidence.values:,} values have no match in {key.parent}."
            f"{', '.join(key.parent_columns)} and become NULL, such as {shown}"
        )
        plan.notices.append(Notice("changed", name, ", ".join(key.columns), text))
