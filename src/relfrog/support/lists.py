"""Columns of lists as two arrays, so that nothing has to loop over rows.

In a frame, a column of lists is a series of Arrow's: two flat arrays, whatever their number. The
labels of seeds are `Lists`, which are the same without pandas. Users get arrays of arrays, see
`as_objects`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = [
    "Lists",
    "are_in",
    "as_frame",
    "as_labels",
    "as_objects",
    "column_values",
    "flatten",
    "holds_lists",
    "matrix",
    "numbered_pairs",
    "read_arrow",
    "read_frame",
    "sort_lists",
    "unflatten",
]

Ints = NDArray[np.int64]


class Lists:
    """Many lists as two arrays: a list per seed would be an object per seed.

    Args:
        begin: where each list begins, and the last one ends. Shape [lists + 1].
        values: the values of all lists, one after the other. Shape [values].
    """

    def __init__(self, begin: Ints, values: NDArray[Any]) -> None:
        self.begin, self.values = begin, values

    @classmethod
    def of(cls, values: Any) -> Lists:
        """Lists in any form that `flatten` takes."""
        lengths, flat = flatten(values)
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), flat)

    @property
    def lengths(self) -> Ints:
        """The length of each list."""
        return np.diff(self.begin)

    def __len__(self) -> int:
        return len(self.begin) - 1

    def __getitem__(self, which: Any) -> Any:
        """One list as an array; or some of the lists, by positions, a slice or a mask."""
        if isinstance(which, int | np.integer):
            at = range(len(self))[which]
            return self.values[self.begin[at] : self.begin[at + 1]]
        first = self.begin[:-1][which]
        lengths = self.lengths[which]
        begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        within = np.arange(begin[-1]) - np.repeat(begin[:-1], lengths)
        return Lists(begin, self.values[np.repeat(first, lengths) + within])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[at] for at in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """An array of arrays, for whoever wants one."""
        found = np.empty(len(self), object)
        for at, one in enumerate(self):
            found[at] = one
        return found

    def joined(self, others: Lists) -> Lists:
        """These lists, and others after them."""
        begin = np.concatenate([self.begin, self.begin[-1] + others.begin[1:]])
        return Lists(begin, np.concatenate([self.values, others.values]))


def holds_lists(values: Any) -> bool:
    """Whether a series is one of Arrow's lists."""
    dtype = getattr(values, "dtype", None)
    return isinstance(dtype, pd.ArrowDtype) and _is_list(dtype.pyarrow_dtype)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def read_arrow(path: Path) -> pa.Table:
    """A Parquet file as a table of Arrow's, looked through for damage."""
    table = pq.read_table(path)
    table.validate(full=True)
    return table


def read_frame(path: Path) -> pd.DataFrame:
    """A Parquet file as a frame; see `as_frame`."""
    return as_frame(read_arrow(path))


def as_frame(table: pa.Table) -> pd.DataFrame:
    """A table of Arrow's as a frame: texts are Python's, lists stay Arrow's."""
    lists = [field.name for field in table.schema if _is_list(field.type)]
    frame = table.drop_columns(lists).to_pandas(ignore_metadata=True)
    for name in frame.columns:
        if isinstance(frame[name].dtype, pd.StringDtype):  # DuckDB cannot read all string types
            frame[name] = frame[name].astype(object)
    for name in lists:
        frame[name] = pd.arrays.ArrowExtensionArray(table.column(name))
    return frame[[name for name in table.column_names if name in frame]]


def flatten(values: Any) -> tuple[Ints, NDArray[Any]]:
    """The length of each list, and all entries one after the other.

    Args:
        values: `Lists`, or a series or column of Arrow's lists; or any series or array of lists,
            tuples or arrays.
    """
    if isinstance(values, Lists):
        return values.lengths, values.values
    if isinstance(values, pa.ChunkedArray) or holds_lists(values):
        arrow = pa.chunked_array(pa.array(values)) if holds_lists(values) else values
        arrow = arrow.combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(arrow), 0)
        return (
            lengths.to_numpy(zero_copy_only=False).astype(np.int64, copy=False),
            arrow.flatten().to_numpy(zero_copy_only=False),
        )
    found = list(values)
    lengths = np.fromiter(map(len, found), np.int64, len(found))
    if not lengths.sum():
        return lengths, np.zeros(0, np.int64)
    return lengths, np.concatenate([np.asarray(value) for value in found if len(value)])


