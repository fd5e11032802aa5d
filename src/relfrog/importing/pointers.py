"""Which row of the parent each row of a child names, by row numbers of the staging database."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from relfrog.importing.key_checks import TypedTable, join_columns
from relfrog.importing.mapping import ForeignKeyMapping
from relfrog.importing.staging import Staging

if TYPE_CHECKING:
    import numpy as np

__all__ = ["parent_rows"]

#: From this many rows on, the array is memory-mapped.
_ON_DISK = 50_000_000


def parent_rows(
    staging: Staging,
    child: tuple[TypedTable, str, int],
    parent: tuple[TypedTable, str],
    key: ForeignKeyMapping,
    *,
    repeated: bool = False,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The row number of each child row's parent; -1 if it has none.

    Args:
        staging: The staging database.
        child: The child, its SQL and its number of rows.
        parent: The parent and its SQL.
        key: The foreign key.
        repeated: Whether the parent's key has duplicates, of which the first row counts.
    """
    import numpy as np

    (typed, sql, rows), (above, above_sql) = child, parent
    if rows > _ON_DISK:
        # The memory map keeps the file alive.
        with tempfile.TemporaryFile(dir=staging.folder) as file:
            found: np.ndarray[Any, np.dtype[np.int64]] = np.memmap(
                file, dtype=np.int64, mode="w+", shape=(rows,)
            )
        found[:] = -1
    else:
        found = np.full(rows, -1, dtype=np.int64)
    pairs = join_columns(typed, key.columns, above, key.parent_columns, key.loose)
    left = ", ".join(f"{a} AS k{i}" for i, (a, _) in enumerate(pairs))
    right = ", ".join(f"{b} AS k{i}" for i, (_, b) in enumerate(pairs))
    joined = " AND ".join(f"c.k{i} = p.k{i}" for i in range(len(pairs)))
    place, grouped = ("min(rowid)", " GROUP BY ALL") if repeated else ("rowid", "")
    # A join returns rows in any order, so each pair carries its row numbers.
    for batch in staging.batches(
        f"SELECT c.r AS r, p.r AS q FROM (SELECT rowid AS r, {left} FROM {sql}) c "
        f"JOIN (SELECT {place} AS r, {right} FROM {above_sql}{grouped}) p ON {joined}"
    ):
        found[np.asarray(batch.column(0))] = np.asarray(batch.column(1))
    return found
