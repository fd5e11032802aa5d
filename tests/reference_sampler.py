"""A slow sampler that anyone can check by reading it, on data frames and sets."""

from __future__ import annotations

from itertools import product

import pandas as pd
from relbench.base import Database

from relfrog.graph import ForeignKey, foreign_keys
from relfrog.routes import CoOccurrence, Route
from relfrog.sampling import Batch

Row = tuple[str, int]


class Reference:
    """Looks everything up in the tables themselves."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.keys = foreign_keys({n: t.fkey_col_to_pkey_table for n, t in db.table_dict.items()})

    def time(self, row: Row):
        table = self.db.table_dict[row[0]]
        return pd.NaT if table.time_col is None else table.df[table.time_col].iloc[row[1]]

    def visible(self, row: Row, at) -> bool:
        time = self.time(row)
        return pd.isna(time) or time <= at

    def parent(self, row: Row, key: ForeignKey) -> Row | None:
        value = self.db.table_dict[key.table].df[key.column].iloc[row[1]]
        parent = self.db.table_dict[key.parent]
        rows = (
            []
            if pd.isna(value)
            else list((parent.df[parent.pkey_col] == value).to_numpy().nonzero()[0])
        )
        return (key.parent, int(rows[0])) if rows else None

    def children(self, row: Row, key: ForeignKey, at) -> list[Row]:
        """Visible children, from the earliest to the latest."""
        count = len(self.db.table_dict[key.table].df)
        found = [
            (key.table, i)
            for i in range(count)
            if self.parent((key.table, i), key) == row and self.visible((key.table, i), at)
        ]
        early = pd.Timestamp.min
        return sorted(found, key=lambda r: (early if pd.isna(t := self.time(r)) else t, r[1]))

    def sample(self, seeds: list[Row], at, fanouts) -> dict[Row, int]:
        """The hop of each row; takes the latest children."""
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
                        for child in children[max(0, len(children) - keep) :]:
                            hops.setdefault(child, hop + 1)
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
