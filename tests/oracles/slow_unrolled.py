"""The network on the unrolled past, by recursion: one row at one hop after the other.

What a row at hop h sends after layer l follows from what it, its latest `fanouts[h]` children and
its parents, at hop h + 1, and the other ends of its routes, at hop h + 2, sent after layer l - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from oracles.reference_sampler import Reference, Row
from oracles.slow_network import slow_edge_message, slow_node_message, slow_norm, slow_row
from relfrog.features.columns import Features
from relfrog.graph.relational import ForeignKey
from relfrog.graph.routes import Completion, CoOccurrence, Route
from relfrog.nn.encoders import age_parts
from relfrog.nn.network import Network
from relfrog.nn.role_layer import RoleLayer


class SlowUnrolled:
    """What rows send in the past of seeds of one time."""

    def __init__(
        self, network: Network, reference: Reference, features: Mapping[str, Features],
        fanouts: Sequence[int], strategy: str, time: pd.Timestamp, end: pd.Timestamp,
    ) -> None:  # fmt: skip
        self.network, self.reference, self.features = network, reference, features
        self.fanouts, self.time, self.end = fanouts, time, min(time, end)
        self.choose = reference.latest if strategy == "last" else reference.latest_events
        self.state = cache(self._state)

    def predict(self, row: Row) -> Tensor:
        """The output of the head for a seed."""
        return self.network.head(self.state(row, 0, len(self.network.layers)))

    def children(self, row: Row, hop: int, key: ForeignKey) -> list[Row]:
        found = self.reference.children(row, key, self.end)
        fanout = self.fanouts[hop] if hop < len(self.fanouts) else 0
        return self.choose(found, len(found) if fanout < 0 else fanout)

    def parents(self, row: Row, key: ForeignKey) -> list[Row]:
        """One or none: what a row that does not exist yet refers to is not known."""
        found = self.reference.parent(row, key)
        if found is None or not self.reference.visible(row, self.end):
            return []
        return [found] if self.reference.visible(found, self.end) else []

    def _state(self, row: Row, hop: int, layer: int) -> Tensor:
        if not layer:
            return self.encoded(row)
        module = self.network.layers[layer - 1]
        assert isinstance(module, RoleLayer)
        h_w = total = self.state(row, hop, layer - 1)
        for number, key in enumerate(module.keys):
            for upwards in (True, False):
                if (key.parent if upwards else key.table) != row[0]:
                    continue
                sent = self.children(row, hop, key) if upwards else self.parents(row, key)
                weigh = upwards and self.weight(module, sent, key.table) is not None
                node = slow_node_message(
                    (module.up if upwards else module.down)[number],
                    [self.state(v, hop + 1, layer - 1) for v in sent], h_w,
                    self.weight(module, sent, key.table) if weigh else None,
                )  # fmt: skip
                built = [
                    (edge, route)
                    for edge, route in zip(module.edges, module.routes, strict=True)
                    if route.second == key and route.paradigm.arrows[1].forward == upwards
                ]
                if not built:
                    total = total + node
                for edge, route in built:
                    matches = self.matches(row, hop, route)
                    weights = self.weight(module, [v for _, v in matches], key.table)
                    message = slow_edge_message(
                        edge,
                        [(self.state(u, hop + 2, layer - 1), self.state(v, hop + 1, layer - 1))
                         for u, v in matches],
                        h_w, weights if weigh else None,
                    )  # fmt: skip
                    assert self.network.roles is not None
                    gate = self.network.roles.average[self.network.roles.number[route]]
                    total = total + gate * message + (1 - gate) * node
        norm = module.norms[module.tables.index(row[0])]
        return torch.relu(slow_norm(norm, total))

    def matches(self, w: Row, hop: int, route: Route) -> list[tuple[Row, Row]]:
        """(u, v) of the matches of a row w."""
        if isinstance(route.paradigm, CoOccurrence):
            middle = self.children(w, hop, route.second)
            return [(u, v) for v in middle for u in self.parents(v, route.first)]
        if type(route.paradigm) is Completion:
            middle = self.children(w, hop, route.second)
            return [(u, v) for v in middle for u in self.children(v, hop + 1, route.first)]
        middle = self.parents(w, route.second)
        return [(u, v) for v in middle for u in self.parents(v, route.first)]

    def weight(self, module: RoleLayer, rows: Sequence[Row], table: str) -> list[Tensor] | None:
        """How much rows of a table count in a mean; None if all count the same."""
        number = str(module.tables.index(table))
        if number not in module.recency:
            return None
        return [module.recency[number](self.age(row))[0] for row in rows]

    def age(self, row: Row) -> Tensor:
        time = self.reference.time(row)
        seconds = np.nan if pd.isna(time) else (self.end - time).total_seconds()
        return age_parts(torch.tensor([seconds], dtype=torch.float64))

    def encoded(self, row: Row) -> Tensor:
        network, (name, number) = self.network, row
        at = network.tables.index(name)
        x = slow_row(network.encoders[at], self.features[name], number)
        seconds = (self.time - pd.Timestamp(0)).total_seconds()
        lag = (self.time - self.end).total_seconds()
        spans = seconds - lag - self.features[name].moments[number : number + 1]
        timed = self.reference.tables[name].time_col is not None
        x = network.times[at](x.unsqueeze(0), self.age(row) if timed else None, spans)
        if name == network.seed_table:
            x = network.seed_encoder(
                x, torch.zeros(1, dtype=torch.int64),
                torch.tensor([not self.reference.visible(row, self.end)]),
                torch.tensor([seconds], dtype=torch.float64),
                torch.tensor([lag], dtype=torch.float64),
            )  # fmt: skip
        return x[0]
