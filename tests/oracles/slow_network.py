"""The network as the paper writes it: loops over rows, one vector at a time.

Nothing here is sorted, trimmed, projected ahead or shared between rows; who wants to know what
the network computes can read this. Only the weights are taken from the modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from relfrog.features.columns import Features
from relfrog.graph.batch import Batch
from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Completion, CompletionAgainst, CoOccurrence, Route
from relfrog.nn.aggregation import Aggregation
from relfrog.nn.dependency import Dependencies, Pairs
from relfrog.nn.encoders import RowEncoder, TimeEncoder, age_parts
from relfrog.nn.messages import CompletionMessage, CoOccurrenceMessage, NodeMessage
from relfrog.nn.network import Network
from relfrog.nn.pair_message import PairMessage
from relfrog.nn.resnet_encoder import ResNetEncoder
from relfrog.nn.role_layer import RoleLayer
from relfrog.nn.roles import RoleMode, Roles
from relfrog.support.times import PER_SECOND

States = Mapping[str, Sequence[Tensor]]
Match = tuple[int, int, int]


# Which rows send to which.


def slow_children(batch: Batch, key: ForeignKey) -> list[tuple[int, int]]:
    """(child, parent): a child sends if it is at most one hop further out than its parent."""
    child_hop = batch.tables[key.table].hop.tolist()
    parent_hop = batch.tables[key.parent].hop.tolist()
    return [
        (child, parent)
        for child, parent in slow_pairs(batch, key)
        if child_hop[child] <= parent_hop[parent] + 1
    ]


def slow_parents(batch: Batch, key: ForeignKey) -> list[tuple[int, int]]:
    """(child, parent): a parent sends unless it is a seed that is not visible itself."""
    hidden = slow_hidden(batch) if key.parent == batch.seed_table else set()
    return [(child, parent) for child, parent in slow_pairs(batch, key) if parent not in hidden]


def slow_pairs(batch: Batch, key: ForeignKey) -> list[tuple[int, int]]:
    """(child, parent), whoever may send."""
    pointers = batch.parents[key].tolist()
    return [(child, parent) for child, parent in enumerate(pointers) if parent >= 0]


def slow_hidden(batch: Batch) -> set[int]:
    """Seeds that are later than what may be seen."""
    rows = batch.tables[batch.seed_table]
    if rows.age is None:
        return set()
    return {i for i in batch.seeds.tolist() if float(rows.age[i]) < 0}


def slow_matches(batch: Batch, route: Route) -> list[Match]:
    """(u, v, w), by trying every two links along which something is sent."""
    if type(route.paradigm) is CoOccurrence:  # u <- v -> w
        first = [(u, v) for v, u in slow_parents(batch, route.first)]
        second = slow_children(batch, route.second)
    elif type(route.paradigm) is Completion:  # u -> v -> w
        first = slow_children(batch, route.first)
        second = slow_children(batch, route.second)
    else:  # u <- v <- w
        assert type(route.paradigm) is CompletionAgainst
        first = [(u, v) for v, u in slow_parents(batch, route.first)]
        second = [(v, w) for w, v in slow_parents(batch, route.second)]
    return [(u, v, w) for u, v in first for x, w in second if x == v]


# Messages.


def slow_aggregate(messages: Sequence[Tensor], how: Aggregation, like: Tensor) -> Tensor:
    """Sum, mean or maximum of vectors; 0 if there is none."""
    total = torch.zeros_like(like)
    if not messages:
        return total
    if how is Aggregation.MAX:
        total = messages[0]
        for message in messages[1:]:
            total = torch.maximum(total, message)
        return total
    for message in messages:
        total = total + message
    return total if how is Aggregation.SUM else total / len(messages)


def slow_node_message(
    module: NodeMessage,
    senders: Sequence[Tensor],
    h_w: Tensor,
    weights: Sequence[Tensor] | None = None,
) -> Tensor:
    """W1 agg(h_v) + W2 h_w; with weights the aggregate is a weighted mean, and the count is told."""
    sent = slow_aggregate(senders, module.aggregation, h_w)
    count: Tensor | float = 0.0
    if weights is not None and module.count is not None:
        total = torch.full_like(h_w, 1e-9)
        sent = torch.zeros_like(h_w)
        for sender, weight in zip(senders, weights, strict=True):
            sent, total = sent + weight * sender, total + weight
        sent = sent / total
        count = module.count.weight[:, 0] * torch.tensor(float(len(senders))).log1p()
    return module.neighbor.weight @ sent + module.neighbor.bias + count + module.self.weight @ h_w


def slow_edge_message(
    module: nn.Module,
    matches: Sequence[tuple[Tensor, Tensor]],
    h_w: Tensor,
    weights: Sequence[Tensor] | None = None,
) -> Tensor:
    """The message of each match (h_u, h_v), aggregated.

    With weights, the share of each match in its mean weighs what it brings, channel by channel.
    """
    if weights is not None:
        if not matches:
            return torch.zeros_like(h_w)
        total = torch.full_like(h_w, 1e-9)
        for weight in weights:
            total = total + weight
        shares = [weight / total for weight in weights]
    if isinstance(module, CoOccurrenceMessage):
        # Eq. (10): W (h_w || h_v || h_u)
        weight = torch.cat([module.w.weight, module.v.weight, module.u.weight], 1)
        if weights is not None:
            sent = [
                weight @ torch.cat([h_w / len(matches), share * h_v, share * h_u])
                for (h_u, h_v), share in zip(matches, shares, strict=True)
            ]
            return slow_aggregate(sent, Aggregation.SUM, h_w)
        sent = [weight @ torch.cat([h_w, h_v, h_u]) for h_u, h_v in matches]
        return slow_aggregate(sent, module.aggregation, h_w)
    if isinstance(module, PairMessage):
        # W (h_w || relu(V h_v + U h_u + b))
        weight = torch.cat([module.w.weight, module.m.weight], 1)
        sent = []
        for number, (h_u, h_v) in enumerate(matches):
            both = torch.relu(module.v.weight @ h_v + module.u.weight @ h_u + module.v.bias)
            own = h_w if weights is None else h_w / len(matches)
            both = both if weights is None else shares[number] * both
            sent.append(weight @ torch.cat([own, both]))
        how = module.aggregation if weights is None else Aggregation.SUM
        return slow_aggregate(sent, how, h_w)
    assert isinstance(module, CompletionMessage)
    # Eq. (11): W2 (h_w || sigmoid(f(h_v || h_u)) * W1 (h_v || h_u))
    f = torch.cat([module.gate_v.weight, module.gate_u.weight], 1)
    w1 = torch.cat([module.w1_v.weight, module.w1_u.weight], 1)
    w2 = torch.cat([module.w2_w.weight, module.w2_m.weight], 1)
    sent = []
    for number, (h_u, h_v) in enumerate(matches):
        both = torch.cat([h_v, h_u])
        gate = torch.sigmoid(f @ both + module.gate_v.bias)
        if weights is not None:
            both = both * torch.cat([shares[number], shares[number]])
            sent.append(w2 @ torch.cat([h_w / len(matches), gate * (w1 @ both)]))
            continue
        sent.append(w2 @ torch.cat([h_w, gate * (w1 @ both)]))
    how = module.aggregation if weights is None else Aggregation.SUM
    return slow_aggregate(sent, how, h_w)


# Roles and layers.


def slow_gates(roles: Roles, route: Route, node: Sequence[Tensor], edge: Sequence[Tensor],
               matched: Sequence[bool]) -> list[Tensor]:  # fmt: skip
    """The gate of each row; in training the average moves to their mean."""
    number = roles.number[route]
    average = roles.average[number].clone()
    if roles.mode is not RoleMode.LEARNED or not (roles.training or roles.options.row_wise):
        return [average for _ in node]
    if roles.options.normalise:
        scale = nn.LayerNorm(len(node[0]) if node else 1, elementwise_affine=False)
        node = [scale(x) for x in node]
        edge = [scale(x) for x in edge]
    first, last = roles.first[number], roles.last[number]
    gates = []
    for h_n, h_e in zip(node, edge, strict=True):
        # Eq. (6)
        hidden = torch.relu(first.weight @ torch.cat([h_n, h_e]) + first.bias)
        gate = torch.sigmoid(last.weight @ hidden + last.bias)
        # Eq. (7)
        gates.append((1 - roles.alpha) * gate + roles.alpha * average)
    every = roles.options.all_rows
    reached = [
        float(gate.detach()) for gate, hit in zip(gates, matched, strict=True) if hit or every
    ]
    if reached and roles.training:
        roles.average[number] = sum(reached) / len(reached)
    return gates


def slow_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """LayerNorm of one vector."""
    off = x - x.mean()
    return off / torch.sqrt(off.square().mean() + norm.eps) * norm.weight + norm.bias


def slow_weights(layer: RoleLayer, batch: Batch) -> dict[str, list[Tensor]]:
    """How much each row of a table with times counts in a weighted mean."""
    found: dict[str, list[Tensor]] = {}
    for number, recency in layer.recency.items():
        name = layer.tables[int(number)]
        ages = batch.tables[name].age
        assert ages is not None
        found[name] = [recency(age_parts(ages[i : i + 1]))[0] for i in range(len(ages))]
    return found


def slow_layer(layer: RoleLayer, h: States, batch: Batch, roles: Roles | None) -> States:
    """One layer for every row of a batch; no dropout."""
    weights = slow_weights(layer, batch)
    total = {name: [torch.zeros_like(x) for x in rows] for name, rows in h.items()}
    for number, key in enumerate(layer.keys):
        for upwards in (True, False):
            if upwards:
                table, module = key.parent, layer.up[number]
                links = slow_children(batch, key)
            else:
                table, module = key.table, layer.down[number]
                links = [(parent, w) for w, parent in slow_parents(batch, key)]
            sender = key.table if upwards else key.parent
            counts = weights.get(sender) if upwards else None
            node = []
            for w, h_w in enumerate(h[table]):
                mine = [v for v, into in links if into == w]
                own = None if counts is None else [counts[v] for v in mine]
                node.append(slow_node_message(module, [h[sender][v] for v in mine], h_w, own))
            built = [
                (edge, route)
                for edge, route in zip(layer.edges, layer.routes, strict=True)
                if route.second == key and route.paradigm.arrows[1].forward == upwards
            ]
            # Eq. (8)
            for w in range(len(node)) if not built or roles is None else ():
                total[table][w] = total[table][w] + node[w]
            for module, route in built if roles is not None else ():
                bias = 0.0
                if layer.edge_bias is not None:
                    bias = layer.edge_bias[layer.routes.index(route)]
                from_u, from_v, into = route.tables
                assert into == table
                reached: list[list[tuple[Tensor, Tensor]]] = [[] for _ in node]
                aged: list[list[Tensor]] = [[] for _ in node]
                for u, v, w in slow_matches(batch, route):
                    reached[w].append((h[from_u][u], h[from_v][v]))
                    if counts is not None:
                        aged[w].append(counts[v])
                edge = [
                    slow_edge_message(module, some, h_w, None if counts is None else own) + bias
                    for some, h_w, own in zip(reached, h[table], aged, strict=True)
                ]
                gates = slow_gates(roles, route, node, edge, [bool(some) for some in reached])
                for w, gate in enumerate(gates):
                    total[table][w] = total[table][w] + gate * edge[w] + (1 - gate) * node[w]
    return {
        name: [
            (torch.relu if layer.options.relu else torch.Tensor.clone)(slow_norm(norm, h_w + fused))
            for h_w, fused in zip(h[name], total[name], strict=True)
        ]
        for name, norm in zip(layer.tables, layer.norms, strict=True)
    }


# Encoders.


def slow_row(encoder: RowEncoder, features: Features, row: int) -> Tensor:
    """A row's own columns, one after the other."""
    weight, bias = encoder.dense.weight, encoder.dense.bias
    numbers = features.dense[row].to(weight.dtype)
    x = bias
    for column, value in enumerate(numbers):
        x = x + weight[:, column] * value
    at = len(numbers)
    for column in range(encoder.num_numerical if encoder.bins else 0):
        edges = encoder.quantiles[column]
        for low, high in pairwise(edges):
            share = (numbers[column] - low) / max(float(high - low), 1e-6)
            x = x + weight[:, at] * min(max(float(share), 0.0), 1.0)
            at += 1
    codes = features.codes[row].tolist()
    if features.bag_offsets is not None and features.bag_values is not None:
        begin, end = features.bag_offsets[row : row + 2].tolist()
        codes += features.bag_values[begin:end].tolist()
    for code in codes:
        x = x + encoder.codes.weight[code]
    for norm, _, linear in encoder.blocks:
        x = x + linear.weight @ torch.relu(slow_norm(norm, x)) + linear.bias
    return x


