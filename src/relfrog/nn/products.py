"""Products of many rows with a small matrix, for predictions.

PyTorch multiplies with MKL, which takes twice as long on processors that are not Intel's as oneDNN,
with which it is built, too. oneDNN plans every new shape, which costs as much as thousands of rows,
so rows are multiplied in pieces of one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["add_product", "is_plain", "product"]

#: Rows of a piece.
PIECE = 2048
_COMPILED = {("cpu", torch.float32), ("cpu", torch.double)}


def is_plain(*tensors: Tensor) -> bool:
    """Whether kernels can compute with these: on a CPU, of one precision, without gradients."""
    kinds = {(x.device.type, x.dtype) for x in tensors}
    return not torch.is_grad_enabled() and len(kinds) == 1 and kinds <= _COMPILED


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x W^T, plus b. Shapes: [n, c], [d, c], [d] -> [n, d]."""
    whole = _in_pieces(x, weight)
    if not whole:
        return linear(x, weight, bias)
    out = x.new_empty(len(x), len(weight))
    for at in range(0, whole, PIECE):
        out[at : at + PIECE] = _multiply(x[at : at + PIECE], weight, bias)
    if whole < len(x):
        out[whole:] = linear(x[whole:], weight, bias)
    return out


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Add x W^T to `total`, in place if possible.

    Shapes: total [n, d], x [n, c], weight [d, c] -> [n, d].
    """
    if torch.is_autocast_enabled(total.device.type):  # addmm_ is not autocast
        return total + linear(x, weight)
    whole = _in_pieces(x, weight)
    for at in range(0, whole, PIECE):
        total[at : at + PIECE].add_(_multiply(x[at : at + PIECE], weight, None))
    if whole:
        total[whole:].addmm_(x[whole:], weight.T)
        return total
    return total.addmm_(x, weight.T)


def _in_pieces(x: Tensor, weight: Tensor) -> int:
    """How many rows to multiply in pieces, by oneDNN."""
    wide = weight.shape[1] >= 16  # otherwise reading takes longer than multiplying
    if len(x) < PIECE or not wide or x.dtype is not torch.float32 or not is_plain(x, weight):
        return 0
    if torch.is_autocast_enabled("cpu") or not (x.is_contiguous() and weight.is_contiguous()):
        return 0
    return len(x) - len(x) % PIECE if _one_dnn() is not None else 0


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    multiply = _one_dnn()
    assert multiply is not None
    return multiply(x, weight, bias, "none", [], "")


@cache
def _one_dnn() -> Callable[..., Tensor] | None:
    """The product of oneDNN, which PyTorch's compiler uses; None where there is no such thing."""
    some = torch.ones(2, 2)
    try:
        multiply: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
        same = torch.equal(multiply(some, some, None, "none", [], ""), some + some)
    except (AttributeError, RuntimeError, TypeError):  # it is no public part of PyTorch
        return None
    return multiply if same else None
