"""The messages: from a row to a row it is joined to, and from u through v to w.

One module per relation or route and layer. All but one scalar in Eq. (11) is linear, so rows are
projected, on whichever side of the sum there are fewer of them, and never single matches.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relfrog.graph.routes import Completion, CoOccurrence, Paradigm
from relfrog.nn.aggregation import (
    Aggregation,
    Known,
    add_product,
    aggregate,
    first,
    largest,
    linked_sum,
    matched_sum,
)
from relfrog.nn.batch_plan import Links, RouteLinks

__all__ = ["MESSAGES", "CoOccurrenceMessage", "CompletionMessage", "NodeMessage", "message_for"]


def _add_projected(
    total: Tensor,
    x: Tensor,
    project: nn.Linear,
    links: Links,
    how: Aggregation,
    known: Known | None,
) -> Tensor:
    """Add W agg(x), projected on the side with fewer rows, to a total that may be overwritten.

    Shapes: total [targets, c], x [sources, c] -> [targets, c].
    """
    if how is not Aggregation.MAX and links.sources < links.targets:
        projected = nn.functional.linear(first(x, links.sources), project.weight)
        return total.add_(aggregate(projected, links, how))
    return add_product(total, aggregate(x, links, how, known), project.weight)


def _weighted(h_v: Tensor, weights: Tensor, known: Known) -> Tensor:
    """Senders times their weights, once for all who ask. Shapes: [n, c] each -> [n, c]."""
    found = known.get(id(weights))
    if found is None:
        found = known[id(weights)] = first(h_v, len(weights)) * weights
    return found


def _one_share(weights: Tensor, links: Links, known: Known) -> Tensor:
    """1 / the sum of the weights that reach each target, once per links. Shape [targets, c].

    Several means share it: times it, each of them needs no division, nor the three of a gradient.
    """
    found = known.get(-id(links))
    if found is None:
        found = known[-id(links)] = (linked_sum(weights, links) + 1e-9).reciprocal()
    return found


def _weighted_mean(h_v: Tensor, weights: Tensor, links: Links, known: Known) -> Tensor:
    """Mean of the senders, weighted by channel, once per links. Shape [targets, c]."""
    found = known.get(id(links))
    if found is None:
        total = linked_sum(_weighted(h_v, weights, known), links)
        found = known[id(links)] = total * _one_share(weights, links, known)
    return found


def _largest_match(sent: Tensor, links: RouteLinks) -> Tensor:
    """Maximum over the matches that reach each w. Shapes: [matches, c] -> [targets, c]."""
    each = torch.arange(len(sent), device=sent.device)
    return largest(sent, each, links.v.begin)


class NodeMessage(nn.Module):
    """Table-as-node: W1 agg(h_v) + W2 h_w, as in GraphSAGE.

    Shapes: h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.neighbor = nn.Linear(channels, channels)
        self.self = nn.Linear(channels, channels, bias=False)
        # A mean forgets how many there were.
        recent = aggregation is Aggregation.RECENT
        self.count = nn.Linear(1, channels, bias=False) if recent else None

    def forward(
        self,
        h_v: Tensor,
        h_w: Tensor,
        links: Links,
        weights: Tensor | None = None,
        known: Known | None = None,
    ) -> Tensor:
        """The whole message."""
        own = nn.functional.linear(first(h_w, links.targets), self.self.weight, self.neighbor.bias)
        return self.add_neighbors(own, h_v, links, weights, known)

    def add_neighbors(
        self,
        total: Tensor,
        h_v: Tensor,
        links: Links,
        weights: Tensor | None = None,
        known: Known | None = None,
    ) -> Tensor:
        """Add the message but for bias and W2 h_w, which several relations can compute together.

        Args:
            total: what to add it to; may be overwritten. Shape [targets, c].
            h_v: the senders.
            links: from them to the receivers.
            weights: how much each sender counts in the mean, by channel. Shape [sources, c].
            known: what other relations of the layer have aggregated.
        """
        if weights is None:
            return _add_projected(total, h_v, self.neighbor, links, self.aggregation, known)
        mean = _weighted_mean(h_v, weights, links, {} if known is None else known)
        total = add_product(total, mean, self.neighbor.weight)
        assert self.count is not None
        counts = links.counts.log1p().unsqueeze(1).to(mean.dtype)
        return add_product(total, counts, self.count.weight)


