"""Atomic routes with attention, after RelGNN: bridge tables are crossed in a single message.

A table with one foreign key exchanges messages with its parent. A table with several is a bridge:
for every two of its keys, rows of one parent reach rows of the other through it, in one message
that fuses sender and bridge. The messages that reach a row along a route are weighted by attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import torch
from torch import Tensor, nn

from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Route
from relfrog.nn.aggregation import first, largest, linked_sum
from relfrog.nn.batch_plan import LayerPlan, Links, RouteLinks
from relfrog.nn.dropout import Dropout
from relfrog.nn.products import Linear

__all__ = ["AtomicLayer", "AttentionMessage"]


class AttentionMessage(nn.Module):
    """Multi-head attention over the matches of w along one route: through a bridge v, or from v.

    A match sends m = V_v h_v + V_u h_u, weighted by the softmax, over the matches of w and per
    head, of q . k / sqrt(c / heads) with q = Q h_w and k = K_v h_v + K_u h_u. Without a bridge
    there is no u. The weighted sum is followed by an output projection.

    Shapes: h_u, h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, bridged: bool) -> None:
        super().__init__()
        self.heads = gcd(channels, 4)
        self.query = Linear(channels, channels)
        self.key_v = Linear(channels, channels, bias=False)
        self.value_v = Linear(channels, channels)
        self.key_u = Linear(channels, channels, bias=False) if bridged else None
        self.value_u = Linear(channels, channels, bias=False) if bridged else None
        self.out = Linear(channels, channels, bias=False)

    def forward(self, h_u: Tensor | None, h_v: Tensor, h_w: Tensor, links: RouteLinks) -> Tensor:
        """The message; 0 for rows without a match."""
        v = links.v
        h_v = first(h_v, v.sources)
        keys = self.key_v(h_v).index_select(0, v.source)
        values = self.value_v(h_v).index_select(0, v.source)
        if self.key_u is not None and self.value_u is not None:
            assert h_u is not None
            h_u = first(h_u, links.u.sources)
            keys = keys + self.key_u(h_u).index_select(0, links.u.source)
            values = values + self.value_u(h_u).index_select(0, links.u.source)
        matches = _matches(v)
        queries = self.query(first(h_w, v.targets)).index_select(0, matches.target)
        share = attention(_split(queries, self.heads), _split(keys, self.heads), matches)
        sent = (_split(values, self.heads) * share.unsqueeze(2)).flatten(1)
        return self.out(linked_sum(sent, matches))


def attention(queries: Tensor, keys: Tensor, matches: Links) -> Tensor:
    """Softmax of scaled dot products over the matches of each target.

    Shapes: queries, keys [matches, heads, d] -> [matches, heads].
    """
    logits = (queries * keys).sum(2) / keys.shape[2] ** 0.5
    if logits.dtype in (torch.bfloat16, torch.float16):  # too coarse for a softmax
        logits = logits.float()
    top = largest(logits.detach(), matches.source, matches.begin)
    weights = (logits - top.index_select(0, matches.target)).exp()
    total = linked_sum(weights, matches)
    return weights / total.index_select(0, matches.target)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(1, (heads, -1))


def _matches(links: Links) -> Links:
    """Links whose sources are the matches themselves, in order, to their targets."""
    each = torch.arange(len(links), device=links.source.device)
    into = torch.repeat_interleave(links.begin.diff())
    ends = torch.arange(len(links) + 1, device=links.source.device)
    return Links(each, links.begin, into, ends, each)


class AtomicLayer(nn.Module):
    """h_w <- dropout(relu(LayerNorm(h_w + W h_w + sum over routes of messages))).

    A parent sends to its children without attention, as each child has one parent per key. Rows of
    a table with a single key send to their parent by attention. Through a bridge, parents send to
    each other; a bridge row with only one parent sends nothing to it.

    Shapes: {table: [sources, c]} -> {table: [targets, c]}.
    """

    def __init__(
        self,
        tables: Sequence[str],
        keys: Sequence[ForeignKey],
        routes: Sequence[Route],
        channels: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tables, self.keys, self.routes = tuple(tables), tuple(keys), tuple(routes)
        bridged = {route.second for route in routes}
        self.single = [key for key in keys if key not in bridged]
        self.up = nn.ModuleList(AttentionMessage(channels, False) for _ in self.single)
        self.through = nn.ModuleList(AttentionMessage(channels, True) for _ in routes)
        self.down = nn.ModuleList(Linear(channels, channels, bias=False) for _ in keys)
        self.self = nn.ModuleList(Linear(channels, channels) for _ in tables)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in tables)
        self.dropout = Dropout(dropout, relu=True)

    def forward(
        self, h: Mapping[str, Tensor], plan: LayerPlan, roles: None = None, ages: object = None
    ) -> dict[str, Tensor]:
        """The next embedding of every row in the plan.

        Args:
            h: embeddings of the previous layer, per table.
            plan: what to compute.
            roles: unused, for the interface of `RoleLayer`: every table is a node.
            ages: unused, for the interface of `RoleLayer`: attention weights the rows.
        """
        total = {}
        for name, own in zip(self.tables, self.self, strict=True):
            h_w = first(h[name], plan.targets[name])
            total[name] = h_w + own(h_w)
        for key, project in zip(self.keys, self.down, strict=True):
            links = plan.down[key]
            sent = linked_sum(project(first(h[key.parent], links.sources)), links)
            total[key.table] = total[key.table] + sent
        for key, message in zip(self.single, self.up, strict=True):
            links = plan.up[key]
            sent = message(None, h[key.table], h[key.parent], RouteLinks(links, links))
            total[key.parent] = total[key.parent] + sent
        for route, message in zip(self.routes, self.through, strict=True):
            u, v, w = route.tables
            total[w] = total[w] + message(h[u], h[v], h[w], plan.routes[route])
        return {
            name: self.dropout(norm(total[name]))
            for name, norm in zip(self.tables, self.norms, strict=True)
        }
