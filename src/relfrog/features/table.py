"""The columns of a table, their places in the tensors, and the tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.features.coded import code_texts
from relfrog.features.column_kinds import (
    FIRST,
    NUM_QUANTILES,
    BagColumn,
    CategoryColumn,
    Column,
    NumberColumn,
    TextColumn,
    TimeColumn,
    VectorColumn,
)
from relfrog.features.values import (
    missing_mask,
    read_lists,
    read_numbers,
    read_texts,
    read_times,
    read_vectors,
)
from relfrog.support.times import MISSING

if TYPE_CHECKING:
    import torch

    from relfrog.features.blocks import Blocks

__all__ = ["Features", "TableColumns", "read_column"]


@dataclass(frozen=True, eq=False)
class Features:
    """The rows of a table as tensors; `TableColumns` describes their columns.

    Attributes:
        dense: numbers, flags for missing values, parts of dates, text vectors. float32, shape
            [rows, dense_size]; of a file in blocks, which are put together for rows asked for.
        codes: indices into one embedding table for all columns. Any type of integers, shape
            [rows, category columns].
        moments: seconds since 1970 of timestamp columns other than the table's own, NaN where
            missing. float64, shape [rows, moment columns].
        bag_offsets: where the entries of each row's lists begin in `bag_values`. int64, shape
            [rows + 1]; None if no column holds lists.
        bag_values: indices into the same embedding table. int32.
    """

    dense: torch.Tensor | Blocks
    codes: torch.Tensor
    moments: torch.Tensor
    bag_offsets: torch.Tensor | None = None
    bag_values: torch.Tensor | None = None

    def __len__(self) -> int:
        return int(self.dense.shape[0])

    def to(self, device: torch.device | str) -> Features:
        """Copy to a device."""
        return Features(
            self.dense.to(device), self.codes.to(device), self.moments.to(device),
            None if self.bag_offsets is None else self.bag_offsets.to(device),
            None if self.bag_values is None else self.bag_values.to(device),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class TableColumns:
    """The columns of a table.

    Attributes:
        columns: the encoding of each, in the order of the table; a column of few distinct
            integers occurs twice, as number and as category.
        time_col: the time column, if the table has one.
        known: all columns that the table had when it was fitted, including keys.
        skipped: columns that are not encoded, and why.
    """

    columns: tuple[Column, ...]
    time_col: str | None
    known: tuple[str, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> list[NumberColumn]:
        """Numerical columns, in the order of `dense`."""
        return [c for c in self.columns if isinstance(c, NumberColumn)]

    @cached_property
    def flagged(self) -> list[NumberColumn | TimeColumn | TextColumn | VectorColumn]:
        """Columns with a flag for missing values."""
        kinds = NumberColumn | TimeColumn | TextColumn | VectorColumn
        return [c for c in self.columns if isinstance(c, kinds) and c.has_missing]

    @cached_property
    def times(self) -> list[TimeColumn]:
        """Timestamp columns, including the table's time column."""
        return [c for c in self.columns if isinstance(c, TimeColumn)]

    @cached_property
    def vectors(self) -> list[TextColumn | VectorColumn]:
        """Columns whose values become vectors."""
        return [c for c in self.columns if isinstance(c, TextColumn | VectorColumn)]

    @cached_property
    def categories(self) -> list[CategoryColumn]:
        """Category columns, in the order of `codes`."""
        return [c for c in self.columns if isinstance(c, CategoryColumn)]

    @cached_property
    def bags(self) -> list[BagColumn]:
        """Columns that hold lists."""
        return [c for c in self.columns if isinstance(c, BagColumn)]

    @property
    def num_numerical(self) -> int:
        """How many of the first columns of `dense` are numerical columns."""
        return len(self.numbers)

    @cached_property
    def dense_names(self) -> tuple[str, ...]:
        """A name for each column of `dense`."""
        names = [column.name for column in self.numbers]
        names += [f"{column.name} missing" for column in self.flagged]
        names += [f"{column.name} {part}" for column in self.times for part in column.parts]
        for column in self.vectors:
            names += [f"{column.name} {column.kind} {i}" for i in range(column.channels)]
        return tuple(names)

    @cached_property
    def dense_columns(self) -> tuple[str, ...]:
        """The column of the table that each column of `dense` comes from."""
        names = [column.name for column in (*self.numbers, *self.flagged)]
        for time in self.times:
            names += [time.name] * len(time.parts)
        for vector in self.vectors:
            names += [vector.name] * vector.channels
        return tuple(names)

    @property
    def dense_size(self) -> int:
        """Number of columns of `dense`."""
        return len(self.dense_names)

    @cached_property
    def code_offsets(self) -> tuple[int, ...]:
        """Where the codes of each of `categories`, then of `bags`, begin; and the end.

        Each column has a code for missing, one for unknown, and one per category.
        """
        coded: list[CategoryColumn | BagColumn] = [*self.categories, *self.bags]
        sizes = [FIRST + len(column.categories) for column in coded]
        return tuple(np.cumsum([0, *sizes]).tolist())

    @property
    def num_codes(self) -> int:
        """Number of rows of the embedding table."""
        return self.code_offsets[-1]

    @property
    def moment_names(self) -> tuple[str, ...]:
        """The columns of `moments`."""
        return tuple(column.name for column in self.times if column.name != self.time_col)

    @property
    def moment_count(self) -> int:
        """Number of columns of `moments`."""
        return len(self.moment_names)

    @property
    def quantiles(self) -> NDArray[np.float32]:
        """Quantiles of each numerical column as encoded, non-decreasing. Shape [K, 17]."""
        if not self.numbers:
            return np.zeros((0, NUM_QUANTILES), np.float32)
        return np.stack([column.quantiles for column in self.numbers])

    def encodes(self, column: str) -> bool:
        """Whether a column is encoded."""
        return any(own.name == column for own in self.columns)

    def had_key(self, column: str) -> bool:
        """Whether a column was a key when the columns were fitted."""
        values = column in self.skipped or self.encodes(column)
        return column in self.known and not values

    def encode(self, frame: pd.DataFrame, unreadable: list[str]) -> Features:
        """Encode rows; columns without any readable value are appended to `unreadable`."""
        import torch

        rows = len(frame)
        dense = np.zeros((rows, self.dense_size), np.float32)
        codes = np.empty((rows, len(self.categories)), np.int32)
        moments = np.empty((rows, len(self.moment_names)), np.float64)
        bags: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        flags, calendar = len(self.numbers), len(self.numbers) + len(self.flagged)
        vectors = calendar + sum(len(column.parts) for column in self.times)
        number = code = moment = 0
        for column in self.columns:
            found, readable = read_column(column, frame[column.name])
            if not _fits(column, frame[column.name], readable):
                unreadable.append(column.name)
            if column in self.flagged:
                dense[:, flags] = ~readable
                flags += 1
            if isinstance(column, NumberColumn):
                dense[:, number] = column.encode(found)
                number += 1
            elif isinstance(column, CategoryColumn):
                codes[:, code] = column.encode(found) + self.code_offsets[code]
                code += 1
            elif isinstance(column, BagColumn):
                first = self.code_offsets[len(self.categories) + len(bags)]
                row, local = column.encode(found)
                bags.append((row, local + first))
            elif isinstance(column, TimeColumn):
                dense[:, calendar : calendar + len(column.parts)] = column.encode(found)
                calendar += len(column.parts)
                if column.name != self.time_col:
                    moments[:, moment] = np.where(readable, found / 1e6, np.nan)
                    moment += 1
            elif isinstance(column, TextColumn | VectorColumn):
                dense[:, vectors : vectors + column.channels] = column.encode(found)
                vectors += column.channels
        tensors = [torch.from_numpy(array) for array in (dense, codes, moments)]
        if not bags:
            return Features(tensors[0], tensors[1], tensors[2])
        row, value = (np.concatenate(parts) for parts in zip(*bags, strict=True))
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
        value = value[np.argsort(row, kind="stable")].astype(np.int32)
        entries = torch.from_numpy(offsets), torch.from_numpy(value)
        return Features(tensors[0], tensors[1], tensors[2], *entries)


def _fits(column: Column, values: pd.Series, readable: NDArray[np.bool_]) -> bool:
    """Whether a column still has its type: some value can be read, or all are missing."""
    if readable.any() or (
        isinstance(column, NumberColumn | CategoryColumn)
        and pd.api.types.is_numeric_dtype(values.dtype)  # even if all are infinite
    ):
        return True
    return bool(missing_mask(values).all())


def read_column(column: Column, values: pd.Series) -> tuple[Any, NDArray[np.bool_]]:
    """The values for `column.encode`, and a mask of the values that are present."""
    if isinstance(column, NumberColumn) or (isinstance(column, CategoryColumn) and column.numeric):
        found = read_numbers(values)
        return found, ~np.isnan(found)
    if isinstance(column, TimeColumn):
        moments = read_times(values)
        return moments, moments != MISSING
    if isinstance(column, BagColumn):
        lengths, flat = read_lists(values)
        return (lengths, flat), lengths >= 0
    if isinstance(column, VectorColumn):
        rows = read_vectors(values, column.channels)
        return rows, np.asarray(~np.isnan(rows).any(axis=1))
    words = code_texts(read_texts(values))
    return words, words.codes >= 0
