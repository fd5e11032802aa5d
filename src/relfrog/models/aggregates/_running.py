"""Running sums, owner by owner, in the order of rows.

DuckDB's windows add up block by block, and where blocks end depends on how many rows come after: a
later row would change the last digits of an earlier sum. Here each sum is that of its owner's rows
up to it, one after the other, and hangs on nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.support.jit import compiled

__all__ = ["running_sums"]

Floats = NDArray[np.float64]


@compiled
def running_sums(owners: NDArray[np.int64], values: Floats, last: Any, sums: Floats) -> None:
    """Replace values by their sums up to each row; NaN counts as nothing.

    Args:
        owners: whose rows they are, one owner after the other. Shape [rows].
        values: changed in place. Shape [columns, rows].
        last: the owner of the row before these.
        sums: those up to the row before these; afterwards up to the last of these. Shape [columns].
    """
    for column in range(len(values)):
        before, total = last, sums[column]
        for row in range(len(owners)):
            if owners[row] != before:
                before, total = owners[row], 0.0
            value = values[column, row]
            if value == value:
                total += value
            values[column, row] = total
        sums[column] = total
