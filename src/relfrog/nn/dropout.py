"""ReLU and dropout in one pass over a tensor that is overwritten, the mask from a hash.

PyTorch draws a mask for dropout one number after the other, which takes longer on a CPU than the
matrix product before it. Here a number is a hash of its position and of a key that is drawn for
each call, so that many are computed at a time, and again for the gradient: no mask is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relfrog.support.jit import compiled, inlined

__all__ = ["Dropout"]

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
