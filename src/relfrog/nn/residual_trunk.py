"""The blocks of `ResNetEncoder` in training: some rows at a time, forward and back.

What one operation after the other does to all rows of a table travels through memory some thirty
times, with a graph of as many nodes. Here the rows are cut into pieces that stay in the cache, all
of one shape, so that oneDNN plans its products once. The values are those of the modules, and the
masks of dropout, too, up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from relfrog.nn.dropout import Mask, Normed, norm_dropped, norm_dropped_back
from relfrog.nn.products import has_kernels, outer_product, product

__all__ = ["Stage", "fits", "trunk"]

#: Rows of a piece; the last one is filled up to a multiple of `STEP`.
PIECE, STEP = 2048, 64


class Stage(NamedTuple):
    """Dropout of ReLU of LayerNorm, then a linear map.

    Attributes:
        norm: the LayerNorm.
        then: the linear map after it, if any.
        p: probability of dropout.
    """

    norm: nn.LayerNorm
    then: nn.Linear | None
    p: float


def fits(x: Tensor, stages: Sequence[Stage]) -> bool:
    """Whether `trunk` can compute this: on a CPU, in one precision, with rows of one width."""
    width = x.shape[1] // 2
    same = all(stage.norm.normalized_shape == (width,) for stage in stages) and all(
        stage.then is None or stage.then.in_features == stage.then.out_features == width
        for stage in stages
    )
    return bool(len(x)) and same and has_kernels(x, *(stage.norm.weight for stage in stages))


def trunk(x: Tensor, stages: Sequence[Stage]) -> Tensor:
    """Residual blocks, and the map after them. Shapes: [n, 2 c] -> [n, c].

    Args:
        x: the first block after its first linear map, and beside it the shortcut of that block.
        stages: two for each block, of which the second is followed by the first linear map of the
            next block, which reads the sum of both with the shortcut; and the last one, which reads
            the sum, too.
    """
    masks = [Mask.drawn(stage.p) for stage in stages]
    kept = torch.is_grad_enabled()
    parameters = [
        x for stage in stages
        for x in (stage.norm.weight, stage.norm.bias)
        + (() if stage.then is None else (stage.then.weight, stage.then.bias))
    ]  # fmt: skip
    out: Tensor = _Trunk.apply(x, stages, masks, kept, *parameters)
    return out


class _Trunk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stages: Sequence[Stage], masks: Sequence[Mask], kept: bool,
        *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.stages = stages
        ctx.pieces = []
        ctx.save_for_backward(*parameters)
        width = x.shape[1] // 2
        out = x.new_empty(len(x), width)
        for at in range(0, len(x), PIECE):
            rows = slice(at, at + PIECE)
            piece = _Piece(_filled(x[rows, :width]), _filled(x[rows, width:]), at * width)
            out[rows] = piece.forward(stages, masks)[: len(out[rows])]
            if kept:
                ctx.pieces.append(piece)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        # Read now: they are checked not to have changed since.
        assert ctx.saved_tensors
        sums = _Sums(ctx.stages, grads[0])
        count, width = grads[0].shape
        for_x = grads[0].new_empty(count, 2 * width)
        for number, piece in enumerate(ctx.pieces):
            rows = slice(number * PIECE, (number + 1) * PIECE)
            given = grads[0][rows]
            some, others = piece.backward(_filled(given), ctx.stages, sums)
            for_x[rows, :width], for_x[rows, width:] = some[: len(given)], others[: len(given)]
        return for_x, None, None, None, *sums.flat()


class _Sums:
    """Gradients of the parameters, added up over pieces."""

    def __init__(self, stages: Sequence[Stage], like: Tensor) -> None:
        width = like.shape[1]
        #: Per stage: for weight and bias of its norm, and for what enters it.
        self.norms = like.new_zeros(len(stages), 3, width)
        self.maps = like.new_zeros(len(stages), width, width)
        self.stages, self.last = stages, like.sum(0)

    def flat(self) -> list[Tensor]:
        """In the order of the parameters; the bias of a map is what enters the next stage."""
        found = []
        for number, stage in enumerate(self.stages):
            found += [self.norms[number, 0], self.norms[number, 1]]
            if stage.then is not None:
                after = number + 1
                bias = self.norms[after, 2] if after < len(self.stages) else self.last
                found += [self.maps[number], bias]
        return found


class _Piece:
    """Some rows, and what their gradient needs.

    The stages of a block are 2 b and 2 b + 1. What enters stage 2 b is a linear map of the block's
    input x, what enters the one after it a linear map of the former; x grows by the output of the
    latter.
    """

    def __init__(self, hidden: Tensor, short: Tensor, start: int) -> None:
        self.hidden, self.short, self.start = hidden, short, start
        self.normed: list[Normed] = []
        #: Input of each block after the first one.
        self.inputs: list[Tensor] = []

    def forward(self, stages: Sequence[Stage], masks: Sequence[Mask]) -> Tensor:
        """The rows after all stages."""
        x, z = self.short, self.hidden
        for number, (stage, mask) in enumerate(zip(stages, masks, strict=True)):
            norm = (stage.norm.weight, stage.norm.bias, stage.norm.eps)
            read = x if number == len(stages) - 1 else z
            normed = norm_dropped(read, norm, mask, self.start)
            self.normed.append(normed)
            sent = normed.out
            if number % 2:
                sent = x = x + normed.out
                self.inputs.append(x)
            if stage.then is not None:
                z = product(sent, stage.then.weight, stage.then.bias)
        return z

    def backward(self, grad: Tensor, stages: Sequence[Stage], sums: _Sums) -> tuple[Tensor, Tensor]:
        """Gradients for `hidden` and `short`."""
        last = len(stages) - 1
        for_x = for_z = grad
        for number in range(last, -1, -1):
            stage, normed = stages[number], self.normed[number]
            closes = number % 2 == 1
            given = for_x
            if stage.then is not None:
                sent = self.inputs[number // 2] if closes else normed.out
                sums.maps[number] += outer_product(for_z, sent)
                given = product(for_z, stage.then.weight.T)
                if closes:
                    for_x = given = for_x + given
            for_z = norm_dropped_back(given, normed, stage.norm.weight, stage.p, sums.norms[number])
            if number == last:  # it reads x itself
                for_x = for_z
        return for_z, for_x


def _filled(x: Tensor) -> Tensor:
    """Contiguous rows, and zeros up to a multiple of `STEP`."""
    missing = -len(x) % STEP
    return torch.cat([x, x.new_zeros(missing, x.shape[1])]) if missing else x.contiguous()
