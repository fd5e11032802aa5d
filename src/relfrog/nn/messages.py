"""Messages along foreign keys (v to w) and along routes (u through v to w).

There is one module per relation or route and layer. Except for one scalar in Eq. (11), messages are
linear, so rows are projected rather than matches, on whichever side of the sum has fewer rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relfrog.graph.routes import Completion, CoOccurrence, Paradigm
from relfrog.nn.aggregation import (
    AggregateCache,
    Aggregation,
    add_aggregate,
    aggregate,
    first,
    largest_match,
    linked_sum,
    matched_sum,
    own_share,
    paired,
    reciprocal_weight_sum,
    weighted_mean,
)
from relfrog.nn.batch_plan import Links, RouteLinks
from relfrog.nn.pair_message import PairMessage
from relfrog.nn.products import Linear, add_product, is_plain, linear

__all__ = ["MESSAGES", "CoOccurrenceMessage", "CompletionMessage", "NodeMessage", "message_for"]


def _add_projected(
    total: Tensor,
    x: Tensor,
    project: nn.Linear,
    links: Links,
    how: Aggregation,
    cache: AggregateCache | None,
) -> Tensor:
    """Add W agg(x), projected on the side with fewer rows, to `total`, possibly in place.

    Shapes: total [targets, c], x [sources, c] -> [targets, c].
    """
    if how is not Aggregation.MAX and links.sources < links.targets:
        projected = linear(first(x, links.sources), project.weight)
        return add_aggregate(total, projected, links, how)
    return add_product(total, aggregate(x, links, how, cache), project.weight)


def _weighted(h_v: Tensor, weights: Tensor, cache: AggregateCache) -> Tensor:
    """Senders times their weights, cached per weights. Shapes: [n, c] each -> [n, c]."""
    found = cache.get(id(weights))
    if found is None:
        found = cache[id(weights)] = first(h_v, len(weights)) * weights
    return found


def _weighted_mean(h_v: Tensor, weights: Tensor, links: Links, cache: AggregateCache) -> Tensor:
    """Mean of the senders, weighted by channel, cached per links. Shape [targets, c]."""
    found = cache.get(id(links))
    if found is None and is_plain(h_v, weights):
        found, cache[-id(links)] = weighted_mean(h_v, weights, links)
        cache[id(links)] = found
    if found is None:
        total = linked_sum(_weighted(h_v, weights, cache), links)
        found = cache[id(links)] = total * reciprocal_weight_sum(weights, links, cache)
    return found


class NodeMessage(nn.Module):
    """Table-as-node: W1 agg(h_v) + W2 h_w, as in GraphSAGE.

    Shapes: h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.neighbor = Linear(channels, channels)
        self.self = Linear(channels, channels, bias=False)
        # A mean does not contain the number of neighbours.
        recent = aggregation is Aggregation.RECENT
        self.count = nn.Linear(1, channels, bias=False) if recent else None

    def forward(
        self,
        h_v: Tensor,
        h_w: Tensor,
        links: Links,
        weights: Tensor | None = None,
        cache: AggregateCache | None = None,
    ) -> Tensor:
        """The whole message."""
        own = linear(first(h_w, links.targets), self.self.weight, self.neighbor.bias)
        return self.add_neighbors(own, h_v, links, weights, cache)

    def add_neighbors(
        self,
        total: Tensor,
        h_v: Tensor,
        links: Links,
        weights: Tensor | None = None,
        cache: AggregateCache | None = None,
    ) -> Tensor:
        """Add the message without bias and W2 h_w, which several relations compute together.

        Args:
            total: added to, possibly in place. Shape [targets, c].
            h_v: the senders.
            links: from senders to receivers.
            weights: weight of each sender in the mean, by channel. Shape [sources, c].
            cache: aggregates computed by other relations of the layer.
        """
        if weights is None:
            return _add_projected(total, h_v, self.neighbor, links, self.aggregation, cache)
        mean = _weighted_mean(h_v, weights, links, {} if cache is None else cache)
        total = add_product(total, mean, self.neighbor.weight)
        assert self.count is not None
        counts = links.counts.log1p().unsqueeze(1).to(mean.dtype)
        return add_product(total, counts, self.count.weight)


