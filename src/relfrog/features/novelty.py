"""Warn of categories that appeared after a run was trained; it treats them as unknown.

Columns are fitted on rows before the validation time. Categories that appeared between then and the
training of the run are stored with it, in `unseen.json`, so that the warning is about newer ones.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from relfrog.errors import RunError
from relfrog.features.column_kinds import CategoryColumn
from relfrog.features.columns import Columns, NewColumnWarning
from relfrog.features.values import read_texts
from relfrog.support.forms import read_json

if TYPE_CHECKING:
    from relbench.base import Database

__all__ = ["FILE", "unseen_categories", "warn_of_new_categories"]

FILE = "unseen.json"
#: The most categories of a column that are stored, and that a warning names.
MOST_STORED, MOST_NAMED = 1_000, 3


def unseen_categories(columns: Columns, db: Database) -> dict[str, list[str]]:
    """The categories outside each column's vocabulary, sorted, by `table.column`."""
    found: dict[str, list[str]] = {}
    for name, table in columns.tables.items():
        for column in table.columns:
            if isinstance(column, CategoryColumn) and not column.numeric:
                values = db.table_dict[name].df[column.name].dropna()
                try:
                    values = pd.Series(values.unique(), dtype=object)
                except TypeError:  # unhashable values, such as lists, are no categories
                    continue
                texts = {text for text in read_texts(values) if text is not None}
                new = sorted(texts - set(column.categories))[:MOST_STORED]
                if new:
                    found[f"{name}.{column.name}"] = new
    return found


def warn_of_new_categories(unseen: dict[str, list[str]], folder: Path) -> None:
    """Warn of categories that appeared after a run was trained.

    Warns:
        NewColumnWarning: There are some.

    Raises:
        RunError: The file with earlier categories is damaged.
    """
    remedy = "Remove it: it is only used for warnings."
    there = (folder / FILE).is_file()
    before = read_json(folder / FILE, dict[str, list[str]], RunError, remedy) if there else {}
    for place, texts in unseen.items():
        known = before.get(place, [])
        new = [text for text in texts if text not in known] if len(known) < MOST_STORED else []
        if new:
            some = ", ".join(repr(text[:40]) for text in new[:MOST_NAMED])
            more = ", ..." if len(new) > MOST_NAMED else ""
            word = "category" if len(new) == 1 else "categories"
            text = (
                f"{place}: {len(new):,} {word} ({some}{more}) unknown to the run and "
                "ignored. Train again to use them."
            )
            warnings.warn(text, NewColumnWarning, stacklevel=3)
