"""Features of seeds: columns of the entity and its parents, the calendar, and aggregates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relfrog.features.coded import read_cells
from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.encoded_columns import EncodedColumn, days
from relfrog.models.aggregates.encoded_tables import (
    EncodedTables,
    Trail,
    load_features,
    save_features,
)
from relfrog.models.aggregates.feature_plan import plan_features
from relfrog.models.aggregates.fitted_encodings import fit_encodings
from relfrog.models.aggregates.query import Aggregator
from relfrog.models.aggregates.saved_features import SavedFeatures
from relfrog.models.aggregates.streams import Anchor, FeaturePlan, Stream
from relfrog.models.past_labels import label_rows
from relfrog.store.file_table import read_column
from relfrog.store.overlay import OverlayTable
from relfrog.support.times import MISSING, PER_SECOND, Moments
from relfrog.training.prepared import Prepared

__all__ = ["FeatureMaker"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Elsewhere: TypeAlias = Callable[
    ["FeatureMaker", Ints, Ints, Moments], "tuple[Floats, list[Trail]] | None"
]

#: Categories with fewer levels than this are categorical features of LightGBM.
MOST_CODES = 100
#: Bytes of features that are remembered.
REMEMBERED = 128 * 2**20


class FeatureMaker:
    """Computes the features of seeds.

    Args:
        prepared: the database with its label history, as tables.
        about: description of the training labels.
        saved: the result of `to_json`; by default encodings are fitted on rows before the
            validation time.
        tried: whether to add the families of features that backtests have to speak for.

    Raises:
        RunError: A saved column or foreign key is no longer in the database.
    """

    def __init__(
        self, prepared: Prepared, about: dict[str, Any], saved: dict[str, Any] | None = None,
        *, tried: bool = False,
    ) -> None:  # fmt: skip
        self.prepared, self.graph = prepared, prepared.graph
        assert prepared.history is not None
        self.history = prepared.history
        self.entity: str = prepared.task.entity_table
        self._about, self._outputs = about, self._label_outputs(about)
        self.timed = {
            name: table.time_col
            for name, table in prepared.db.table_dict.items()
            if table.time_col is not None
        }
        if saved is None:
            self.keys = self.graph.foreign_keys
            self.sizes, self.encodings = fit_encodings(
                prepared, self.history, self._outputs.shape[1]
            )
        else:
            before = SavedFeatures(saved, prepared, self.history, self._outputs.shape[1])
            self.keys, self.sizes, self.encodings = before.keys, before.sizes, before.encodings
            self.timed = before.check_times(self.timed)
        self._arrays = EncodedTables(self.encodings, self._encode)
        self.tried = tried if saved is None else bool(saved.get("tried"))
        self.dropped: tuple[str, ...] = ()
        self.plan: FeaturePlan = plan_features(
            self.entity, self.history, self.keys, self.encodings, self.sizes, set(self.timed),
            prepared.config.features, self.tried,
        )  # fmt: skip
        per_second = PER_SECOND[self.graph.unit]
        self.horizon = max(1, round(prepared.task.timedelta.total_seconds() * per_second))
        self._aggregator: Aggregator | None = None
        self._made: dict[str, Floats] = {}
        #: Per remembered features and stream: the owners, and the parents of the latest row.
        self._trails: dict[str, list[Trail]] = {}
        self._before: FeatureMaker | None = None
        self._changed: tuple[str, bool] = ("", False)
        #: Computes the features of many seeds in other processes; None if they are too few.
        self.elsewhere: Elsewhere | None = None
        if saved is not None:
            self._drop(tuple(map(str, saved.get("dropped") or ())))

    @property
    def labels(self) -> dict[str, Any]:
        """The description of the training labels."""
        return self._about

    def without(self, families: Collection[str]) -> FeatureMaker:
        """A maker of the same features without some families."""
        other = self._copy()
        other._drop(families)
        return other

    def _copy(self) -> FeatureMaker:
        """A copy that has computed nothing yet."""
        other = copy(self)
        other._aggregator, other._made, other._trails = None, {}, {}
        return other

    def _drop(self, families: Collection[str]) -> None:
        self.dropped = tuple(sorted({*self.dropped, *families}))
        self.plan = self.plan.without(families)

    @property
    def families(self) -> dict[str, Ints]:
        """The indices of the features of each family that can be dropped."""
        streams = [stream for anchor in self.plan.anchors for stream in anchor.streams]
        each = [stream.family for stream in streams for _ in stream.features]
        first = len(self.names) - len(each)
        return {
            family: first + np.flatnonzero(np.array(each) == family)
            for family in self.plan.families
        }

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        names = []
        for chain, encoded in self.plan.own:
            path = "".join(f"{key.column}." for key in chain)
            names.append(f"{path}{encoded.name}{' age' if encoded.kind == 'moment' else ''}")
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
        """Indices of the categorical features."""
        found = [number for number, (_, encoded) in enumerate(self.plan.own) if _few(encoded)]
        last = {
            f"{stream.name}: {code.name} last level"
            for anchor in self.plan.anchors
            for stream in anchor.streams
            for code in stream.codes
            if _few(code)
        }
        return found + [n for n, name in enumerate(self.names) if name in last]

    def make(self, rows: Ints, limits: Ints, times: Moments) -> Floats:
        """Compute the features of seeds. Shape [seeds, features].

        Those of few seeds are remembered: a split is scored more than once.

        Args:
            rows: rows of the entity table. Shape [seeds].
            limits: cut-off of each seed, in ticks of the graph. Shape [seeds].
            times: time of each seed. Shape [seeds].
        """
        digest = hashlib.blake2b(digest_size=16)
        for part in (rows, limits, times.astype("datetime64[us]").view(np.int64)):
            digest.update(np.ascontiguousarray(part).data)
        name = digest.hexdigest()
        if name not in self._made:
            found, trail = self._make_once(name, rows, limits, times)
            if found.nbytes > REMEMBERED // 2:
                return found
            while sum(part.nbytes for part in self._made.values()) > REMEMBERED - found.nbytes:
                oldest = next(iter(self._made))
                del self._made[oldest], self._trails[oldest]
            self._made[name], self._trails[name] = found, trail
        return self._made[name]

    def with_change(
        self, prepared: Prepared, table: str, order: Ints | None, column: str | None
    ) -> FeatureMaker:
        """A maker for the same database with one table changed, which computes only what differs.

        Args:
            prepared: the changed database.
            table: the table.
            order: the row whose values each row takes; None if all rows are hidden.
            column: the only column that is shuffled; None for all.
        """
        other = self._copy()
        other.prepared, other.graph = prepared, prepared.graph
        other._before, other._changed = self, (table, order is None)
        if order is not None:
            values = [
                (encoded, old[order] if column in (None, encoded.column) else old)
                for encoded, old in self._arrays.get(table, [])
            ]
            other._arrays = self._arrays.replaced(table, values)
        return other

    def _touches(self, stream: Stream) -> bool:
        """Whether the features of a stream may differ from those before the change."""
        table, hidden = self._changed
        read = {stream.table, *(m.via.parent for m in stream.measures if m.via is not None)}
        read |= {key.table for key in stream.link or ()}
        if hidden:
            # Rows may be dated by their parents, so these count for every table on the way.
            read |= {key.table for key in stream.keys}
            read |= {key.parent for key in self.graph.foreign_keys if key.table in read}
        return table in read

    def _make_once(
        self, name: str, rows: Ints, limits: Ints, times: Moments
    ) -> tuple[Floats, list[Trail]]:
        """See `_make`; from the store if the same was asked before."""
        parts = self.prepared.opened.parts
        if parts is None or self._before is not None:
            return self._make(name, rows, limits, times)
        about = {
            "seeds": name, "plan": self.to_json(), "features": self.prepared.config.features,
            "staleness": bool(self.prepared.config.staleness), "labels": self._about,
        }  # fmt: skip
        return parts.made(
            "features", about, self.prepared.opened.db,
            lambda folder: save_features(folder, *self._make(name, rows, limits, times)),
            load_features,
        )  # fmt: skip

    def _make(
        self, name: str, rows: Ints, limits: Ints, times: Moments
    ) -> tuple[Floats, list[Trail]]:
        if self.elsewhere is not None and self._before is None:
            found = self.elsewhere(self, rows, limits, times)
            if found is not None:
                return found
        return self.make_range(rows, limits, times, name)

    def make_range(
        self, rows: Ints, limits: Ints, times: Moments, name: str = ""
    ) -> tuple[Floats, list[Trail]]:
        """Compute the features of seeds here and now; see `make`."""
        before = None if self._before is None else self._before._trails.get(name)
        trail: list[Trail] = []
        parts = [self._static(rows, limits)]
        if self.prepared.config.features == "all":
            parts.append(self._calendar(limits, times))
        latest: dict[Stream, dict[ForeignKey, Ints]] = {}
        for anchor in self.plan.anchors:
            owners = self._owners(anchor, rows, limits, latest)
            for stream in anchor.streams:
                done = sum(part.shape[1] for part in parts)
                old = None if before is None else before[len(trail)]
                if old is None or self._touches(stream) or not np.array_equal(old[0], owners):
                    found, pointers = self._opened().aggregate(stream, owners, limits)
                else:
                    assert self._before is not None
                    pointers = old[1]
                    found = self._before._made[name][:, done : done + len(stream.features)]
                parts.append(found)
                trail.append((owners, pointers))
                if anchor.key is None:
                    latest[stream] = pointers
        return np.concatenate(parts, 1), trail

    def effective(self, table: str) -> Ints:
        """The time from which each row of a table is visible. Shape [rows]."""
        known = self.graph.time(table)
        return np.full(self.graph.num_rows[table], MISSING) if known is None else known

    def close(self) -> None:
        """Free the memory."""
        if self._aggregator is not None:
            self._aggregator.close()
            self._aggregator = None

    def to_json(self) -> dict[str, Any]:
        """What must be saved to compute the same features again."""
        return {
            "keys": [[key.table, key.column, key.parent] for key in self.keys],
            "sizes": self.sizes,
            "timed": self.timed,
            "cells": [
                encoded.to_json() for encodings in self.encodings.values() for encoded in encodings
            ],
            "names": self.names,
            "left_out": list(self.plan.left_out),
            "history": self.history,
            "tried": self.tried,
            "dropped": list(self.dropped),
        }

    # Encodings.

    def _label_outputs(self, about: dict[str, Any]) -> NDArray[np.float64]:
        labels = read_column(self.prepared.db.table_dict[self.history], "label")
        return label_rows(self.prepared.task.task_type.value, labels.to_numpy(), about)

    def _encode(self, encoded: EncodedColumn) -> NDArray[np.float64]:
        if encoded.kind == "label":
            return self._outputs[:, encoded.part] - encoded.center
        table = self.prepared.db.table_dict[encoded.table]
        if isinstance(table, OverlayTable):
            old = encoded.encode(read_cells(table.base, encoded.column))
            return table.patched(old, encoded.encode(table.changes.column(encoded.column)))
        return encoded.encode(read_cells(table, encoded.column))

    # Parts of the features.

    def _static(self, rows: Ints, limits: Ints) -> Floats:
        """Columns of the entity and its parents, NaN where these are not visible."""
        columns = []
        now = days(limits, self.graph.unit)
        at: dict[tuple[ForeignKey, ...], Ints] = {}
        for chain, encoded in self.plan.own:
            if chain not in at:
                at[chain] = self._follow(rows, limits, chain)
            values = (
                next(v for c, v in self._arrays[encoded.table] if c == encoded) + encoded.center
            )
            found = np.full(len(rows), np.nan)
            some = at[chain] >= 0
            found[some] = values[at[chain][some]]
            columns.append(now - found if encoded.kind == "moment" else found)
        born = self.graph.time(self.entity)
        if born is not None:
            columns.append(now - days(np.minimum(born[rows], limits), self.graph.unit))
        table = np.stack(columns, 1) if columns else np.zeros((len(rows), 0))
        return table.astype(np.float32)

    def _follow(self, rows: Ints, limits: Ints, chain: tuple[ForeignKey, ...]) -> Ints:
        """The row at the end of a chain of foreign keys; -1 if there is none or it is later."""
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

    def _calendar(self, limits: Ints, times: Moments) -> Floats:
        found = [part.astype(np.float32) for part in _calendar_parts(times)]
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

    def _opened(self) -> Aggregator:
        if self._aggregator is None:
            self._aggregator = Aggregator(self.graph, self._arrays, self.horizon)
        return self._aggregator


def _calendar_parts(times: Moments) -> tuple[Ints, Ints, Ints]:
    """Month, day of the year, and day of the week (0 for Monday) of times. Shape [n] each."""
    days, months, years = (times.astype(f"datetime64[{unit}]") for unit in "DMY")
    month = months.astype(np.int64) % 12 + 1
    day_of_year = (days - years.astype("datetime64[D]")).astype(np.int64) + 1
    return month, day_of_year, (days.astype(np.int64) + 3) % 7  # 1970 began on a Thursday


def _few(encoded: EncodedColumn) -> bool:
    return encoded.kind == "category" and len(encoded.levels) < MOST_CODES
