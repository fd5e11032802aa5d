"""Deciding what an import will do: declared facts, proposals and corrections together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from relfrog.coltypes import (
    ColumnType,
    check_turn,
    find_type,
    number_times,
    type_sql,
    unusable,
)
from relfrog.errors import SchemaError, UsageError
from relfrog.keys import (
    Evidence,
    KeyCheck,
    TypedTable,
    check_unique,
    is_unique_loosely,
    match_keys,
    propose_foreign_keys,
    propose_primary_key,
    with_words,
)
from relfrog.mapping import (
    Corrections,
    ForeignKeyMapping,
    ImportMapping,
    Notice,
    TableCorrections,
    TableMapping,
    unknown,
)
from relfrog.names import folder_names
from relfrog.staging import StagedTable, Staging
from relfrog.timecols import propose_split, propose_time

__all__ = ["Plan", "make_plan"]


@dataclass
class Plan:
    """The mapping, with what is needed to carry it out.

    Attributes:
        mapping: What becomes of everything.
        typed: The staged tables with the types of their columns.
        checks: Per table with a primary key, how well it holds.
        evidence: Per (table, columns of a used foreign key), how well it holds.
        notices: What the user should know.
    """

    mapping: ImportMapping
    typed: dict[str, TypedTable]
    checks: dict[str, KeyCheck] = field(default_factory=dict)
    evidence: dict[tuple[str, tuple[str, ...]], Evidence] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)


def make_plan(
    staging: Staging,
    staged: Sequence[StagedTable],
    corrections: Corrections,
    source: str,
    now: dt.datetime,
) -> Plan:
    """Decide everything.

    Raises:
        SchemaError: A correction names something that does not exist or cannot hold.
    """
    by_name = {t.name: t for t in staged}
    for name in corrections.tables:
        if name not in by_name:
            raise unknown("table", name, by_name)
    plan = Plan(ImportMapping(source, {}, "", "", ""), {})
    folder = folder_names(by_name)
    for name, table in by_name.items():
        given = corrections.tables.get(name, TableCorrections())
        plan.typed[name] = TypedTable(table, _types(staging, table, given))
        plan.mapping.tables[name] = TableMapping(
            given.name or folder[name], table.rows, dict(plan.typed[name].types)
        )
        plan.notices += [Notice("note", name, "", note) for note in table.source.notes]
    plan.typed = with_words(plan.typed.values())
    _check_names(plan)
    for name in by_name:
        _plan_primary_key(staging, plan, name, corrections.tables.get(name))
    for name in by_name:
        _plan_foreign_keys(staging, plan, name, corrections.tables.get(name))
    for name in by_name:
        _plan_time(staging, plan, name, corrections.tables.get(name), now)
    for name, table in by_name.items():
        _leave_out(plan, table, corrections.tables.get(name, TableCorrections()))
    _plan_split(staging, plan, corrections)
    return plan


def _types(staging: Staging, table: StagedTable, given: TableCorrections) -> dict[str, ColumnType]:
    names = [c.name for c in table.source.columns]
    for wanted in given.columns:
        if wanted not in names:
            raise unknown(f"column in table {table.name}", wanted, names)
    types = {}
    for name, column in table.columns.items():
        chosen = given.columns.get(name)
        if chosen is not None:
            check_turn(f"{table.name}.{name}", column.kind, chosen)
        natural = find_type(staging, table, column)
        # A dropped column may still be a key, which needs its natural type.
        keep = chosen is not None and chosen.name != "drop" and str(chosen) != str(natural)
        types[name] = chosen if keep and chosen is not None else natural
    return types


def _check_names(plan: Plan) -> None:
    seen: dict[str, str] = {"timestamps": "the seed times of label SQL"}
    for source, table in plan.mapping.tables.items():
        if folder_names([table.name])[table.name] != table.name and table.name != "timestamps":
            raise SchemaError(f"table {source}: {table.name!r} cannot be the name of a file")
        if table.name.lower() in seen:
            raise SchemaError(
                f"table {source}: the name {table.name!r} is taken by {seen[table.name.lower()]}"
            )
        seen[table.name.lower()] = f"table {source}"
        if table.name != source:
            plan.notices.append(Notice("mended", source, "", f"named {table.name} in the dataset"))


def _columns_exist(table: TypedTable, columns: Sequence[str], what: str) -> None:
    for column in columns:
        if column not in table.types:
            declared = {c.name: c.declared for c in table.staged.source.columns}
            if column in declared:
                raise SchemaError(
                    f"{what}: {table.name}.{column} is {declared[column]}, which cannot be a key"
                )
            raise unknown(f"column in table {table.name}", column, table.types)


def _plan_primary_key(
    staging: Staging, plan: Plan, name: str, given: TableCorrections | None
) -> None:
    table, entry = plan.typed[name], plan.mapping.tables[name]
    declared = tuple(table.staged.source.primary_key)
    if declared and all(c in table.types for c in declared):
        entry.primary_key, entry.primary_key_origin = declared, "declared"
    else:
        if declared:
            text = f"the declared primary key ({', '.join(declared)}) cannot be read"
            plan.notices.append(Notice("left out", name, "", text))
        proposal = propose_primary_key(staging, table, plan.typed.values())
        if proposal is not None:
            column, evidence = proposal
            entry.primary_key, entry.primary_key_origin = (column,), "proposed"
            entry.primary_key_evidence = evidence
    if given is not None and given.primary_key not in (None, entry.primary_key):
        assert given.primary_key is not None
        _columns_exist(table, given.primary_key, "primary key")
        entry.primary_key, entry.primary_key_origin = given.primary_key, "chosen"
        entry.primary_key_evidence = ""
    if entry.primary_key:
        check = check_unique(staging, table, entry.primary_key)
        plan.checks[name] = check
        if not entry.primary_key_evidence:
            entry.primary_key_evidence = (
                f"{check.duplicates:,} duplicates" if check.duplicates else "unique"
            )
        if check.missing:
            text = f"{check.missing:,} rows have no key; kept, but nothing can refer to them"
            plan.notices.append(Notice("mended", name, ", ".join(entry.primary_key), text))


def _plan_foreign_keys(
    staging: Staging, plan: Plan, name: str, given: TableCorrections | None
) -> None:
    table, entry = plan.typed[name], plan.mapping.tables[name]
    given = given or TableCorrections()
    keys = [
        ForeignKeyMapping(k.columns, k.parent, k.parent_columns, "declared")
        for k in table.staged.source.foreign_keys
    ]
    for key in keys:
        key.parent_columns = key.parent_columns or _key_of(plan, key.parent)
    taken = {k.columns for k in keys} | {k.columns for k in given.added_keys} | given.refused_keys
    keys += _proposed_keys(staging, plan, name, taken)
    if given.foreign_keys is not None:
        # What the user left as it was stays declared or proposed; the rest is the user's choice.
        known = {(k.columns, k.parent, k.parent_columns): k for k in keys}
        keys = []
        for key in given.foreign_keys:
            columns = key.parent_columns or _key_of(plan, key.parent)
            same = known.get((key.columns, key.parent, columns))
            untouched = same is not None and same.used == key.used
            keys.append(same if untouched and same is not None else replace(key))
    replaced = {k.columns for k in given.added_keys} | given.refused_keys
    keys = [k for k in keys if k.columns not in replaced]
    keys += [replace(k) for k in given.added_keys]
    for key in keys:
        if key.origin != "proposed":
            _settle(staging, plan, name, key)
        elif key.used:
            _report_dangling(plan, name, key)
        else:
            text = f"may refer to {key.parent}.{key.parent_columns[0]} ({key.evidence}); not used. "
            text += f"To use it: --fk {name}.{key.columns[0]}={key.parent}.{key.parent_columns[0]}"
            plan.notices.append(Notice("suggestion", name, key.columns[0], text))
    entry.foreign_keys = keys


def _key_of(plan: Plan, table: str) -> tuple[str, ...]:
    return plan.mapping.tables[table].primary_key if table in plan.mapping.tables else ()


def _proposed_keys(
    staging: Staging, plan: Plan, name: str, taken: set[tuple[str, ...]]
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
    return keys


def _has_text(table: TypedTable, columns: Sequence[str]) -> bool:
    return any(table.types[c].name == "text" for c in columns)


def _settle(staging: Staging, plan: Plan, name: str, key: ForeignKeyMapping) -> None:
    """Complete a declared or chosen key, check it, and find out how well it holds."""
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
                f"{what}: {key.parent} has no primary key. Name one: --pk {key.parent}.COLUMN"
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
        key.used, key.evidence = False, "declared, but it cannot hold"
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
        # The database may compare more generously than we do: by its collation, or padded.
        again = match_keys(staging, table, key.columns, parent, key.parent_columns, loose=True)
        if again.matched > evidence.matched and is_unique_loosely(
            staging, parent, key.parent_columns
        ):
            text = (
                f"{again.matched - evidence.matched:,} values match {key.parent} only without "
                "regard to case or to spaces at the end; taken so"
            )
            plan.notices.append(Notice("mended", name, ", ".join(key.columns), text))
            evidence, key.loose = again, True
    key.evidence = str(evidence)
    plan.evidence[name, key.columns] = evidence
    _report_dangling(plan, name, key)


def _report_dangling(plan: Plan, name: str, key: ForeignKeyMapping) -> None:
    evidence = plan.evidence[name, key.columns]
    if evidence.dangling:
        shown = ", ".join(evidence.examples)
        text = (
            f"{evidence.dangling:,} of {evidence.values:,} values have no match in {key.parent}."
            f"{', '.join(key.parent_columns)} and become NULL, such as {shown}"
        )
        plan.notices.append(Notice("mended", name, ", ".join(key.columns), text))


def _plan_time(
    staging: Staging, plan: Plan, name: str, given: TableCorrections | None, now: dt.datetime
) -> None:
    table, entry = plan.typed[name], plan.mapping.tables[name]
    if table.staged.rows:
        proposal = propose_time(staging, table, now)
        entry.time, entry.time_reason = proposal.column, proposal.reason
        entry.time_origin = "proposed" if proposal.column else "none"
    if given is not None and given.no_time and entry.time is not None:
        entry.time, entry.time_origin, entry.time_reason = None, "chosen", "the user wants none"
    elif given is not None and given.time not in (None, entry.time):
        assert given.time is not None
        if given.time not in table.types:
            raise unknown(f"column in table {name}", given.time, table.types)
        kind = _as_time(staging, table, given.time)
        table.types[given.time] = entry.columns[given.time] = kind
        entry.time, entry.time_origin, entry.time_reason = given.time, "chosen", ""
    if entry.time_reason.startswith("not taken"):
        text = f"no time column ({entry.time_reason}). To choose one: --time {name}.COLUMN"
        plan.notices.append(Notice("note", name, "", text))
    if entry.time is None or not table.staged.rows:
        # RelBench cannot take the minimum of no rows; an empty table needs no time.
        entry.time = None
        return
    column = table.column(entry.time)
    value = type_sql(column, table.types[entry.time])
    (missing,) = staging.row(
        f"SELECT count(*) FILTER (WHERE ({value}) IS NULL) FROM {table.staged.sql}"
    )
    if missing == table.staged.rows:
        raise SchemaError(f"time column {name}.{entry.time}: no value can be read as a time")
    if missing:
        text = (
            f"{missing:,} of {table.staged.rows:,} rows have no time: they get the first time of "
            "all and are visible from the beginning, which may leak"
        )
        plan.notices.append(Notice("leak", name, entry.time, text))


def _as_time(staging: Staging, table: TypedTable, column: str) -> ColumnType:
    """The type with which a column that the user calls a time is read."""
    kind = table.types[column]
    if kind.name == "time":
        return kind
    staged = table.column(column)
    ways = [ColumnType("time")]
    if kind.name in ("integer", "number"):
        ways = number_times(staging, table.staged, staged)
    for way in ways:
        present, read = staging.row(
            f"SELECT count({staged.sql}), count({type_sql(staged, way)}) FROM {table.staged.sql}"
        )
        if read and read >= 0.5 * present:
            return way
    raise SchemaError(
        f"{table.name}.{column} ({kind.name}) cannot be read as a time. Give its format in a "
        "mapping file, such as 'time %d.%m.%Y' or 'time epoch ms' (see --dry-run)"
    )


def _leave_out(plan: Plan, table: StagedTable, given: TableCorrections) -> None:
    """Drop the columns that can be no feature, unless they are keys or the user wants them."""
    entry, typed = plan.mapping.tables[table.name], plan.typed[table.name]
    keys = {*entry.primary_key, entry.time, *(c for k in entry.used_keys() for c in k.columns)}
    columns: dict[str, ColumnType] = {}
    for source in table.source.columns:
        name = source.name
        if name not in table.columns:
            reason = f"{source.declared}: not usable as a feature"
            columns[name] = ColumnType("drop", reason=reason, notice=True)
        elif name in keys:
            columns[name] = typed.types[name]
        else:
            reason = unusable(table, table.columns[name])
            kind = typed.types[name]
            kind = ColumnType("drop", reason=reason, notice=True) if reason else kind
            chosen = given.columns.get(name, kind)
            columns[name] = kind if str(chosen) == str(kind) else chosen
        kind = columns[name]
        if kind.notice:
            sort: Literal["left out", "note"] = "left out" if kind.name == "drop" else "note"
            plan.notices.append(Notice(sort, table.name, name, kind.reason))
        if name in table.columns:
            _report_losses(plan, table, name)
    entry.columns = columns


def _report_losses(plan: Plan, table: StagedTable, name: str) -> None:
    column = table.columns[name]
    if column.unreadable:
        text = f"{column.unreadable:,} values cannot be read as {column.kind} and become NULL"
        plan.notices.append(Notice("mended", table.name, name, text))
    if column.facts.infinite:
        text = f"{column.facts.infinite:,} NaN or infinite values become NULL"
        plan.notices.append(Notice("mended", table.name, name, text))


def _plan_split(staging: Staging, plan: Plan, corrections: Corrections) -> None:
    mapping = plan.mapping
    timed = [(plan.typed[n], t.time) for n, t in mapping.tables.items() if t.time is not None]
    split = propose_split(staging, timed)
    for name, table in mapping.tables.items():
        later = [k.parent for k in table.used_keys() if mapping.tables[k.parent].time]
        if table.time is None and later and table.rows:
            text = (
                f"has no time column but refers to {', '.join(sorted(set(later)))}, which has: its "
                "rows are visible from the beginning, which may leak"
            )
            plan.notices.append(Notice("leak", name, "", text))
    given = {}
    for flag, stamp in (("--val", corrections.val), ("--test", corrections.test)):
        if stamp is not None:
            try:
                given[flag] = dt.datetime.fromisoformat(stamp)
            except ValueError:
                raise UsageError(f"{flag} {stamp}: write a date such as 2024-06-30") from None
            if given[flag].tzinfo is not None:
                given[flag] = given[flag].astimezone(dt.timezone.utc).replace(tzinfo=None)
    if split is None:
        mapping.val, mapping.test = "1970-01-01", "1970-01-02"
        mapping.split_reason = "no table has a time column: nothing can be predicted ahead of time"
        text = f"{mapping.split_reason}. Choose one: --time TABLE.COLUMN"
        plan.notices.append(Notice("note", "", "", text))
    val = given.get("--val", split.val if split else dt.datetime(1970, 1, 1))
    test = given.get("--test", split.test if split else dt.datetime(1970, 1, 2))
    if val >= test:
        raise UsageError(f"the validation time {val} must lie before the test time {test}")
    mapping.val, mapping.test = _stamp(val), _stamp(test)
    if split is not None:
        proposed = (val, test) == (split.val, split.test)
        mapping.split_reason = split.reason if proposed else "chosen"
        if split.outliers:
            plan.notices.append(Notice("note", "", "", split.outliers))


def _stamp(time: dt.datetime) -> str:
    return time.date().isoformat() if time.time() == dt.time() else time.isoformat(" ")
