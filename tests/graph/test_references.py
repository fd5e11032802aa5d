"""Rows that refer to a row are found as a loop finds them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from relbench.base import Database, Table

from helpers import examples
from relfrog.graph.references import children_at, count_references
from relfrog.graph.relational import ForeignKey, build_graph
from relfrog.support.times import MISSING


@examples(30)
@given(seed=st.integers(0, 10_000), parents=st.sampled_from([1, 7, 300]), timed=st.booleans())
def test_references_are_those_of_a_loop(seed: int, parents: int, timed: bool) -> None:
    """With few children per parent, where a block holds many parents, and with many."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 40))
    child = pd.DataFrame({"parent": rng.integers(-2, parents, count)})
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9, count), "D"))
    child["time"] = days.where(rng.random(count) > 0.2)
    tables = {
        "child": Table(child, {"parent": "parent"}, None, "time" if timed else None),
        "parent": Table(pd.DataFrame({"id": np.arange(parents)}), {}, "id", None),
    }
    graph = build_graph(Database(tables))
    key = ForeignKey("child", "parent", "parent")
    rows = rng.integers(0, parents, 6)
    ticks = graph.ticks(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(-1, 10, 6), "D"))
    window = float(graph.ticks(["2020-01-04"])[0] - graph.ticks(["2020-01-01"])[0])
    total, recent, last = count_references(graph, key, rows, ticks, window)
    seed_of, found = children_at(graph, key, rows, ticks)
    times = graph.time("child")
    for number, (row, tick) in enumerate(zip(rows, ticks, strict=True)):
        mine = np.flatnonzero(graph.parent(key) == row)
        if times is not None:
            mine = mine[times[mine] <= tick]
        assert sorted(found[seed_of == number]) == mine.tolist()
        assert total[number] == len(mine)
        dated = [] if times is None else [int(t) for t in times[mine] if t != MISSING]
        assert recent[number] == sum(t > tick - window for t in dated)
        assert last[number] == max(dated, default=MISSING)
