"""What an explanation says, and how it names rows; the same for all models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

from relfrog.datasets.entities import key_frame
from relfrog.runs.run import Run
from relfrog.store.file_table import read_row
from relfrog.support.notebook import Bar, bars, html_table
from relfrog.support.relbench import Table

__all__ = [
    "MEASURED",
    "Explanation",
    "FeatureShare",
    "MemberShare",
    "Reason",
    "TableShare",
    "answer_words",
    "row_cells",
    "row_keys",
]

#: Columns of a row that are shown beside it, and rows and features that a notebook shows.
CELLS, SHOWN = 4, 12


@dataclass(frozen=True)
class Reason:
    """A row of the past, and what the prediction would be without it.

    Attributes:
        table: its table.
        key: its key in the source, or its row number.
        time: when it came to be; None where the table has no times.
        hops: foreign keys between it and the entity.
        effect: the prediction minus the prediction without it; for LightGBM its share of the
            contributions of features; see `Explanation.measured`.
        cells: some of its columns.
        leads_to: numbers of other reasons that it is joined to on its way to the entity; -1 is
            the entity itself.
    """

    table: str
    key: str
    time: pd.Timestamp | None
    hops: int
    effect: float
    cells: dict[str, str]
    leads_to: tuple[int, ...]


@dataclass(frozen=True)
class TableShare:
    """A table's part in a prediction.

    Attributes:
        table: its name.
        rows: how many of its rows were looked at.
        newest: the newest time among them; None where none has a time.
        effect: the prediction minus the prediction without all of them, or the contributions of
            all features that come from them; None for the entity's own table if only the entity
            itself was looked at.
    """

    table: str
    rows: int
    newest: pd.Timestamp | None
    effect: float | None


@dataclass(frozen=True)
class FeatureShare:
    """What a feature contributes to a prediction.

    Attributes:
        feature: what it is, in the words of tables and columns.
        table: the table whose rows it is computed from.
        value: its value for this entity at this time; None if it is missing.
        rows: how many rows it is computed from.
        first: the earliest of them; None where none has a time.
        last: the latest.
        effect: what it contributes.
        member: in a blend, the member that has it.
    """

    feature: str
    table: str
    value: float | None
    rows: int
    first: pd.Timestamp | None
    last: pd.Timestamp | None
    effect: float
    member: str = ""


@dataclass(frozen=True)
class MemberShare:
    """A member's part in the prediction of a blend.

    Attributes:
        name: its model.
        weight: its weight. The predictions of all members, times their weights, add up to that of
            the blend.
        prediction: its own prediction.
        base: its prediction without any feature; None where it has none.
        measured: see `Explanation.measured`.
    """

    name: str
    weight: float
    prediction: float
    base: float | None
    measured: str


#: What the effect of a row is, by `Explanation.measured`.
MEASURED = {
    "hidden": "the prediction minus the one that is made without the row, or without all rows of "
    "the table",
    "shared": "the contribution of each feature, shared evenly by the rows that it is computed "
    "from; all contributions and the base add up to the prediction",
    "blended": "the effects in the members, times their weights",
}


@dataclass(frozen=True, repr=False)
class Explanation:
    """One prediction and the rows behind it, those that carried most first.

    Attributes:
        table: the table of the entity.
        key: its key in the source.
        time: when the prediction is made.
        prediction: the number that is explained.
        answer: what this number is, in words.
        tables: all tables that were looked at.
        rows: the rows that were tried.
        looked_at: rows that the prediction could see, all in all.
        features: contributions of features, the largest first; empty for a network. Of a model
            that is no blend, they and `base` add up to the prediction.
        base: the prediction without any feature; None for a network.
        measured: what the effect of a row is, a key of `MEASURED`.
        members: of a blend, its members.
        calibrated: the prediction after calibration, as `predict` gives it; None without one.
    """

    table: str
    key: str
    time: pd.Timestamp
    prediction: float
    answer: str
    tables: tuple[TableShare, ...]
    rows: tuple[Reason, ...]
    looked_at: int
    features: tuple[FeatureShare, ...] = ()
    base: float | None = None
    measured: str = "hidden"
    members: tuple[MemberShare, ...] = ()
    calibrated: float | None = None

    def __repr__(self) -> str:
        said = f"{self.table} {self.key} at {self.time}: {self.answer} {self.prediction:.4f}"
        return f"Explanation({said}, {len(self.rows):,} of {self.looked_at:,} rows tried)"

    def _repr_html_(self) -> str:
        """The prediction, and what carried it: a picture of tables, a table of rows."""
        head = Markup("<p><b>{} {}</b> at {}: {} <b>{:.4f}</b></p>").format(
            self.table, self.key, self.time, self.answer, self.prediction
        )
        effects = [(share.table, share.effect) for share in self.tables]
        if self.features:
            effects = [(share.feature, share.effect) for share in self.features[:SHOWN]]
        shown = [
            Bar(name, effect, f"{effect:+.4f}", "first" if effect < 0 else "second")
            for name, effect in effects
            if effect is not None
        ]
        rows = [
            [row.table, row.key, row.time or "", f"{row.effect:+.4f}",
             ", ".join(f"{name} {value}" for name, value in row.cells.items())]
            for row in self.rows[:SHOWN]
        ]  # fmt: skip
        table = html_table(["table", "row", "time", "effect", "values"], rows)
        return str(head + bars(shown) + table)


def answer_words(run: Run, column: int | None) -> str:
    """What the number that is explained is, in words; of several, by its place."""
    label = run.prepared.task.target_col
    if column is None:
        what = "predicted" if run.prepared.kind == "regression" else "probability of"
        return f"{what} {label}"
    classes = run.about["labels"].get("classes")
    value = column if classes is None else classes[column]
    return f"probability of {label} {value}"


def row_keys(run: Run, tables: list[str], rows: list[int]) -> list[str]:
    """The source's names of some rows; "row 3" where it has none."""
    where, specs = run.prepared.dataset.dataset_dir, run.prepared.dataset.manifest.tables
    found = [f"row {row}" for row in rows]
    for table in set(tables):
        if table not in specs or specs[table].pkey is None:
            continue
        places = [place for place, name in enumerate(tables) if name == table]
        frame = key_frame(where, table, specs[table].pkey, [rows[place] for place in places])
        for place, values in zip(places, frame.itertuples(index=False), strict=True):
            found[place] = ", ".join(map(str, values))
    return found


def row_cells(table: Table, row: int, key: str) -> dict[str, str]:
    """Some columns of a row, those that are no keys and no time, as text."""
    keys = {table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table}
    found: dict[str, str] = {}
    for name, value in read_row(table, row).items():
        if name in keys:
            continue
        if np.ndim(value) == 0 and not pd.isna(value) and len(found) < CELLS:
            text = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
            if text != key:  # imported tables hold their key a second time, as a column
                found[str(name)] = text if len(text) <= 40 else text[:39] + "…"
    return found
