"""Parquet files as frames, whoever wrote them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.errors import DatasetError

__all__ = ["UNREADABLE", "index_columns", "read_parquet", "reading"]

#: What reading a damaged file, or one with types that pandas does not have, can raise.
UNREADABLE = (
    OSError, ValueError, TypeError, LookupError, OverflowError, NotImplementedError,
    pa.ArrowException,
)  # fmt: skip
_INDEX = re.compile(r"__index_level_\d+__")
_WIDTHS = (8, 16, 32, 64)
#: Types that keep NULLs apart from NaN, and integers exact beside them.
_NULLABLE = {
    **{getattr(pa, f"int{n}")(): getattr(pd, f"Int{n}Dtype")() for n in _WIDTHS},
    **{getattr(pa, f"uint{n}")(): getattr(pd, f"UInt{n}Dtype")() for n in _WIDTHS},
    pa.float32(): pd.Float32Dtype(), pa.float64(): pd.Float64Dtype(), pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(), pa.large_string(): pd.StringDtype(),
}  # fmt: skip


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of a table's file that it is damaged, whatever reading it raises.

    Raises:
        DatasetError: It is.
    """
    try:
        yield
    except UNREADABLE as error:
        text = " ".join(str(error).split())[:300]
        raise DatasetError(
            f"{path} cannot be read ({text}). Restore the file, or import the database again."
        ) from None


def index_columns(schema: pa.Schema) -> set[str]:
    """The columns in which pandas keeps an index, and which it takes out again.

    Raises:
        ValueError: What pandas noted in the file is damaged.
    """
    try:
        about = schema.pandas_metadata or {}
        return {name for name in about.get("index_columns", []) if isinstance(name, str)}
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"what pandas noted in the file is damaged: {error}") from None


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, nullable: bool = False
) -> pd.DataFrame:
    """Read a Parquet file.

    What pandas notes of its own types and its index does not count: a stranger may have written it.

    Args:
        path: The file.
        columns: Which; all if None.
        nullable: Whether to use pandas' types with NULLs.

    Raises:
        Exception: One of `UNREADABLE`.
    """
    table = pq.read_table(path, columns=None if columns is None else list(columns))
    names = table.column_names
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"it has two columns {min(twice)!r}")
    table = table.select([name for name in names if not _INDEX.fullmatch(name)])
    table.validate(full=True)  # pandas would find text that is no UTF-8 later, and raise anything
    mapper = _NULLABLE.get if nullable else None
    found: pd.DataFrame = table.to_pandas(ignore_metadata=True, types_mapper=mapper)
    return found
