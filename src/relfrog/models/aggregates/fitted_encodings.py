"""Encodings of all columns, fitted on rows before the validation time, once per database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from relfrog.errors import StoreError
from relfrog.features.coded import Coded, read_cells
from relfrog.models.aggregates.encoded_columns import EncodedColumn, fit_encoded_columns
from relfrog.models.run_forms import EncodedForm
from relfrog.store.file_table import column_names
from relfrog.support.files import write_json
from relfrog.support.forms import read_json
from relfrog.training.prepared import Prepared

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fit_encodings"]

#: The most outputs of a multiclass or multilabel label history that are aggregated.
MOST_OUTPUTS = 12

#: Numbers of rows before the validation time, and encoded columns, per table.
Fitted = tuple[dict[str, int], dict[str, list[EncodedColumn]]]


class _Cells(msgspec.Struct):
    """`cells.json`: what was fitted."""

    sizes: dict[str, Annotated[int, msgspec.Meta(ge=0)]]
    cells: dict[str, list[EncodedForm]]


def fit_encodings(prepared: Prepared, history: str, outputs: int) -> Fitted:
    """Fit the encodings; from the store if another model has asked before.

    Args:
        prepared: the database.
        history: the table of the label history.
        outputs: the number of outputs of a label.
    """
    parts = prepared.opened.parts
    if parts is None:
        return _fit(prepared, history, outputs)

    def build(folder: Path) -> None:
        sizes, encodings = _fit(prepared, history, outputs)
        cells = {t: [encoded.to_json() for encoded in some] for t, some in encodings.items()}
        write_json(folder / "cells.json", {"sizes": sizes, "cells": cells})

    def load(folder: Path) -> Fitted:
        found = read_json(folder / "cells.json", _Cells, StoreError)
        return found["sizes"], {
            name: [EncodedColumn.from_json(entry) for entry in some]
            for name, some in found["cells"].items()
        }

    about = {"outputs": outputs, "history": history}
    return parts.made("cells", about, prepared.opened.db, build, load)


def _fit(prepared: Prepared, history: str, outputs: int) -> Fitted:
    encodings: dict[str, list[EncodedColumn]] = {}
    sizes: dict[str, int] = {}
    cut = prepared.graph.ticks([prepared.dataset.val_timestamp])[0]
    for name, count in prepared.graph.num_rows.items():
        known = prepared.graph.time(name)
        sizes[name] = count if known is None else int((known < cut).sum())
        if name == history:
            parts = range(min(MOST_OUTPUTS, outputs))
            encodings[name] = [
                EncodedColumn(name, "label", "label", 0.0, (), part) for part in parts
            ]
            continue
        table = prepared.db.table_dict[name]
        keys = {table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table}
        before = slice(None) if known is None else known < cut
        encodings[name] = [
            encoded
            for column in column_names(table)
            if column not in keys
            for encoded in fit_encoded_columns(
                name, str(column), _some(read_cells(table, column), before)
            )
        ]
    return sizes, encodings


def _some(values: pd.Series | Coded, rows: Any) -> pd.Series | Coded:
    return values.take(rows) if isinstance(values, Coded) else values[rows]
