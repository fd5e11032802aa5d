"""What if: predictions under hypothetical values, beside those without them.

A value of the entity's own table replaces the value of its row. Values of a table that refers to
the entity make an event: a new row of that table, at the time of the prediction. All entities that
are asked about change at once; ask about one alone to change nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from relfrog.datasets.entities import read_entities
from relfrog.errors import RelFrogError, RelFrogWarning, UsageError, unknown
from relfrog.store.file_table import column_names, read_column
from relfrog.store.overlay import OverlayTable, read_rows
from relfrog.support.relbench import Database, Table
from relfrog.support.text import free_name, split_place
from relfrog.training.altered_task import AlteredTask
from relfrog.training.prepared import Prepared
from relfrog.training.seeds import Seeds

if TYPE_CHECKING:
    from relfrog.runs.run import Run

__all__ = ["beside", "supposed_run"]


@dataclass(frozen=True)
class _Supposition:
    """Hypothetical values of one table, as the dataset stores them."""

    table: str
    values: dict[str, Any]


def supposed_run(run: Run, suppose: Mapping[str, Any], seeds: Seeds) -> Run:
    """The same run on a database in which hypothetical values hold for the entities of seeds.

    Args:
        run: The run.
        suppose: Values by ``table.column``; of a table alone, with any value, an event of which
            nothing else is known.
        seeds: Whom it is about, and when.

    Raises:
        UsageError: There is no such column, it cannot be supposed, or a value does not fit.
    """
    prepared = run.prepared
    found = _read(prepared, suppose)
    entity = prepared.task.entity_table
    changes: list[Callable[[dict[str, Table]], None]] = []
    for part in found:
        if part.table == entity:
            changes.append(_own_values(part, np.asarray(seeds.rows)))
        else:
            changes.append(_events(prepared, part, seeds))

    def change(db: Database) -> Database:
        tables = dict(db.table_dict)
        for one in changes:
            one(tables)
        return Database(tables)

    return run.on(AlteredTask(prepared.opened, change))


def beside(as_is: pd.DataFrame, supposed: pd.DataFrame, ranks: bool) -> pd.DataFrame:
    """Predictions with and without what is supposed, in one table.

    Lists stand below each other, with a column `scenario`; everything else beside each other, with
    columns that end in ``_supposed``, and of a number the `difference`.
    """
    taken = {str(name).lower() for name in as_is}
    if ranks:
        name = free_name("scenario", taken)
        parts = [frame.assign(**{name: word})
                 for frame, word in ((as_is, "as is"), (supposed, "supposed"))]  # fmt: skip
        return pd.concat(parts, ignore_index=True)
    frame = as_is.copy()
    for column in list(as_is)[list(as_is).index("time") + 1 :]:
        frame[free_name(f"{column}_supposed", taken)] = supposed[column].to_numpy()
    if "prediction" in as_is and as_is["prediction"].dtype.kind in "fiu":
        difference = supposed["prediction"].to_numpy() - as_is["prediction"].to_numpy()
        frame[free_name("difference", taken)] = difference
    return frame


def _read(prepared: Prepared, suppose: Mapping[str, Any]) -> list[_Supposition]:
    """Values by table, as the dataset stores them."""
    db, task = prepared.opened.db.table_dict, prepared.task
    hidden = {tuple(pair) for pair in task.hidden_columns()}
    found: dict[str, dict[str, Any]] = {}
    for name, value in suppose.items():
        table, column = _split(name, db)
        if column is None:
            if table == task.entity_table:
                raise UsageError(f"{name}: say which column of {table}, and its value")
            found.setdefault(table, {})
            continue
        old = db[table]
        if column not in column_names(old):
            raise UsageError(str(unknown(f"column in table {table}", column, column_names(old))))
        if column in (old.pkey_col, old.time_col):
            raise UsageError(f"{name} says which row it is, or since when; it cannot be supposed")
        if (table, column) in hidden:
            raise UsageError(f"the model does not see {name}: the task hides it")
        found.setdefault(table, {})[column] = _stored(prepared, old, table, column, value)
    if not found:
        raise UsageError("nothing is supposed: give values such as customers.plan=premium")
    return [_Supposition(table, values) for table, values in found.items()]


def _split(name: str, tables: Mapping[str, Table]) -> tuple[str, str | None]:
    if name in tables:
        return name, None
    table, column = split_place(name, tables)
    if table not in tables:
        raise UsageError(str(unknown("table", table or name, tables)))
    return table, column


def _stored(prepared: Prepared, old: Table, table: str, column: str, value: Any) -> Any:
    """A value as a column stores it: keys as row numbers, text as numbers or times."""
    parent = old.fkey_col_to_pkey_table.get(column)
    if parent is not None:
        spec = prepared.dataset.manifest.tables[parent]
        count = len(prepared.opened.db.table_dict[parent])
        try:
            asked = read_entities(prepared.dataset.dataset_dir, parent, spec.pkey, count, [value])
        except RelFrogError as error:
            raise UsageError(f"{table}.{column}: {error}") from None
        return int(asked.rows[0])
    values = read_column(old, column)
    types = pd.api.types
    try:
        if types.is_bool_dtype(values.dtype):
            return _boolean(value)
        if types.is_numeric_dtype(values.dtype):
            number = float(value)
            return int(number) if types.is_integer_dtype(values.dtype) else number
        if types.is_datetime64_any_dtype(values.dtype):
            return pd.Timestamp(value)
    except (TypeError, ValueError, OverflowError):
        kind = "a time" if types.is_datetime64_any_dtype(values.dtype) else "a number"
        kind = "true or false" if types.is_bool_dtype(values.dtype) else kind
        raise UsageError(f"{table}.{column} is {kind}, not {value!r}") from None
    present = values.dropna()
    if len(present) and not isinstance(present.iloc[0], str):
        raise UsageError(f"{table}.{column} holds {type(present.iloc[0]).__name__}s; no value of "
                         "it can be supposed")  # fmt: skip
    if not (present == str(value)).any():
        warnings.warn(
            f"no row of {table} has {column} = {value!r}: the model has not learned what it means",
            RelFrogWarning, stacklevel=5,
        )  # fmt: skip
    return str(value)


def _boolean(value: Any) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    return known[str(value).lower()] if str(value).lower() in known else bool(float("x"))


def _own_values(part: _Supposition, rows: Any) -> Callable[[dict[str, Table]], None]:
    def change(tables: dict[str, Table]) -> None:
        if part.table not in tables:
            return  # the label history alone is changed, too
        old, some = tables[part.table], np.unique(rows)
        frame = read_rows(old, some)
        for column, value in part.values.items():
            frame[column] = _repeated(value, len(frame), frame[column])
        tables[part.table] = OverlayTable.replaced(old, some, frame)

    return change


def _events(
    prepared: Prepared, part: _Supposition, seeds: Seeds
) -> Callable[[dict[str, Table]], None]:
    """Add an event for each entity, at its time."""
    entity = prepared.task.entity_table
    old = prepared.opened.db.table_dict[part.table]
    keys = [c for c, parent in old.fkey_col_to_pkey_table.items() if parent == entity]
    free = [column for column in keys if column not in part.values]
    if not keys:
        raise UsageError(
            f"a row of {part.table} does not refer to {entity}: suppose values of {entity} itself, "
            f"or of a table that refers to it"
        )
    if len(free) != 1:
        raise UsageError(
            f"{part.table} refers to {entity} by {', '.join(keys)}: leave just one of them free, "
            f"for {entity} itself, and set the others"
        )
    if old.time_col is None:
        raise UsageError(f"{part.table} has no times, so its rows are no events")
    times = seeds.times

    def change(tables: dict[str, Table]) -> None:
        if part.table not in tables:
            return
        table, count = tables[part.table], len(seeds.rows)
        # Missing values in the types that the columns have.
        new = read_rows(table, np.arange(min(1, len(table)))).iloc[:0].reindex(range(count))
        filled: dict[str, Any] = {**part.values, free[0]: np.asarray(seeds.rows)}
        if table.pkey_col is not None:
            filled[table.pkey_col] = np.arange(len(table), len(table) + count)
        for column, value in filled.items():
            new[column] = value
        kind = read_column(table, str(table.time_col)).dtype
        new[table.time_col] = pd.Series(times).astype(kind)
        tables[part.table] = OverlayTable.extended(table, new)

    return change


def _repeated(value: Any, count: int, like: pd.Series) -> pd.Series:
    """A value as a column of the type of another, if that can hold it."""
    found = pd.Series([value] * count)
    same = like.dtype.kind == found.dtype.kind or like.dtype.kind == "f"
    return found.astype(like.dtype) if same else found