def slow_resnet_row(encoder: ResNetEncoder, features: Features, row: int) -> Tensor:
    """A row's columns, one vector each, side by side, through the blocks."""
    numbers = features.dense[row].to(encoder.dense.dtype)
    parts = [torch.zeros_like(encoder.dense.new_empty(encoder.dense.shape[1]))] * encoder.parts
    for column, bias in enumerate(encoder.bias):
        parts[column] = bias
    for place, value in enumerate(numbers):
        column = int(encoder.dense_from[place])
        parts[column] = parts[column] + encoder.dense[place] * value
    codes = features.codes[row].tolist()
    if features.bag_offsets is not None and features.bag_values is not None:
        begin, end = features.bag_offsets[row : row + 2].tolist()
        codes += features.bag_values[begin:end].tolist()
    for code in codes:
        column = int(encoder.codes_from[code])
        parts[column] = parts[column] + encoder.codes[code]
    x = torch.cat(parts)
    for block in encoder.blocks:
        hidden = torch.relu(slow_norm(block.norms[0], block.first(x)))
        hidden = torch.relu(slow_norm(block.norms[1], block.last(hidden)))
        x = hidden + (x if block.shortcut is None else block.shortcut(x))
    norm, _, last = encoder.out
    return last(torch.relu(slow_norm(norm, x)))


