"""The corrections that fit on a command line: ``--pk``, ``--fk`` and ``--time``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relfrog.errors import UsageError
from relfrog.mapping import Corrections, ForeignKeyMapping, unknown
from relfrog.sources import SourceTable

__all__ = ["apply_flags"]


def apply_flags(
    corrections: Corrections,
    tables: Sequence[SourceTable],
    pk: Iterable[str],
    fk: Iterable[str],
    time: Iterable[str],
) -> None:
    """Add what ``--pk``, ``--fk`` and ``--time`` say to the corrections.

    ``--pk TABLE.COL[,COL]``, ``--time TABLE.COL``, ``--fk TABLE.COL[,COL]=PARENT[.COL[,COL]]``;
    ``none`` in place of the columns (or of the parent) takes a key or a time away.
    """
    known = {t.name: [c.name for c in t.columns] for t in tables}
    for flag in pk:
        table, columns = _place(flag, known, "--pk orders.id")
        corrections.table(table).primary_key = columns
    for flag in time:
        table, columns = _place(flag, known, "--time orders.created_at")
        if len(columns) > 1:
            raise UsageError(f"--time {flag}: a table has one time column")
        entry = corrections.table(table)
        entry.time, entry.no_time = (columns[0], False) if columns else (None, True)
    for flag in fk:
        child, equals, parent = flag.rpartition("=")
        if not equals:
            raise UsageError(f"--fk {flag}: write it as --fk orders.customer_id=customers.id")
        table, columns = _place(child, known, "--fk orders.customer_id=customers.id")
        if not columns:
            raise UsageError(f"--fk {flag}: name the columns of {table}")
        if parent == "none":
            corrections.table(table).refused_keys.add(columns)
            continue
        if parent in known:
            parent_table: str = parent
            parent_columns: tuple[str, ...] = ()
        else:
            parent_table, parent_columns = _place(parent, known, f"--fk {child}=customers.id")
        corrections.table(table).added_keys.append(
            ForeignKeyMapping(columns, parent_table, parent_columns, "chosen")
        )


def _place(text: str, known: dict[str, list[str]], example: str) -> tuple[str, tuple[str, ...]]:
    """Split ``table.column,column``, where both may contain dots and commas."""
    for table in sorted(known, key=len, reverse=True):
        for mark in (".", "="):
            if text.startswith(table + mark):
                rest = text[len(table) + 1 :]
                if rest == "none" and "none" not in known[table]:
                    return table, ()
                if rest in known[table]:
                    return table, (rest,)
                columns = tuple(part.strip() for part in rest.split(","))
                for column in columns:
                    if column not in known[table]:
                        raise unknown(f"column in table {table}", column, known[table])
                return table, columns
    table = text.split(".")[0]
    if table in known:
        raise UsageError(f"{text!r} names no column. Write it as {example}")
    raise unknown("table", table, known)
