"""A message that is not linear in the pair (u, v): it hears u together with v, in one layer.

Eq. (10) is linear, so that its sum over matches is a sum over u plus a sum over v: one layer of it
cannot tell what u and v have to do with each other. Here each match passes through a ReLU. Rows are
still projected, not matches; a match costs two additions and a comparison per channel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from relfrog.nn.aggregation import (
    AggregateCache,
    Aggregation,
    first,
    largest_match,
    own_share,
    paired,
    reciprocal_weight_sum,
)
from relfrog.nn.batch_plan import Links, RouteLinks
from relfrog.nn.products import Linear, add_product
from relfrog.support.jit import compiled

__all__ = ["PairMessage", "pair_sum"]


class PairMessage(nn.Module):
    """W [h_w || relu(V h_v + U h_u + b)], aggregated over the matches that reach w.

    With weights for the rows v, the mean over the matches is weighted, channel by channel.

    Shapes: h_u, h_v [sources, c], h_w [targets or more, c] -> [targets, c].
    """

    def __init__(self, channels: int, aggregation: Aggregation = Aggregation.SUM) -> None:
        super().__init__()
        self.aggregation = aggregation
        self.v = Linear(channels, channels)
        self.u = Linear(channels, channels, bias=False)
        self.w = Linear(channels, channels, bias=False)
        self.m = Linear(channels, channels, bias=False)

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
        u, v = self.u(first(h_u, links.u.sources)), self.v(first(h_v, links.v.sources))
        own = self.w(first(h_w, links.v.targets)) * own_share(links, self.aggregation)
        if weights is not None:
            total = reciprocal_weight_sum(weights, links.v, {} if cache is None else cache)
            return add_product(own, pair_sum(u, v, links, weights) * total, self.m.weight)
        if self.aggregation is Aggregation.MAX:
            return own + largest_match(self.m(paired(u, v, links).relu_()), links)
        sent = pair_sum(u, v, links)
        if self.aggregation is not Aggregation.SUM:
            sent = sent / links.v.counts.unsqueeze(1).clamp(min=1)
        return add_product(own, sent, self.m.weight)


def pair_sum(u: Tensor, v: Tensor, links: RouteLinks, weights: Tensor | None = None) -> Tensor:
    """Sum over the matches of each w of relu(u + v), each times the weight of its v.

    Args:
        u: rows u. Shape [sources, c].
        v: rows v. Shape [sources, c].
        links: the matches.
        weights: weights of rows v, by channel. Shape [sources or more, c].
    """
    if weights is not None:
        weights = first(weights, links.v.sources).to(v.dtype)
    plain = u.device.type == "cpu" and u.dtype == v.dtype and u.dtype in _FUSED
    if plain:
        return _PairSum.apply(u, v, weights, links.u, links.v)
    sent = paired(u, v, links).relu_()
    if weights is not None:
        sent = sent * weights.index_select(0, links.v.source)
    into = torch.repeat_interleave(links.v.begin.diff())
    return sent.new_zeros(links.v.targets, sent.shape[1]).index_add(0, into, sent)


_FUSED = (torch.float32, torch.double)


class _PairSum(torch.autograd.Function):
    """`pair_sum` without a copy per match, in both directions."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, v: Tensor, weights: Tensor | None, to_u: Links, to_v: Links
    ) -> Tensor:
        u, v = u.contiguous(), v.contiguous()
        ctx.links, ctx.weighted = (to_u, to_v), weights is not None
        ctx.save_for_backward(u, v, *(() if weights is None else (weights,)))
        out = u.new_empty(to_v.targets, u.shape[1])
        _forward(*_arrays(u, to_u.source, v, to_v.source, _or_none(weights, v), to_v.begin, out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        to_u, to_v = ctx.links
        u, v, *rest = ctx.saved_tensors
        weights = _or_none(rest[0] if rest else None, v)
        grad = grads[0].contiguous()
        of_u, of_v = to_u.source, to_v.source
        by_u = torch.empty_like(u), u.new_empty(0, u.shape[1])
        by_v = torch.empty_like(v), torch.empty_like(weights)
        # Other rows in the order of the matches; weights are those of v either way.
        _backward(False, *_arrays(u, v, of_v, weights, grad), *_order(to_u), *_arrays(*by_u))
        _backward(True, *_arrays(v, u, of_u, weights, grad), *_order(to_v), *_arrays(*by_v))
        return by_u[0], by_v[0], by_v[1] if ctx.weighted else None, None, None


def _or_none(weights: Tensor | None, like: Tensor) -> Tensor:
    """The weights, or no rows if there are none. Shape [n or 0, c]."""
    return like.new_empty(0, like.shape[1]) if weights is None else weights.contiguous()


def _order(links: Links) -> list[Any]:
    """Links sorted by source: their targets, their matches, where those of a source begin."""
    return _arrays(links.target, links.position, links.begin_back)


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().numpy() for tensor in tensors]


@compiled
def _forward(u: Any, of_u: Any, v: Any, of_v: Any, weights: Any, begin: Any, out: Any) -> None:
    """out[w] = sum over its matches of weights[v] * relu(u + v)."""
    zero = u.dtype.type(0)  # a plain 0 would make everything double precision
    for w in range(len(out)):
        total = out[w]
        total[:] = zero
        for match in range(begin[w], begin[w + 1]):
            left, right = u[of_u[match]], v[of_v[match]]
            if len(weights):
                weight = weights[of_v[match]]
                for c in range(len(total)):
                    value = left[c] + right[c]
                    total[c] += (value if value > zero else zero) * weight[c]
            else:
                for c in range(len(total)):
                    value = left[c] + right[c]
                    total[c] += value if value > zero else zero


@compiled
def _backward(
    own: bool, mine: Any, other: Any, of_other: Any, weights: Any, grad: Any, target: Any,
    position: Any, begin: Any, by_mine: Any, by_weight: Any,
) -> None:  # fmt: skip
    """Gradients by the rows of one end, and by the weights if they are `own` to that end."""
    zero = mine.dtype.type(0)
    for row in range(len(by_mine)):
        total, left = by_mine[row], mine[row]
        total[:] = zero
        if len(by_weight):
            by_weight[row] = zero
        for link in range(begin[row], begin[row + 1]):
            there = of_other[position[link]]
            right, into = other[there], grad[target[link]]
            if not len(weights):
                for c in range(len(total)):
                    total[c] += into[c] if left[c] + right[c] > zero else zero
                continue
            weight = weights[row if own else there]
            if len(by_weight):
                weighed = by_weight[row]
                for c in range(len(total)):
                    value = left[c] + right[c]
                    back = into[c] if value > zero else zero
                    total[c] += back * weight[c]
                    weighed[c] += back * value
            else:
                for c in range(len(total)):
                    back = into[c] if left[c] + right[c] > zero else zero
                    total[c] += back * weight[c]
