"""Writing a frame of results: into a file or into a table of a database, whole or not at all."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relfrog.errors import UsageError
from relfrog.io.secrets import hide_password
from relfrog.io.targets import Target, open_target
from relfrog.io.targets.columns import as_json
from relfrog.support.files import appearing_file, refuse_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_output", "write_frame"]


def check_output(out: str | Path, table: str | None = None, overwrite: bool = False) -> None:
    """Refuse, before any work is done, what `write_frame` would refuse after it.

    Raises:
        UsageError: ``out`` is neither a file of a known kind nor a database, or ``table`` does not
            go with it.
        OutputError: Something is in the way, or the place cannot be reached or written.
    """
    target = _target(out, table)
    if isinstance(target, Path):
        refuse_file(target, overwrite)
    else:
        target.check(overwrite)


def write_frame(
    frame: pd.DataFrame, out: str | Path, *, table: str | None = None, overwrite: bool = False
) -> str:
    """Write the rows of a frame, in their order and without its index.

    Lists become lists in Parquet, DuckDB and PostgreSQL, and JSON elsewhere; times with a zone
    become UTC in databases.

    Args:
        frame: Columns of numbers, truth values, text, times, or lists of them.
        out: A file ending in ``.parquet``, ``.csv`` or ``.csv.gz``, or the URL of a database:
            ``postgresql://``, ``mysql://``, ``sqlite:///``, ``duckdb:///``.
        table: The table to make there, if ``out`` is a database; ``schema.table`` for one in
            another schema.
        overwrite: Whether to replace a file or a table that is there already.

    Returns:
        Where it is now, as it may be shown.

    Raises:
        UsageError: As `check_output`.
        OutputError: It cannot be written; nothing has changed then.
    """
    target = _target(out, table)
    data = _arrow(frame)
    if isinstance(target, Target):
        target.write(_settled(data), overwrite)
        return str(target)
    with appearing_file(target, overwrite) as partial:
        _WRITERS[_ending(target)](frame, data, partial)
    return str(target)


def _target(out: str | Path, table: str | None) -> Path | Target:
    """The file or the table that is meant."""
    target = open_target(out, table) if isinstance(out, str) else None
    if target is not None:
        return target
    shown = hide_password(str(out))
    if not _ending(out) or "://" in str(out):
        raise UsageError(
            f"{shown}: results go into a file ending in {', '.join(_WRITERS)}, or into a database: "
            "postgresql://user@host/db, mysql://user@host/db, sqlite:///file.db, "
            "duckdb:///file.duckdb"
        )
    if table is not None:
        raise UsageError(f"{shown} is a file; a table has a name in a database only.")
    return Path(out).expanduser()


def _ending(out: str | Path) -> str:
    name = Path(out).name.lower()
    endings = (e for e in _WRITERS if name.endswith(e) and name != e)
    return next(endings, "")


def _arrow(frame: pd.DataFrame) -> Any:
    """The frame in Arrow's types, which do not depend on the version of pandas; NaN is NULL."""
    import pyarrow as pa

    assert frame.columns.is_unique, "columns of one name"
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    for name in frame.columns:
        if frame[name].dtype.kind == "O" and any(isinstance(v, uuid.UUID) for v in frame[name]):
            frame[name] = [str(v) if isinstance(v, uuid.UUID) else v for v in frame[name]]
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, OverflowError):
        # Lists of mixed values, say, are JSON everywhere.
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except (pa.ArrowException, TypeError, OverflowError):
                frame[name] = [None if v is None else as_json(v) for v in frame[name]]
        return pa.Table.from_pandas(frame, preserve_index=False)


def _settled(data: Any) -> Any:
    """The few types that go into a database: plain text, times to the microsecond in UTC."""
    import pyarrow as pa

    def plain(kind: Any) -> Any:
        t = pa.types
        if t.is_dictionary(kind):
            return plain(kind.value_type)
        if t.is_list(kind) or t.is_large_list(kind):
            return pa.list_(plain(kind.value_type))
        if t.is_timestamp(kind):
            return pa.timestamp("us")
        if t.is_null(kind) or t.is_large_string(kind) or str(kind) == "string_view":
            return pa.string()
        return pa.float32() if t.is_float16(kind) else kind

    schema = pa.schema([(f.name, plain(f.type)) for f in data.schema])
    # Nanoseconds are cut off; nothing else can get lost.
    return data.cast(schema, safe=False)


def _write_parquet(frame: pd.DataFrame, data: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(data, path)


def _write_csv(frame: pd.DataFrame, data: Any, path: Path, gzipped: bool = False) -> None:
    """Floats as short as they can be read back exactly, times in ISO 8601, lists in JSON."""
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
    """Times to the second, or as much finer as they need."""
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


#: The longest ending that fits counts.
_WRITERS: dict[str, Callable[[Any, Any, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".csv.gz": _write_gzipped_csv,
}
