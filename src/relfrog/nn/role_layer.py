"""A role-gated layer: node and edge messages into every table, mixed by the gates of the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Route
from relfrog.nn.age_pieces import AgePieces
from relfrog.nn.aggregation import AggregateCache, Aggregation, first
from relfrog.nn.batch_plan import LayerPlan, Links
from relfrog.nn.dropout import Dropout
from relfrog.nn.encoders import Recency
from relfrog.nn.messages import NodeMessage, message_for
from relfrog.nn.normalisation import normalised
from relfrog.nn.products import add_product, linear
from relfrog.nn.roles import Roles

__all__ = ["LayerOptions", "RoleLayer"]


@dataclass(frozen=True)
class LayerOptions:
    """What the paper leaves open about layers.

    Attributes:
        relu: whether ReLU follows a layer's LayerNorm.
        message: message of co-occurrence routes: "linear", Eq. (10), or "pair".
        edge_bias: whether edge messages have a bias, which rows without a match have, too.
    """

    relu: bool = True
    message: str = "linear"
    edge_bias: bool = False


#: A relation into a table: its message, its senders (rows, links, weights), its routes.
_Relation = tuple[NodeMessage, tuple[Tensor, Links, Tensor | None], Sequence[int]]


class RoleLayer(nn.Module):
    """h_w <- dropout(relu(LayerNorm(h_w + fused messages))), for the rows in the plan.

    What is received depends on the row itself, on the rows v that send to it and on the rows u that
    reach it through them, and on nothing else of the batch, whatever the options.

    Eq. (8): for every relation into w, the sum over its routes of g h^E + (1 - g) h^N; a relation
    without routes adds h^N.

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
        options: LayerOptions | None = None,
    ) -> None:
        super().__init__()
        self.options = options = options or LayerOptions()
        self.tables, self.keys, self.routes = tuple(tables), tuple(keys), tuple(routes)
        self.up = nn.ModuleList(NodeMessage(channels, aggregation) for _ in keys)
        self.down = nn.ModuleList(NodeMessage(channels, aggregation) for _ in keys)
        self.edges = nn.ModuleList(
            message_for(route.paradigm, options.message)(channels, aggregation) for route in routes
        )
        # Once per row, whatever the number of matches.
        self.edge_bias = None
        if options.edge_bias:
            limit = (3 * channels) ** -0.5
            self.edge_bias = nn.Parameter(
                torch.empty(len(routes), channels).uniform_(-limit, limit)
            )
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in tables)
        self.dropout = Dropout(dropout, relu=options.relu)
        # Keyed by table number, as module names cannot contain every character of a table name.
        self.recency = nn.ModuleDict(
            {
                str(number): Recency(channels)
                for number, name in enumerate(tables)
                if aggregation is Aggregation.RECENT and name in timed
            }
        )
        # The relations into each table: number of the key, the key, whether children send.
        self.into: dict[str, list[tuple[int, ForeignKey, bool]]] = {name: [] for name in tables}
        for number, key in enumerate(keys):
            self.into[key.parent].append((number, key, True))
            self.into[key.table].append((number, key, False))
        # The routes of each relation, which is the foreign key between v and w in one direction.
        self.built_on: dict[tuple[ForeignKey, bool], list[int]] = {}
        for number, route in enumerate(routes):
            upwards = route.paradigm.arrows[1].forward
            self.built_on.setdefault((route.second, upwards), []).append(number)

    def forward(
        self,
        h: Mapping[str, Tensor],
        plan: LayerPlan,
        roles: Roles | None,
        ages: Mapping[str, Tensor] | Mapping[str, AgePieces] | None = None,
    ) -> dict[str, Tensor]:
        """The next embedding of every row in the plan.

        Args:
            h: embeddings of the previous layer, per table.
            plan: what to compute.
            roles: the gates; without them every table is a node.
            ages: `age_parts` of the rows of tables with times, or their `AgePieces`.
        """
        out = {}
        weights = {}
        cache: AggregateCache = {}
        for number, recency in self.recency.items():
            name = self.tables[int(number)]
            if ages is not None and len(h[name]):
                weights[name] = recency(ages[name][: len(h[name])])
        for name, norm in zip(self.tables, self.norms, strict=True):
            count = plan.targets[name]
            h_w = first(h[name], count)
            if count:
                total = self._fused(name, h_w, h, plan, roles, weights, cache)
                assert isinstance(norm, nn.LayerNorm)
                if self.training:
                    h_w = self.dropout(norm(total))
                else:
                    h_w = normalised(total, norm, self.options.relu)
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
        cache: AggregateCache,
    ) -> Tensor:
        """h_w + Eq. (8), for the rows of one table. Shapes: [n, c] -> [n, c]."""
        plain: list[_Relation] = []  # node message only
        mixed: list[_Relation] = []  # node and edge messages, mixed by a gate
        for number, key, upwards in self.into[name]:
            node = (self.up if upwards else self.down)[number]
            assert isinstance(node, NodeMessage)
            other, links = (key.table, plan.up[key]) if upwards else (key.parent, plan.down[key])
            senders = (h[other], links, weights.get(other) if upwards else None)
            built: Sequence[int] = ()
            if roles is not None:
                built = self.built_on.get((key, upwards), ())
            (mixed if built else plain).append((node, senders, built))
        total = h_w
        if plain:
            # A single matrix product: sum of W2 h_w over relations = (sum of W2) h_w.
            own = torch.stack([node.self.weight for node, _, _ in plain]).sum(0)
            bias = torch.stack([node.neighbor.bias for node, _, _ in plain]).sum(0)
            if torch.is_grad_enabled():
                total = add_product(h_w + bias, h_w, own)
            else:  # one pass over the rows less
                own = own + torch.eye(len(own), dtype=own.dtype, device=own.device)
                total = linear(h_w, own, bias)
            for node, senders, _ in plain:
                total = node.add_neighbors(total, *senders, cache)
        for node, (x, links, weight), built in mixed:
            assert roles is not None
            # Gates that stay at 0 or 1 leave one of the two messages out.
            gates = [roles.constant(self.routes[number]) for number in built]
            message = h_w
            if any(gate != 1 for gate in gates):
                message = node(x, h_w, links, weight, cache)
            for number, constant in zip(built, gates, strict=True):
                route = self.routes[number]
                both = message
                if constant != 0:
                    matches = plan.routes[route]
                    u, v, _ = route.tables
                    # The weights of the relation are those of the rows v: a match counts as its v.
                    edge = self.edges[number](h[u], h[v], h_w, matches, cache, weight)
                    if self.edge_bias is not None:
                        edge = edge + self.edge_bias[number]
                    both = edge
                if constant is None or 0 < constant < 1:
                    gate = roles(route, message, edge, matches.v.begin.diff() > 0)
                    # Under mixed precision the three may have different dtypes.
                    both = torch.lerp(message, edge.to(message.dtype), gate.to(message.dtype))
                total = h_w + both if total is h_w else total.add_(both)
        return total
