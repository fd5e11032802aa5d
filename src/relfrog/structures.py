"""What learned roles have in common: shares of nodes and edges, and the same role both ways."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

__all__ = ["role_shares"]


def role_shares(roles: pd.DataFrame, tables: Collection[str]) -> dict[str, dict[str, float]]:
    """Per question the share of each answer; empty where the question does not arise.

    Args:
        roles: as `Run.roles` gives them.
        tables: of the database; routes through the table of earlier labels do not count.

    Returns:
        `co-occurrence` and `completion`: the shares of `node`, `edge` and `undecided`, which is a
        route that nothing was sent along; `directions`: of pairs of co-occurrence routes that are
        each other's reverse, both decided, the shares of `same` and `different` roles.
    """
    known = roles[roles[["u", "v", "w"]].isin(list(tables)).all(axis=1)]
    role = dict(zip(known["route"], known["role"], strict=True))
    found = {}
    for paradigm in ("co-occurrence", "completion"):
        mine = known[known["paradigm"].str.startswith(paradigm)]["role"]
        found[paradigm] = _shares(mine.tolist(), ("node", "edge", "undecided"))
    both = []
    for entry in known[known["paradigm"] == "co-occurrence"].to_dict("records"):
        back = _reversed(entry)
        if back in role and entry["route"] <= back:
            roles_of = {role[entry["route"]], role[back]}
            if "undecided" not in roles_of:
                both.append("same" if len(roles_of) == 1 else "different")
    found["directions"] = _shares(both, ("same", "different"))
    return found


def _shares(answers: list[str], names: tuple[str, ...]) -> dict[str, float]:
    if not answers:
        return {}
    return {name: answers.count(name) / len(answers) for name in names}


def _reversed(entry: Mapping[str, Any]) -> str:
    """The route that goes the other way: `w <-[b]- v -[a]-> u` for `u <-[a]- v -[b]-> w`."""
    u, v, w = entry["u"], entry["v"], entry["w"]
    middle = entry["route"][len(u) + 1 : len(entry["route"]) - len(w) - 1]
    between = f" {v} "
    at = middle.find(between)
    while at >= 0:
        left, right = middle[:at], middle[at + len(between) :]
        if left.startswith("<-") and left.endswith("-") and right.endswith("->"):
            return f"{w} <{right.removesuffix('>')} {v} {left.removeprefix('<')}> {u}"
        at = middle.find(between, at + 1)
    return ""
