"""Columns of lists as two arrays, so that nothing has to loop over rows.

Inside, a column of lists is a series of Arrow's: two flat arrays, whatever their number. Users get
arrays of arrays, see `as_objects`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = [
    "are_in",
    "as_frame",
    "as_objects",
    "column_values",
    "flatten",
    "holds_lists",
    "numbered_pairs",
    "read_arrow",
    "read_frame",
    "sort_lists",
    "unflatten",
]

Ints = NDArray[np.int64]


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
        values: a series of Arrow's lists; or any series or array of lists, tuples or arrays.
    """
    if holds_lists(values):
        arrow = pa.chunked_array(pa.array(values)).combine_chunks()
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


def as_objects(values: pd.Series) -> NDArray[Any]:
    """The values of a series, lists as one array each."""
    if not holds_lists(values):
        return np.asarray(values.to_numpy())
    out = np.empty(len(values), object)
    out[:] = pa.chunked_array(pa.array(values)).combine_chunks().to_numpy(zero_copy_only=False)
    return out


def column_values(column: pa.ChunkedArray) -> NDArray[Any]:
    """The values of a column of Arrow's as those of a frame's column, lists as one array each."""
    kind, types = column.type, pa.types
    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if plain or types.is_timestamp(kind) or _is_list(kind):
        values = column.combine_chunks().to_numpy(zero_copy_only=False)
    else:
        values = column.to_pandas().astype(object).to_numpy()  # texts, mostly
    return np.asarray(values) if values.flags.writeable else values.copy()
