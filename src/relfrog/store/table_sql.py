"""A table in files as a SELECT for DuckDB, with the values of its frame, of the same types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relfrog.support.duckdb import literal, path_literal, quoted
from relfrog.support.parquet import reading

if TYPE_CHECKING:
    from relfrog.store.file_table import FileTable

__all__ = ["select"]


def select(table: FileTable, rows: str) -> str:
    """A SELECT over the files of a table.

    Args:
        table: the table.
        rows: a condition on the number of a row in its file, `t.file_row_number`; may be empty.
    """
    layout = table.layout
    columns = ", ".join(f"{_shown(table, name)} AS {quoted(name)}" for name in table.columns)
    numbered = ", file_row_number = true" if rows else ""
    source = f"read_parquet({path_literal(layout.path)}{numbered}) AS t"
    for number, file in enumerate(layout.added.values()):
        source += f" POSITIONAL JOIN read_parquet({path_literal(file)}) AS a{number}"
    for number, (by, file, column) in enumerate(layout.shown.values()):
        source += (
            f" LEFT JOIN (SELECT file_row_number AS r, {quoted(column)} AS v FROM "
            f"read_parquet({path_literal(file)}, file_row_number = true)) AS s{number} "
            f"ON s{number}.r = {_own(table, by)}"
        )
    cuts = [
        f"{_own(table, cut.column)} <= TIMESTAMP {literal(str(cut.time))}" for cut in layout.cuts
    ]
    cuts += [rows] if rows else []
    return f"SELECT {columns or '1'} FROM {source}" + (
        f" WHERE {' AND '.join(cuts)}" if cuts else ""
    )


def _shown(table: FileTable, name: str) -> str:
    if name in table.layout.shown:
        return f"s{list(table.layout.shown).index(name)}.v"
    return _own(table, name)


def _own(table: FileTable, name: str) -> str:
    """The value of a column as the table itself has it."""
    move = table.layout.move
    value = _unmoved(table, name)
    return move.sql(value) if move is not None and move.column == name else value


def _unmoved(table: FileTable, name: str) -> str:
    kind = table.arrow_type(name)
    if kind is None:
        return f"a{list(table.layout.added).index(name)}.{quoted('value')}"
    place = f"t.{quoted(name)}"
    if pa.types.is_floating(kind):
        # To pandas, which shows users their tables, NaN is NULL.
        place = f"(CASE WHEN isnan({place}) THEN NULL ELSE {place} END)"
    limit = table.layout.limits.get(name)
    if pa.types.is_integer(kind):
        nulls, highest = _facts(table, name)
        beyond = limit is not None and highest is not None and highest >= limit
        if beyond:
            place = f"(CASE WHEN {place} < {limit} THEN {place} END)"
        if nulls or beyond:
            # As in a frame, where integers with gaps are floats.
            place = f"CAST({place} AS DOUBLE)"
    elif limit is not None and pa.types.is_floating(kind):
        place = f"(CASE WHEN {place} < {limit} THEN {place} END)"
    return place


def _facts(table: FileTable, name: str) -> tuple[int, int | None]:
    """How many values of a column of integers are NULL in the file, and the highest."""
    if name not in table.facts:
        table.facts[name] = _told(table, name) or _counted(table, name)
    found: tuple[int, int | None] = table.facts[name]
    return found


def _told(table: FileTable, name: str) -> tuple[int, int | None] | None:
    """What the header says of it; None if it does not."""
    metadata = table.metadata
    places = (metadata.schema.column(i) for i in range(metadata.num_columns))
    # A part of a structure has a path that could be the name of another column.
    at = next(i for i, place in enumerate(places) if place.path == place.name == name)
    nulls, highest = 0, None
    for group in range(metadata.num_row_groups):
        stats = metadata.row_group(group).column(at).statistics
        if (
            stats is None
            or not stats.has_null_count
            or not (stats.has_min_max or stats.num_values == 0)
        ):
            return None
        nulls += stats.null_count
        if stats.has_min_max:
            highest = stats.max if highest is None else max(highest, stats.max)
    return nulls, highest


def _counted(table: FileTable, name: str) -> tuple[int, int | None]:
    with reading(table.layout.path):
        values = pq.read_table(table.layout.path, columns=[name]).column(0)
        return values.null_count, pc.max(values).as_py()
