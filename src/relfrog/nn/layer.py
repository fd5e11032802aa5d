"""One role-gated layer: every message into every table, fused by the roles of the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from relfrog.graph import ForeignKey
from relfrog.nn.encoders import Recency
from relfrog.nn.links import LayerPlan
from relfrog.nn.messages import NodeMessage, message_for
from relfrog.nn.roles import Roles
from relfrog.nn.sums import Aggregation, first
from relfrog.routes import Route

__all__ = ["RoleLayer"]


class RoleLayer(nn.Module):
    """h_w <- dropout(relu(LayerNorm(h_w + fused messages))), for the rows that are needed.

    Eq. (8): for every relation into w the sum over its routes of g h^E + (1 - g) h^N; a relation
    that no route is built on adds h^N as it is.

    Shapes: {table: [sources, c]} -> {table: [targets, c]}.
    """

    def __init__(
        self,
        tables: Sequence[str],
        keys: Sequence[ForeignKey],
        routes: Sequence[Route],
        channels: int,
        aggregation: Aggregation = Aggregation.SUM,
        dropout: float = 0.0,
        timed: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.tables, self.keys, self.routes = tuple(tables), tuple(keys), tuple(routes)
        self.up = nn.ModuleList(NodeMessage(channels, aggregation) for _ in keys)
        self.down = nn.ModuleList(NodeMessage(channels, aggregation) for _ in keys)
        self.edges = nn.ModuleList(
            message_for(route.paradigm)(channels, aggregation) for route in routes
        )
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in tables)
        self.dropout = nn.Dropout(dropout)
        # Table names may hold anything, so modules go by the number of the table.
        self.recency = nn.ModuleDict(
            {
                str(number): Recency(channels)
                for number, name in enumerate(tables)
                if aggregation is Aggregation.RECENT and name in timed
            }
        )
        # The routes built on each relation: the foreign key between v and w, as it is walked.
        self.built_on: dict[tuple[ForeignKey, bool], list[int]] = {}
        for number, route in enumerate(routes):
            upwards = route.paradigm.arrows[1].forward
            self.built_on.setdefault((route.second, upwards), []).append(number)

    def forward(
        self,
        h: Mapping[str, Tensor],
        plan: LayerPlan,
        roles: Roles | None,
        ages: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The next embedding of every row that the plan asks for.

        Args:
            h: the embeddings so far.
            plan: what to compute.
            roles: the gates; without them every table is a node.
            ages: `age_parts` of the rows of tables with times.
        """
        out = {}
        weights = {}
        for number, recency in self.recency.items():
            name = self.tables[int(number)]
            if ages is not None and len(h[name]):
                weights[name] = recency(first(ages[name], len(h[name])))
        for name, norm in zip(self.tables, self.norms, strict=True):
            count = plan.targets[name]
            h_w = first(h[name], count)
            if count:
                h_w = self.dropout(
                    torch.relu(norm(h_w + self._fused(name, h_w, h, plan, roles, weights)))
                )
            out[name] = h_w
        return out

    def _fused(
        self,
        name: str,
        h_w: Tensor,
        h: Mapping[str, Tensor],
        plan: LayerPlan,
        roles: Roles | None,
        weights: Mapping[str, Tensor],
    ) -> Tensor | int:
        """Eq. (8) for the rows of one table. Shapes: [n, c] -> [n, c]."""
        total: Tensor | int = 0
        plain: list[Tensor] = []  # weights W2 of relations that nothing is mixed with
        for number, key in enumerate(self.keys):
            for upwards, into, other, links, node in (
                (True, key.parent, key.table, plan.up[key], self.up[number]),
                (False, key.table, key.parent, plan.down[key], self.down[number]),
            ):
                if into != name:
                    continue
                assert isinstance(node, NodeMessage)
                built = self.built_on.get((key, upwards))
                weight = weights.get(other) if upwards else None
                if not built or roles is None:
                    total = total + node.from_neighbors(h[other], links, weight)
                    plain.append(node.self.weight)
                    continue
                message = node(h[other], h_w, links, weight)
                for route_number in built:
                    route = self.routes[route_number]
                    matches = plan.routes[route]
                    u, v, _ = route.tables
                    edge = self.edges[route_number](h[u], h[v], h_w, matches)
                    matched = matches.v.begin.diff() > 0
                    gate = roles(route, message, edge, matched)
                    total = total + torch.lerp(message, edge, gate)
        if plain:
            # sum of W2 h_w over relations = (sum of W2) h_w
            total = total + nn.functional.linear(h_w, torch.stack(plain).sum(0))
        return total
