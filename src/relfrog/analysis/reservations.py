"""What a certificate says in one sentence, and what it cannot vouch for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relfrog.analysis.altered_future import WAYS
from relfrog.datasets.known_from import find_known_from
from relfrog.graph.relational import RelationalGraph
from relfrog.support.relbench import Database

__all__ = ["always_visible", "sentence", "visible_too_early"]


def always_visible(graph: RelationalGraph, entity: str) -> dict[str, int]:
    """Rows of tables without times, as far as foreign keys lead to them from the entity."""
    reached, before = {entity}, set[str]()
    while reached != before:
        before = set(reached)
        for key in graph.foreign_keys:
            if {key.table, key.parent} & reached:
                reached |= {key.table, key.parent}
    rows = graph.num_rows
    return {n: rows[n] for n in rows if n in reached and rows[n] and graph.time(n) is None}


def visible_too_early(db: Database) -> dict[str, list[str]]:
    """Tables that are always visible although their rows name rows with times; and these."""
    tables, found = db.table_dict, find_known_from(db)
    return {
        name: sorted({tables[name].fkey_col_to_pkey_table[column] for column in columns})
        for name, columns in found.keys.items()
        if tables[name].time_col is None
    }


def sentence(about: Mapping[str, Any]) -> str:
    """What is certified, and what not; or why the certificate does not hold.

    Args:
        about: what the certificate holds.
    """
    trial = about["trial"]
    if not about["holds"]:
        return _complaint(about)
    rows = [f"{trial[way]['rows']:,} {way}" for way in WAYS]
    some = ""
    if trial["times_tried"] < trial["times"]:
        some = f"(at {trial['times_tried']:,} of {trial['times']:,} times) "
    return (
        f"certified{_reservation(about)}: {trial['seeds_tried']:,} predictions {some}are the same, "
        f"bit for bit, with {', '.join(rows)} later rows"
    )


def _reservation(about: Mapping[str, Any]) -> str:
    """What a certificate cannot vouch for, as a part of its sentence."""
    parts = []
    if about["always_visible"]:
        named = [f"{name} ({rows:,})" for name, rows in about["always_visible"].items()]
        parts.append(f"rows of {_listed(named)}, which are always visible")
    if about["written_later"]:
        parts.append(f"{_listed(about['written_later'])}, later than the rows that hold them")
    return f", except for {', and for '.join(parts)}" if parts else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _complaint(about: Mapping[str, Any]) -> str:
    """Why a certificate does not hold, and what to do."""
    trial = about["trial"]
    ways = [way for way in WAYS if not trial[way]["identical"]]
    parts = [f"{trial[way]['different']:,} change when later rows are {way}" for way in ways]
    if about["later_rows_used"]:
        parts.append(f"{about['later_rows_used']:,} times a later row was used")
    remedy = "Please report this: it is a defect of RelFrog."
    if about["visible_too_early"]:
        found = [f"{name} ({', '.join(p)})" for name, p in about["visible_too_early"].items()]
        name, parents = next(iter(about["visible_too_early"].items()))
        remedy = (
            f"Rows that are always visible name later rows: {'; '.join(found)}. Import again with "
            f"their times: --time {name}={parents[0]}."
        )
    return f"the predictions know the future: {'; '.join(parts)}. {remedy}"