def slow_encode(network: Network, batch: Batch, features: Mapping[str, Features]) -> States:
    """Every occurrence of every row on its own, through the network's own time encoders."""
    per_second = float(PER_SECOND[network.unit])
    states: dict[str, list[Tensor]] = {}
    for name, encoder, times in zip(network.tables, network.encoders, network.times, strict=True):
        assert isinstance(times, TimeEncoder)
        part, states[name] = batch.tables[name], []
        for i in range(len(part)):
            row = int(part.rows[part.index[i]])
            x = slow_row(encoder, features[name], row)
            age = None if part.age is None else age_parts(part.age[i : i + 1])
            group = int(part.group[i])
            end = int(batch.group_times[group]) / per_second - float(batch.group_lags[group])
            spans = end - features[name].moments[row : row + 1]
            states[name].append(times(x.unsqueeze(0), age, spans)[0])
    hidden, part = slow_hidden(batch), batch.tables[network.seed_table]
    asked = set(batch.seeds.tolist())
    for i, x in enumerate(states[network.seed_table]):
        group = int(part.group[i])
        states[network.seed_table][i] = network.seed_encoder(
            x.unsqueeze(0),
            torch.zeros(1, dtype=torch.int64),
            torch.tensor([i in hidden]),
            batch.group_times[group : group + 1].double() / per_second,
            batch.group_lags[group : group + 1],
            torch.zeros(int(i in asked), dtype=torch.int64),
        )[0]
    return states


