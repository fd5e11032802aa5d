"""LayerNorm of many short rows: for predictions in one pass, in place, with the ReLU after it."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from relfrog.nn.products import is_plain
from relfrog.support.jit import compiled_sums, inlined

__all__ = ["normalised"]


def normalised(x: Tensor, norm: nn.LayerNorm, relu: bool, *, keep: bool = False) -> Tensor:
    """LayerNorm, and ReLU if so asked. Shapes: [n, c] -> [n, c].

    Args:
        x: the rows; without gradients they may be overwritten.
        norm: the weights.
        relu: whether ReLU follows.
        keep: whether the rows are needed afterwards.
    """
    if not is_plain(x, norm.weight) or not x.is_contiguous():
        found: Tensor = norm(x)
        return found.relu_() if relu else found
    rows, weight, bias = (some.detach().numpy() for some in (x, norm.weight, norm.bias))
    if not keep:
        _normalise_in_place(rows, weight, bias, norm.eps, relu)
        return x
    out = x.new_empty(x.shape)
    _normalise(rows, weight, bias, out.numpy(), norm.eps, relu)
    return out


@inlined
def _mean_and_scale(row: Any, epsilon: Any) -> Any:
    """The mean of a row, and 1 / its deviation."""
    zero, size = row.dtype.type(0), row.dtype.type(len(row))
    mean = zero
    for c in range(len(row)):
        mean += row[c]
    mean /= size
    spread = zero
    for c in range(len(row)):
        apart = row[c] - mean
        spread += apart * apart
    return mean, row.dtype.type(1) / np.sqrt(spread / size + row.dtype.type(epsilon))


@compiled_sums
def _normalise(x: Any, weight: Any, bias: Any, out: Any, eps: float, relu: bool) -> None:
    """Row by row: mean 0 and variance 1, times the weights, plus the bias."""
    zero = x.dtype.type(0)
    for i in range(len(x)):
        row, to = x[i], out[i]
        mean, scale = _mean_and_scale(row, eps)
        for c in range(len(row)):
            value = (row[c] - mean) * scale * weight[c] + bias[c]
            to[c] = max(value, zero) if relu else value


@compiled_sums
def _normalise_in_place(x: Any, weight: Any, bias: Any, eps: float, relu: bool) -> None:
    """The same, over the rows: several numbers at a time only where no other array may be them."""
    zero = x.dtype.type(0)
    for i in range(len(x)):
        row = x[i]
        mean, scale = _mean_and_scale(row, eps)
        for c in range(len(row)):
            value = (row[c] - mean) * scale * weight[c] + bias[c]
            row[c] = max(value, zero) if relu else value
