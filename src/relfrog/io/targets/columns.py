"""SQL types for columns of results, and conversion of their values."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from typing import Any

__all__ = ["as_json", "column_type"]


def column_type(values: Any, dialect: str) -> tuple[Any, Callable[[Any], Any] | None]:
    """The SQLAlchemy type for an Arrow column, and how to convert its values for the driver.

    Args:
        values: The column.
        dialect: ``postgresql``, ``mysql`` or ``sqlite``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql, postgresql

    kind, t = values.type, pa.types
    native = _native_type(kind, dialect)
    if native is not None:
        # SQLite has no type for times; as ISO text they sort correctly.
        return native, str if dialect == "sqlite" and t.is_temporal(kind) else None
    if dialect == "postgresql" and (t.is_list(kind) or t.is_large_list(kind)):
        inner = (
            sa.Text() if t.is_string(kind.value_type) else _native_type(kind.value_type, dialect)
        )
        if inner is not None:
            return postgresql.ARRAY(inner), None
    convert = None if t.is_string(kind) else str if t.is_decimal(kind) else as_json
    if convert is as_json and dialect == "postgresql":
        # Passed as text, which COPY accepts.
        return postgresql.JSONB(), convert
    if dialect != "mysql":
        return sa.Text(), convert
    # MySQL's TEXT is limited to 64 kB and cannot be a key; VARCHAR can.
    longest = pc.max(pc.utf8_length(values)).as_py() if convert is None else None
    short = convert is None and (longest or 0) <= 255
    return (sa.String(255) if short else mysql.LONGTEXT()), convert


def _native_type(kind: Any, dialect: str) -> Any:
    """The type for values that need no conversion; None for text and everything else."""
    import pyarrow as pa
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    t = pa.types
    if t.is_boolean(kind):
        return sa.Boolean()
    if t.is_uint64(kind):
        return None if dialect == "sqlite" else sa.Numeric(20, 0)
    if t.is_int64(kind) or t.is_uint32(kind):
        return sa.BigInteger()
    if t.is_integer(kind):
        return sa.Integer()
    if t.is_floating(kind):
        return sa.Double()
    if t.is_timestamp(kind):
        return mysql.DATETIME(fsp=6) if dialect == "mysql" else sa.TIMESTAMP()
    if t.is_date(kind):
        return sa.Date()
    if t.is_decimal(kind) and dialect != "sqlite":  # SQLite would round them
        return sa.Numeric(kind.precision, kind.scale)
    return None


def as_json(value: Any) -> str:
    """A value as JSON: NaN as null, times as ISO 8601, binary values as hexadecimal text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_jsonable(value), ensure_ascii=False)


def _jsonable(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a NumPy array or scalar
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int) else str(value)
