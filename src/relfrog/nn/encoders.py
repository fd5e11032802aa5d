"""Encoders: the columns of a row, its age relative to the seed, and the context of the seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from relfrog.features.columns import Features, TableColumns
from relfrog.nn.age_pieces import AgePieces
from relfrog.nn.normalisation import normalised
from relfrog.nn.products import Linear, add_product, is_plain, linear
from relfrog.support.jit import compiled

__all__ = ["Recency", "RowEncoder", "SeedEncoder", "TimeEncoder", "age_parts",
           "bag_sums", "time_parts"]  # fmt: skip

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86400.0, 31557600.0
#: Knots of the piecewise linear time encoding, in seconds.
KNOTS = (
    0.0, 1.0, 10.0, MINUTE, 10 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
    DAY, 2 * DAY, 4 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 60 * DAY, 120 * DAY, 240 * DAY,
    YEAR, 2 * YEAR, 4 * YEAR, 8 * YEAR, 16 * YEAR, 32 * YEAR, 64 * YEAR,
)  # fmt: skip


def time_parts(seconds: Tensor) -> Tensor:
    """Piecewise linear encoding of time spans over log time: the elapsed share of each piece.

    0 for missing (NaN) and negative spans. Shapes: [...] -> [..., len(KNOTS) - 1].
    """
    knots = torch.tensor(KNOTS, dtype=torch.float32, device=seconds.device).log1p()
    known = torch.log1p(seconds.nan_to_num(0.0).clamp(min=0.0)).float().unsqueeze(-1)
    return (known - knots[:-1]).div_(knots.diff()).clamp_(0.0, 1.0)


def age_parts(age: Tensor) -> Tensor:
    """`time_parts` of ages, and a flag for rows without an age. Shapes: [n] -> [n, len(KNOTS)]."""
    return torch.cat([time_parts(age), age.isnan().float().unsqueeze(-1)], -1)


def bag_sums(codes: Tensor, offsets: Tensor, values: Tensor, rows: Tensor) -> Tensor:
    """Sums of the embeddings of the values in lists, one list per row of a table.

    Args:
        codes: embeddings of the values. Shape [codes, c].
        offsets: where the values of each row begin; and the end. Shape [table rows + 1].
        values: codes of all lists. Shape [values].
        rows: rows of the table. Shape [n].
    """
    begin = offsets[rows]
    length = offsets[rows + 1] - begin
    ends = length.cumsum(0)
    within = torch.arange(int(length.sum()), device=rows.device)
    within = within + (begin - ends + length).repeat_interleave(length)
    at = torch.cat([ends.new_zeros(1), ends])
    return embedding_bag(values[within].long(), codes, at, mode="sum", include_last_offset=True)


def add_codes(x: Tensor, codes: Any, rows: Tensor, weight: Tensor) -> None:
    """Add the embeddings of the codes of some rows of a table, in place; for `is_plain` tensors.

    Shapes: x [n, c], codes [table rows, columns], rows [n], weight [codes, c].
    """
    if not isinstance(codes, Tensor):  # an overlay of a few rows
        codes, rows = codes.index_select(0, rows), torch.arange(len(rows))
    _add_codes(x.numpy(), codes.numpy(), rows.numpy(), weight.detach().numpy())


@compiled
def _add_codes(x: Any, codes: Any, rows: Any, weight: Any) -> None:
    """x[i] += the rows of the weights that codes[rows[i]] name."""
    for i in range(len(x)):
        to, own = x[i], codes[rows[i]]
        for column in range(len(own)):
            row = weight[own[column]]
            for c in range(len(to)):
                to[c] += row[c]


class _Dense(nn.Linear):
    """A linear layer that accepts 0 inputs without a warning: a table may have only keys."""

    def reset_parameters(self) -> None:
        if self.in_features:
            super().reset_parameters()
        else:
            nn.init.zeros_(self.bias)


class RowEncoder(nn.Module):
    """Encodes the columns of a row as one vector, which does not depend on the seed.

    Each column is projected to `channels` and the columns are summed, as with PyTorch Frame's
    encoders, but in one product per table; residual blocks x + W relu(LayerNorm(x)) follow.
    Numbers are also encoded piecewise linearly between quantiles, so that the first layer can
    represent nonlinear functions of them.

    Shapes: rows [n] -> [n, c].
    """

    quantiles: Tensor
    unknown: Tensor
    dense_from: Tensor
    codes_from: Tensor

    def __init__(
        self,
        columns: TableColumns,
        channels: int,
        depth: int = 1,
        bins: int = 8,
        column_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.column_dropout = column_dropout
        starts = torch.tensor(columns.code_offsets[: len(columns.categories)], dtype=torch.int32)
        self.register_buffer("unknown", starts + 1, persistent=False)
        # The column that each input comes from: column dropout hides all inputs of a column.
        names = [*columns.dense_columns, *(c.name for c in columns.numbers for _ in range(bins))]
        coded = [column.name for column in columns.categories]
        numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, *coded]))}
        self.register_buffer(
            "dense_from", torch.tensor([numbers[n] for n in names], dtype=torch.long), False
        )
        self.register_buffer(
            "codes_from", torch.tensor([numbers[n] for n in coded], dtype=torch.long), False
        )
        self.num_columns = len(numbers)
        self.num_numerical = columns.num_numerical
        edges = np.asarray(columns.quantiles, np.float32)
        if bins and columns.num_numerical:
            at = np.linspace(0, edges.shape[1] - 1, bins + 1).round().astype(int)
            edges = edges[:, at]
        else:
            bins, edges = 0, np.zeros((columns.num_numerical, 1), np.float32)
        self.bins = bins
        self.register_buffer("quantiles", torch.from_numpy(edges.copy()))
        size = columns.dense_size + bins * columns.num_numerical
        self.dense = _Dense(size, channels)
        self.codes = nn.Embedding(columns.num_codes, channels) if columns.num_codes else None
        if self.codes is not None:
            nn.init.normal_(self.codes.weight, std=0.1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(channels), nn.ReLU(inplace=True), Linear(channels, channels))
            for _ in range(depth)
        )

    def forward(self, features: Features, rows: Tensor) -> Tensor:
        """Encode some rows of the table."""
        dense = features.dense.index_select(0, rows)
        if self.bins:
            numbers = dense[:, : self.num_numerical, None]
            low, width = self.quantiles[:, :-1], self.quantiles.diff(dim=1)
            pieces = (numbers - low).div_(width.clamp(min=1e-6)).clamp_(0.0, 1.0)
            dense = torch.cat([dense, pieces.flatten(1)], 1)
        kept = None
        if self.training and self.column_dropout:
            draws = torch.rand(len(rows), self.num_columns, device=rows.device)
            kept = draws >= self.column_dropout
            dense = dense.mul_(kept.index_select(1, self.dense_from))
        x = linear(dense.to(self.dense.weight.dtype), self.dense.weight, self.dense.bias)
        if self.codes is not None:
            if features.codes.shape[1] and kept is None and is_plain(x, self.codes.weight):
                add_codes(x, features.codes, rows, self.codes.weight)
            elif features.codes.shape[1]:
                codes = features.codes.index_select(0, rows).int()
                if kept is not None:  # which also trains the embedding of unknown categories
                    codes = torch.where(kept[:, self.codes_from], codes, self.unknown)
                x = x.add_(embedding_bag(codes.long(), self.codes.weight, mode="sum"))
            if features.bag_offsets is not None and features.bag_values is not None:
                x = x + bag_sums(self.codes.weight, features.bag_offsets, features.bag_values, rows)
        for block in self.blocks:
            assert isinstance(block, nn.Sequential)
            norm, inner = block[0], block[2]
            assert isinstance(norm, nn.LayerNorm)
            assert isinstance(inner, nn.Linear)
            hidden = normalised(x, norm, relu=True, keep=True)
            if torch.is_grad_enabled():
                x = inner(hidden).add_(x)
            else:
                x = add_product(x.add_(inner.bias), hidden, inner.weight)
        return x


class Recency(nn.Module):
    """The weight of a row in a mean as a function of its age, per channel.

    The weight is exp(f(age)) with f piecewise linear. It is initialised to exp(-age / tau), with a
    different time constant tau per channel, from a day to decades, and to no decay in a quarter of
    the channels, so that means cover several time scales from the first step on.

    Shapes: parts [n, pieces + 1] -> [n, c].
    """

    #: Log weights are clamped to this: if all rows are old, the mean is an unweighted one.
    LEAST = -12.0

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.rate = Linear(len(KNOTS), channels)
        fading = channels - channels // 4
        tau = torch.logspace(math.log10(DAY), math.log10(32 * YEAR), fading, dtype=torch.float64)
        at_knots = -torch.tensor(KNOTS, dtype=torch.float64) / tau.unsqueeze(1)
        with torch.no_grad():
            self.rate.weight.zero_()
            self.rate.bias.zero_()
            self.rate.weight[:fading, : len(KNOTS) - 1] = (
                at_knots.clamp(min=self.LEAST).diff(dim=1).float()
            )

    def forward(self, parts: Tensor | AgePieces) -> Tensor:
        """Weights of rows."""
        if isinstance(parts, AgePieces):
            return parts.exp_linear(self.rate, self.LEAST, -self.LEAST)
        rate = self.rate(parts)
        if not torch.is_grad_enabled():
            return rate.clamp_(self.LEAST, -self.LEAST).exp_()
        return rate.clamp(self.LEAST, -self.LEAST).exp()


class TimeEncoder(nn.Module):
    """Adds the age of a row, relative to the time of the seed, to its vector.

    Other timestamps of the row are encoded as spans to the seed's time, with separate weights for
    past and future.

    Shapes: x [n, c], parts [n, pieces + 1], spans [n, t] -> [n, c].
    """

    def __init__(self, channels: int, timed: bool, moments: int) -> None:
        super().__init__()
        parts = len(KNOTS) - 1
        self.shift = nn.Linear(parts + 1, channels) if timed else None
        self.moments = Linear(moments * 2 * parts, channels, bias=False) if moments else None

    def forward(self, x: Tensor, parts: Tensor | AgePieces | None, spans: Tensor | None) -> Tensor:
        """Encode occurrences of rows.

        Args:
            x: vectors of the rows.
            parts: `age_parts` of the rows, if the table has times.
            spans: seconds from other timestamps to the seed's time, NaN where missing.
        """
        if self.shift is not None and isinstance(parts, AgePieces):
            x = parts.add_linear(x, self.shift)
        elif self.shift is not None and isinstance(parts, Tensor):
            x = add_product(x + self.shift.bias, parts.to(x.dtype), self.shift.weight)
        if self.moments is not None and spans is not None:
            both = torch.cat([time_parts(spans), time_parts(-spans)], -1)
            x = x + self.moments(both.flatten(1))
        return x


class SeedEncoder(nn.Module):
    """Adds the context of a seed: the season, and how stale the database is at its time.

    It is added to all rows of the seed table, seeds or not, so that a prediction does not depend on
    the other seeds of the batch. It also replaces a row that is not visible to its own seed. If
    subgraphs are separate, the seed can be marked by a learned vector (identity-aware GNN).

    Shapes: [n, c] -> [n, c].
    """

    def __init__(self, channels: int, marked: bool = False, context: bool = True) -> None:
        super().__init__()
        self.used = context
        self.mark = nn.Parameter(torch.randn(channels)) if marked else None
        self.context = nn.Linear(6 + len(KNOTS) - 1, channels, bias=False)
        nn.init.zeros_(self.context.weight)
        self.unseen = nn.Parameter(torch.zeros(channels))

    def forward(
        self,
        x: Tensor,
        group: Tensor,
        hidden: Tensor,
        seconds: Tensor,
        lags: Tensor,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Encode rows of the seeds' table.

        Args:
            x: vectors of the rows. Shape [n, c].
            group: subgraph of each row. Shape [n].
            hidden: mask of the seeds that are not visible themselves. Shape [n].
            seconds: times of the subgraphs, in seconds since 1970. Shape [groups].
            lags: seconds from the cut-off of each subgraph to its time. Shape [groups].
            seeds: positions of the seeds, to mark them. Shape [seeds].
        """
        x = torch.where(hidden.unsqueeze(1), self.unseen, x)
        if self.used:
            x = x + self._context(seconds, lags).index_select(0, group)
        if self.mark is not None and seeds is not None:
            x = x.index_add(0, seeds, self.mark.expand(len(seeds), -1))
        return x

    def _context(self, seconds: Tensor, lags: Tensor) -> Tensor:
        """What is added for each subgraph. Shapes: [groups] -> [groups, c]."""
        turns = [2 * math.pi * (seconds / period % 1.0) for period in (YEAR, 7 * DAY, DAY)]
        season = torch.stack([f(t) for t in turns for f in (torch.sin, torch.cos)], 1).float()
        return self.context(torch.cat([season, time_parts(lags)], 1))
