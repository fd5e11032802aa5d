"""The same network, written plainly on PyTorch Geometric: what the benchmark compares with.

Every seed has a subgraph of its own, every occurrence of a row is encoded by itself, all layers
compute all rows, routes are computed match by match with Eqs. (10) and (11) as they stand, and the
second phase of the alternation runs the network a second time.

`PlainNetwork(network)` takes the weights of ours; `differences` says how far the two are apart.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, SAGEConv
from torch_geometric.utils import scatter

from relfrog.features.columns import Features
from relfrog.graph.batch import Batch
from relfrog.graph.loader import Loader
from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Route
from relfrog.nn.aggregation import Aggregation
from relfrog.nn.batch_plan import make_plan
from relfrog.nn.dependency import Dependencies
from relfrog.nn.encoders import Recency, age_parts
from relfrog.nn.messages import CompletionMessage, CoOccurrenceMessage, NodeMessage
from relfrog.nn.network import Network, dependency_pairs
from relfrog.nn.role_layer import RoleLayer
from relfrog.nn.roles import RoleMode, Roles
from relfrog.support.times import PER_SECOND
from relfrog.training.trainer import Trainer

__all__ = ["PlainGraph", "PlainNetwork", "PlainTrainer", "differences", "stir"]

#: A foreign key and whether it is walked from child to parent.
Relation = tuple[ForeignKey, bool]


@dataclass(frozen=True)
class PlainGraph:
    """A batch as lists of edges.

    Attributes:
        batch: the sampled rows.
        edges: senders and receivers per relation. int64, shape [2, edges].
        matches: rows u, v and w per route. int64, shape [matches] each.
    """

    batch: Batch
    edges: Mapping[Relation, Tensor]
    matches: Mapping[Route, tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, batch: Batch, routes: Sequence[Route]) -> PlainGraph:
        """List who sends to whom, by the rules of `relfrog.nn.batch_plan`.

        A child sends to a parent that is at most one hop nearer to the seeds; a parent sends to
        its children, unless it is a seed that is not visible itself.
        """
        hidden = torch.zeros(len(batch.tables[batch.seed_table]), dtype=torch.bool)
        hidden[batch.seeds] = batch.hidden()
        edges: dict[Relation, Tensor] = {}
        sends: dict[Relation, Tensor] = {}  # for each child: along this key, does one send?
        for key, parents in batch.parents.items():
            children = (parents >= 0).nonzero().squeeze(1)
            ends = torch.stack([children, parents[children]])
            hops = batch.tables[key.table].hop[ends[0]], batch.tables[key.parent].hop[ends[1]]
            near = hops[0] <= hops[1] + 1
            seen = torch.ones_like(near)
            if key.parent == batch.seed_table:
                seen = ~hidden[ends[1]]
            edges[key, True] = ends[:, near]
            edges[key, False] = ends[:, seen].flip(0)
            for upwards, which in ((True, near), (False, seen)):
                sends[key, upwards] = torch.zeros(len(parents), dtype=torch.bool)
                sends[key, upwards][children[which]] = True
        matches = {}
        for route in routes:
            u, v, w = batch.matches(route)
            up, again = (arrow.forward for arrow in route.paradigm.arrows)
            keep = sends[route.first, up][u if up else v]
            keep &= sends[route.second, again][v if again else w]
            matches[route] = u[keep], v[keep], w[keep]
        return cls(batch, edges, matches)


class RecentConv(MessagePassing):
    """W1 (mean of h_v, weighted by age) + W2 h_w. Shapes: [n, c], [m, c] -> [m, c]."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr="sum")
        self.lin_l = nn.Linear(channels, channels)
        self.lin_r = nn.Linear(channels, channels, bias=False)
        self.count = nn.Linear(1, channels, bias=False)

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor, weight: Tensor) -> Tensor:
        """The whole message."""
        size = len(x[0]), len(x[1])
        total = self.propagate(edge_index, x=(x[0] * weight, x[1]), size=size)
        whole = self.propagate(edge_index, x=(weight, x[1]), size=size)
        ones = weight.new_ones(len(weight), 1)
        count = self.propagate(edge_index, x=(ones, x[1]), size=size)
        message = self.lin_l(total / (whole + 1e-9)) + self.count(count.log1p())
        return message + self.lin_r(x[1])


