"""Plan an import: combine declarations, proposals and the user's corrections."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Literal

from relfrog.errors import SchemaError, UsageError, unknown
from relfrog.importing.column_types import (
    ColumnType,
    check_conversion,
    find_type,
    number_times,
    period,
    type_sql,
    unusable,
)
from relfrog.importing.corrections import Corrections, TableCorrections
from relfrog.importing.entity_tables import suggest_entities
from relfrog.importing.inherited import name_time_keys, plan_inherited_times
from relfrog.importing.key_checks import TypedTable
from relfrog.importing.key_plan import ImportPlan, plan_foreign_keys, plan_primary_key
from relfrog.importing.key_proposals import add_words
from relfrog.importing.mapping import ImportMapping, Notice, TableMapping
from relfrog.importing.split_proposal import event_tables, propose_split
from relfrog.importing.staging import StagedTable, Staging
from relfrog.importing.time_evidence import TimedChild, contradiction, varies
from relfrog.importing.time_proposals import TimeProposal, propose_time, propose_year
from relfrog.support.text import folder_names

__all__ = ["make_import_plan"]


def make_import_plan(
    staging: Staging,
    staged: Sequence[StagedTable],
    corrections: Corrections,
    source: str,
    now: dt.datetime,
) -> ImportPlan:
    """Decide on types, keys, time columns and split times.

    Raises:
        SchemaError: A correction names something that does not exist or is impossible.
    """
    by_name = {t.name: t for t in staged}
    for name in corrections.tables:
        if name not in by_name:
            raise unknown("table", name, by_name)
    plan = ImportPlan(ImportMapping(source, {}, "", "", ""), {})
    folder = folder_names(by_name)
    for name, table in by_name.items():
        given = corrections.tables.get(name, TableCorrections())
        plan.typed[name] = TypedTable(table, _types(staging, table, given))
        plan.mapping.tables[name] = TableMapping(
            given.name or folder[name], table.rows, dict(plan.typed[name].types),
            made_from=given.made_from,
        )  # fmt: skip
        plan.notices += [Notice("note", name, "", note) for note in table.source.notes]
    plan.typed = add_words(plan.typed.values())
    _check_names(plan)
    for name in by_name:
        plan_primary_key(staging, plan, name, corrections.tables.get(name))
        if plan.mapping.tables[name].made_from:
            plan.mapping.tables[name].primary_key_origin = "chosen"
    for name in by_name:
        plan_foreign_keys(staging, plan, name, corrections.tables.get(name))
    suggest_entities(staging, plan)
    proposals = _propose_times(staging, plan, corrections, now)
    name_time_keys(plan, corrections, {name: p.column for name, p in proposals.items()})
    for name, proposal in proposals.items():
        _plan_time(staging, plan, name, corrections.tables.get(name), proposal)
    plan_inherited_times(staging, plan, corrections)
    for name, proposal in proposals.items():
        _note_refused(plan, name, corrections.tables.get(name), proposal)
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
            check_conversion(f"{table.name}.{name}", column.kind, chosen)
        natural = find_type(staging, table, column)
        # A dropped column may still be a key or the time, which need the inferred type.
        aside = ("drop", "time") if name == given.time else ("drop",)
        keep = chosen is not None and chosen.name not in aside and str(chosen) != str(natural)
        types[name] = chosen if keep and chosen is not None else natural
    return types


def _check_names(plan: ImportPlan) -> None:
    seen: dict[str, str] = {"timestamps": "the seed times of label SQL"}
    for source, table in plan.mapping.tables.items():
        if folder_names([table.name])[table.name] != table.name and table.name != "timestamps":
            raise SchemaError(
                f"table {source}: {table.name!r} cannot be a file name. Choose another name."
            )
        if table.name.lower() in seen:
            raise SchemaError(
                f"table {source}: the name {table.name!r} is taken by {seen[table.name.lower()]}"
            )
        seen[table.name.lower()] = f"table {source}"
        if table.name != source:
            plan.notices.append(Notice("changed", source, "", f"named {table.name} in the dataset"))


def _propose_times(
    staging: Staging, plan: ImportPlan, corrections: Corrections, now: dt.datetime
) -> dict[str, TimeProposal]:
    """Propose a time column for each table, or say why there is none."""
    varied = varies(plan.typed)
    found = {
        name: propose_time(staging, table, now, varied)
        if table.staged.rows
        else TimeProposal(None, "")
        for name, table in plan.typed.items()
    }
    # A year is a time in tables that record something about others, year after year. In a table
    # that refers to none, it is rather the year in which a thing was made; so too in one that rows
    # with better times refer to, such as films, which are rated before their year is over. As part
    # of a composite key it is a time in any case.
    # In a database without any other time, such as one of films, the year has to do.
    tables = plan.mapping.tables
    none = not any(proposal.column for proposal in found.values())
    better = {k.parent for name in found if found[name].column for k in tables[name].used_keys()}
    for name, table in plan.typed.items():
        year = None if found[name].column else propose_year(staging, table, now)
        records = tables[name].used_keys() and name not in better
        within = len(tables[name].primary_key) > 1 and year in tables[name].primary_key
        if year is not None and (records or within or none):
            found[name] = TimeProposal(year, "the year a row is about")
    _withdraw_times(staging, plan, corrections, found, now, varied)
    return found


def _withdraw_times(
    staging: Staging,
    plan: ImportPlan,
    corrections: Corrections,
    found: dict[str, TimeProposal],
    now: dt.datetime,
    varied: bool,
) -> None:
    """Propose another time, or none, where the rows that refer to a table are older than its own.

    Their own times are those that the user chose, or else those that are proposed.
    """

    def time(name: str) -> str | None:
        given = corrections.tables.get(name)
        column = given.time if given and given.time else found[name].column
        table = plan.typed[name]
        if column not in table.types or (given and given.no_time):
            return None
        kind = table.types[column]
        if kind.name != "time":
            return None  # years and chosen formats: too coarse, or not read yet
        return type_sql(table.column(column), kind)

    withdrawn: dict[str, dict[str, str]] = {name: {} for name in found}
    pending = list(found)
    while pending:
        name = pending.pop()
        given = corrections.tables.get(name)
        own, column = time(name), found[name].column
        if own is None or column is None or (given and given.time):
            continue
        children = [
            TimedChild(plan.typed[child], other, key)
            for child in found
            if child != name and (other := time(child)) is not None
            for key in plan.mapping.tables[child].used_keys()
            if key.parent == name
        ]
        reason = contradiction(staging, plan.typed[name], own, children)
        if reason:
            withdrawn[name][column] = reason
            found[name] = propose_time(staging, plan.typed[name], now, varied, withdrawn[name])
            pending.append(name)


def _plan_time(
    staging: Staging,
    plan: ImportPlan,
    name: str,
    given: TableCorrections | None,
    proposal: TimeProposal,
) -> None:
    table, entry = plan.typed[name], plan.mapping.tables[name]
    entry.time, entry.time_reason = proposal.column, proposal.reason
    entry.time_origin = "proposed" if proposal.column else "none"
    if given is not None and given.no_time and entry.time is not None:
        entry.time_reason = (
            f"none, by choice of the user, instead of {entry.time} ({entry.time_origin})"
        )
        entry.time, entry.time_origin = None, "chosen"
    elif given is not None and given.time is None and given.inherited_from and entry.time:
        entry.time_reason = f"instead of {entry.time} ({entry.time_origin})"
        entry.time = None
    elif given is not None and given.time not in (None, entry.time):
        assert given.time is not None
        if given.time not in table.types:
            raise unknown(f"column in table {name}", given.time, table.types)
        entry.time_reason = f"instead of {entry.time} ({entry.time_origin})" if entry.time else ""
        entry.time, entry.time_origin = given.time, "chosen"
    if entry.time is None or not table.staged.rows:
        # RelBench fails on the minimum of no rows, and an empty table needs no time.
        entry.time = None
        return
    kind = _as_time(staging, table, entry.time, given)
    # Only for the output: a key of the source may use this column in its own type.
    entry.columns[entry.time] = kind
    if span := period(kind.form):
        text = f"holds {span}s: a row counts as known from the last day of its {span}"
        plan.notices.append(Notice("note", name, entry.time, text))
    value = type_sql(table.column(entry.time), kind)
    (missing,) = staging.row(
        f"SELECT count(*) FILTER (WHERE ({value}) IS NULL) FROM {table.staged.sql}"
    )
    if missing == table.staged.rows:
        raise SchemaError(
            f"time column {name}.{entry.time}: no value can be read as a time. "
            "Choose another: --time TABLE.COLUMN"
        )
    plan.untimed[name] = missing


def _note_refused(
    plan: ImportPlan, name: str, given: TableCorrections | None, proposal: TimeProposal
) -> None:
    """Say why columns that hold times are not the table's time, unless the user decided that."""
    entry = plan.mapping.tables[name]
    # A mapping that only repeats what is proposed decides nothing.
    decided = given is not None and (given.no_time or entry.time_origin == "chosen")
    if decided or entry.time is not None or not proposal.reason.startswith("not taken"):
        return
    own = "no time column of its own" if entry.time_keys else "no time column"
    text = f"{own} ({proposal.reason}). To choose one: --time {name}.COLUMN"
    plan.notices.append(Notice("note", name, "", text))


