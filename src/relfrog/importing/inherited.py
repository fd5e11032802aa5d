"""Decide which tables inherit times: from when on rows are known that have no time of their own.

The lines of an order have no time, but an order has: a line is known from its order's time on. See
`relfrog.support.inherited_times` for the rule, and for keys that nothing is inherited along.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relfrog.errors import SchemaError
from relfrog.importing.corrections import Corrections, TableCorrections
from relfrog.importing.key_plan import ImportPlan
from relfrog.importing.mapping import ForeignKeyMapping, Notice
from relfrog.importing.pointers import parent_rows
from relfrog.importing.staging import Staging
from relfrog.support.inherited_times import Contradiction, Link, inherit_times
from relfrog.support.times import MISSING

if TYPE_CHECKING:
    import numpy as np

    Ints = np.ndarray[Any, np.dtype[np.int64]]

__all__ = ["name_time_keys", "plan_inherited_times"]

_REASON = "known from the latest of the rows that a row names"


def name_time_keys(
    plan: ImportPlan, corrections: Corrections, proposed: Mapping[str, str | None]
) -> None:
    """Where the user's time column is a foreign key, inherit times along it instead.

    Keys may look like times: 1998 is one row of many, or a year. So the column is a key, unless it
    holds times, or the rows that it names have none and can inherit none.

    Args:
        plan: The plan, with all keys.
        corrections: What the user wants; changed.
        proposed: The time column of each table, as far as it has one.
    """
    for name, given in corrections.tables.items():
        types = plan.typed[name].types
        if given.time is None or given.time not in types or types[given.time].name == "time":
            continue
        for key in plan.mapping.tables[name].used_keys():
            above = corrections.tables.get(key.parent, TableCorrections())
            timed = (
                proposed[key.parent] or above.time or plan.mapping.tables[key.parent].used_keys()
            )
            if key.columns == (given.time,) and timed and not above.no_time:
                given.time, given.inherited_from = None, key.columns
                break


def plan_inherited_times(staging: Staging, plan: ImportPlan, corrections: Corrections) -> None:
    """Decide which tables inherit times, along which foreign keys, and from when rows are known.

    Raises:
        SchemaError: The user names a parent that a table does not refer to, or that has no times.
    """
    tables = plan.mapping.tables
    keys = {
        Link(name, key.columns, key.parent): key
        for name, entry in tables.items()
        for key in entry.used_keys()
    }
    along = {
        name: _chosen(plan, name, corrections.tables[name])
        for name in tables
        if _has_chosen(corrections.tables.get(name))
    }
    links = _concerned(plan, list(keys), along)
    own = {n: _own_times(staging, plan, n) for k in links for n in (k.child, k.parent)}
    pointers: dict[Link, Ints] = {}

    def pointer(link: Link) -> Ints:
        if link not in pointers:
            child, parent = plan.typed[link.child], plan.typed[link.parent]
            check = plan.checks.get(link.parent)
            key = keys[link]
            repeated = check is not None and check.duplicates > 0
            repeated = repeated and key.parent_columns == tables[link.parent].primary_key
            pointers[link] = parent_rows(
                staging, (child, child.staged.sql, child.staged.rows),
                (parent, parent.staged.sql), key, repeated=repeated,
            )  # fmt: skip
        return pointers[link]

    wanted = {name: [_link(name, key) for key in some] for name, some in along.items()}
    found = inherit_times(own, links, pointer, along=wanted)
    proposed = inherit_times(own, links, pointer) if wanted else found
    for name, entry in tables.items():
        some = found.links.get(name, [])
        entry.time_keys = along[name] if name in along else [keys[link] for link in some]
    for name, entry in tables.items():
        if entry.time_keys and plan.typed[name].staged.rows:
            _check_parents(plan, name, found.known[name])
            plan.known[name] = found.known[name]
        _say_origin(plan, name, [keys[link] for link in proposed.links.get(name, [])])
        _report_untimed(plan, name)
    for wrong in proposed.contradictions:
        if keys[wrong.link] not in tables[wrong.link.child].time_keys:
            plan.notices.append(_contradicted(wrong))


def _link(name: str, key: ForeignKeyMapping) -> Link:
    return Link(name, key.columns, key.parent)


def _has_chosen(given: TableCorrections | None) -> bool:
    return given is not None and (given.inherited_from is not None or given.no_time)


def _chosen(plan: ImportPlan, name: str, given: TableCorrections) -> list[ForeignKeyMapping]:
    """The foreign keys that the user wants to inherit times along."""
    entry = plan.mapping.tables[name]
    found: list[ForeignKeyMapping] = []
    for word in given.inherited_from or ():
        some = entry.keys_named(word)
        if not some:
            known = sorted({k.parent for k in entry.used_keys()})
            there = f"It refers to {', '.join(known)}" if known else "It refers to no table"
            raise SchemaError(
                f"{name} cannot inherit times from {word!r}: that is neither a table that it "
                f"refers to nor one of its foreign keys. {there}. To add a foreign key: "
                f"--fk {name}.COLUMN={word}"
            )
        found += [key for key in some if key not in found]
    return found


def _concerned(
    plan: ImportPlan, links: list[Link], along: Mapping[str, list[ForeignKeyMapping]]
) -> list[Link]:
    """Foreign keys that lead from rows without a time, and those that lead to such rows."""
    tables = plan.mapping.tables
    heirs = {
        k.child
        for k in links
        if tables[k.child].time is None or plan.untimed.get(k.child) or along.get(k.child)
    }
    found = [k for k in links if k.child in heirs]
    below = set(heirs)
    while more := [k for k in links if k.parent in below and k not in found]:
        found += more
        # Beyond rows with a time of their own nothing tells how old a row is.
        below |= {k.child for k in more if tables[k.child].time is None}
    return found


def _own_times(staging: Staging, plan: ImportPlan, name: str) -> Ints:
    """The times of a table's own time column, in the order of its rows."""
    import numpy as np

    timed = plan.time_of(name)
    found = np.full(plan.typed[name].staged.rows, MISSING)
    if timed is None:
        return found
    start = 0
    for batch in staging.ordered_batches(f"SELECT epoch_us({timed[1]}) AS t FROM {timed[0]}"):
        part = batch.column(0).fill_null(MISSING)
        found[start : start + len(part)] = np.asarray(part)
        start += len(part)
    return found


