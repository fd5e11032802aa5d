"""Who is there, how popular, and who was joined to whom: all as a loop finds it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from oracles.network_cases import dense_database
from relfrog.graph.popularity import Popularity, joined_before
from relfrog.graph.relational import build_graph


@examples(40)
@given(st.integers(0, 10_000))
def test_popularity_is_that_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    db = dense_database(rng)
    graph = build_graph(db)
    table = str(rng.choice(list(db.table_dict)))
    window = 3 * 86_400.0
    popularity = Popularity(graph, table, window)
    times = [t for name in graph.num_rows if (t := graph.time(name)) is not None]
    known = np.concatenate([np.zeros(0, np.int64), *times])
    known = known[known > np.iinfo(np.int64).min]
    if not len(known):
        return
    tick = int(rng.choice(known))
    standing = popularity.at(tick)
    own = graph.time(table)
    for row in range(graph.num_rows[table]):
        assert bool(standing.visible[row]) == (own is None or own[row] <= tick)
        for number, key in enumerate(popularity.keys):
            when = graph.time(key.table)
            mine = np.flatnonzero(graph.parent(key) == row)
            if when is not None:
                mine = mine[when[mine] <= tick]
            assert float(standing.counts[row, 3 * number]) == pytest.approx(
                np.log1p(len(mine)), rel=1e-2
            )
            if when is not None:
                late = [i for i in mine if when[i] > tick - popularity.window]
                assert float(standing.counts[row, 3 * number + 1]) == pytest.approx(
                    np.log1p(len(late)), rel=1e-2
                )
    assert sorted(standing.order.tolist()) == np.flatnonzero(standing.visible).tolist()
    named = standing.named[standing.order].tolist()
    assert named == sorted(named, reverse=True)


@examples(40)
@given(st.integers(0, 10_000))
def test_joined_before_is_that_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    db = dense_database(rng)
    graph = build_graph(db)
    source, target = (str(name) for name in rng.choice(list(db.table_dict), 2))
    if not graph.num_rows[source]:
        return
    rows = rng.integers(0, graph.num_rows[source], 5)
    times = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(-3, 20, 5), "D"))
    begin, found = joined_before(graph, source, target, rows, times)
    ticks = graph.ticks(times)
    for number, row in enumerate(rows):
        expected = set()
        for key in graph.foreign_keys:
            if (key.table, key.parent) == (source, target):
                expected |= {int(graph.parent(key)[row])}
            if key.parent != source:
                continue
            when = graph.time(key.table)
            for child in np.flatnonzero(graph.parent(key) == row):
                if when is not None and when[child] > ticks[number]:
                    continue
                if key.table == target:
                    expected.add(int(child))
                for other in graph.foreign_keys:
                    if other.table == key.table and other.parent == target and other != key:
                        expected.add(int(graph.parent(other)[child]))
        assert set(found[begin[number] : begin[number + 1]].tolist()) == expected - {-1}