def _as_time(
    staging: Staging, table: TypedTable, column: str, given: TableCorrections | None
) -> ColumnType:
    """The type to read a table's time column with."""
    kind = table.types[column]
    if kind.name == "time":
        return kind
    staged = table.column(column)
    kinds = [ColumnType("time")]
    if kind.name in ("integer", "number"):
        kinds = number_times(staging, table.staged, staged)
    chosen = None if given is None else given.columns.get(column)
    if chosen is not None and chosen.name == "time":
        return next((k for k in kinds if str(k) == str(chosen)), chosen)
    for way in kinds:
        present, read = staging.row(
            f"SELECT count({staged.sql}), count({type_sql(staged, way)}) FROM {table.staged.sql}"
        )
        if read and read >= 0.5 * present:
            return way
    raise SchemaError(
        f"{table.name}.{column} ({kind.name}) cannot be read as a time. Give its format in a "
        "mapping file, such as 'time %d.%m.%Y' or 'time epoch ms' (see --dry-run)"
    )


def _leave_out(plan: ImportPlan, table: StagedTable, given: TableCorrections) -> None:
    """Drop columns that are useless as features, unless they are keys or the user wants them."""
    entry, typed = plan.mapping.tables[table.name], plan.typed[table.name]
    keys = {*entry.primary_key, entry.time, *(c for k in entry.used_keys() for c in k.columns)}
    columns: dict[str, ColumnType] = {}
    for source in table.source.columns:
        name = source.name
        if name not in table.columns:
            reason = f"{source.declared}: not usable as a feature"
            columns[name] = ColumnType("drop", reason=reason, notice=True)
        elif name in keys:
            columns[name] = (entry.columns if name == entry.time else typed.types)[name]
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


def _report_losses(plan: ImportPlan, table: StagedTable, name: str) -> None:
    column = table.columns[name]
    if column.unreadable:
        text = f"{column.unreadable:,} values cannot be read as {column.kind} and become NULL"
        plan.notices.append(Notice("changed", table.name, name, text))
    if column.facts.infinite:
        text = f"{column.facts.infinite:,} NaN or infinite values become NULL"
        plan.notices.append(Notice("changed", table.name, name, text))


def _plan_split(staging: Staging, plan: ImportPlan, corrections: Corrections) -> None:
    mapping = plan.mapping
    events = event_tables(
        {
            name: (t.rows, t.time is not None, [k.parent for k in t.used_keys()])
            for name, t in mapping.tables.items()
        }
    )
    found = {name: plan.time_of(name) for name in events}
    timed = {name: place for name, place in found.items() if place is not None}
    kinds = [(t.rows, t.columns[t.time]) for t in map(mapping.tables.get, timed) if t and t.time]
    dated = sum(rows for rows, kind in kinds if period(kind.form) == "year")
    yearly = 2 * dated > sum(rows for rows, _ in kinds)
    split = propose_split(staging, timed, yearly)
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
