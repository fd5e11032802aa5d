"""Features of a table with changed rows: those of the rows that stay, and the others beside them.

Rows that are others are encoded when somebody takes them. Whoever looks at no row of the future
never does, so a certificate encodes next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relfrog.features.table import Features, TableColumns
from relfrog.store.overlay import OverlayTable

__all__ = ["overlay_features"]


def overlay_features(base: Features, columns: TableColumns, table: OverlayTable) -> Features:
    """The features of an overlay.

    Args:
        base: those of the table without its changes.
        columns: the fitted columns.
        table: the overlay.
    """

    def encode(part: str, places: Any) -> Any:
        return getattr(columns.encode(table.changes.frame(places), []), part)

    parts: list[Any] = [
        _Rows(getattr(base, part), table, partial(encode, part))
        for part in ("dense", "codes", "moments")
    ]
    if base.bag_offsets is not None:
        fresh = columns.encode(table.changes.frame(), [])
        parts += _lists(base, fresh, table)
    return Features(*parts)


class _Rows:
    """A matrix to those who take rows of it.

    Args:
        base: that of the rows that stay.
        table: the overlay.
        encode: gives rows that are others, by their place in the changes.
    """

    def __init__(self, base: Any, table: OverlayTable, encode: Callable[[Any], Any]) -> None:
        self._base, self._table, self._encode = base, table, encode

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._table.rows, int(self._base.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        found: torch.device = self._base.device
        return found

    def __len__(self) -> int:
        return self._table.rows

    def to(self, device: torch.device | str) -> _Rows:
        """The same on a device."""
        return _Rows(
            self._base.to(device), self._table, lambda places: self._encode(places).to(device)
        )

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Some rows, in a matrix of their own. Shape [rows, columns]."""
        assert dim == 0
        wanted = rows.cpu().numpy()
        mine, places = self._table.find(wanted)
        origin = self._table.origin(np.minimum(wanted, max(self._table.stays - 1, 0)))
        if len(self._base):
            found: Tensor = self._base.index_select(0, torch.from_numpy(origin).to(rows.device))
        else:
            found = torch.zeros((len(rows), self.shape[1]), device=rows.device)
        if len(mine):
            different, which = np.unique(places, return_inverse=True)
            fresh = self._encode(different)[torch.from_numpy(which).to(rows.device)]
            at = torch.from_numpy(mine).to(rows.device)
            kind = torch.promote_types(found.dtype, fresh.dtype)
            found = found.to(kind).index_copy(0, at, fresh.to(kind))
        return found

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        if isinstance(rows, slice):
            rows = torch.arange(len(self), device=self.device)[rows]
        elif rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]
        return self.index_select(0, rows)

    def whole(self) -> Tensor:
        """All rows, as a matrix."""
        return self[:]


def _lists(base: Any, fresh: Any, table: OverlayTable) -> tuple[Tensor, Tensor]:
    """Offsets and values of lists, put together anew."""
    old, new = base.bag_offsets.numpy(), fresh.bag_offsets.numpy()
    lengths = table.patched(np.diff(old), np.diff(new))
    # Those of the changes come after all others.
    begins = table.patched(old[:-1], new[:-1] + len(base.bag_values))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    places = np.arange(ends[-1]) + np.repeat(begins - ends[:-1], lengths)
    values = torch.cat([base.bag_values, fresh.bag_values])
    return torch.from_numpy(ends), values[torch.from_numpy(places)]
