"""A slow sampler that anyone can check by reading it, on data frames and sets."""

from __future__ import annotations

from itertools import product

import pandas as pd
import torch
from relbench.base import Database

from relfrog.graph.batch import Batch
from relfrog.graph.relational import ForeignKey, foreign_keys
from relfrog.graph.routes import CoOccurrence, Route

Row = tuple[str, int]


class Reference:
    """Looks everything up in the tables themselves."""

    def __init__(self, db: Database) -> None:
        self.tables = db.table_dict
        self.keys = foreign_keys({n: t.fkey_col_to_pkey_table for n, t in db.table_dict.items()})
        self.times = {
            name: [pd.NaT] * len(table.df)
            if table.time_col is None
            else list(table.df[table.time_col])
            for name, table in db.table_dict.items()
        }
        self.parents = {}
        for key in self.keys:
            parent = db.table_dict[key.parent]
            rows = {value: row for row, value in enumerate(parent.df[parent.pkey_col])}
            values = db.table_dict[key.table].df[key.column]
            self.parents[key] = [None if pd.isna(value) else rows.get(value) for value in values]

    def time(self, row: Row):
        return self.times[row[0]][row[1]]

    def visible(self, row: Row, at) -> bool:
        time = self.time(row)
        return pd.isna(time) or time <= at

    def parent(self, row: Row, key: ForeignKey) -> Row | None:
        parent = self.parents[key][row[1]]
        return None if parent is None else (key.parent, parent)

    def children(self, row: Row, key: ForeignKey, at) -> list[Row]:
        """Visible children, from the earliest to the latest."""
        count = len(self.tables[key.table].df)
        found = [
            (key.table, i)
            for i in range(count)
            if self.parent((key.table, i), key) == row and self.visible((key.table, i), at)
        ]
        early = pd.Timestamp.min
        return sorted(found, key=lambda r: (early if pd.isna(t := self.time(r)) else t, r[1]))

    def latest(self, children: list[Row], keep: int) -> list[Row]:
        """The last few rows."""
        return children[max(0, len(children) - keep) :]

    def latest_events(self, children: list[Row], keep: int) -> list[Row]:
        """Round by round the last row of each of the last few events that has one left."""
        events: list[list[Row]] = []
        for row in children:
            same = events and not pd.isna(t := self.time(row)) and self.time(events[-1][0]) == t
            if same and self.tables[row[0]].time_col is not None:
                events[-1].append(row)
            else:
                events.append([row])
        events, taken = events[max(0, len(events) - keep) :][::-1], []
        while len(taken) < keep and any(events):
            for event in events:
                if event and len(taken) < keep:
                    taken.append(event.pop())
        return taken

    def sample(
        self, seeds: list[Row], at, fanouts, whole: int | None = None, strategy: str = "last"
    ) -> dict[Row, int]:
        """The hop of each row; takes the latest children, or those of the latest events."""
        choose = self.latest if strategy == "last" else self.latest_events
        whole = len(fanouts) - 1 if whole is None else whole
        hops = dict.fromkeys(seeds, 0)
        for hop in range(len(fanouts) + 1):
            for row in [row for row, found in hops.items() if found == hop]:
                for key in self.keys:
                    if key.table == row[0] and self.visible(row, at):
                        parent = self.parent(row, key)
                        if parent is not None and self.visible(parent, at):
                            hops.setdefault(parent, hop + 1)
                    if key.parent == row[0] and hop < len(fanouts):
                        children = self.children(row, key, at)
                        keep = len(children) if fanouts[hop] < 0 else fanouts[hop]
                        for child in choose(children, keep):
                            hops.setdefault(child, hop + 1)
        # A row brought along that turns out to be the child or the parent of a row within the hops
        # that are computed must be whole, too.
        last, before = len(fanouts) + 1, -1
        brought = [row for row, found in hops.items() if found == last]
        while len(hops) != before:
            before = len(hops)
            for row in [row for row, found in hops.items() if found == last]:
                parents = [self.parent(row, key) for key in self.keys if key.table == row[0]]
                if (
                    any(hops.get(parent, last + 1) <= whole for parent in parents)
                    or (whole == len(fanouts) and row in brought)
                    or whole > len(fanouts)
                ):
                    for parent in parents:
                        if parent is not None and self.visible(parent, at):
                            hops.setdefault(parent, last)
        return hops

    def links(self, rows, at, key: ForeignKey) -> set[tuple[Row, Row]]:
        """(child, parent) among these rows; what a row refers to is known once it exists."""
        pairs = ((row, self.parent(row, key)) for row in rows if row[0] == key.table)
        return {(c, p) for c, p in pairs if p in rows and self.visible(c, at)}

    def matches(self, rows, at, route: Route) -> set[tuple[Row, Row, Row]]:
        """(u, v, w) among these rows: tries all pairs of links."""
        first, second = self.links(rows, at, route.first), self.links(rows, at, route.second)
        if isinstance(route.paradigm, CoOccurrence):
            return {(u, v, w) for (v, u), (x, w) in product(first, second) if v == x}
        return {(u, v, w) for (u, v), (x, w) in product(first, second) if v == x}


def rows_of(batch: Batch, table: str) -> list[tuple[int, Row]]:
    """(group, row) of each occurrence."""
    part = batch.tables[table]
    return [
        (group, (table, row))
        for group, row in zip(part.group.tolist(), part.rows[part.index].tolist(), strict=True)
    ]


def tensors(batch: Batch, rows: bool = True) -> dict[str, torch.Tensor]:
    """Everything a batch holds, by name."""
    found = {f"parents {key}": pointers for key, pointers in batch.parents.items()}
    for name, part in batch.tables.items():
        for what in ("index", "group", "hop", "age", *(["rows"] if rows else [])):
            value = getattr(part, what)
            if value is not None:
                found[f"{name}.{what}"] = value
        found[f"{name}.per_hop"] = torch.tensor(part.per_hop)
    for what in ("seeds", "seed_ids", "group_times"):
        found[what] = getattr(batch, what)
    return found


def assert_identical(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    """Bit for bit; NaN is equal to NaN."""
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].dtype == two[name].dtype, name
        assert one[name].numpy().tobytes() == two[name].numpy().tobytes(), name
