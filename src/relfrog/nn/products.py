"""Large products of rows with a weight matrix, by oneDNN where that is faster.

PyTorch multiplies float32 matrices with MKL, which uses half of the width of an AVX-512 unit on
processors that are not Intel's. oneDNN, which PyTorch comes with, uses all of it: a product of
20,000 rows takes less than half of the time on an AMD EPYC, and with its gradients three fifths.
The sums are the same up to the order of their terms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["Linear", "add_product", "linear"]

#: Multiplications from which on the detour is worth it: a call takes some 20 µs more.
LARGE = 1 << 25
#: Rows that the gradient of a weight is summed over at a time. oneDNN prepares a kernel for each
#: number of terms that it meets, so that this is always the same one.
BLOCK = 1024


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [n, inputs] -> [n, outputs]."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows times a weight, x W^T + b. Shapes: x [n, c], weight [d, c], bias [d] -> [n, d]."""
    if not _is_large(x, weight):
        return nn.functional.linear(x, weight, bias)
    product: Tensor = _Linear.apply(x, weight, bias)
    return product


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add x W^T to `total`, in place if possible.

    Shapes: total [n, d], x [n, c], weight [d, c] -> [n, d].
    """
    if torch.is_autocast_enabled(total.device.type):  # addmm_ is not autocast
        return total + nn.functional.linear(x, weight)
    if _is_large(x, weight) and total.dtype == x.dtype:
        return total.add_(linear(x, weight))
    return total.addmm_(x, weight.T)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.T) if for_x else None,
            _outer(grad, x) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )


def _is_large(x: Tensor, weight: Tensor) -> bool:
    return (
        x.dim() == 2
        and x.numel() * len(weight) >= LARGE
        and min(weight.shape) >= 16
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and _has_onednn()
    )


@lru_cache(maxsize=1)
def _has_onednn() -> bool:
    """Whether oneDNN can be called directly, on a processor that it is meant for here."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and torch.backends.mkldnn.is_available() and _operator() is not None


def _operator() -> Any:
    """The product of oneDNN, an operator of PyTorch's compiler; None where there is none."""
    try:
        return torch.ops.mkldnn._linear_pointwise.default
    except AttributeError:
        return None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    # Of a part of a larger matrix oneDNN would make the sums one by one.
    product: Tensor = _operator()(x, weight.contiguous(), bias, "none", [], "")
    return product


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of a weight: grad^T x. Shapes: [n, d], [n, c] -> [d, c]."""
    whole = len(x) // BLOCK * BLOCK
    total = grad[whole:].T @ x[whole:]
    for at in range(0, whole, BLOCK):
        rows = slice(at, at + BLOCK)
        total += _operator()(grad[rows].T, x[rows].T, None, "none", [], "")
    return total
