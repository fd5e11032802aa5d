"""Schemas small enough to name all of their routes, and a third paradigm."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from relfrog.graph.routes import AGAINST, ALONG, Matches, Paradigm

RACING = {
    "races": {"circuit": "circuits"},
    "circuits": {},
    "drivers": {},
    "results": {"race": "races", "driver": "drivers"},
}
FLIGHTS = {"flights": {"origin": "airports", "dest": "airports", "airline": "airlines"}}
POSTS = {"posts": {"parent": "posts", "owner": "users"}}


@dataclass(frozen=True)
class SharedParent(Paradigm):
    """u -> v <- w: both name v."""

    name = "shared-parent"
    arrows = (ALONG, AGAINST)

    def pairs(self, keys):
        return (pair for pair in product(keys, keys) if pair[0].parent == pair[1].parent)

    def match(self, route, parents):
        first, second = parents[route.first], parents[route.second]
        u, w = ((first[:, None] == second[None, :]) & (first[:, None] >= 0)).nonzero()
        if route.first == route.second:
            u, w = u[u != w], w[u != w]
        return Matches(u, first[u], w)
