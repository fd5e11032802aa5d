"""Columns for PyTorch Frame: its `TensorFrame`, and the statistics for its encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relfrog.features.column_kinds import (
    DAY,
    FIRST,
    BagColumn,
    CategoryColumn,
    NumberColumn,
    TimeColumn,
    calendar,
)
from relfrog.features.table import read_column
from relfrog.support.times import MISSING

if TYPE_CHECKING:
    import pandas as pd

    from relfrog.features.columns import TableColumns

__all__ = ["frame", "frame_stats"]

#: Numbers are clipped here, so that their squares are finite in 32 bits.
LARGE = 1e18


def _named(table: TableColumns) -> dict[str, Any]:
    """Columns by name; the second encoding of a column gets a suffix."""
    named: dict[str, Any] = {}
    taken = set(table.known)
    for column in table.columns:
        name = column.name
        if name in named:
            name = f"{name} (category)"
            while name in taken:
                name += "'"
        named[name] = column
        taken.add(name)
    return named


def frame_stats(table: TableColumns) -> tuple[dict[Any, list[str]], dict[str, dict[Any, Any]]]:
    """Column names by type, and statistics by column."""
    import torch
    from torch_frame import stype
    from torch_frame.data.stats import StatType

    names: dict[Any, list[str]] = {}
    stats: dict[str, dict[Any, Any]] = {}
    for name, column in _named(table).items():
        names.setdefault(stype(column.stype), []).append(name)
        if isinstance(column, NumberColumn):
            five = np.clip(column.five, -LARGE, LARGE).tolist()
            mean, std = np.clip([column.mean, column.std], -LARGE, LARGE).tolist()
            own = {StatType.MEAN: mean, StatType.STD: std, StatType.QUANTILES: five}
        elif isinstance(column, CategoryColumn | BagColumn):
            both = (list(column.categories), list(column.counts))
            bag = isinstance(column, BagColumn)
            own = {StatType.MULTI_COUNT if bag else StatType.COUNT: both}
        elif isinstance(column, TimeColumn):
            ends = np.array([column.oldest, column.middle, column.newest])
            oldest, middle, newest = torch.from_numpy(_parts(column, ends))
            own = {
                StatType.YEAR_RANGE: [int(oldest[0]), int(newest[0])],
                StatType.OLDEST_TIME: oldest,
                StatType.MEDIAN_TIME: middle,
                StatType.NEWEST_TIME: newest,
            }
        else:
            own = {StatType.EMB_DIM: column.channels}
        stats[name] = own
    if not names:
        # An encoder needs at least one column; this one is constant.
        names[stype.numerical] = ["constant"]
        five = [1.0] * 5
        own = {StatType.MEAN: 0.0, StatType.STD: 1.0, StatType.QUANTILES: five}
        stats["constant"] = own
    return names, stats


def frame(table: TableColumns, rows: pd.DataFrame) -> Any:
    """A table's rows as a `TensorFrame`: raw numbers, and -1 for unknown categories."""
    import torch
    from torch_frame import TensorFrame, stype
    from torch_frame.data import MultiEmbeddingTensor, MultiNestedTensor

    names, _ = frame_stats(table)
    parts: dict[Any, list[Any]] = {kind: [] for kind in names}
    if not table.columns:
        parts[stype.numerical].append(np.ones(len(rows)))
    for column in table.columns:
        found, _ = read_column(column, rows[column.name])
        if isinstance(column, NumberColumn):
            made: Any = np.clip(found, -LARGE, LARGE)
        elif isinstance(column, TimeColumn):
            made = _parts(column, found)
        elif isinstance(column, BagColumn):
            made = column.encode(found)
        elif isinstance(column, CategoryColumn):
            made = np.maximum(column.encode(found) - FIRST, -1)
        else:
            made = torch.from_numpy(column.encode(found))
        parts[stype(column.stype)].append(made)

    tensors: dict[Any, Any] = {}
    for kind, made in parts.items():
        if kind == stype.embedding:
            tensors[kind] = MultiEmbeddingTensor.from_tensor_list(made)
        elif kind == stype.multicategorical:
            values, offset = _nested(made, len(rows))
            tensors[kind] = MultiNestedTensor(len(rows), len(made), values, offset)
        else:
            stacked = torch.from_numpy(np.stack(made, axis=1))
            tensors[kind] = stacked.to(torch.float32) if kind == stype.numerical else stacked
    return TensorFrame(tensors, names, num_rows=len(rows))


def _parts(column: TimeColumn, found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Year, month, day, weekday, hour, minute, second; from 0, but for the year. Shape [n, 7]."""
    years, months, days, weekdays, minutes = calendar(found)
    seconds = found % DAY // 1_000_000 % 60
    # PyTorch Frame rejects years before the first in the statistics.
    years = np.maximum(years, calendar(np.array([column.oldest]))[0][0])
    out = np.stack([years, months, days, weekdays, minutes // 60, minutes % 60, seconds], axis=1)
    out[found == MISSING] = -1
    return out


def _nested(bags: list[NDArray[np.int64]], rows: int) -> tuple[Any, Any]:
    """Entries of all list columns, row by row, and where each list begins."""
    import torch

    place = np.concatenate([row * len(bags) + i for i, (row, _) in enumerate(bags)])
    codes = np.concatenate([np.maximum(code - FIRST, -1) for _, code in bags])
    offset = np.zeros(rows * len(bags) + 1, np.int64)
    np.cumsum(np.bincount(place, minlength=rows * len(bags)), out=offset[1:])
    return torch.from_numpy(codes[np.argsort(place, kind="stable")]), torch.from_numpy(offset)
