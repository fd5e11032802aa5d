"""Write the tables: rows in order of time, keys as row numbers, values in a few types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relfrog.errors import SchemaError
from relfrog.importing.column_types import type_sql
from relfrog.importing.key_plan import ImportPlan
from relfrog.importing.layout import OutputColumn, SortedTable, output_columns
from relfrog.importing.mapping import Notice
from relfrog.importing.pointers import parent_rows
from relfrog.importing.staging import StagedTable, Staging
from relfrog.support.times import MISSING

__all__ = ["WrittenTable", "write_tables"]

#: Rows whose times are copied to the staging database at a time.
_AT_ONCE = 10_000_000


@dataclass
class WrittenTable:
    """A table of the dataset folder.

    Attributes:
        name: Its name in the dataset.
        source: Its name in the source.
        rows: Its number of rows.
        pkey: The primary-key column, which holds row numbers; None if there is none.
        time_col: The time column.
        fkeys: The parent table of each foreign-key column.
        sources: The origin of each column: (source columns, role).
        key: The source's key columns, whose values are in ``keys/<name>.parquet``.
        inherited_from: The foreign-key columns along which its rows inherit times.
    """

    name: str
    source: str
    rows: int
    pkey: str | None = None
    time_col: str | None = None
    fkeys: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    inherited_from: list[str] = field(default_factory=list)


def write_tables(
    staging: Staging,
    plan: ImportPlan,
    folder: Path,
    on_duplicate: str,
    advance: Callable[[str], None],
) -> list[WrittenTable]:
    """Write ``db/*.parquet`` and ``keys/*.parquet``.

    Args:
        staging: The staging database.
        plan: The plan; notices are added to it.
        folder: The dataset folder.
        on_duplicate: ``error`` or ``first``.
        advance: Called with the name of each table that is finished.

    Raises:
        SchemaError: A primary key has duplicates and ``on_duplicate`` is ``error``.
    """
    mapping = plan.mapping
    if on_duplicate == "error":
        _check_duplicates(plan)
    (folder / "db").mkdir()
    (folder / "keys").mkdir()
    first = _first_time(staging, plan)
    ordered = {name: _order(staging, plan, name) for name in mapping.tables}
    referred = {k.parent for t in mapping.tables.values() for k in t.used_keys()}
    written = []
    for name in mapping.tables:
        table = _write(staging, plan, ordered, name, name in referred, first, folder)
        written.append(table)
        advance(name)
    return written


def _check_duplicates(plan: ImportPlan) -> None:
    found = []
    for name, check in plan.checks.items():
        if check.duplicates:
            columns = ", ".join(plan.mapping.tables[name].primary_key)
            shown = "; ".join(f"{key} ({times} times)" for key, times in check.examples)
            found.append(f"{name}.{columns}: {check.duplicates:,} duplicate keys, such as {shown}.")
    if found:
        remedy = "Keep the first row of each with --on-duplicate first, or choose another key: --pk"
        raise SchemaError(" ".join([*found, remedy]))


def _first_time(staging: Staging, plan: ImportPlan) -> int | None:
    """The earliest time of all tables, in microseconds since 1970."""
    times: list[int | None] = []
    for timed in map(plan.time_of, plan.mapping.tables):
        if timed is not None:
            times += staging.row(f"SELECT epoch_us(min({timed[1]})) FROM {timed[0]}")
    return min((t for t in times if t is not None), default=None)


def _order(staging: Staging, plan: ImportPlan, name: str) -> SortedTable:
    """Sort a table by time, then by key, then by position in the source."""
    typed, mapping = plan.typed[name], plan.mapping.tables[name]
    staged = typed.staged
    timed = plan.time_of(name)
    by = [] if timed is None else [timed[1]]
    tables = staged.sql
    if name in plan.known:
        by = ["known"]
        tables += f" JOIN {_write_known(staging, plan, name)} ON place = {staged.sql}.rowid"
    by += [type_sql(typed.column(c), typed.types[c]) for c in mapping.primary_key]
    keep = ""
    rows = staged.rows
    if mapping.primary_key and plan.checks[name].duplicates:
        keys = [type_sql(typed.column(c), typed.types[c]) for c in mapping.primary_key]
        listed = ", ".join(keys)
        absent = " OR ".join(f"({c}) IS NULL" for c in keys)
        keep = (
            f"WHERE ({absent}) OR {staged.sql}.rowid IN "
            f"(SELECT min(rowid) FROM {staged.sql} GROUP BY {listed})"
        )
        dropped = plan.checks[name].duplicates
        rows -= dropped
        text = f"{dropped:,} rows with a duplicate key are left out"
        plan.notices.append(Notice("left out", name, ", ".join(mapping.primary_key), text))
    if not keep and name not in plan.known and (not by or _is_ordered(staging, staged, by)):
        return SortedTable(typed, mapping, staged.sql, rows)
    by = [f"{expression} NULLS FIRST" for expression in by]
    order = ", ".join([*by, f"{staged.sql}.rowid"])
    sql = f"s{staged.sql[1:]}"
    staging.rows(f"CREATE TABLE {sql} AS SELECT * FROM {tables} {keep} ORDER BY {order}")
    staging.rows(f"DROP TABLE {staged.sql}")
    return SortedTable(typed, mapping, sql, rows)


def _write_known(staging: Staging, plan: ImportPlan, name: str) -> str:
    """Make a table of the staging database: from when on each row is known; its name."""
    import numpy as np
    import pyarrow as pa

    known = plan.known[name]
    sql = f"k{plan.typed[name].staged.sql[1:]}"
    staging.rows(f"CREATE TABLE {sql} (place BIGINT, known TIMESTAMP)")
    for first in range(0, len(known), _AT_ONCE):
        part = np.asarray(known[first : first + _AT_ONCE])
        times = pa.array(part, pa.timestamp("us"), mask=part == MISSING)
        arrived = pa.table({"place": np.arange(first, first + len(part)), "known": times})
        staging.connection.register("arrived", arrived)
        try:
            staging.rows(f"INSERT INTO {sql} SELECT * FROM arrived")
        finally:
            staging.connection.unregister("arrived")
    return sql


def _is_ordered(staging: Staging, staged: StagedTable, by: list[str]) -> bool:
    """Whether the rows are sorted already: much cheaper than sorting them again."""
    import numpy as np

    expressions = ", ".join(f"{expression} AS b{i}" for i, expression in enumerate(by))
    last: list[Any] | None = None
    for batch in staging.ordered_batches(f"SELECT {expressions} FROM {staged.sql}"):
        columns = []
        for column in batch.columns:
            if column.null_count or not _is_number(column.type):
                return False
            columns.append(np.asarray(column.cast("int64", safe=False)))
        if not len(columns[0]):
            continue
        if last is not None:
            columns = [np.concatenate(([b], c)) for b, c in zip(last, columns, strict=True)]
        last = [c[-1] for c in columns]
        rising = np.zeros(len(columns[0]) - 1, dtype=bool)
        equal = np.ones(len(columns[0]) - 1, dtype=bool)
        for column in columns:
            rising |= equal & (column[1:] > column[:-1])
            equal &= column[1:] == column[:-1]
        if not (rising | equal).all():
            return False
    return True


def _is_number(arrow_type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(arrow_type) or pa.types.is_timestamp(arrow_type))


def _write(
    staging: Staging,
    plan: ImportPlan,
    ordered: dict[str, SortedTable],
    name: str,
    referred: bool,
    first: int | None,
    folder: Path,
) -> WrittenTable:
    """Write one table, and the source's key values beside it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = ordered[name]
    layout = output_columns(staging, plan, table, referred, first)
    result = WrittenTable(table.mapping.name, name, table.rows)
    for column in layout:
        result.sources[column.name] = (column.sources, column.role)
        if column.role == "pkey":
            result.pkey, result.key = column.name, column.sources
        elif column.role == "time":
            result.time_col = column.name
        elif column.key is not None:
            result.fkeys[column.name] = plan.mapping.tables[column.key.parent].name
            if column.key in table.mapping.time_keys:
                result.inherited_from.append(column.name)
        if column.role in ("value", "time") and column.sources not in ((), (column.name,)):
            text = f"column named {column.name} in the dataset"
            plan.notices.append(Notice("changed", name, column.sources[0], text))
    parents = {
        c.name: parent_rows(
            staging,
            (table.typed, table.sql, table.rows),
            (ordered[c.key.parent].typed, ordered[c.key.parent].sql),
            c.key,
        )
        for c in layout
        if c.key is not None
    }
    schema = _schema(layout)
    read = [c for c in layout if c.sql]
    selected = ", ".join(["rowid", *(f"{c.sql} AS v{i}" for i, c in enumerate(read))])
    start = 0
    with pq.ParquetWriter(folder / "db" / f"{result.name}.parquet", schema) as writer:
        for batch in staging.ordered_batches(f"SELECT {selected} FROM {table.sql}"):
            numbers = np.asarray(batch.column(0))
            stop = start + len(numbers)
            assert (numbers[0], numbers[-1]) == (start, stop - 1), "rows out of order"
            values = dict(zip((c.name for c in read), batch.columns[1:], strict=True))
            arrays = []
            for column, target in zip(layout, schema, strict=True):
                if column.role == "pkey":
                    array = pa.array(np.arange(start, stop))
                elif column.role == "fkey":
                    part = parents[column.name][start:stop]
                    array = pa.array(part, mask=part < 0)
                else:
                    array = values[column.name].cast(target.type)
                arrays.append(array)
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            start = stop
    for column in layout:
        _count_losses(staging, plan, table, column)
    if result.key:
        _write_keys(staging, table, result, folder)
    return result


def _schema(layout: list[OutputColumn]) -> Any:
    """The Parquet schema; foreign keys load as pandas' ``Int64``, which has NULLs."""
    import json

    import pyarrow as pa

    types = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "time": pa.timestamp("us"),
        "text": pa.string(),
        "list": pa.list_(pa.string()),
    }
    fields = [pa.field(c.name, types[c.kind] if c.kind else pa.int64()) for c in layout]
    nullable = [
        {
            "name": c.name,
            "field_name": c.name,
            "pandas_type": "int64",
            "numpy_type": "Int64",
            "metadata": None,
        }
        for c in layout
        if c.role == "fkey"
    ]
    pandas = {"index_columns": [], "column_indexes": [], "columns": nullable, "creator": {}}
    return pa.schema(fields, metadata={"pandas": json.dumps(pandas)} if nullable else None)


def _count_losses(
    staging: Staging, plan: ImportPlan, table: SortedTable, column: OutputColumn
) -> None:
    """Report how many values a type chosen by the user could not represent."""
    if column.role != "value" or not column.sources:
        return
    if table.mapping.columns[column.sources[0]].reason != "chosen":
        return
    staged = table.typed.column(column.sources[0])
    (lost,) = staging.row(f"SELECT count({staged.sql}) - count({column.sql}) FROM {table.sql}")
    if lost > staged.facts.infinite:
        text = f"{lost:,} values cannot be read as {column.kind} and become NULL"
        plan.notices.append(Notice("changed", table.typed.name, column.sources[0], text))


def _write_keys(staging: Staging, table: SortedTable, result: WrittenTable, folder: Path) -> None:
    """Write the source's key values, row by row; predictions are returned with them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chosen = [(c, table.typed.types[c]) for c in result.key]
    expressions = [type_sql(table.typed.column(c), t) for c, t in chosen]
    selected = ", ".join(f"{e} AS k{i}" for i, e in enumerate(expressions))
    writer = None
    path = folder / "keys" / f"{result.name}.parquet"
    for batch in staging.ordered_batches(f"SELECT {selected} FROM {table.sql}"):
        batch = batch.rename_columns(list(result.key))
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        pq.write_table(pa.table({c: pa.array([], pa.string()) for c in result.key}), path)
    else:
        writer.close()
