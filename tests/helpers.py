"""Small ways to make a source and to read what became of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import relbench

from relfrog import import_database
from relfrog.records import ImportResult


def sqlite(path: Path, *statements: str) -> str:
    """A SQLite file from SQL; returns its address."""
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.executescript(statement)
        connection.commit()
    finally:
        connection.close()
    return f"sqlite:///{path}"


def csv_folder(folder: Path, **tables: str | bytes) -> str:
    """A folder of CSV files from their texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in tables.items():
        raw = text if isinstance(text, bytes) else text.encode()
        (folder / f"{name}.csv").write_bytes(raw)
    return str(folder)


def imported(
    address: str, out: Path, **options: Any
) -> tuple[ImportResult, dict[str, pd.DataFrame]]:
    """Import, and load the whole database as RelBench does."""
    result = import_database(address, out, **options)
    db = relbench.load_dataset(out).get_db(upto_test_timestamp=False)
    return result, {name: table.df for name, table in db.table_dict.items()}


def said(result: ImportResult, kind: str, place: str = "") -> str:
    """What was noticed of a kind at a place."""
    return "\n".join(n.text for n in result.notices if n.kind == kind and n.place.startswith(place))