def unflatten(lengths: Ints, flat: NDArray[Any]) -> pd.Series:
    """The series of lists from which `flatten` gives these."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat))
    return pd.Series(pd.arrays.ArrowExtensionArray(lists))


def are_in(items: Ints, values: Any) -> NDArray[np.bool_]:
    """Which items of each row are in the list of that row.

    Args:
        items: row numbers, or -1 for none. Shape [rows, n].
        values: lists of row numbers, as `flatten` takes them.
    """
    lengths, flat = flatten(values)
    most = int(max(items.max(initial=0), flat.max(initial=0))) + 1
    listed = np.repeat(np.arange(len(lengths)), lengths) * most + flat.astype(np.int64)
    asked = np.arange(len(items))[:, None] * most + items
    return np.isin(asked, listed) & (items >= 0)


def numbered_pairs(lengths: Ints, flat: NDArray[Any]) -> Ints | None:
    """A number for each list and entry, in the order of lists and then of entries.

    None unless all entries are row numbers, and not too large for that.
    """
    if flat.dtype.kind not in "iu" or (len(flat) and flat.min() < 0):
        return None
    most = int(flat.max(initial=0)) + 1
    if len(lengths) * most >= 1 << 62:
        return None
    found: Ints = np.repeat(np.arange(len(lengths)) * most, lengths)
    found += flat.astype(np.int64, copy=False)
    return found


def sort_lists(lengths: Ints, flat: NDArray[Any]) -> NDArray[Any]:
    """The entries with those of each list in order."""
    if not (lengths > 1).any():
        return flat
    if (pairs := numbered_pairs(lengths, flat)) is not None:
        pairs.sort()  # lists stay where they are
        pairs %= int(flat.max(initial=0)) + 1
        return pairs.astype(flat.dtype, copy=False)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # Those of lists of one entry stay where they are, which are most of them.
    several = np.flatnonzero(np.repeat(lengths > 1, lengths))
    out = flat.copy()
    out[several] = flat[several][np.lexsort((flat[several], rows[several]))]
    return np.asarray(out)


def as_labels(values: Any) -> Any:
    """Labels as they are, lists as `Lists`.

    Args:
        values: an array, or a series or column of Arrow's lists.
    """
    if isinstance(values, pa.ChunkedArray):
        return Lists.of(values) if _is_list(values.type) else column_values(values)
    if holds_lists(values):
        return Lists.of(values)
    if isinstance(values, Lists):
        return values
    found = np.asarray(values)
    first = found[0] if found.dtype == object and len(found) else None
    return Lists.of(found) if isinstance(first, list | tuple | np.ndarray) else found


def matrix(values: Any) -> NDArray[Any]:
    """Lists of one length as rows. Shape [lists, length].

    Raises:
        ValueError: They are of several lengths, or there are none.
    """
    lengths, flat = flatten(values)
    if not len(lengths) or (lengths != lengths[0]).any():
        raise ValueError("no lists, or lists of several lengths")
    return flat.reshape(len(lengths), -1)


def as_objects(values: pd.Series) -> NDArray[Any]:
    """The values of a series, lists as one array each."""
    if not holds_lists(values):
        return np.asarray(values.to_numpy())
    out = np.empty(len(values), object)
    out[:] = pa.chunked_array(pa.array(values)).combine_chunks().to_numpy(zero_copy_only=False)
    return out


def column_values(column: pa.ChunkedArray) -> NDArray[Any]:
    """The values of a column of Arrow's that holds no lists as those of a frame's column."""
    kind, types = column.type, pa.types
    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if plain or types.is_timestamp(kind):
        values = column.combine_chunks().to_numpy(zero_copy_only=False)
    else:
        values = column.to_pandas().astype(object).to_numpy()  # texts, mostly
    return np.asarray(values) if values.flags.writeable else values.copy()
