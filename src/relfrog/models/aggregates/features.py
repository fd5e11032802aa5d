"""Seeds as rows of numbers: own and parents' columns, the calendar, and streams added up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relfrog.errors import RunError
from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.columns import Cell, days, fit_cells
from relfrog.models.aggregates.plan import Anchor, Plan, Stream, make_plan
from relfrog.models.aggregates.query import Aggregator
from relfrog.models.past_labels import label_rows
from relfrog.support.times import PER_SECOND
from relfrog.training.prepared import Prepared

__all__ = ["FeatureMaker"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

#: Outputs of a label of several classes or labels that are added up.
MOST_OUTPUTS = 12
#: Levels of a category up to which LightGBM treats it as one.
MOST_CODES = 100


class FeatureMaker:
    """Makes features of seeds.

    Args:
        prepared: the database with its label history, as tables.
        about: of the training labels.
        saved: what `to_json` gave; by default columns are judged by rows before the validation
            time.

    Raises:
        RunError: The database no longer has what was saved.
    """

    def __init__(
        self, prepared: Prepared, about: dict[str, Any], saved: dict[str, Any] | None = None
    ) -> None:
        self.prepared, self.graph = prepared, prepared.graph
        assert prepared.history is not None
        self.history = prepared.history
        self.entity: str = prepared.task.entity_table
        self._outputs = self._label_outputs(about)
        self.timed = {
            name: table.time_col
            for name, table in prepared.db.table_dict.items()
            if table.time_col is not None
        }
        if saved is None:
            self.keys = self.graph.foreign_keys
            self.sizes, self.cells = self._fit()
        else:
            self.keys, self.sizes, self.cells = self._read(saved)
            self.timed = self._read_timed(saved)
        self._arrays = {
            table: [(cell, self._encode(cell)) for cell in cells]
            for table, cells in self.cells.items()
        }
        self.plan: Plan = make_plan(
            self.entity, self.history, self.keys, self.cells, self.sizes, set(self.timed),
            prepared.config.features,
        )  # fmt: skip
        per_second = PER_SECOND[self.graph.unit]
        self.horizon = max(1, round(prepared.task.timedelta.total_seconds() * per_second))
        self._aggregator: Aggregator | None = None

    @property
    def names(self) -> list[str]:
        """What each feature is."""
        names = []
        for chain, cell in self.plan.own:
            path = "".join(f"{key.column}." for key in chain)
            names.append(f"{path}{cell.name}{' age' if cell.kind == 'moment' else ''}")
        if self.entity in self.timed:
            names.append("own age")
        if self.prepared.config.features == "all":
            names += ["month", "day of year", "weekday"]
            if self.prepared.config.staleness:
                names.append("behind")
        for anchor in self.plan.anchors:
            names += anchor.features
        return names

    @property
    def categorical(self) -> list[int]:
        """Which features are codes of few categories."""
        found = [number for number, (_, cell) in enumerate(self.plan.own) if _few(cell)]
        last = {
            f"{stream.name}: {code.name} last level"
            for anchor in self.plan.anchors
            for stream in anchor.streams
            for code in stream.codes
            if _few(code)
        }
        return found + [n for n, name in enumerate(self.names) if name in last]

    def make(self, rows: Ints, limits: Ints, times: pd.Series) -> Floats:
        """Features of seeds. Shape [seeds, features].

        Args:
            rows: rows of the entity table. Shape [seeds].
            limits: up to when each sees, in ticks of the graph. Shape [seeds].
            times: when each is predicted for. Shape [seeds].
        """
        parts = [self._static(rows, limits)]
        if self.prepared.config.features == "all":
            parts.append(self._calendar(limits, times))
        latest: dict[Stream, dict[ForeignKey, Ints]] = {}
        for anchor in self.plan.anchors:
            owners = self._owners(anchor, rows, limits, latest)
            for stream in anchor.streams:
                found, pointers = self._ask(stream, owners, limits)
                parts.append(found)
                if anchor.key is None:
                    latest[stream] = pointers
        return np.concatenate(parts, 1)

    def close(self) -> None:
        """Give the memory back."""
        if self._aggregator is not None:
            self._aggregator.close()
            self._aggregator = None

    def to_json(self) -> dict[str, Any]:
        """What must be kept to make the same features again."""
        return {
            "keys": [[key.table, key.column, key.parent] for key in self.keys],
            "sizes": self.sizes,
            "timed": self.timed,
            "cells": [cell.to_json() for cells in self.cells.values() for cell in cells],
            "names": self.names,
            "left_out": list(self.plan.left_out),
            "history": self.history,
        }

    # What there is.

    def _fit(self) -> tuple[dict[str, int], dict[str, list[Cell]]]:
        cells: dict[str, list[Cell]] = {}
        sizes: dict[str, int] = {}
        cut = self.graph.ticks([self.prepared.dataset.val_timestamp])[0]
        for name, count in self.graph.num_rows.items():
            known = self.graph.time(name)
            sizes[name] = count if known is None else int((known < cut).sum())
            if name == self.history:
                parts = range(min(MOST_OUTPUTS, self._outputs.shape[1]))
                cells[name] = [Cell(name, "label", "label", 0.0, (), part) for part in parts]
                continue
            table = self.prepared.db.table_dict[name]
            keys = {table.pkey_col, table.time_col, *table.fkey_col_to_pkey_table}
            before = slice(None) if known is None else known < cut
            cells[name] = [
                cell
                for column in table.df
                if column not in keys
                for cell in fit_cells(name, str(column), table.df[column][before])
            ]
        return sizes, cells

    def _read(
        self, saved: dict[str, Any]
    ) -> tuple[tuple[ForeignKey, ...], dict[str, int], dict[str, list[Cell]]]:
        """What was there, if it still is; what has come since is not looked at."""
        try:
            was = str(saved["history"])
            wanted = [ForeignKey(*map(str, key)) for key in saved["keys"]]
            cells = [Cell.from_json(entry) for entry in saved["cells"]]
            sizes = {str(table): int(rows) for table, rows in saved["sizes"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"the features are damaged ({error}). Train again.") from None
        known = set(self.graph.foreign_keys)
        found: dict[str, list[Cell]] = {}
        keys = [_renamed(key, was, self.history) for key in wanted]
        for key in keys:
            if key not in known:
                raise RunError(f"the foreign key {key} is no longer there: train again.")
        for cell in cells:
            table = self.history if cell.table == was else cell.table
            there = self.prepared.db.table_dict.get(table)
            if there is None or cell.column not in there.df:
                raise RunError(f"{table}.{cell.column} is no longer there: train again.")
            moved = Cell(table, cell.column, cell.kind, cell.center, cell.levels, cell.part)
            found.setdefault(table, []).append(moved)
        return tuple(keys), sizes, found

    def _read_timed(self, saved: dict[str, Any]) -> dict[str, str]:
        """The time column that each table had, if it still has it; an empty table needs none."""
        if not isinstance(was := saved.get("timed"), dict):
            return self.timed  # from before it was kept
        renamed = {str(saved["history"]): self.history}
        found = {renamed.get(str(name), str(name)): str(time) for name, time in was.items()}
        changed = [
            f"{name} (by {self.timed.get(name, 'no time')}, then by {found.get(name, 'no time')})"
            for name in self.sizes
            if self.timed.get(name) != found.get(name) and self.graph.num_rows.get(name)
        ]
        if changed:
            raise RunError(
                f"dated otherwise than when it was trained: {', '.join(changed)}. Undo that "
                "(relfrog import --time), or train again."
            )
        return found

    def _label_outputs(self, about: dict[str, Any]) -> NDArray[np.float64]:
        frame = self.prepared.db.table_dict[self.history].df
        kind = self.prepared.task.task_type.value
        return label_rows(kind, frame["label"].to_numpy(), about)

    def _encode(self, cell: Cell) -> NDArray[np.float64]:
        if cell.kind == "label":
            return self._outputs[:, cell.part] - cell.center
        return cell.encode(self.prepared.db.table_dict[cell.table].df[cell.column])

    # Parts of a row.

    def _static(self, rows: Ints, limits: Ints) -> Floats:
        """Columns of the entity and its parents, where these are visible."""
        columns = []
        now = days(limits, self.graph.unit)
        at: dict[tuple[ForeignKey, ...], Ints] = {}
        for chain, cell in self.plan.own:
            if chain not in at:
                at[chain] = self._follow(rows, limits, chain)
            values = next(v for c, v in self._arrays[cell.table] if c == cell) + cell.center
            found = np.full(len(rows), np.nan)
            some = at[chain] >= 0
            found[some] = values[at[chain][some]]
            columns.append(now - found if cell.kind == "moment" else found)
        born = self.graph.time(self.entity)
        if born is not None:
            columns.append(now - days(np.minimum(born[rows], limits), self.graph.unit))
        table = np.stack(columns, 1) if columns else np.zeros((len(rows), 0))
        return table.astype(np.float32)

    def _follow(self, rows: Ints, limits: Ints, chain: tuple[ForeignKey, ...]) -> Ints:
        """The row at the end of a chain of foreign keys; -1 for none, or one that is later."""
        at = self._visible(self.entity, rows, limits)
        for key in chain:
            up = np.where(at >= 0, self.graph.parent(key)[at].astype(np.int64), -1)
            at = self._visible(key.parent, up, limits)
        return at

    def _visible(self, table: str, rows: Ints, limits: Ints) -> Ints:
        known = self.graph.time(table)
        if known is None or not len(known):
            return rows
        return np.where((rows >= 0) & (known[rows] <= limits), rows, -1)

    def _calendar(self, limits: Ints, times: pd.Series) -> Floats:
        when = pd.to_datetime(pd.Series(times)).dt
        columns = [when.month, when.day_of_year, when.day_of_week]
        found = [np.asarray(part, np.float32) for part in columns]
        if self.prepared.config.staleness:
            found.append(((self.graph.ticks(times) - limits) / self.horizon).astype(np.float32))
        return np.stack(found, 1)

    def _owners(
        self, anchor: Anchor, rows: Ints, limits: Ints,
        latest: dict[Stream, dict[ForeignKey, Ints]],
    ) -> Ints:  # fmt: skip
        if anchor.key is None:
            return rows if anchor.table == self.entity else np.zeros_like(rows)
        if anchor.last is None:
            return self._follow(rows, limits, (anchor.key,))
        return self._visible(anchor.table, latest[anchor.last][anchor.key], limits)

    def _ask(
        self, stream: Stream, owners: Ints, limits: Ints
    ) -> tuple[Floats, dict[ForeignKey, Ints]]:
        if self._aggregator is None:
            self._aggregator = Aggregator(self.graph, self._arrays, self.horizon)
        return self._aggregator.ask(stream, owners, limits)


def _few(cell: Cell) -> bool:
    return cell.kind == "category" and len(cell.levels) < MOST_CODES


def _renamed(key: ForeignKey, was: str, now: str) -> ForeignKey:
    """The label history may have another name where a table of its name has come."""
    return ForeignKey(now, key.column, key.parent) if key.table == was else key