class PlainCoOccurrence(nn.Module):
    """Eq. (10), match by match. Shapes: h_w, h_v, h_u [matches, c] -> [matches, c]."""

    def __init__(self, ours: CoOccurrenceMessage) -> None:
        super().__init__()
        self.w = _joined(ours.w, ours.v, ours.u)

    def forward(self, h_w: Tensor, h_v: Tensor, h_u: Tensor, share: Tensor | None = None) -> Tensor:
        """W [h_w || h_v || h_u]; with a share, of what the match brings."""
        if share is not None:
            h_v, h_u = share * h_v, share * h_u
        return self.w(torch.cat([h_w, h_v, h_u], 1))


class PlainCompletion(nn.Module):
    """Eq. (11), match by match. Shapes: h_w, h_v, h_u [matches, c] -> [matches, c]."""

    def __init__(self, ours: CompletionMessage) -> None:
        super().__init__()
        self.gate = _joined(ours.gate_v, ours.gate_u)
        self.w1 = _joined(ours.w1_v, ours.w1_u)
        self.w2 = _joined(ours.w2_w, ours.w2_m)

    def forward(self, h_w: Tensor, h_v: Tensor, h_u: Tensor, share: Tensor | None = None) -> Tensor:
        """W2 [h_w || sigmoid(f(h_v || h_u)) * W1 (h_v || h_u)]; with a share, of what it brings."""
        both = torch.cat([h_v, h_u], 1)
        gate = torch.sigmoid(self.gate(both))
        if share is not None:
            both = both * torch.cat([share, share], 1)
        return self.w2(torch.cat([h_w, gate * self.w1(both)], 1))


def _joined(*parts: nn.Linear) -> nn.Linear:
    """One linear map on the concatenation of what the parts are applied to."""
    bias = next((part.bias for part in parts if part.bias is not None), None)
    inputs = sum(part.in_features for part in parts)
    joined = nn.Linear(inputs, parts[0].out_features, bias=bias is not None)
    with torch.no_grad():
        joined.weight.copy_(torch.cat([part.weight for part in parts], 1))
        if bias is not None:
            joined.bias.copy_(bias)
    return joined


def _conv(ours: NodeMessage, how: Aggregation, weighted: bool) -> MessagePassing:
    channels = ours.neighbor.in_features
    if weighted:
        conv: Any = RecentConv(channels)
        assert ours.count is not None
        conv.count.load_state_dict(ours.count.state_dict())
    else:
        mean = how in (Aggregation.MEAN, Aggregation.RECENT)
        conv = SAGEConv(channels, channels, aggr="mean" if mean else how.value)
    conv.lin_l.load_state_dict(ours.neighbor.state_dict())
    conv.lin_r.load_state_dict(ours.self.state_dict())
    return conv


