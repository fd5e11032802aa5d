"""Row encoder of RelBench's models: columns side by side, through residual blocks.

Each column has a vector of its own, and the first block reads all of them concatenated, where
`RowEncoder` sums them. A column's vector is linear in its inputs, and so is what the first block
makes of it, so that both maps are multiplied with each other once per step, not with every row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from relfrog.features.columns import Features, TableColumns
from relfrog.nn.dropout import Dropout
from relfrog.nn.encoders import bag_sums
from relfrog.nn.products import Linear, linear

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
        hidden = self._concatenated(first.first, features, rows)
        short = first.shortcut or nn.Identity()
        if isinstance(short, nn.Linear):
            x = first.finish(hidden, self._concatenated(short, features, rows))
        else:  # a single part as wide as the block: the concatenation is that part
            x = first.finish(hidden, self._concatenated(None, features, rows))
        for block in others:
            x = block(x)
        return self.out(x)

    def _concatenated(self, then: nn.Linear | None, features: Features, rows: Tensor) -> Tensor:
        """The vectors of all columns side by side, and a linear map of that. Shape [n, c]."""
        dense: Tensor = self.dense
        codes: Tensor = self.codes
        bias = self.bias.sum(0)
        if then is not None:
            maps = then.weight.view(len(then.weight), self.parts, -1).permute(1, 2, 0)
            dense = _each(dense, maps, self.dense_from)
            codes = _each(codes, maps, self.codes_from)
            bias = then.bias + torch.einsum("pc,pcd->d", self.bias, maps[: len(self.bias)])
        x = linear(features.dense.index_select(0, rows).to(dense.dtype), dense.T, bias)
        if features.codes.shape[1]:
            chosen = features.codes.index_select(0, rows).long()
            x = x + embedding_bag(chosen, codes, mode="sum")
        if features.bag_offsets is not None and features.bag_values is not None:
            x = x + bag_sums(codes, features.bag_offsets, features.bag_values, rows)
        return x


def _each(vectors: Tensor, maps: Tensor, part: Tensor) -> Tensor:
    """Each vector through the map of its part. Shapes: [n, c], [parts, c, d], [n] -> [n, d]."""
    out = vectors.new_zeros(len(vectors), maps.shape[2])
    for number in part.unique().tolist():
        mine = (part == number).nonzero().squeeze(1)
        out = out.index_copy(0, mine, vectors.index_select(0, mine) @ maps[number])
    return out
