"""Row encoder of RelBench's models: columns side by side, through residual blocks.

Each column has a vector of its own, and the first block reads all of them concatenated, where
`RowEncoder` sums them. A column's vector is linear in its inputs, and so is what the first block
makes of it, so that both maps are multiplied with each other once per step, not with every row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from relfrog.features.columns import Features, TableColumns
from relfrog.nn.dropout import Dropout
from relfrog.nn.encoders import bag_sums
from relfrog.nn.products import Linear, linear
from relfrog.nn.residual_trunk import Stage, fits, trunk

__all__ = ["ResNetEncoder"]

#: Spread of the initial vectors of columns, as in PyTorch Frame's encoders.
START = 0.01


class _Block(nn.Module):
    """x -> shortcut(x) + two times dropout(relu(LayerNorm(linear))). Shapes: [n, c] -> [n, c]."""

    def __init__(self, inputs: int, channels: int, dropout: float) -> None:
        super().__init__()
        self.first = Linear(inputs, channels)
        self.last = Linear(channels, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(2))
        self.shortcut = nn.Linear(inputs, channels) if inputs != channels else None
        self.dropout = Dropout(dropout, relu=True)

    def forward(self, x: Tensor) -> Tensor:
        """The whole block."""
        return self.finish(self.first(x), x if self.shortcut is None else self.shortcut(x))

    def finish(self, hidden: Tensor, short: Tensor) -> Tensor:
        """The block after its first linear map and its shortcut."""
        hidden = self.dropout(self.norms[0](hidden))
        return self.dropout(self.norms[1](self.last(hidden))) + short


class ResNetEncoder(nn.Module):
    """Encodes the columns of a row as one vector, which does not depend on the seed.

    Shapes: rows [n] -> [n, c].
    """

    dense_from: Tensor
    codes_from: Tensor

    def __init__(
        self, columns: TableColumns, channels: int, depth: int = 4, dropout: float = 0.2
    ) -> None:
        super().__init__()
        # Parts of the concatenation: one per column of numbers, of times or of vectors, and one per
        # column of categories, so that a column that is both has two.
        coded = [*columns.categories, *columns.bags]
        dense = list(dict.fromkeys(columns.dense_columns))
        numbers = {name: number for number, name in enumerate(dense)}
        sizes = [end - begin for begin, end in zip(
            columns.code_offsets, columns.code_offsets[1:], strict=False)]  # fmt: skip
        self.register_buffer(
            "dense_from",
            torch.tensor([numbers[name] for name in columns.dense_columns], dtype=torch.long),
            persistent=False,
        )
        self.register_buffer(
            "codes_from",
            torch.arange(len(dense), len(dense) + len(coded)).repeat_interleave(
                torch.tensor(sizes[: len(coded)], dtype=torch.long)
            ),
            persistent=False,
        )
        self.dense = nn.Parameter(torch.randn(columns.dense_size, channels) * START)
        self.codes = nn.Parameter(torch.randn(columns.num_codes, channels) * START)
        self.bias = nn.Parameter(torch.zeros(len(dense), channels))
        # A table of keys only has one empty part.
        self.parts = max(1, len(dense) + len(coded))
        self.blocks = nn.ModuleList(
            _Block(channels * (1 if number else self.parts), channels, dropout)
            for number in range(max(1, depth))
        )
        self.out = nn.Sequential(
            nn.LayerNorm(channels), nn.ReLU(inplace=True), Linear(channels, channels)
        )

    def forward(self, features: Features, rows: Tensor) -> Tensor:
        """Encode some rows of the table."""
        first, *others = self.blocks
        assert isinstance(first, _Block)
        # Without a shortcut the concatenation is a single part, as wide as the block.
        maps = [first.first, *([] if first.shortcut is None else [first.shortcut])]
        x = self._concatenated(maps, features, rows)
        if first.shortcut is None:
            x = torch.cat([x, self._concatenated([], features, rows)], 1)
        if self.training and fits(x, stages := self._stages()):
            return trunk(x, stages)
        x = first.finish(*(part.contiguous() for part in x.chunk(2, 1)))
        for block in others:
            x = block(x)
        return self.out(x)

    def _stages(self) -> list[Stage]:
        """The blocks and the map after them, as `trunk` takes them."""
        found = []
        blocks: list[_Block] = list(self.blocks)  # type: ignore[arg-type]
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            first, last = block.norms
            assert isinstance(first, nn.LayerNorm)
            assert isinstance(last, nn.LayerNorm)
            found += [
                Stage(first, block.last, block.dropout.p),
                Stage(last, None if after is None else after.first, block.dropout.p),
            ]
        norm, _, then = self.out
        assert isinstance(norm, nn.LayerNorm)
        assert isinstance(then, nn.Linear)
        return [*found, Stage(norm, then, 0.0)]

    def _concatenated(self, thens: Sequence[nn.Linear], features: Features, rows: Tensor) -> Tensor:
        """Linear maps of the vectors of all columns side by side; without any, those vectors.

        Shapes: rows [n] -> [n, outputs of all maps], or [n, c].
        """
        dense: Tensor = self.dense
        codes: Tensor = self.codes
        bias = self.bias.sum(0)
        if thens:
            weight = torch.cat([then.weight for then in thens])
            maps = weight.view(len(weight), self.parts, -1).permute(1, 2, 0)
            # Each map is read on its own: their gradients are put together once.
            each = maps.unbind()
            dense = _each(dense, each, self.dense_from)
            codes = _each(codes, each, self.codes_from)
            bias = torch.cat([then.bias for then in thens])
            bias = bias + torch.einsum("pc,pcd->d", self.bias, maps[: len(self.bias)])
        x = linear(features.dense.index_select(0, rows).to(dense.dtype), dense.T, bias)
        if features.codes.shape[1]:
            chosen = features.codes.index_select(0, rows).long()
            x = x + embedding_bag(chosen, codes, mode="sum")
        if features.bag_offsets is not None and features.bag_values is not None:
            x = x + bag_sums(codes, features.bag_offsets, features.bag_values, rows)
        return x


def _each(vectors: Tensor, maps: Sequence[Tensor], part: Tensor) -> Tensor:
    """Each vector through the map of its part. Shapes: [n, c], [c, d] each, [n] -> [n, d]."""
    if not len(vectors):
        return vectors.new_zeros(0, maps[0].shape[1])
    order = part.argsort(stable=True)
    counts = part.bincount(minlength=len(maps)).tolist()
    parts = vectors.index_select(0, order).split(counts)
    mapped = [some @ by for some, by in zip(parts, maps, strict=True) if len(some)]
    return torch.cat(mapped).index_select(0, order.argsort())
