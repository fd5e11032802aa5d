"""A matrix of encoded columns in the narrowest types that hold them.

What has few different values, such as the parts of dates, or the vectors of texts, is kept as one
small number per row and a table of the values; the rest as it is. Rows are put together when they
are asked for, with the same bits as a matrix of 32-bit floats would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Block", "Blocks"]


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive columns.

    Attributes:
        values: the values of all rows, or the different ones. Shape [rows or values, columns].
        codes: the value of each row, if not all are there. Shape [rows].
    """

    values: Tensor
    codes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values if self.codes is None else self.codes)

    def take(self, rows: Tensor) -> Tensor:
        """Some rows. Shape [rows, columns]."""
        if self.codes is not None:
            rows = self.codes.index_select(0, rows).long()
        found = self.values.index_select(0, rows)
        return found if found.dtype == torch.float32 else found.float()

    def map(self, change: Callable[[Tensor], Tensor]) -> Block:
        """The same with other tensors."""
        return Block(change(self.values), None if self.codes is None else change(self.codes))

    def reordered(self, order: Tensor) -> Block:
        """The same with each row's values from another row."""
        if self.codes is not None:
            return Block(self.values, self.codes.index_select(0, order))
        return Block(self.values.index_select(0, order))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks side by side: a matrix to those who take rows of it."""

    parts: tuple[Block, ...]
    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, sum(part.values.shape[1] for part in self.parts)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.parts[0].values.device if self.parts else torch.device("cpu")

    def __len__(self) -> int:
        return self.rows

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Some rows, in a matrix of their own. Shape [rows, columns]."""
        assert dim == 0
        if not self.parts:
            return torch.zeros((len(rows), 0), device=rows.device)
        return torch.cat([part.take(rows) for part in self.parts], 1)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        if isinstance(rows, slice):
            rows = torch.arange(self.rows, device=self.device)[rows]
        elif rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        return self.index_select(0, rows)

    def whole(self) -> Tensor:
        """All rows, as a matrix."""
        return self[:]

    def to(self, device: torch.device | str) -> Blocks:
        """Copy to a device."""
        return Blocks(tuple(part.map(lambda t: t.to(device)) for part in self.parts), self.rows)

    def reordered(self, order: Tensor, columns: list[int]) -> Blocks:
        """The same with the values of some columns from other rows."""
        parts, first = [], 0
        for part in self.parts:
            width = part.values.shape[1]
            moved = [c - first for c in columns if first <= c < first + width]
            if len(moved) == width:
                parts.append(part.reordered(order))
            elif moved and part.codes is None:
                values = part.values.clone()
                values[:, moved] = part.values.index_select(0, order)[:, moved]
                parts.append(Block(values))
            else:
                # The columns of a table of values are those of one column, and move together.
                assert not moved
                parts.append(part)
            first += width
        return Blocks(tuple(parts), self.rows)