class PlainLayer(nn.Module):
    """h_w <- dropout(relu(LayerNorm(h_w + fused messages))), Eq. (8), for all rows."""

    def __init__(self, ours: RoleLayer, how: Aggregation) -> None:
        super().__init__()
        self.tables, self.routes, self.built_on = ours.tables, ours.routes, ours.built_on
        self.reduce = "mean" if how is Aggregation.RECENT else how.value
        self.recency = copy.deepcopy(ours.recency)
        self.recent = {self.tables[int(number)]: number for number in self.recency}
        self.relations: list[Relation] = []
        self.convs = nn.ModuleList()
        for key, up, down in zip(ours.keys, ours.up, ours.down, strict=True):
            for upwards, message in ((True, up), (False, down)):
                self.relations.append((key, upwards))
                self.convs.append(_conv(message, how, upwards and key.table in self.recent))
        kinds = {CoOccurrenceMessage: PlainCoOccurrence, CompletionMessage: PlainCompletion}
        self.edges = nn.ModuleList(kinds[type(message)](message) for message in ours.edges)
        self.norms = copy.deepcopy(ours.norms)
        self.dropout = nn.Dropout(ours.dropout.p)

    def forward(
        self,
        h: Mapping[str, Tensor],
        graph: PlainGraph,
        roles: PlainRoles | None,
        ages: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """The next embedding of every row."""
        weights: dict[str, Tensor] = {}
        for name, number in self.recent.items():
            recency = self.recency[number]
            assert isinstance(recency, Recency)
            weights[name] = recency(ages[name])
        total = {name: torch.zeros_like(x) for name, x in h.items()}
        for (key, upwards), conv in zip(self.relations, self.convs, strict=True):
            other, name = (key.table, key.parent) if upwards else (key.parent, key.table)
            if not len(h[name]):
                continue
            weight = [weights[other]] if isinstance(conv, RecentConv) else []
            node = conv((h[other], h[name]), graph.edges[key, upwards], *weight)
            numbers = self.built_on.get((key, upwards))
            if not numbers or roles is None:
                total[name] = total[name] + node
                continue
            for number in numbers:
                route = self.routes[number]
                u, v, w = graph.matches[route]
                h_u, h_v, h_w = h[route.tables[0]][u], h[route.tables[1]][v], h[name][w]
                if weight:
                    own = weight[0][v]
                    whole = scatter(own, w, 0, len(node), "sum") + 1e-9
                    count = scatter(torch.ones_like(own), w, 0, len(node), "sum")
                    sent = self.edges[number](h_w / count[w], h_v, h_u, own / whole[w])
                    edge = scatter(sent, w, 0, len(node), "sum")
                else:
                    sent = self.edges[number](h_w, h_v, h_u)
                    edge = scatter(sent, w, 0, len(node), self.reduce)
                matched = torch.zeros(len(node), dtype=torch.bool)
                matched[w] = True
                gate = roles(number, node, edge, matched)
                total[name] = total[name] + gate * edge + (1 - gate) * node  # Eq. (8)
        return {
            name: self.dropout(torch.relu(norm(h[name] + total[name])))
            for name, norm in zip(self.tables, self.norms, strict=True)
        }


class PlainRoles(nn.Module):
    """Eqs. (6) and (7): an MLP on [h^N || h^E] per route, and the running average."""

    average: Tensor

    def __init__(self, ours: Roles) -> None:
        super().__init__()
        self.mode, self.alpha = ours.mode, ours.alpha
        self.register_buffer("average", ours.average.clone())
        self.gates = nn.ModuleList(
            nn.Sequential(copy.deepcopy(first), nn.ReLU(), copy.deepcopy(last), nn.Sigmoid())
            for first, last in zip(ours.first, ours.last, strict=True)
        )

    def forward(self, number: int, node: Tensor, edge: Tensor, matched: Tensor) -> Tensor:
        """The gate of a route for each row. Shapes: [n, c] -> [n, 1] or []."""
        if self.mode is not RoleMode.LEARNED or not self.training:
            return self.average[number]
        gate = self.gates[number](torch.cat([node, edge], 1))  # Eq. (6)
        gate = (1 - self.alpha) * gate + self.alpha * self.average[number].clone()  # Eq. (7)
        if matched.any():
            self.average[number] = gate.detach()[matched].mean()
        return gate


class PlainNetwork(nn.Module):
    """Our network with the same weights, computed plainly."""

    def __init__(self, ours: Network) -> None:
        super().__init__()
        self.tables, self.seed_table, self.unit = ours.tables, ours.seed_table, ours.unit
        self.encoders = copy.deepcopy(ours.encoders)
        self.times = copy.deepcopy(ours.times)
        self.seed_encoder = copy.deepcopy(ours.seed_encoder)
        self.roles = PlainRoles(ours.roles) if ours.roles is not None else None
        self.layers = nn.ModuleList()
        for layer in ours.layers:
            assert isinstance(layer, RoleLayer)
            message = layer.up[0] if len(layer.up) else None
            how = message.aggregation if isinstance(message, NodeMessage) else Aggregation.SUM
            self.layers.append(PlainLayer(layer, how))
        self.head = copy.deepcopy(ours.head)

    def forward(
        self, graph: PlainGraph, features: Mapping[str, Features]
    ) -> tuple[Any, dict[str, Tensor]]:
        """The head's raw output for the seeds, and the final embeddings."""
        ages = {
            name: age_parts(rows.age)
            for name, rows in graph.batch.tables.items()
            if rows.age is not None
        }
        h = self.encode(graph.batch, features, ages)
        for layer in self.layers:
            h = layer(h, graph, self.roles, ages)
        return self.head.read(h, graph), h

    def encode(
        self, batch: Batch, features: Mapping[str, Features], ages: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Each occurrence by itself."""
        seconds = batch.group_times.double() / float(PER_SECOND[self.unit])
        ends = seconds - batch.group_lags
        h = {}
        for name, encoder, times in zip(self.tables, self.encoders, self.times, strict=True):
            rows = batch.tables[name]
            each = rows.rows[rows.index]
            spans = None
            if times.moments is not None:
                moments = features[name].moments[each]
                spans = ends[rows.group.long()].unsqueeze(1) - moments
            h[name] = times(encoder(features[name], each), ages.get(name), spans)
        seeds = batch.tables[self.seed_table]
        hidden = torch.zeros(len(seeds), dtype=torch.bool)
        hidden[batch.seeds] = batch.hidden()
        h[self.seed_table] = self.seed_encoder(
            h[self.seed_table], seeds.group.long(), hidden, seconds, batch.group_lags, batch.seeds
        )
        return h


class PlainDependencies(nn.Module):
    """L_emb and L_pair, Eqs. (13) and (15), pair by pair."""

    def __init__(self, ours: Dependencies) -> None:
        super().__init__()
        self.keys = list(ours.number)
        options = ours.options
        self.negatives, self.tau = options.negatives, options.tau
        self.orthonormal = options.orthonormal
        self.subspaces = nn.ParameterList(matrix.detach().clone() for matrix in ours.subspace)
        self.shifts = nn.ParameterList(shift.detach().clone() for shift in ours.shift)
        self.scorers = nn.ModuleList(
            nn.Sequential(copy.deepcopy(hidden), nn.ReLU(), copy.deepcopy(score))
            for hidden, score in zip(ours.hidden, ours.score, strict=True)
        )

    def forward(self, h: Mapping[str, Tensor], batch: Batch, most: int) -> tuple[Tensor, Tensor]:
        """Both losses on at most so many pairs per foreign key."""
        emb, pair = [], []
        for number, key in enumerate(self.keys):
            parents = batch.parents[key]
            children = (parents >= 0).nonzero().squeeze(1)
            if not len(children):
                continue
            if most and len(children) > most:
                children = children[torch.randint(len(children), (most,))]
            parents = parents[children]
            drawn = torch.randint(len(children), (len(children), self.negatives))
            rows = batch.tables[key.parent].index[parents]
            allowed = rows[drawn] != rows.unsqueeze(1)
            child, parent = h[key.table][children], h[key.parent][parents]
            emb.append(self.emb(number, child, parent))
            pair.append(self.pair(number, child, parent, drawn, allowed))
        if not emb:
            nothing = torch.zeros(())
            return nothing, nothing
        return torch.stack(emb).mean(), torch.stack(pair).mean()

    def emb(self, number: int, child: Tensor, parent: Tensor) -> Tensor:
        """L_emb of one foreign key. Shapes: [pairs, c] -> []."""
        basis = self.subspaces[number]
        if self.orthonormal:
            basis = torch.linalg.qr(basis).Q
        off = parent - child - self.shifts[number]
        return (off - off @ basis @ basis.T).square().sum(1).mean()  # Eq. (13)

    def pair(
        self, number: int, child: Tensor, parent: Tensor, drawn: Tensor, allowed: Tensor
    ) -> Tensor:
        """L_pair of one foreign key. Shapes: [pairs, c], drawn [pairs, negatives] -> []."""
        scorer = self.scorers[number]
        right = scorer(parent - child) / self.tau
        wrong = scorer(parent[drawn] - child.unsqueeze(1)).squeeze(2) / self.tau
        scores = torch.cat([right, wrong.masked_fill(~allowed, -torch.inf)], 1)
        return -scores.log_softmax(1)[:, 0].mean()  # Eq. (15)


class PlainTrainer:
    """Trains the plain network, from the weights that a trainer of ours has."""

    def __init__(self, ours: Trainer) -> None:
        prepared = ours.prepared
        self.config, self.features, self.targets = ours.config, ours.features, ours.targets
        self.network = PlainNetwork(ours.network)
        self.optimizer = _same(ours.optimizer, self.network)
        self.dependencies = None
        if ours.dependencies is not None and ours.fd_optimizer is not None:
            self.dependencies = PlainDependencies(ours.dependencies)
            self.fd_optimizer = _same(ours.fd_optimizer, self.dependencies)
        config = self.config
        sampler = replace(ours.loader.sampler, mode="separate")
        self.loader = Loader(
            sampler, ours.train_seeds.rows, ours.train_seeds.times, config.batch_size,
            prepare=lambda batch: PlainGraph.of(batch, prepared.routes),
        )  # fmt: skip

    def train_step(self, graph: PlainGraph) -> float:
        """One step: both phases, each with a forward pass of its own."""
        loss = self.fit_model(graph)
        if self.dependencies is not None:
            self.fit_regulariser(graph)
        return loss

    def fit_model(self, graph: PlainGraph) -> float:
        """The model learns, with the regulariser fixed."""
        config = self.config
        self.network.train()
        out, h = self.network(graph, self.features)
        task = self.network.head.batch_loss(out, graph, self.targets, self.features)
        total = task
        if self.dependencies is not None:
            self.dependencies.requires_grad_(False)
            emb, pair = self.dependencies(h, graph.batch, config.fd_pairs)
            total = task + config.beta * emb + config.gamma * pair
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        if config.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
        self.optimizer.step()
        return float(task.detach())

    def fit_regulariser(self, graph: PlainGraph) -> None:
        """P, s and the scorers learn, with the model fixed."""
        assert self.dependencies is not None
        self.network.eval()
        with torch.no_grad():
            _, h = self.network(graph, self.features)
        self.dependencies.requires_grad_(True)
        emb, pair = self.dependencies(h, graph.batch, self.config.fd_pairs)
        self.fd_optimizer.zero_grad(set_to_none=True)
        (self.config.beta * emb + self.config.gamma * pair).backward()
        self.fd_optimizer.step()


def _same(optimizer: torch.optim.Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    """An optimiser of the same kind for other weights."""
    known = inspect.signature(type(optimizer)).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in known}
    return type(optimizer)(module.parameters(), **settings)


def differences(
    ours: Network,
    batch: Batch,
    features: Mapping[str, Features],
    dependencies: Dependencies | None = None,
) -> dict[str, float]:
    """How far the plain network is from ours on a batch, relative to the largest value.

    Args:
        ours: a network without dropout.
        batch: separate subgraphs.
        features: the columns.
        dependencies: to compare the losses, too.

    Returns:
        Of the seeds' outputs in evaluation and in training, of all final embeddings, of the
        average gates, of the gradients, and of the two losses.
    """
    first = ours.layers[0]
    assert isinstance(first, RoleLayer)
    plain = PlainNetwork(ours)
    graph = PlainGraph.of(batch, first.routes)
    # What the seeds do not need is left out by ours, and makes no difference to them.
    found = {}
    with torch.no_grad():
        trimmed = make_plan(batch, len(ours.layers), first.routes)
        one = ours.eval()(trimmed, features)
        two, _ = plain.eval()(graph, features)
        found["evaluation"] = _apart(one.seeds, two)
    # The average gate is one over the rows that are computed: here both compute all.
    plan = make_plan(batch, len(ours.layers), first.routes, trim=False)
    one = ours.train()(plan, features)
    two, h = plain.train()(graph, features)
    found["training"] = _apart(one.seeds, two)
    found["embeddings"] = max(_apart(x, h[name]) for name, x in one.states[-1].items() if len(x))
    if ours.roles is not None and plain.roles is not None:
        found["average gates"] = _apart(ours.roles.average, plain.roles.average)
    one.seeds.square().mean().backward()
    two.square().mean().backward()
    pairs = [(ours.encoders, plain.encoders), (ours.times, plain.times), (ours.head, plain.head)]
    pairs += [(a.norms, b.norms) for a, b in zip(ours.layers, plain.layers, strict=True)]
    grads = [
        torch.cat([_gradient(weight) for part in parts for weight in part.parameters()])
        for parts in zip(*pairs, strict=True)
    ]
    found["gradients"] = _apart(*grads)
    if dependencies is not None:
        same = PlainDependencies(dependencies)
        emb, pair = [0.0], [0.0]
        for key, some in dependency_pairs(one, plan, same.keys, 16).items():
            number = dependencies.number[key]
            child, parent = some.child.detach(), some.parent.detach()
            drawn = torch.randint(len(child), (len(child), same.negatives))
            allowed = some.parent_row[drawn] != some.parent_row.unsqueeze(1)
            given = some.detach()
            emb.append(_apart(dependencies.emb(key, given), same.emb(number, child, parent)))
            pair.append(
                _apart(
                    dependencies.pair_against(key, given, drawn, allowed),
                    same.pair(number, child, parent, drawn, allowed),
                )
            )
        found |= {"L_emb": max(emb), "L_pair": max(pair)}
    return found


def _gradient(weight: Tensor) -> Tensor:
    return (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten()


def _apart(one: Tensor, two: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float(((one - two).abs().max() / two.abs().max().clamp(min=1e-6)).detach())


def stir(network: Network) -> None:
    """Random numbers wherever a network begins with zeros or equal gates, to hide nothing."""
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
        if network.roles is not None:
            network.roles.average.uniform_(0.1, 0.9)