class CoOccurrenceMessage(nn.Module):
    """Eq. (10): W [h_w || h_v || h_u], aggregated over the matches that reach w.

    With weights for the rows v, the means of h_v and h_u over the matches are weighted.

    Shapes: h_u, h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.w = Linear(channels, channels, bias=False)
        self.v = Linear(channels, channels, bias=False)
        self.u = Linear(channels, channels, bias=False)

    def forward(
        self,
        h_u: Tensor,
        h_v: Tensor,
        h_w: Tensor,
        links: RouteLinks,
        cache: AggregateCache | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The aggregated message."""
        h_w = first(h_w, links.v.targets)
        some = links.v.counts.unsqueeze(1) > 0
        if weights is not None:
            cache = {} if cache is None else cache
            total = linear(h_w, self.w.weight) * some
            mean = _weighted_mean(h_v, weights, links.v, cache)
            total = add_product(total, mean, self.v.weight)
            mean = matched_sum(h_u, weights, links.u, links.v)
            mean = mean * reciprocal_weight_sum(weights, links.v, cache)
            return add_product(total, mean, self.u.weight)
        if self.aggregation is Aggregation.MAX:
            # A maximum is not linear, so each match has to be projected.
            both = paired(self.u(h_u), self.v(h_v), links)
            return self.w(h_w) * some + largest_match(both, links)
        total = self.w(h_w) * own_share(links, self.aggregation)
        total = _add_projected(total, h_v, self.v, links.v, self.aggregation, cache)
        return _add_projected(total, h_u, self.u, links.u, self.aggregation, cache)


class CompletionMessage(nn.Module):
    """Eq. (11): W2 [h_w || sigmoid(f(h_v || h_u)) * W1 (h_v || h_u)], aggregated over the matches.

    With weights for the rows v, the mean over the matches is weighted.

    Shapes: h_u, h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.gate_v = nn.Linear(channels, 1)
        self.gate_u = nn.Linear(channels, 1, bias=False)
        self.w1_v = Linear(channels, channels, bias=False)
        self.w1_u = Linear(channels, channels, bias=False)
        self.w2_w = Linear(channels, channels, bias=False)
        self.w2_m = Linear(channels, channels, bias=False)

    def forward(
        self,
        h_u: Tensor,
        h_v: Tensor,
        h_w: Tensor,
        links: RouteLinks,
        cache: AggregateCache | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The aggregated message."""
        h_u, h_v = first(h_u, links.u.sources), first(h_v, links.v.sources)
        h_w = first(h_w, links.v.targets)
        # One scalar per match, in the order of the links.
        gate = torch.sigmoid(paired(self.gate_u(h_u), self.gate_v(h_v), links)).squeeze(1)
        share = own_share(links, self.aggregation)
        if weights is not None:
            cache = {} if cache is None else cache
            reciprocal = reciprocal_weight_sum(weights, links.v, cache)
            from_v = linked_sum(_weighted(h_v, weights, cache), links.v, gate) * reciprocal
            from_u = matched_sum(h_u, weights, links.u, links.v, gate) * reciprocal
            sent = add_product(self.w1_u(from_u), from_v, self.w1_v.weight)
            return add_product(self.w2_w(h_w) * share, sent, self.w2_m.weight)
        if self.aggregation is Aggregation.MAX:
            both = paired(self.w1_u(h_u), self.w1_v(h_v), links)
            sent = self.w2_m(both * gate.unsqueeze(1))
            return self.w2_w(h_w) * share + largest_match(sent, links)
        sent = self._sent(h_v, self.w1_v, links.v, gate) + self._sent(h_u, self.w1_u, links.u, gate)
        if self.aggregation in (Aggregation.MEAN, Aggregation.RECENT):
            sent = sent / links.v.counts.unsqueeze(1).clamp(min=1)
        return self.w2_w(h_w) * share + sent

    def _sent(self, x: Tensor, project: nn.Linear, links: Links, gate: Tensor) -> Tensor:
        """W2 W1 (sum of gate * x over the links), projected on the side with fewer rows."""
        if links.sources < links.targets:
            return linked_sum(self.w2_m(project(x)), links, gate)
        projected: Tensor = self.w2_m(project(linked_sum(x, links, gate)))
        return projected


#: The message of each paradigm; a subclass that is not listed uses that of its base class.
MESSAGES: dict[type[Paradigm], type[nn.Module]] = {
    CoOccurrence: CoOccurrenceMessage,
    Completion: CompletionMessage,
}


def message_for(paradigm: Paradigm, kind: str = "linear") -> type[nn.Module]:
    """The message class of a paradigm; by default Eq. (10), which fits any route.

    Args:
        paradigm: the paradigm.
        kind: what stands in the place of Eq. (10): "linear" for itself, "pair" for `PairMessage`.
    """
    found: type[nn.Module] = CoOccurrenceMessage
    for base in type(paradigm).__mro__:
        if base in MESSAGES:
            found = MESSAGES[base]
            break
    return PairMessage if kind == "pair" and found is CoOccurrenceMessage else found
