"""Convert rows of Python values to Arrow, for drivers that cannot do so themselves."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from relfrog.io.sources.base import Kind, ReadAgain, SourceColumn, SourceTable

__all__ = ["cast_batch", "change_kind", "column_array"]

#: The kind to try next when values do not fit.
_WIDER: dict[Kind, Kind] = {
    "boolean": "integer",
    "time": "integer",
    "integer": "number",
    "number": "untyped",
    "seconds": "untyped",
}


def column_array(values: Sequence[Any], column: SourceColumn, table: SourceTable) -> Any:
    """Convert the values of one column to Arrow, in the representation of its kind.

    Raises:
        ReadAgain: The values need a wider kind.
    """
    import pyarrow as pa

    try:
        return _CONVERSIONS[column.kind](values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        kinds = {type(v) for v in values}
        wider = _WIDER.get(column.kind, "untyped")
        if bytes in kinds:
            wider = "blob"
        elif str in kinds:
            wider = "untyped"
        raise ReadAgain(change_kind(table, column, wider)) from None


def change_kind(table: SourceTable, column: SourceColumn, kind: Kind) -> SourceTable:
    """The table with another kind for a column; an undeclared blob is named as such."""
    if kind == "blob":
        mixed = replace(column, kind="blob", declared=f"{column.declared} with binary values")
        columns = tuple(mixed if c.name == column.name else c for c in table.columns)
        return replace(table, columns=columns)
    return table.with_kind(column.name, kind)


def cast_batch(batch: Any, columns: Sequence[SourceColumn], table: SourceTable) -> Any:
    """Cast a batch, whose types the driver chose, to the representations of the kinds.

    Raises:
        ReadAgain: A column needs another kind.
        ValueError: The batch holds text that is not UTF-8, or numbers that the driver rounded.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        return batch
    arrays = []
    for values, column in zip(batch.columns, columns, strict=True):
        wanted: Kind = column.kind
        if pa.types.is_binary(values.type):
            wanted = "blob"
        elif pa.types.is_string(values.type):
            values.validate(full=True)
            if column.kind not in ("text", "untyped", "decimal", "time", "hex"):
                raise ValueError("numbers that the driver wrote as text are rounded")
        elif pa.types.is_floating(values.type):
            wanted = "number" if column.kind != "seconds" else column.kind
        elif values.null_count == len(values):
            pass
        elif column.kind == "boolean":
            known = pc.all(pc.is_in(values, pa.array([0, 1, None], pa.int64()))).as_py()
            wanted = "boolean" if known else "integer"
        elif column.kind == "time":
            wanted = "integer"
        if wanted != column.kind:
            raise ReadAgain(change_kind(table, column, wanted))
        arrays.append(values if column.kind == "time" else values.cast(_ARROW[column.kind]))
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])


#: The Arrow type that represents a kind.
_ARROW: dict[Kind, str] = {
    "integer": "int64",
    "number": "float64",
    "seconds": "float64",
    "boolean": "bool",
    "decimal": "string",
    "text": "string",
    "untyped": "string",
    "list": "string",
    "hex": "string",
}


def _integers(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.int64())


def _numbers(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowException, TypeError):
        if any(isinstance(v, str | bytes) for v in values):
            raise
        return pa.array([None if v is None else float(v) for v in values], pa.float64())


def _booleans(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    known = {None: None, 0: False, 1: True, b"\x00": False, b"\x01": True}
    if any(v not in known for v in set(values)):
        raise ValueError
    return pa.array([known[v] for v in values], pa.bool_())


def _times(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    present = {type(v) for v in values} - {type(None)}
    if present == {str}:
        return pa.array(values, pa.string())
    if str in present and present & {dt.datetime, dt.date}:
        # MySQL's driver returns dates that do not exist (2020-00-00) as text.
        return _times([None if isinstance(v, str) else v for v in values])
    if not present <= {dt.datetime, dt.date}:
        raise ValueError
    return pa.array(values, pa.timestamp("us"))


def _seconds(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    def number(value: Any) -> float | None:
        if isinstance(value, dt.timedelta):
            return value.total_seconds()
        if isinstance(value, dt.time):
            return dt.timedelta(
                hours=value.hour,
                minutes=value.minute,
                seconds=value.second,
                microseconds=value.microsecond,
            ).total_seconds()
        if isinstance(value, str):
            hours, minutes, *rest = value.split(":")
            return int(hours) * 3600.0 + int(minutes) * 60 + (float(rest[0]) if rest else 0.0)
        return None if value is None else float(value)

    return pa.array([number(v) for v in values], pa.float64())


def _texts(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    if any(v is not None and not isinstance(v, str) for v in values):
        return pa.array([_as_text(v) for v in values], pa.string())
    return pa.array(values, pa.string())


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return ",".join(sorted(str(v) for v in value))
    return str(value)


_CONVERSIONS: dict[Kind, Callable[[Sequence[Any]], Any]] = {
    "integer": _integers,
    "decimal": _texts,
    "number": _numbers,
    "boolean": _booleans,
    "time": _times,
    "seconds": _seconds,
    "text": _texts,
    "untyped": _texts,
    "list": _texts,
    "hex": _texts,
}
