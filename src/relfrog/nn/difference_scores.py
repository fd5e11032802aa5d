"""The scorer of L_pair: an MLP on differences of rows, without a copy of the rows per difference.

A row has one true parent and several others to be told from, so that the differences are many more
than the rows: here they are formed, scored and forgotten one by one, and again for the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from relfrog.nn.products import has_kernels, linear, outer_product, product
from relfrog.support.jit import compiled_sums

__all__ = ["difference_scores"]

#: Numbers of rows of which oneDNN may plan products: it plans each number anew.
STEP = 64


def difference_scores(
    parent: Tensor, child: Tensor, others: Tensor, hidden: nn.Linear, score: nn.Linear
) -> Tensor:
    """Score of each child's own parent, then of the parents of other rows.

    Shapes: parent, child [n, c], others [n, k] -> [n, 1 + k].

    Args:
        parent: the parent of each row.
        child: the rows.
        others: rows whose parents are scored beside the own one.
        hidden: linear map of a difference, followed by ReLU.
        score: the score of that.
    """
    weights = (hidden.weight, hidden.bias, score.weight, score.bias)
    if has_kernels(parent, child, *weights):
        scores: Tensor = _Scores.apply(parent, child, others, *weights)
        return scores
    # Of a linear map of a difference, both ends are mapped once.
    parent = linear(parent, hidden.weight)
    child = linear(child, hidden.weight, -hidden.bias)
    count, many = others.shape
    own = torch.arange(count, device=others.device).unsqueeze(1)
    everyone = torch.cat([own, others], 1).flatten()
    # Not parent[everyone]: threads sum its gradient in a nondeterministic order.
    apart = parent.index_select(0, everyone).view(count, many + 1, -1) - child.unsqueeze(1)
    told: Tensor = score(apart.relu_()).squeeze(2)
    return told


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, parent: Tensor, child: Tensor, others: Tensor, weight: Tensor, bias: Tensor,
        last: Tensor, start: Tensor,
    ) -> Tensor:  # fmt: skip
        parent, child = parent.contiguous(), child.contiguous()
        above, below = _product(parent, weight), _product(child, weight, -bias)
        scores = parent.new_empty(len(child), 1 + others.shape[1])
        arrays = (above, below, others, last[0], scores)
        _score(*(array.detach().numpy() for array in arrays))
        ctx.save_for_backward(parent, child, others, weight, last, above, below)
        return scores.add_(start)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parent, child, others, weight, last, above, below = ctx.saved_tensors
        for_above, for_below = torch.zeros_like(above), torch.zeros_like(below)
        for_last = torch.zeros_like(last)
        grad = grads[0].contiguous()
        arrays = (above, below, others, last[0], grad, for_above, for_below, for_last[0])
        _score_back(*(array.detach().numpy() for array in arrays))
        needed = ctx.needs_input_grad
        return (
            _product(for_above, weight.T) if needed[0] else None,
            _product(for_below, weight.T) if needed[1] else None,
            None,
            outer_product(for_above, parent) + outer_product(for_below, child)
            if needed[3]
            else None,
            -for_below.sum(0) if needed[4] else None,
            for_last if needed[5] else None,
            grad.sum().view(1) if needed[6] else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x W^T, plus b. Shapes: x [n, c], weight [d, c], bias [d] -> [n, d]."""
    how = nn.functional.linear if len(x) % STEP else product
    return how(x, weight, bias)


@compiled_sums
def _score(above: Any, below: Any, others: Any, last: Any, scores: Any) -> None:
    """The scores without their constant."""
    none = above.dtype.type(0)
    for i in range(len(scores)):
        low = below[i]
        for k in range(scores.shape[1]):
            high = above[i] if k == 0 else above[others[i, k - 1]]
            total = none
            for c in range(len(low)):
                apart = high[c] - low[c]
                total += none if apart <= none else apart * last[c]
            scores[i, k] = total


@compiled_sums
def _score_back(
    above: Any, below: Any, others: Any, last: Any, grad: Any, for_above: Any, for_below: Any,
    for_last: Any,
) -> None:  # fmt: skip
    """Gradients, added to what is there."""
    none = above.dtype.type(0)
    for i in range(len(grad)):
        low, for_low = below[i], for_below[i]
        for k in range(grad.shape[1]):
            given = grad[i, k]
            if given == none:
                continue
            j = i if k == 0 else others[i, k - 1]
            high, for_high = above[j], for_above[j]
            for c in range(len(low)):
                apart = high[c] - low[c]
                passed = none if apart <= none else given * last[c]
                for_high[c] += passed
                for_low[c] -= passed
                for_last[c] += none if apart <= none else given * apart
