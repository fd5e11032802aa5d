"""Which recommended lists are shown as examples, and which of their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENTRIES", "listed", "missed", "shown_lists"]

#: Entities that are shown, and entries of their lists.
LISTS, ENTRIES = 10, 10


def shown_lists(
    truth: NDArray[Any], predicted: NDArray[Any]
) -> tuple[list[int], NDArray[np.float64]]:
    """Numbers of lists from the best to the worst, evenly spread; and the hits of every list.

    Args:
        truth: the rows that came, per seed.
        predicted: rows and scores. Shape [seeds, k, 2].

    Returns:
        The numbers, and the share of each list that came. Shape [seeds].
    """
    lists = predicted[:, :, 0].astype(np.int64)
    hits = np.array([np.isin(row, some).mean() for row, some in zip(lists, truth, strict=True)])
    order = np.argsort(-hits, kind="stable")
    return order[np.unique(np.linspace(0, len(order) - 1, LISTS).astype(int))].tolist(), hits


def listed(predicted: NDArray[Any]) -> list[int]:
    """Rows of a list that are shown. Shape of the list [k, 2]."""
    return [int(row) for row in predicted[:ENTRIES, 0] if row >= 0]


def missed(truth: NDArray[Any], predicted: NDArray[Any]) -> list[int]:
    """Rows that came, but are not in the list."""
    there = set(predicted[:, 0].astype(np.int64).tolist())
    return [int(row) for row in truth if int(row) not in there]
