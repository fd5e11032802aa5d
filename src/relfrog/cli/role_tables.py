"""The roles of several runs as a table."""

from __future__ import annotations

from typing import Any

from relfrog.cli.terminal import ROLE_STYLES, table
from relfrog.support.text import counted

__all__ = ["agreement_table"]


def agreement_table(frame: Any, runs: int) -> str:
    """Routes with the gates of several runs, the strongest edges first, and what they agree on."""
    if not len(frame):
        return "These models have no routes: every table is a node."
    rows = [
        [r.route, f"{r.gate:.3f}", f"{r.lowest:.3f} to {r.highest:.3f}", r.nodes, r.edges,
         r.undecided, r.role]
        for r in frame.sort_values("gate", ascending=False, kind="stable").itertuples()
    ]  # fmt: skip
    decided = int((frame["role"] != "undecided").sum())
    split = int(((frame["nodes"] > 0) & (frame["edges"] > 0)).sum())
    heads = ["route", "mean gate", "range", "node", "edge", "undecided", "role"]
    return (
        table(heads, rows, right=[1, 3, 4, 5], styles={6: ROLE_STYLES})
        + f"\n\n{counted(runs, 'run')}: {decided} of {counted(len(frame), 'route')} have a role on "
        f"which they agree; {split} changed sides."
    )
