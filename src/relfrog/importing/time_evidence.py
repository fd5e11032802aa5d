"""What the rows say against a time column: it was set by a load, or later rows are older."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from relfrog.importing.key_checks import TypedTable, join_columns
from relfrog.importing.mapping import ForeignKeyMapping
from relfrog.importing.staging import Staging

__all__ = ["TimedChild", "contradiction", "load_time", "varies"]

#: From this share on, rows with one time were loaded then.
_LOADED = 0.95
#: Loads at several times: at most so many, of at least so many rows each on average.
_LOADS, _ROWS_PER_LOAD = 5, 20
#: Clocks differ, and dates have no time of day.
_TOLERANCE = "INTERVAL 1 DAY"
#: The fewest pairs of rows that say anything, and the share of them that must be older: half of
#: them would be if the two times had nothing to do with each other.
_FEWEST_PAIRS, _MOST = 30, 2 / 3


def load_time(staging: Staging, table: TypedTable, value: str, varied: bool) -> str:
    """Why a column holds times of loading, not of the rows themselves; empty if it does not.

    Args:
        staging: The staging database.
        table: The table.
        value: SQL for the column's times.
        varied: Whether the database has other times that differ from row to row. If it has, even
            several moments with nearly all rows are those of loads, if they are no round times.
    """
    # A second and third query only where few times occur: most columns are done after the first.
    present, different = staging.row(
        f"SELECT count(t), approx_count_distinct(t) FROM (SELECT {value} AS t FROM "
        f"{table.staged.sql})"
    )
    if present < 2 or different > 0.2 * present + _LOADS:
        return ""
    top = staging.rows(
        f"SELECT t, count(*) AS n FROM (SELECT {value} AS t FROM {table.staged.sql}) "
        f"WHERE t IS NOT NULL GROUP BY t ORDER BY n DESC, t LIMIT {_LOADS}"
    )
    if top[0][1] >= _LOADED * present:
        return f"is {top[0][0]} in {top[0][1]:,} of {present:,} rows, as loading times are"
    several = sum(n for _, n in top)
    odd = all(t.second or t.microsecond for t, _ in top)
    if varied and odd and several >= max(_LOADED * present, _ROWS_PER_LOAD * len(top)):
        return f"has {len(top)} values in {several:,} of {present:,} rows, as loading times are"
    return ""


@dataclass(frozen=True)
class TimedChild:
    """A table with a time of its own that names rows of another; ``time`` is the time's SQL."""

    table: TypedTable
    time: str
    key: ForeignKeyMapping


def contradiction(
    staging: Staging, parent: TypedTable, time: str, children: Iterable[TimedChild]
) -> str:
    """Why a table's time contradicts the rows that name its rows; empty if it does not.

    It does if most of them are older than the row they name. They all count together.

    Args:
        staging: The staging database.
        parent: The table.
        time: SQL for its times.
        children: What names its rows.
    """
    total, older, worst = 0, 0, ("", 0, 0)
    for child in children:
        pairs = join_columns(
            child.table, child.key.columns, parent, child.key.parent_columns, child.key.loose
        )
        left = ", ".join(f"{a} AS k{i}" for i, (a, _) in enumerate(pairs))
        right = ", ".join(f"{b} AS k{i}" for i, (_, b) in enumerate(pairs))
        joined = " AND ".join(f"c.k{i} = p.k{i}" for i in range(len(pairs)))
        found, early = staging.row(
            f"SELECT count(*), count(*) FILTER (WHERE c.t < p.t - {_TOLERANCE}) FROM "
            f"(SELECT {left}, {child.time} AS t FROM {child.table.staged.sql}) c JOIN "
            f"(SELECT {right}, {time} AS t FROM {parent.staged.sql}) p ON {joined} "
            "WHERE c.t IS NOT NULL AND p.t IS NOT NULL"
        )
        total, older = total + found, older + early
        if early > worst[1]:
            worst = (child.table.name, early, found)
    if total < _FEWEST_PAIRS or older <= _MOST * total:
        return ""
    name, early, found = worst
    return f"is later than {early:,} of {found:,} rows of {name} that refer to it"


def varies(tables: Mapping[str, TypedTable]) -> bool:
    """Whether some table has a time that differs from row to row."""
    return any(
        kind.name == "time" and table.column(name).facts.distinct >= 100
        for table in tables.values()
        for name, kind in table.types.items()
    )
