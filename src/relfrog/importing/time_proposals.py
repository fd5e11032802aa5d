"""Propose each table's time column: when a row was created."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relfrog.importing.column_types import ColumnType, type_sql
from relfrog.importing.key_checks import TypedTable
from relfrog.importing.staging import Staging
from relfrog.importing.time_evidence import load_time
from relfrog.support.text import time_words, words

__all__ = ["TimeProposal", "is_foreseen", "propose_time", "propose_year"]

_CREATION = {
    "created", "creation", "create", "inserted", "insert", "added", "registered", "registration",
    "signup", "joined", "opened", "started", "start", "begin", "began", "placed", "ordered",
    "order", "purchase", "purchased", "posted", "published", "sent", "issued", "booked", "event",
    "occurred", "happened", "logged", "recorded", "transaction", "invoice", "entered", "received",
    "submitted", "submission",
}  # fmt: skip
_PLAIN = {"date", "time", "datetime", "timestamp", "ts", "day", "hour", "when"}
_UPDATE = {"updated", "update", "modified", "modification", "changed", "edited"}
#: Words of times that were planned or expected when the row was written.
_FUTURE = {
    "due", "deadline", "expires", "expire", "expiry", "expiration", "expected", "estimated",
    "estimate", "eta", "planned", "promised", "target", "next", "until", "valid", "required",
    "renewal", "maturity", "forecast", "scheduled", "schedule", "sched", "limit",
    "cutoff", "ends",
}  # fmt: skip
#: Dates in the life of an entity, and dates that are updated: neither is when a row was created.
_BIRTH = {"birth", "birthday", "birthdate", "dob", "born", "founded", "built", "death", "died"}
_MOVING = {"last", "latest", "recent", "synced", "refreshed", "seen"}
#: Words for the year a row is about, and words that may accompany them: a model year, or a year of
#: marriage, is a property of the entity.
_YEAR = {"year", "yr", "season", "yearid"}
_BESIDE_YEAR = {"id", "key", "fiscal", "financial", "calendar", "academic", "school"}


@dataclass(frozen=True)
class TimeProposal:
    """A proposed time column, or None, and why."""

    column: str | None
    reason: str


def is_foreseen(name: str) -> bool:
    """Whether a column's name says that its times were planned or expected, like due dates.

    >>> is_foreseen("due_date"), is_foreseen("duedate"), is_foreseen("delivered_at")
    (True, True, False)
    """
    return bool(time_words(name) & _FUTURE)


def _rank(name: str, noun: tuple[str, ...] = ()) -> tuple[int, str]:
    """Score how likely a column is the creation time, by its name; 0 means never.

    The table's own noun is ignored: ``order_approved_at`` is not when the order was placed.
    """
    found = time_words(name)
    found = found - set(noun) or found
    if found & _FUTURE:
        return 0, "is planned or expected, not past"
    if found & _BIRTH:
        return 0, "is about the entity, not about the row"
    if found & _MOVING:
        return 0, "is updated over time"
    if found & _UPDATE:
        return 1, "an update time"
    if found & _CREATION:
        return 4, "a creation time"
    return (3, "a plain time") if found & _PLAIN else (2, "a time")


def propose_time(
    staging: Staging,
    table: TypedTable,
    now: dt.datetime,
    varied: bool = False,
    withdrawn: Mapping[str, str] | None = None,
) -> TimeProposal:
    """Propose the column that says when a row was created.

    Creation times are preferred to update times. Planned or expected times are never proposed: they
    are recognised by name (due, expires, expected ...) or by values later than now. Nor are times
    of loading, which are the same in nearly all rows.

    Args:
        staging: The staging database.
        table: The table.
        now: The time of the import.
        varied: Whether the database has times that differ from row to row; see `load_time`.
        withdrawn: Columns that other rows speak against, each with what they say.
    """
    candidates, refused = [], []
    for position, (name, column) in enumerate(table.staged.columns.items()):
        if table.types[name].name != "time":
            continue
        rank, reason = _rank(name, table.noun)
        value = type_sql(column, table.types[name])
        present, later = staging.row(
            f"SELECT count({value}), count(*) FILTER (WHERE {value} > "
            f"TIMESTAMP '{now:%Y-%m-%d %H:%M:%S}') FROM {table.staged.sql}"
        )
        if not present:
            continue
        if rank and later > 0.01 * present:
            rank, reason = 0, f"has {later:,} values later than now"
        if rank and withdrawn and name in withdrawn:
            rank, reason = 0, withdrawn[name]
        if rank and (loaded := load_time(staging, table, value, varied)):
            rank, reason = 0, loaded
        if not rank:
            refused.append(f"{name} {reason}")
            continue
        complete = present >= 0.5 * table.staged.rows
        candidates.append((complete, rank, -position, name, reason, value))
    if not candidates:
        reason = "no column holds a time"
        if refused:
            reason = f"not taken: {'; '.join(refused)}"
        return TimeProposal(None, reason)
    best = max(c[:2] for c in candidates)
    equal = [c for c in candidates if c[:2] == best]
    chosen = equal[0] if len(equal) == 1 else _earliest(staging, table, equal)
    return TimeProposal(chosen[3], chosen[4])


def propose_year(staging: Staging, table: TypedTable, now: dt.datetime) -> str | None:
    """The column with the year a row is about, for a table without another time."""
    for name, column in table.staged.columns.items():
        found = set(words(name))
        rest = found - _YEAR - _BESIDE_YEAR - _CREATION - _PLAIN - set(table.noun)
        if not found & _YEAR or rest or table.types[name].name != "integer":
            continue
        year = f"nullif({type_sql(column, ColumnType('integer'))}, 0)"
        low, high, different = staging.row(
            f"SELECT min({year}), max({year}), count(DISTINCT {year}) FROM {table.staged.sql}"
        )
        if different > 1 and low >= 1000 and high <= now.year:
            return name
    return None


_Candidate = tuple[bool, int, int, str, str, str]


def _earliest(staging: Staging, table: TypedTable, equal: Sequence[_Candidate]) -> _Candidate:
    """Of equally good columns, the one that is the earliest in most rows."""
    least = f"least({', '.join(c[5] for c in equal)})"
    counts = staging.row(
        "SELECT "
        + ", ".join(f"count(*) FILTER (WHERE {c[5]} = {least})" for c in equal)
        + f" FROM {table.staged.sql}"
    )
    order = sorted(zip(counts, equal, strict=True), key=lambda pair: (pair[0], pair[1][2]))
    return order[-1][1]
