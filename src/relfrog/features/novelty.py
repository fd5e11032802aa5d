"""Categories that a run has never seen: it takes them for unknown, and says so.

Columns are fitted on rows before the validation time. What came between that and the training of
the run is kept with it, in `unseen.json`, so that only what is new since then is named.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from relfrog.errors import RunError
from relfrog.features import values as reading
from relfrog.features.column_kinds import CategoryColumn
from relfrog.features.columns import Columns, NewColumnWarning
from relfrog.support.files import read_json

if TYPE_CHECKING:
    from relbench.base import Database

__all__ = ["FILE", "unseen_categories", "warn_of_new_categories"]

FILE = "unseen.json"
#: Categories of a column that are kept, and that are named, at most.
KEPT, NAMED = 1_000, 3


def unseen_categories(columns: Columns, db: Database) -> dict[str, list[str]]:
    """Per column, as `table.column`, the categories that are not in its vocabulary, sorted."""
    found: dict[str, list[str]] = {}
    for name, table in columns.tables.items():
        for column in table.columns:
            if isinstance(column, CategoryColumn) and not column.numeric:
                values = db.table_dict[name].df[column.name].dropna()
                try:
                    values = pd.Series(values.unique(), dtype=object)
                except TypeError:  # lists among them, say; they are no categories
                    continue
                texts = {text for text in reading.texts(values) if text is not None}
                new = sorted(texts - set(column.categories))[:KEPT]
                if new:
                    found[f"{name}.{column.name}"] = new
    return found


def warn_of_new_categories(unseen: dict[str, list[str]], folder: Path) -> None:
    """Name the categories that have come since a run was trained.

    Warns:
        NewColumnWarning: There are some.

    Raises:
        RunError: The file with those of before is damaged.
    """
    before: Any = read_json(folder / FILE) if (folder / FILE).is_file() else {}
    if not isinstance(before, dict) or not all(isinstance(v, list) for v in before.values()):
        raise RunError(f"{folder / FILE} is damaged. Remove it: it is only there for warnings.")
    for place, texts in unseen.items():
        known = before.get(place, [])
        new = [text for text in texts if text not in known] if len(known) < KEPT else []
        if new:
            some = ", ".join(repr(text[:40]) for text in new[:NAMED])
            more = ", ..." if len(new) > NAMED else ""
            word = "category" if len(new) == 1 else "categories"
            text = (
                f"{place}: {len(new):,} {word} ({some}{more}) unknown to the run: taken for one "
                "that it has not seen. Train again to use them."
            )
            warnings.warn(text, NewColumnWarning, stacklevel=3)
