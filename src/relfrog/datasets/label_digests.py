"""Labels of one time as numbers that are equal where labels are, to compare many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from relfrog.support.lists import flatten, holds_lists

__all__ = ["differing", "digests", "label_digests"]


def digests(values: pd.Series, *, ordered: bool = False) -> NDArray[np.uint64]:
    """A number for each value; lists of the same elements have the same one.

    Args:
        values: numbers, texts or lists.
        ordered: whether the order of a list's elements matters.
    """
    values = _as_lists(values)
    if not holds_lists(values):
        if pd.api.types.is_numeric_dtype(values.dtype):
            values = values.astype(float)  # whether there are gaps makes no difference
        elif values.dtype == object:
            values = values.where(values.isna(), values.astype(str))
        return np.asarray(pd.util.hash_pandas_object(values, index=False), np.uint64)
    lengths, flat = flatten(values)
    flat = np.asarray(flat)
    flat = flat.astype(float) if flat.dtype.kind in "iufb" else flat
    found = np.asarray(pd.util.hash_array(flat), np.uint64)
    if ordered:
        begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
        found = found * (np.arange(len(found)) - begin + 1).astype(np.uint64)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(found, dtype=np.uint64)])
    ends = np.cumsum(lengths)
    return np.asarray(total[ends] - total[ends - lengths] + lengths.astype(np.uint64))


def _as_lists(values: pd.Series) -> pd.Series:
    """Lists of Python's or NumPy's as Arrow's; anything else as it is."""
    first = next(iter(values.dropna().head(1)), None) if values.dtype == object else None
    if not isinstance(first, list | tuple | np.ndarray):
        return values
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, from_pandas=True)))


def label_digests(entities: pd.Series, labels: pd.Series) -> pd.Series:
    """A number for the label of each entity, by entity; of several labels the last."""
    found = pd.Series(digests(labels), pd.Index(entities.to_numpy()))
    return found[~found.index.duplicated(keep="last")]


def differing(one: pd.Series, other: pd.Series, *, missing: bool = False) -> list[Any]:
    """Entities whose labels differ.

    Args:
        one: labels of entities; see `label_digests`.
        other: labels to compare them with.
        missing: whether those that the other does not have differ.
    """
    place = other.index.get_indexer(one.index)
    there = place >= 0
    values = other.to_numpy()
    changed = np.full(len(one), missing)
    changed[there] = one.to_numpy()[there] != values[place[there]]
    return list(one.index[changed])
