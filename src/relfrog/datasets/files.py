"""A dataset's tables where they lie, with what has to be known of all of them at once.

That primary keys are row numbers, the span of each table's times and, where the files do not say
it, from when on rows are known: found once, in streams, and kept in the store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from relfrog.datasets.known_from import KnownFrom, find_known_from, recorded_keys
from relfrog.datasets.protocols import Dataset
from relfrog.datasets.table_rules import check_database
from relfrog.errors import DatasetError, SchemaError, StoreError
from relfrog.store.file_table import FileTable
from relfrog.store.parts import Store, open_store
from relfrog.store.streams import holds_moments
from relfrog.support.forms import read_json
from relfrog.support.parquet import UNREADABLE
from relfrog.support.relbench import Database

__all__ = ["database_content", "database_in_files", "inherited_in_files"]

FORMAT, FACTS = 1, "facts.json"
#: A time: ticks, their unit, and whether it has a zone.
_Moment = tuple[
    Annotated[int, msgspec.Meta(gt=-(1 << 63), lt=(1 << 63) - 1)],
    Literal["s", "ms", "us", "ns"],
    Literal["UTC"] | None,
]


class _Added(msgspec.Struct):
    column: str
    file: str
    keys: list[str]


class _Facts(msgspec.Struct):
    """What was found out about the tables of a database."""

    known_from: dict[str, _Added]
    spans: dict[str, tuple[_Moment | None, _Moment | None]]


def database_content(dataset: Dataset, store: Store) -> dict[str, Any]:
    """What a dataset's database is, for the names of parts: schema, and hashes of its files.

    Raises:
        DatasetError: A file cannot be read.
    """
    tables = {}
    for name, spec in dataset.manifest.tables.items():
        path = Path(dataset.db_dir) / f"{name}.parquet"
        try:
            digest = store.fingerprint(path)
        except OSError as error:
            raise _unreadable(dataset, error) from None
        tables[name] = [digest, spec.pkey, spec.time_col, sorted(spec.fkeys.items())]
    recorded = recorded_keys(dataset.dataset_dir)
    return {"tables": tables, "recorded": recorded is not None, "order": list(tables)}


def database_in_files(dataset: Dataset) -> Database:
    """The whole database, its rows in their files.

    Tables are as `get_db` gives them: texts are Python's, foreign keys beyond their parents are
    NULL, and rows without times of their own have a column that says from when on they are known.

    Raises:
        DatasetError: A file is missing or damaged, or a primary key does not hold row numbers.
    """
    tables, folder, facts = _opened(dataset)
    for name, added in facts["known_from"].items():
        found = tables[name].with_column(added["column"], folder / added["file"])
        tables[name] = found.with_time(added["column"])
    for name, span in facts["spans"].items():
        tables[name].span = _unpacked(span)
    return Database(dict(tables))


def inherited_in_files(dataset: Dataset) -> dict[str, list[str]]:
    """The foreign-key columns along which each table inherits times; see `inherited_keys`.

    Where the import did not record them, they were kept when the database was opened first.
    """
    recorded = recorded_keys(dataset.dataset_dir)
    if recorded is not None:
        return recorded
    _, _, facts = _opened(dataset)
    return {name: added["keys"] for name, added in facts["known_from"].items() if added["keys"]}


def _opened(dataset: Dataset) -> tuple[dict[str, FileTable], Path, dict[str, Any]]:
    """All tables, and what was found out about them, with the folder that it names files of."""
    store = open_store()
    made_of = {"format": FORMAT, "database": database_content(dataset, store)}
    try:
        tables = {
            name: FileTable(
                Path(dataset.db_dir) / f"{name}.parquet",
                dict(spec.fkeys), spec.pkey, spec.time_col,
            )
            for name, spec in dataset.manifest.tables.items()
        }  # fmt: skip
        sizes = {name: len(table) for name, table in tables.items()}
        missing = {p for t in tables.values() for p in t.fkey_col_to_pkey_table.values()} - {*sizes}
        if missing:
            raise KeyError(f"{min(missing)!r} is no table")
        unchanged = Database(dict(tables))
        tables = {name: table.with_limits(sizes) for name, table in tables.items()}
        folder, facts = store.use(
            "facts", made_of, lambda folder: _find(dataset, unchanged, tables, folder),
            lambda folder: (folder, _read_facts(folder, tables)),
            str(dataset.manifest.name),
        )  # fmt: skip
    except UNREADABLE as error:
        raise _unreadable(dataset, error) from None
    return tables, folder, facts


def _find(
    dataset: Dataset, unchanged: Database, tables: dict[str, FileTable], folder: Path
) -> None:
    """Check all tables, one column at a time, and write down what was found."""
    check_database(unchanged, str(dataset.dataset_dir))
    found = _known_from(dataset, tables)
    known = {}
    for number, (name, column) in enumerate(found.columns.items()):
        file = f"known-{number}.parquet"
        pq.write_table(pa.table({"value": found.times[name]}), folder / file, compression="zstd")
        known[name] = {"column": column, "file": file, "keys": found.keys.get(name, [])}
    spans = {}
    for name, table in tables.items():
        if name in known:
            span = found.times[name]
            ends = (span.min(), span.max()) if len(span) else None
        elif table.time_col is not None and holds_moments(table, table.time_col):
            ends = (table.min_timestamp, table.max_timestamp)
        elif table.time_col is None or not pd.api.types.is_datetime64_any_dtype(
            (times := table.column(table.time_col)).dtype
        ):
            continue  # read when somebody asks
        else:
            ends = (times.min(), times.max())
        if ends is not None:
            spans[name] = [_packed(end) for end in ends]
    facts = {"known_from": known, "spans": spans}
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _read_facts(folder: Path, tables: dict[str, FileTable]) -> dict[str, Any]:
    facts: dict[str, Any] = read_json(folder / FACTS, _Facts, StoreError)
    files = [added["file"] for added in facts["known_from"].values()]
    if not tables.keys() >= {*facts["known_from"], *facts["spans"]} or any(
        Path(file).name != file for file in files
    ):
        raise StoreError(f"{folder / FACTS} is of other tables.")
    return facts


def _known_from(dataset: Dataset, tables: dict[str, FileTable]) -> KnownFrom:
    if recorded_keys(dataset.dataset_dir) is not None:  # the files say it
        return KnownFrom()
    try:
        return find_known_from(Database(dict(tables)))
    except (SchemaError, LookupError, TypeError, ValueError) as error:
        text = " ".join(str(error).split())[:300]
        raise DatasetError(
            f"{dataset.dataset_dir}: {text} See all findings: relfrog check {dataset.dataset_dir}"
        ) from None


def _unreadable(dataset: Dataset, error: Exception) -> DatasetError:
    text = " ".join(str(error).split())[:300]
    return DatasetError(
        f"{dataset.dataset_dir}: its tables cannot be read ({text}). Restore the files, or import "
        "the database again."
    )


def _packed(moment: Any) -> list[Any] | None:
    """A time as JSON, with its unit and its zone."""
    stamp = pd.Timestamp(moment)
    if stamp is pd.NaT:
        return None
    zone = None if stamp.tz is None else "UTC"
    plain = stamp if stamp.tz is None else stamp.tz_convert("UTC").tz_localize(None)
    return [int(plain.to_datetime64().view(np.int64)), stamp.unit, zone]


def _unpacked(span: list[Any]) -> tuple[Any, Any]:
    def one(packed: list[Any] | None) -> Any:
        if packed is None:
            return pd.NaT
        ticks, unit, zone = packed
        stamp = pd.Timestamp(np.datetime64(ticks, unit))
        return stamp if zone is None else stamp.tz_localize(zone)

    return one(span[0]), one(span[1])
