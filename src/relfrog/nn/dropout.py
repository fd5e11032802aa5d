"""ReLU and dropout in one pass over a tensor, also with LayerNorm before, the mask from a hash.

PyTorch draws a mask for dropout one number after the other, which takes longer on a CPU than the
matrix product before it. Here a number is a hash of its position and of a key that is drawn for
each call, so that many are computed at a time, and again for the gradient: no mask is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from relfrog.support.jit import compiled, compiled_sums, inlined

__all__ = ["Dropout", "Mask", "Normed", "norm_dropped", "norm_dropped_back"]

#: Of SplitMix64: its step, and the two factors that mix the bits of a number.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
#: Bits of a drawn number that are compared with the probability: as many as a double has.
_BITS = 53


class Dropout(nn.Module):
    """Dropout, possibly after ReLU; the input is overwritten, so nobody else may need it.

    Shapes: [...] -> [...].

    Args:
        p: probability that an entry becomes 0; the others are divided by 1 - p.
        relu: whether ReLU comes first.
    """

    def __init__(self, p: float, relu: bool = False) -> None:
        super().__init__()
        self.p, self.relu = p, relu

    def extra_repr(self) -> str:
        """What there is to know about it."""
        return f"p={self.p}, relu={self.relu}"

    def forward(self, x: Tensor) -> Tensor:
        """Overwrite `x`."""
        if not self.training or not self.p:
            return x.relu_() if self.relu else x
        if x.device.type != "cpu":
            return nn.functional.dropout(x.relu_() if self.relu else x, self.p, True)
        key = int(torch.empty((), dtype=torch.int64).random_())
        if x.dtype not in (torch.float32, torch.float64) or not x.is_contiguous():
            mask: Tensor = _Dropout.apply(torch.ones(x.shape), key, self.p, False)
            return (x.relu_() if self.relu else x) * mask.to(x.dtype)
        dropped: Tensor = _Dropout.apply(x, key, self.p, self.relu)
        return dropped


class Mask(NamedTuple):
    """The mask of one call of dropout.

    Attributes:
        key: of the hash.
        p: probability that an entry becomes 0.
    """

    key: int
    p: float

    @classmethod
    def drawn(cls, p: float) -> Mask:
        """A new mask, as `Dropout` draws it; without a probability nothing is drawn."""
        return cls(int(torch.empty((), dtype=torch.int64).random_()) if p else 0, p)


class Normed(NamedTuple):
    """What the gradient of `norm_dropped` needs.

    Attributes:
        x: the input. Shape [n, c].
        out: the output. Shape [n, c].
        mean: mean of each row. Shape [n].
        scale: 1 / deviation of each row. Shape [n].
    """

    x: Tensor
    out: Tensor
    mean: Tensor
    scale: Tensor


def norm_dropped(x: Tensor, norm: tuple[Tensor, Tensor, float], mask: Mask, start: int) -> Normed:
    """Dropout of ReLU of LayerNorm, in one pass and without a graph.

    Args:
        x: contiguous rows of a larger tensor. Shape [n, c].
        norm: weight, bias and epsilon of the LayerNorm.
        mask: of dropout in the larger tensor.
        start: position of the first entry in the larger tensor.
    """
    weight, bias, least = norm
    found = Normed(x, torch.empty_like(x), *x.new_empty(2, len(x)))
    number = x.detach().numpy().dtype.type
    how = np.uint64(mask.key), np.uint64(mask.p * 2**_BITS), number(1 / (1 - mask.p))
    arrays = (x, weight, bias, found.out, found.mean, found.scale)
    given: list[Any] = [
        *(array.detach().numpy() for array in arrays),
        number(least),
        *how,
        np.uint64(start),
    ]
    _norm_and_drop(*given)
    return found


def norm_dropped_back(
    grad: Tensor, normed: Normed, weight: Tensor, p: float, sums: Tensor
) -> Tensor:
    """The gradient of `norm_dropped` for its input, and sums over rows that are added to `sums`.

    Args:
        grad: gradient of the output. Shape [n, c].
        normed: what was computed.
        weight: of the LayerNorm. Shape [c].
        p: probability of dropout.
        sums: for weight and bias of the LayerNorm, and for the input. Shape [3, c].
    """
    out = torch.empty_like(normed.x)
    arrays = (grad, normed.out, normed.x, normed.mean, normed.scale, weight, out, sums)
    given: list[Any] = [array.detach().numpy() for array in arrays]
    given.append(given[0].dtype.type(1 / (1 - p)))
    _norm_and_drop_back(*given)
    return out


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, key: int, p: float, relu: bool) -> Tensor:
        flat = x.detach().view(-1).numpy()
        ctx.how = np.uint64(key), np.uint64(p * 2**_BITS), flat.dtype.type(1 / (1 - p))
        ctx.mark_dirty(x)
        if relu:
            _drop_positive(flat, *ctx.how)
            ctx.save_for_backward(x)
        else:
            _drop(flat, *ctx.how)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # What comes from elsewhere may be used there as well, so it is not overwritten.
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        flat = grad.view(-1).numpy()
        if ctx.saved_tensors:
            _scale_where_positive(flat, ctx.saved_tensors[0].detach().view(-1).numpy(), ctx.how[2])
        else:
            _drop(flat, *ctx.how)
        return grad, None, None, None


@inlined
def _kept(i: Any, key: Any, least: Any) -> Any:
    """Whether entry `i` is kept: a SplitMix64 hash that is not below `least`."""
    z = key + np.uint64(i) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(64 - _BITS)) >= least


@compiled
def _drop(x: Any, key: Any, least: Any, scale: Any) -> None:
    """Scale what is kept of x; the rest is 0."""
    for i in range(len(x)):
        x[i] = x[i] * scale if _kept(i, key, least) else x.dtype.type(0)


@compiled
def _drop_positive(x: Any, key: Any, least: Any, scale: Any) -> None:
    """`_drop` after ReLU. What is no number stays so: training stops at it."""
    for i in range(len(x)):
        kept = _kept(i, key, least)
        x[i] = x.dtype.type(0) if x[i] <= 0 or not kept else x[i] * scale


@compiled
def _scale_where_positive(x: Any, of: Any, scale: Any) -> None:
    """Scale x where `of` is positive, or no number; the rest is 0."""
    for i in range(len(x)):
        x[i] = x.dtype.type(0) if of[i] <= 0 else x[i] * scale


@compiled_sums
def _norm_and_drop(
    x: Any, weight: Any, bias: Any, out: Any, means: Any, scales: Any,
    epsilon: Any, key: Any, least: Any, scale: Any, start: Any,
) -> None:  # fmt: skip
    """`norm_dropped`, row by row."""
    one, none = x.dtype.type(1), x.dtype.type(0)
    width = x.shape[1]
    share = one / x.dtype.type(width)
    for i in range(len(x)):
        row, into = x[i], out[i]
        total = none
        for c in range(width):
            total += row[c]
        mean = total * share
        total = none
        for c in range(width):
            total += (row[c] - mean) * (row[c] - mean)
        means[i] = mean
        scales[i] = spread = one / np.sqrt(total * share + epsilon)
        at = start + np.uint64(i * width)
        if least == 0:
            for c in range(width):
                value = (row[c] - mean) * spread * weight[c] + bias[c]
                into[c] = none if value <= none else value
        else:
            for c in range(width):
                value = (row[c] - mean) * spread * weight[c] + bias[c]
                kept = _kept(at + np.uint64(c), key, least)
                into[c] = none if value <= none or not kept else value * scale


@compiled_sums
def _norm_and_drop_back(
    grad: Any, out: Any, x: Any, means: Any, scales: Any, weight: Any, into: Any, sums: Any,
    scale: Any,
) -> None:  # fmt: skip
    """`norm_dropped_back`, row by row."""
    none = x.dtype.type(0)
    width = x.shape[1]
    share = x.dtype.type(1) / x.dtype.type(width)
    for_weight, for_bias, for_x = sums[0], sums[1], sums[2]
    for i in range(len(x)):
        row, mean, spread = x[i], means[i], scales[i]
        direct, turned = none, none
        for c in range(width):
            given = none if out[i, c] <= none else grad[i, c] * scale
            normed = (row[c] - mean) * spread
            for_bias[c] += given
            for_weight[c] += given * normed
            given *= weight[c]
            into[i, c] = given
            direct += given
            turned += given * normed
        direct, turned = direct * share, turned * share
        for c in range(width):
            value = spread * (into[i, c] - direct - (row[c] - mean) * spread * turned)
            into[i, c] = value
            for_x[c] += value
