"""Aggregation over links (sum, mean, maximum) that does not copy a row for each of its links."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from relfrog.nn.batch_plan import Links, RouteLinks
from relfrog.nn.products import is_plain
from relfrog.support.jit import compiled

__all__ = [
    "AggregateCache",
    "Aggregation",
    "add_aggregate",
    "aggregate",
    "first",
    "largest",
    "largest_match",
    "linked_sum",
    "matched_sum",
    "own_share",
    "paired",
    "reciprocal_weight_sum",
    "weighted_mean",
]  # fmt: skip


class Aggregation(str, Enum):
    """How the messages that reach a row are combined."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    #: A mean weighted by learned recency for tables with times; otherwise the plain mean.
    RECENT = "recent"


#: Aggregates computed in a layer, by the id of the links or of the weights: routes on the same
#: relation often share the links to w.
AggregateCache = dict[int, Tensor]


class _LinkedSum(torch.autograd.Function):
    """out[i] = sum over links j -> i of weight[link] * x[j]. Shapes: [sources, c] -> [targets, c].

    The weights, if any, are in the order of `Links.source`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, links: Links) -> Tensor:
        ctx.links = links
        ctx.save_for_backward(*((x, weight) if weight is not None else ()))
        return _bags(x, links.source, links.begin, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        links: Links = ctx.links
        grad = grads[0].contiguous()
        if not ctx.saved_tensors:
            return _bags(grad, links.target, links.begin_back, None), None, None
        x, weight = ctx.saved_tensors
        grad_x = _bags(grad, links.target, links.begin_back, weight[links.position])
        grad_weight = None
        if ctx.needs_input_grad[1]:
            into = torch.repeat_interleave(links.begin.diff())
            grad_weight = (grad.index_select(0, into) * x.index_select(0, links.source)).sum(-1)
        return grad_x, grad_weight, None


class _MatchedSum(torch.autograd.Function):
    """out[i] = sum over matches m that reach i of weight[v of m] * x[u of m].

    Shapes: x [sources of u, c], weight [sources of v, c] -> [targets, c].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, u: Links, v: Links) -> Tensor:
        ctx.u, ctx.v = u, v
        ctx.save_for_backward(x, weight)
        return _products(x, u.source, weight, v.source, u.begin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, v = ctx.u, ctx.v
        x, weight = ctx.saved_tensors
        grad = grads[0]
        grad_x = _products(weight, v.source[u.position], grad, u.target, u.begin_back)
        grad_weight = _products(x, u.source[v.position], grad, v.target, v.begin_back)
        return grad_x, grad_weight, None, None


class _GatedSum(torch.autograd.Function):
    """`_MatchedSum` with an additional weight per match. Shapes: gate [matches]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gate: Tensor, u: Links, v: Links) -> Tensor:
        ctx.u, ctx.v = u, v
        ctx.save_for_backward(x, weight, gate)
        sent = x.index_select(0, u.source).mul_(weight.index_select(0, v.source))
        return _bags(sent, _each(sent), u.begin, gate)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, v = ctx.u, ctx.v
        x, weight, gate = ctx.saved_tensors
        into = torch.repeat_interleave(u.begin.diff())
        grad = grads[0].index_select(0, into)
        grad_gate = None
        x, weight = x.index_select(0, u.source), weight.index_select(0, v.source)
        if ctx.needs_input_grad[2]:
            grad_gate = (grad * x * weight).sum(-1)
        grad.mul_(gate.unsqueeze(1))
        grad_x = _bags(weight.mul_(grad), u.position, u.begin_back, None)
        grad_weight = _bags(x.mul_(grad), v.position, v.begin_back, None)
        return grad_x, grad_weight, grad_gate, None, None


def _each(rows: Tensor) -> Tensor:
    return torch.arange(len(rows), device=rows.device)


def _bags(x: Tensor, source: Tensor, begin: Tensor, weight: Tensor | None) -> Tensor:
    if not len(source):
        return x.new_zeros(len(begin) - 1, x.shape[1])
    return embedding_bag(
        source, x, begin, mode="sum", include_last_offset=True, per_sample_weights=weight
    )


def _products(x: Tensor, of_x: Tensor, y: Tensor, of_y: Tensor, begin: Tensor) -> Tensor:
    """Segment sums of x[of_x] * y[of_y]; `begin` holds the segment boundaries.

    Shapes: [n, c], [links], [m, c], [links], [targets + 1] -> [targets, c].
    """
    if x.device.type != "cpu" or x.dtype != y.dtype or x.dtype not in (torch.float32, torch.double):
        sent = x.index_select(0, of_x).mul_(y.index_select(0, of_y))
        return _bags(sent, _each(sent), begin, None)
    out = x.new_empty(len(begin) - 1, x.shape[1])
    arrays = (x.contiguous(), of_x, y.contiguous(), of_y, begin, out)
    _sum_products(*(array.detach().numpy() for array in arrays))
    return out


@compiled
def _add_rows(x: Any, source: Any, begin: Any, total: Any) -> None:
    """total[i] += x[source of i], for links of which each target has one at most."""
    for i in range(len(total)):
        if begin[i] < begin[i + 1]:
            row, sum_ = x[source[begin[i]]], total[i]
            for c in range(len(sum_)):
                sum_[c] += row[c]


@compiled
def _sum_products(x: Any, of_x: Any, y: Any, of_y: Any, begin: Any, out: Any) -> None:
    """`_products` without intermediate copies."""
    for i in range(len(out)):
        total = out[i]
        total[:] = 0.0
        for link in range(begin[i], begin[i + 1]):
            left, right = x[of_x[link]], y[of_y[link]]
            for c in range(len(total)):
                total[c] += left[c] * right[c]


def add_aggregate(total: Tensor, x: Tensor, links: Links, how: Aggregation) -> Tensor:
    """Add `aggregate` to `total`, in place.

    Shapes: total [targets, c], x [sources or more, c] -> [targets, c].
    """
    if is_plain(x, total) and how is not Aggregation.MAX and links.single and len(links):
        # A sum or a mean of one row is the row: nothing to divide, and no copy to add.
        arrays = (x.contiguous(), links.source, links.begin, total)
        _add_rows(*(array.numpy() for array in arrays))
        return total
    return total.add_(aggregate(x, links, how))


def first(x: Tensor, count: int) -> Tensor:
    """The first `count` rows; `x` itself if that is all, as the gradient of a slice is a copy."""
    return x if len(x) == count else x[:count]


def linked_sum(x: Tensor, links: Links, weight: Tensor | None = None) -> Tensor:
    """Sum of the rows linked to each target, each times the weight of its link.

    Shapes: x [sources or more, c], weight [links] -> [targets, c].
    """
    weight = None if weight is None else weight.to(x.dtype)  # dtypes may differ under autocast
    return _LinkedSum.apply(first(x, links.sources), weight, links)


def matched_sum(
    x: Tensor, weight: Tensor, u: Links, v: Links, gate: Tensor | None = None
) -> Tensor:
    """Sum, for each w of a route, of the rows u that reach it, each times the weight of its v.

    Args:
        x: rows u. Shape [sources or more, c].
        weight: weights of rows v, by channel. Shape [sources or more, c].
        u: links from u to w, one per match.
        v: links from v to w, in the same order.
        gate: additional weight of each match. Shape [matches].
    """
    x, weight = first(x, u.sources), first(weight, v.sources).to(x.dtype)
    if gate is None:
        return _MatchedSum.apply(x, weight, u, v)
    return _GatedSum.apply(x, weight, gate.to(x.dtype), u, v)


def largest(x: Tensor, source: Tensor, begin: Tensor) -> Tensor:
    """Segment maxima of the rows x[source]; 0 for empty segments.

    Shapes: [n, c], [links], [targets + 1] -> [targets, c].
    """
    if not len(source):
        return x.new_zeros(len(begin) - 1, x.shape[1])
    return embedding_bag(source, x, begin, mode="max", include_last_offset=True)


def own_share(links: RouteLinks, how: Aggregation) -> Tensor:
    """How often what a match takes from w counts: once per match in a sum, else once if any.

    Shape [targets, 1].
    """
    counts = links.v.counts.unsqueeze(1)
    return counts if how is Aggregation.SUM else (counts > 0).float()


def paired(u: Tensor, v: Tensor, links: RouteLinks) -> Tensor:
    """Row u plus row v of every match. Shapes: [sources, c] each -> [matches, c]."""
    return u.index_select(0, links.u.source) + v.index_select(0, links.v.source)


def largest_match(sent: Tensor, links: RouteLinks) -> Tensor:
    """Maximum over the matches that reach each w. Shapes: [matches, c] -> [targets, c]."""
    return largest(sent, torch.arange(len(sent), device=sent.device), links.v.begin)


def aggregate(
    x: Tensor, links: Links, how: Aggregation, cache: AggregateCache | None = None
) -> Tensor:
    """Sum, mean or maximum of the rows linked to each target; 0 for targets without links.

    Shapes: [sources or more, c] -> [targets, c].

    Args:
        x: the senders.
        links: from senders to receivers.
        how: sum, mean or maximum.
        cache: aggregates of the same senders, looked up and added to.
    """
    if cache is not None:
        if id(links) not in cache:
            cache[id(links)] = aggregate(x, links, how)
        return cache[id(links)]
    if how is Aggregation.MAX:
        return largest(x, links.source, links.begin)
    total = linked_sum(x, links)
    if how in (Aggregation.MEAN, Aggregation.RECENT):
        total = total / links.counts.clamp(min=1).unsqueeze(1)
    return total


def weighted_mean(x: Tensor, weights: Tensor, links: Links) -> tuple[Tensor, Tensor]:
    """Mean of the senders, weighted by channel, and 1 / (sum of weights); for `is_plain` tensors.

    Shapes: [sources or more, c] each -> [targets, c] each.
    """
    mean, reciprocal = x.new_empty(2, links.targets, x.shape[1])
    arrays = (x.contiguous(), weights.contiguous(), links.source, links.begin, mean, reciprocal)
    _weigh(*(array.detach().numpy() for array in arrays))
    return mean, reciprocal


@compiled
def _weigh(x: Any, weights: Any, source: Any, begin: Any, mean: Any, reciprocal: Any) -> None:
    """Both in one pass, without a copy of the weighted senders."""
    one, least = x.dtype.type(1), x.dtype.type(1e-9)
    for i in range(len(mean)):
        total, below = mean[i], reciprocal[i]
        total[:] = 0
        below[:] = least
        for link in range(begin[i], begin[i + 1]):
            row, weight = x[source[link]], weights[source[link]]
            for c in range(len(total)):
                total[c] += row[c] * weight[c]
                below[c] += weight[c]
        for c in range(len(total)):
            below[c] = one / below[c]
            total[c] *= below[c]


def reciprocal_weight_sum(weights: Tensor, links: Links, cache: AggregateCache) -> Tensor:
    """1 / (sum of the weights that reach each target), cached per links. Shape [targets, c].

    Several weighted means share it: a product is cheaper than a division, also in the gradient.
    """
    found = cache.get(-id(links))
    if found is None:
        found = cache[-id(links)] = (linked_sum(weights, links) + 1e-9).reciprocal()
    return found