class CoOccurrenceMessage(nn.Module):
    """Eq. (10): W [h_w || h_v || h_u], aggregated over the matches that reach w.

    With weights for the rows v, the mean of h_v and of h_u over the matches is a weighted one.

    Shapes: h_u, h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.w = nn.Linear(channels, channels, bias=False)
        self.v = nn.Linear(channels, channels, bias=False)
        self.u = nn.Linear(channels, channels, bias=False)

    def forward(
        self,
        h_u: Tensor,
        h_v: Tensor,
        h_w: Tensor,
        links: RouteLinks,
        known: Known | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The aggregated message."""
        counts = links.v.counts.unsqueeze(1)
        h_w = first(h_w, links.v.targets)
        if weights is not None:
            known = {} if known is None else known
            total = self.w(h_w) * (counts > 0)
            mean = _weighted_mean(h_v, weights, links.v, known)
            total = add_product(total, mean, self.v.weight)
            mean = matched_sum(h_u, weights, links.u, links.v)
            mean = mean * _one_share(weights, links.v, known)
            return add_product(total, mean, self.u.weight)
        if self.aggregation is Aggregation.MAX:
            # The maximum does not split into parts: here the matches are projected one by one.
            both = self.v(h_v).index_select(0, links.v.source) + self.u(h_u).index_select(
                0, links.u.source
            )
            return self.w(h_w) * (counts > 0) + _largest_match(both, links)
        share = counts if self.aggregation is Aggregation.SUM else (counts > 0).float()
        total = self.w(h_w) * share
        total = _add_projected(total, h_v, self.v, links.v, self.aggregation, known)
        return _add_projected(total, h_u, self.u, links.u, self.aggregation, known)


class CompletionMessage(nn.Module):
    """Eq. (11): W2 [h_w || sigmoid(f(h_v || h_u)) * W1 (h_v || h_u)], aggregated over the matches.

    With weights for the rows v, the mean over the matches is a weighted one.

    Shapes: h_u, h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.gate_v = nn.Linear(channels, 1)
        self.gate_u = nn.Linear(channels, 1, bias=False)
        self.w1_v = nn.Linear(channels, channels, bias=False)
        self.w1_u = nn.Linear(channels, channels, bias=False)
        self.w2_w = nn.Linear(channels, channels, bias=False)
        self.w2_m = nn.Linear(channels, channels, bias=False)

    def forward(
        self,
        h_u: Tensor,
        h_v: Tensor,
        h_w: Tensor,
        links: RouteLinks,
        known: Known | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The aggregated message."""
        h_u, h_v = first(h_u, links.u.sources), first(h_v, links.v.sources)
        h_w = first(h_w, links.v.targets)
        counts = links.v.counts.unsqueeze(1)
        # One scalar per match, in the order of the links.
        gate_v = self.gate_v(h_v).index_select(0, links.v.source)
        gate_u = self.gate_u(h_u).index_select(0, links.u.source)
        gate = torch.sigmoid(gate_v + gate_u).squeeze(1)
        share = counts if self.aggregation is Aggregation.SUM else (counts > 0).float()
        if weights is not None:
            known = {} if known is None else known
            share_of_one = _one_share(weights, links.v, known)
            from_v = linked_sum(_weighted(h_v, weights, known), links.v, gate) * share_of_one
            from_u = matched_sum(h_u, weights, links.u, links.v, gate) * share_of_one
            sent = add_product(self.w1_u(from_u), from_v, self.w1_v.weight)
            return add_product(self.w2_w(h_w) * share, sent, self.w2_m.weight)
        if self.aggregation is Aggregation.MAX:
            both = self.w1_v(h_v).index_select(0, links.v.source)
            both = both + self.w1_u(h_u).index_select(0, links.u.source)
            sent = self.w2_m(both * gate.unsqueeze(1))
            return self.w2_w(h_w) * share + _largest_match(sent, links)
        sent = self._sent(h_v, self.w1_v, links.v, gate) + self._sent(h_u, self.w1_u, links.u, gate)
        if self.aggregation in (Aggregation.MEAN, Aggregation.RECENT):
            sent = sent / counts.clamp(min=1)
        return self.w2_w(h_w) * share + sent

    def _sent(self, x: Tensor, project: nn.Linear, links: Links, gate: Tensor) -> Tensor:
        """W2 W1 (sum of gate * x over the links), projected on the side with fewer rows."""
        if links.sources < links.targets:
            return linked_sum(self.w2_m(project(x)), links, gate)
        projected: Tensor = self.w2_m(project(linked_sum(x, links, gate)))
        return projected


#: The message of each paradigm; a subclass has that of its base unless it is listed itself.
MESSAGES: dict[type[Paradigm], type[nn.Module]] = {
    CoOccurrence: CoOccurrenceMessage,
    Completion: CompletionMessage,
}


def message_for(paradigm: Paradigm) -> type[nn.Module]:
    """The message class of a paradigm; Eq. (10) for one that names none, as it fits any route."""
    for base in type(paradigm).__mro__:
        if base in MESSAGES:
            return MESSAGES[base]
    return CoOccurrenceMessage
