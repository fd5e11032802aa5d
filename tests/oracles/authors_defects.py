"""Defects of the paper's authors' released code, to see what they are worth; never used otherwise.

Their joins keep the first match only; keys between the same two tables are one relation; keys whose
name contains "rev", and keys within one table, are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import CompletionAgainst, Matches, Route

__all__ = ["FirstMatch", "kept_keys"]


@dataclass(frozen=True)
class FirstMatch(CompletionAgainst):
    """Completion in reverse, but each row v hands on to the first row w that refers to it."""

    name = "completion-first-match"

    def match(self, route: Route, parents: Mapping[ForeignKey, Any]) -> Matches:
        """One match per row v."""
        u, v, w = (np.asarray(part) for part in super().match(route, parents))
        _, first = np.unique(v, return_index=True)
        return Matches(u[first], v[first], w[first])


def kept_keys(keys: Sequence[ForeignKey]) -> list[ForeignKey]:
    """One key per pair of different tables, none of them with "rev" in its name."""
    found: dict[tuple[str, str], ForeignKey] = {}
    for key in keys:
        if key.table != key.parent and "rev" not in key.column:
            found.setdefault((key.table, key.parent), key)
    return list(found.values())
