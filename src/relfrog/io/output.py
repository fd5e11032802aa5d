"""Write a table of results to a file or a database, all or nothing."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfrog.errors import OutputError, UsageError
from relfrog.io.marks import mark_csv, mark_parquet
from relfrog.io.secrets import hide_password
from relfrog.io.targets import Target, open_target
from relfrog.io.targets.columns import as_json
from relfrog.support.files import atomic_file, check_file, user_path

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["arrow_table", "check_output", "is_folder", "write_frame"]


def check_output(out: str | Path, table: str | None = None, overwrite: bool = False) -> None:
    """Check, before a long computation, that :func:`write_frame` will be able to write.

    Raises:
        UsageError: ``out`` is neither a file of a known type nor a database, or ``table`` is
            missing or given for a file.
        OutputError: The file or table already exists, or cannot be written.
    """
    target = _target(out, table)
    if isinstance(target, Path):
        check_file(target, overwrite)
    else:
        target.check(overwrite)


def write_frame(
    frame: pd.DataFrame, out: str | Path, *, table: str | None = None, overwrite: bool = False
) -> str:
    """Write the rows of a frame, in order and without its index.

    Lists become lists in Parquet, DuckDB and PostgreSQL, and JSON elsewhere; times with a zone
    become UTC in databases.

    Args:
        frame: Columns of numbers, booleans, text, times, or lists of these.
        out: A file ending in ``.parquet``, ``.csv`` or ``.csv.gz``, or the URL of a database:
            ``postgresql://``, ``mysql://``, ``sqlite:///``, ``duckdb:///``.
        table: The table to create, if ``out`` is a database; ``schema.table`` for one in another
            schema.
        overwrite: Whether to replace an existing file or table.

    Returns:
        Where it was written, without any password.

    Raises:
        UsageError: As :func:`check_output`.
        OutputError: It cannot be written; nothing was changed.
    """
    target = _target(out, table)
    data = arrow_table(frame)
    if isinstance(target, Target):
        target.write(_database_types(data), overwrite)
        return str(target)
    with atomic_file(target, overwrite) as partial:
        _WRITERS[_suffix(target)](frame, data, partial)
    if _suffix(target) != ".parquet":
        mark_csv(target)
    return str(target)


def is_folder(out: str | Path) -> bool:
    """Whether ``out`` means a folder: one that exists, or a name without a suffix."""
    text = str(out)
    if "://" in text:
        return False
    path = user_path(text, OutputError)
    return path.is_dir() or text.endswith(("/", "\\")) or not path.suffix


def _target(out: str | Path, table: str | None) -> Path | Target:
    """The file or the table to write."""
    target = open_target(out, table) if isinstance(out, str) else None
    if target is not None:
        return target
    shown = hide_password(str(out))
    if not _suffix(out) or "://" in str(out):
        raise UsageError(
            f"{shown}: results are written to a file ending in {', '.join(_WRITERS)}, or to "
            "a database: postgresql://user@host/db, mysql://user@host/db, sqlite:///file.db, "
            "duckdb:///file.duckdb"
        )
    if table is not None:
        raise UsageError(
            f"{shown} is a file. Leave out --table, which names a table of a database."
        )
    return user_path(out, OutputError)


def _suffix(out: str | Path) -> str:
    name = Path(out).name.lower()
    suffixes = (s for s in _WRITERS if name.endswith(s) and name != s)
    return next(suffixes, "")


def arrow_table(frame: pd.DataFrame) -> Any:
    """Convert a frame to Arrow, whose types do not depend on the version of pandas; NaN is NULL."""
    import pyarrow as pa

    assert frame.columns.is_unique, "duplicate column names"
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    for name in frame.columns:
        if frame[name].dtype.kind == "O" and any(isinstance(v, uuid.UUID) for v in frame[name]):
            frame[name] = [str(v) if isinstance(v, uuid.UUID) else v for v in frame[name]]
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, OverflowError):
        # What Arrow has no type for, such as lists of mixed values, becomes JSON.
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except (pa.ArrowException, TypeError, OverflowError):
                frame[name] = [None if v is None else as_json(v) for v in frame[name]]
        return pa.Table.from_pandas(frame, preserve_index=False)


def _database_types(data: Any) -> Any:
    """Cast to the types written to databases: strings, times in microseconds and UTC."""
    import pyarrow as pa

    def target_type(kind: Any) -> Any:
        t = pa.types
        if t.is_dictionary(kind):
            return target_type(kind.value_type)
        if t.is_list(kind) or t.is_large_list(kind):
            return pa.list_(target_type(kind.value_type))
        if t.is_timestamp(kind):
            return pa.timestamp("us")
        if t.is_null(kind) or t.is_large_string(kind) or str(kind) == "string_view":
            return pa.string()
        return pa.float32() if t.is_float16(kind) else kind

    schema = pa.schema([(f.name, target_type(f.type)) for f in data.schema])
    # Nanoseconds are truncated; nothing else can be lost.
    return data.cast(schema, safe=False)


def _write_parquet(frame: pd.DataFrame, data: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(mark_parquet(data), path)


def _write_csv(frame: pd.DataFrame, data: Any, path: Path, gzipped: bool = False) -> None:
    """Write CSV: the shortest exact floats, times in ISO 8601, lists in JSON."""
    import pandas as pd
    import pyarrow as pa

    columns = {}
    quoting = csv.QUOTE_MINIMAL
    for i, field in enumerate(data.schema):
        values = data.column(i)
        if pa.types.is_timestamp(field.type):
            columns[field.name] = _iso(values, field.type)
        elif pa.types.is_nested(field.type):
            lists = [None if v is None else as_json(v) for v in values.to_pylist()]
            columns[field.name] = pd.Series(lists, dtype=object)
        else:
            columns[field.name] = frame.iloc[:, i].reset_index(drop=True)
            if any(isinstance(v, str) and "\r" in v for v in columns[field.name]):
                quoting = csv.QUOTE_NONNUMERIC  # before Python 3.13, a lone \r goes unquoted
    compression: Any = {"method": "gzip", "compresslevel": 6, "mtime": 1} if gzipped else None
    pd.DataFrame(columns).to_csv(
        path,
        index=False,
        encoding="utf-8",
        lineterminator="\n",
        quoting=quoting,
        compression=compression,
    )


def _iso(values: Any, kind: Any) -> pd.Series:
    """Format times with as many digits as the finest of them needs, at least to the second."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    times = values.cast(pa.timestamp(kind.unit)).to_numpy()
    known = ~np.isnat(times)
    unit = kind.unit
    for coarser in ("s", "ms", "us"):
        if (times[known] == times[known].astype(f"datetime64[{coarser}]")).all():
            unit = coarser
            break
    zone = "" if kind.tz is None else "Z"
    texts = np.datetime_as_string(times, unit=unit)
    return pd.Series([f"{t}{zone}" if k else None for t, k in zip(texts, known, strict=True)])


def _write_gzipped_csv(frame: pd.DataFrame, data: Any, path: Path) -> None:
    _write_csv(frame, data, path, gzipped=True)


#: By suffix; the suffixes exclude each other.
_WRITERS: dict[str, Callable[[Any, Any, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".csv.gz": _write_gzipped_csv,
}