def _check_parents(plan: ImportPlan, name: str, known: Ints) -> None:
    """Raise SchemaError if the user wants times from rows that have none."""
    tables = plan.mapping.tables
    without = [
        key.parent
        for key in tables[name].time_keys
        if tables[key.parent].time is None
        and not tables[key.parent].time_keys
        and plan.typed[key.parent].staged.rows
    ]
    if without and not (known != MISSING).any():
        raise SchemaError(
            f"{name} cannot inherit times from {', '.join(sorted(set(without)))}: no row that it "
            f"names there has a time. Choose a time column there: --time {without[0]}.COLUMN"
        )


def _say_origin(plan: ImportPlan, name: str, proposed: list[ForeignKeyMapping]) -> None:
    """Say who decided what a table inherits: the user, unless it is what is proposed."""
    entry = plan.mapping.tables[name]
    chosen = {key.columns for key in entry.time_keys} != {key.columns for key in proposed}
    instead = f"those of {', '.join(entry.words_for(proposed))}" if proposed else "none"
    if entry.time_keys and entry.time is None:
        entry.time_origin = "chosen" if chosen else "proposed"
        before = f" instead of {instead}" if chosen else ""
        # What the user gave up to have inherited times, a time column for instance, is said first.
        said = f"; {entry.time_reason}" if entry.time_reason.startswith("instead of") else ""
        entry.time_reason = f"{_REASON}{before}{said}"
    elif entry.time_keys:
        entry.time_reason += f"; without one {_REASON}"
    elif chosen and entry.time is None:
        entry.time_origin = "chosen"
        entry.time_reason = f"none, by choice of the user, instead of {instead}"
        parents = ", ".join(sorted({key.parent for key in proposed}))
        text = (
            f"no time, by choice, though it refers to {parents}: its rows are always visible, "
            "which may leak"
        )
        plan.notices.append(Notice("leak", name, "", text))


def _report_untimed(plan: ImportPlan, name: str) -> None:
    """Say how many rows are always visible although others of their table are not."""
    rows = plan.typed[name].staged.rows
    missing, what = plan.untimed.get(name, 0), "have no time"
    if name in plan.known:
        missing = int((plan.known[name] == MISSING).sum())
        what = "have no time and name no row with one"
    if missing:
        text = (
            f"{missing:,} of {rows:,} rows {what}: they get the earliest time of the database and "
            "are always visible, which may leak"
        )
        plan.notices.append(Notice("leak", name, plan.mapping.tables[name].time or "", text))


def _contradicted(wrong: Contradiction) -> Notice:
    """Say why nothing is inherited along a foreign key."""
    link = wrong.link
    text = (
        f"nothing is inherited from {link.parent}: {wrong.older:,} of {wrong.rows:,} rows that "
        f"refer to {link.child} are older than the {link.parent} row it names, such as one of "
        f"{wrong.table} at {_stamp(wrong.time)}, before {_stamp(wrong.inherited)}. To inherit "
        f"all the same: --time {link.child}={','.join(link.columns)}"
    )
    return Notice("note", link.child, ", ".join(link.columns), text)


def _stamp(ticks: int) -> str:
    return str(dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=ticks))