def slow_forward(network: Network, batch: Batch, features: Mapping[str, Features]) -> list[States]:
    """The states of every occurrence before the first layer and after each."""
    states = [slow_encode(network, batch, features)]
    for layer in network.layers:
        assert isinstance(layer, RoleLayer)
        states.append(slow_layer(layer, states[-1], batch, network.roles))
    return states


# Dependencies.


def slow_emb(dependencies: Dependencies, key: ForeignKey, pairs: Pairs) -> Tensor:
    """L_emb, Eq. (13), pair by pair."""
    number = dependencies.number[key]
    basis, shift = dependencies.subspace[number], dependencies.shift[number]
    if dependencies.options.orthonormal:  # Gram and Schmidt
        columns: list[Tensor] = []
        for column in basis.T:
            for other in columns:
                column = column - (column @ other) * other
            columns.append(column / column.norm())
        basis = torch.stack(columns, 1)
    losses = []
    for child, parent in zip(pairs.child, pairs.parent, strict=True):
        off = (parent - child) - shift
        losses.append((off - basis @ basis.T @ off).norm() ** 2)
    return sum(losses) / len(losses)


def slow_pair(
    dependencies: Dependencies, key: ForeignKey, pairs: Pairs, drawn: Tensor
) -> Tensor:  # fmt: skip
    """L_pair, Eq. (15), pair by pair; what is drawn is a negative unless it is the true parent."""
    number = dependencies.number[key]
    hidden, last = dependencies.hidden[number], dependencies.score[number]

    def d(parent: Tensor, child: Tensor) -> Tensor:
        inner = torch.relu(hidden.weight @ (parent - child) + hidden.bias)
        return torch.exp((last.weight @ inner + last.bias)[0] / dependencies.options.tau)

    losses = []
    rows = pairs.parent_row.tolist()
    for i, child in enumerate(pairs.child):
        positive = d(pairs.parent[i], child)
        total = positive
        for j in drawn[i].tolist():
            if rows[j] != rows[i]:
                total = total + d(pairs.parent[j], child)
        losses.append(-torch.log(positive / total))
    return sum(losses) / len(losses)
