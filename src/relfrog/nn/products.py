"""Products of many rows with a weight matrix, by oneDNN where that is faster.

PyTorch multiplies float32 matrices with MKL, which uses half of the width of an AVX-512 unit on
processors that are not Intel's. oneDNN, which PyTorch comes with, uses all of it: a product of
20,000 rows takes less than half of the time on an AMD EPYC, and with its gradients three fifths.
The sums are the same up to the order of their terms.

oneDNN plans every new shape, which costs as much as thousands of rows. Predictions have the same
rows in many shapes, so they are multiplied in pieces of one shape; in training large products alone
are worth it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = [
    "Linear",
    "add_product",
    "has_kernels",
    "is_plain",
    "linear",
    "outer_product",
    "product",
]

#: Multiplications from which on the detour is worth it: a call takes some 20 µs more.
LARGE = 1 << 25
#: Rows that the gradient of a weight is summed over at a time. oneDNN prepares a kernel for each
#: number of terms that it meets, so that this is always the same one.
BLOCK = 1024
#: Rows of a piece, and the narrowest matrix: below it reading takes longer than multiplying.
PIECE, NARROWEST = 2048, 16
_COMPILED = {("cpu", torch.float32), ("cpu", torch.double)}


def is_plain(*tensors: Tensor) -> bool:
    """Whether kernels can compute with these: on a CPU, of one precision, without gradients."""
    return not torch.is_grad_enabled() and has_kernels(*tensors)


def has_kernels(*tensors: Tensor) -> bool:
    """Whether there are kernels for these: on a CPU, of one precision."""
    kinds = {(x.device.type, x.dtype) for x in tensors}
    return len(kinds) == 1 and kinds <= _COMPILED and not torch.is_autocast_enabled("cpu")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear` without a graph, for shapes that come again and again.

    Shapes: x [n, c], weight [d, c], bias [d] -> [n, d].
    """
    if x.dtype is torch.float32 and _one_dnn() is not None:
        return _product(x, weight, bias)
    return nn.functional.linear(x, weight, bias)


def outer_product(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of the weight of `product`. Shapes: [n, d], [n, c] -> [d, c]."""
    if x.dtype is torch.float32 and _one_dnn() is not None:
        return _outer(grad, x)
    return grad.T @ x


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [n, inputs] -> [n, outputs]."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x W^T, plus b. Shapes: x [n, c], weight [d, c], bias [d] -> [n, d]."""
    if _is_large(x, weight):
        product: Tensor = _Linear.apply(x, weight, bias)
        return product
    whole = _in_pieces(x, weight)
    if not whole:
        return nn.functional.linear(x, weight, bias)
    out = x.new_empty(len(x), len(weight))
    for at in range(0, whole, PIECE):
        out[at : at + PIECE] = _product(x[at : at + PIECE], weight, bias)
    if whole < len(x):
        out[whole:] = nn.functional.linear(x[whole:], weight, bias)
    return out


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add x W^T to `total`, in place if possible.

    Shapes: total [n, d], x [n, c], weight [d, c] -> [n, d].
    """
    if torch.is_autocast_enabled(total.device.type):  # addmm_ is not autocast
        return total + nn.functional.linear(x, weight)
    if _is_large(x, weight) and total.dtype == x.dtype:
        return total.add_(linear(x, weight))
    whole = _in_pieces(x, weight)
    for at in range(0, whole, PIECE):
        total[at : at + PIECE].add_(_product(x[at : at + PIECE], weight))
    if whole:
        total[whole:].addmm_(x[whole:], weight.T)
        return total
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
    """Whether to multiply by oneDNN at once, as in training."""
    return (
        torch.is_grad_enabled()
        and x.dim() == 2
        and x.numel() * len(weight) >= LARGE
        and min(weight.shape) >= NARROWEST
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and _one_dnn() is not None
    )


def _in_pieces(x: Tensor, weight: Tensor) -> int:
    """How many rows to multiply by oneDNN in pieces, as in predictions."""
    fits = (
        x.dim() == 2
        and len(x) >= PIECE
        and weight.shape[1] >= NARROWEST
        and x.dtype is torch.float32
        and is_plain(x, weight)
        and x.is_contiguous()
        and weight.is_contiguous()
        and _one_dnn() is not None
    )
    return len(x) - len(x) % PIECE if fits else 0


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    multiply = _one_dnn()
    assert multiply is not None
    # Of a part of a larger matrix oneDNN would make the sums one by one.
    return multiply(x, weight.contiguous(), bias, "none", [], "")


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of a weight: grad^T x. Shapes: [n, d], [n, c] -> [d, c]."""
    multiply = _one_dnn()
    assert multiply is not None
    whole = len(x) // BLOCK * BLOCK
    total = grad[whole:].T @ x[whole:]
    for at in range(0, whole, BLOCK):
        rows = slice(at, at + BLOCK)
        total += multiply(grad[rows].T, x[rows].T, None, "none", [], "")
    return total


@cache
def _one_dnn() -> Callable[..., Tensor] | None:
    """The product of oneDNN, which PyTorch's compiler uses; None where there is no such thing."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    some = torch.ones(2, 2)
    try:
        multiply: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
        same = torch.equal(multiply(some, some, None, "none", [], ""), some + some)
    except (AttributeError, RuntimeError, TypeError):  # it is no public part of PyTorch
        return None
    return multiply if same else None
