"""Numbers of rows beside those of their siblings: rows with the same parent and time.

A row that becomes visible later is no sibling, so that nothing of a later time plays a part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["beside_siblings"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def beside_siblings(values: Floats, parents: Ints, ticks: Ints, form: str) -> Floats:
    """Compare each value with those of its siblings; NaN without a value, a parent or a sibling.

    Args:
        values: NaN where missing. Shape [rows].
        parents: -1 for none. Shape [rows].
        ticks: times of the rows. Shape [rows].
        form: "difference" from the mean of all siblings with a value, itself included; or "rank":
            the share of the others that are smaller, equal ones counting half.
    """
    found = np.full(len(values), np.nan)
    some = np.flatnonzero((parents >= 0) & ~np.isnan(values))
    if not len(some):
        return found
    # By value within a group, so that ranks can be read off; by row among equals.
    order = some[np.lexsort((some, values[some], ticks[some], parents[some]))]
    v, p, t = values[order], parents[order], ticks[order]
    new = np.append(True, (p[1:] != p[:-1]) | (t[1:] != t[:-1]))
    begins = np.flatnonzero(new)
    sizes = np.diff(np.append(begins, len(order)))
    group = np.cumsum(new) - 1
    if form == "difference":
        # Each group is summed up for itself, so that others cannot change its last digits.
        means = np.add.reduceat(v, begins) / sizes
        result = v - means[group]
    else:
        assert form == "rank", form
        equal = np.append(True, new[1:] | (v[1:] != v[:-1]))
        firsts = np.flatnonzero(equal)
        counts = np.diff(np.append(firsts, len(order)))
        run = np.cumsum(equal) - 1
        smaller = firsts[run] - begins[group]
        with np.errstate(invalid="ignore", divide="ignore"):
            result = (smaller + (counts[run] - 1) / 2) / (sizes[group] - 1)
    found[order] = np.where(sizes[group] > 1, result, np.nan)
    return found
