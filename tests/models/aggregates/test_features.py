"""Features of LightGBM: each is what a plain loop over the visible rows gives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from relbench.base import Database

from helpers import examples
from oracles.relational_databases import START, seeded, table
from relfrog.datasets.known_from import find_known_from
from relfrog.graph.relational import ForeignKey, RelationalGraph, build_graph
from relfrog.models.aggregates.encoded_columns import EncodedColumn, fit_encoded_columns
from relfrog.models.aggregates.feature_plan import MOST_FEATURES, plan_features
from relfrog.models.aggregates.query import Aggregator
from relfrog.models.aggregates.streams import (
    BESIDE,
    CROWD,
    FADING,
    FULL,
    LAGS,
    LIGHT,
    PEERS,
    SHARE,
    STREAKS,
    WINDOWED,
    WINDOWS,
    Anchor,
    Measure,
    Stream,
)
from relfrog.support.times import MISSING

DAY = 86_400_000_000
HORIZON = 2 * DAY
#: Numbers of `seeded` that have no value here.
ABSENT = 7


def encodings_of(db: Database) -> dict[str, list[tuple[EncodedColumn, Any]]]:
    """Of each table its numbers, some of them missing, and the same as few levels."""
    found = {}
    for name, part in db.table_dict.items():
        x = part.df["x"].astype(float).where(part.df["x"] != ABSENT)
        number = EncodedColumn(name, "x", "number", 3.5)
        level = EncodedColumn(name, "x", "category", 0.0, ("1", "2"))
        found[name] = [(number, number.encode(x)), (level, level.encode(x))]
    return found


def dated(db: Database) -> Database:
    """The database as it is when a dataset is opened: rows know from when on they are known."""
    found = find_known_from(db)
    return found.name_columns(found.add_columns(db))


class Loop:
    """The slow way: every row is looked at for every seed."""

    def __init__(self, db: Database, graph: RelationalGraph) -> None:
        self.db, self.graph = db, graph

    def own(self, name: str, row: int) -> int:
        times = self.graph.time(name)
        return MISSING if times is None else int(times[row])

    def rows(self, stream: Stream, owner: int, limit: int) -> list[tuple[int, int]]:
        """Visible rows in order: time and row."""
        found = []
        for row in range(self.graph.num_rows[stream.table]):
            when, at, name = self.own(stream.table, row), row, stream.table
            if stream.link is not None:
                at = int(self.graph.parent(stream.keys[0])[row])
                if at >= 0 and self.linked(stream.link, at, max(when - HORIZON, MISSING)) == owner:
                    found += [(when, row)] if when <= limit else []
                continue
            for step, key in enumerate(stream.keys):
                at = int(self.graph.parent(key)[at]) if at >= 0 else -1
                name = key.parent
                if at >= 0 and step < len(stream.keys) - 1:
                    when = max(when, self.own(name, at))
            if (at == owner or not stream.keys) and when <= limit:
                found.append((when, row))
        return sorted(found)

    def linked(self, link: tuple[ForeignKey, ForeignKey], owner: int, limit: int) -> int:
        """The other parent of the owner's latest row."""
        first, second = link
        rows = range(self.graph.num_rows[first.table])
        mine = [
            (self.own(first.table, row), row)
            for row in rows
            if self.graph.parent(first)[row] == owner and self.own(first.table, row) <= limit
        ]
        return int(self.graph.parent(second)[max(mine)[1]]) if mine else -1

    def beside(self, measure: Measure, row: int) -> float:
        """A number beside those of the rows with the same parent and time."""
        key, name, plain = measure.beside, measure.encoded.table, replace(measure, beside=None)
        assert key is not None
        parents = self.graph.parent(key)
        group = [
            other
            for other in range(self.graph.num_rows[name])
            if parents[other] == parents[row] >= 0 and self.own(name, other) == self.own(name, row)
        ]
        values = {other: self.value(plain, 0, other) for other in group}
        values = {other: value for other, value in values.items() if not math.isnan(value)}
        if row not in values or len(values) < 2:
            return math.nan
        mine = values.pop(row)
        if measure.form == "difference":
            return mine - float(np.mean([mine, *values.values()]))
        return float(np.mean([(v < mine) + 0.5 * (v == mine) for v in values.values()]))

    def value(self, measure: Measure, when: int, row: int) -> float:
        if measure.beside is not None:
            return self.beside(measure, row)
        name = measure.encoded.table
        if measure.via is not None:
            row = int(self.graph.parent(measure.via)[row])
            if row < 0 or self.own(name, row) > when:
                return math.nan
        x = self.db.table_dict[name].df["x"].iloc[row]
        if x == ABSENT:
            return math.nan
        return float(x) if measure.level < 0 else float(x == measure.level + 1)

    def features(self, stream: Stream, owner: int, limit: int) -> list[float]:
        rows = self.rows(stream, owner, limit)
        dated = [when for when, _ in rows if when != MISSING]
        late = {w: [r for r in rows if r[0] > limit - w * HORIZON] for w in WINDOWS}
        found: list[float] = [len(rows), *(len(late[w]) for w in WINDOWS)]
        last = rows[-1][0] if rows and rows[-1][0] != MISSING else None
        ages = [
            (limit - rows[-n][0]) / HORIZON
            if len(rows) >= n and rows[-n][0] != MISSING
            else math.nan
            for n in (2, 3)
        ]
        found.append(math.nan if last is None else (limit - last) / HORIZON)
        found.append((limit - min(dated)) / HORIZON if dated else math.nan)
        gap = last is not None and len(rows) > 1
        found.append((last - min(dated)) / HORIZON / (len(rows) - 1) if gap else math.nan)
        found = (found if stream.counted else []) + (ages if stream.ages else [])
        for measure in stream.measures:
            spans = {"mean": rows, "mean of last 3": rows[-3:], "mean of last 10": rows[-10:]}
            spans |= {f"mean in {w}": late[w] for w in WINDOWS}

            def some(part: list[tuple[int, int]], measure: Measure = measure) -> list[float]:
                values = [self.value(measure, *row) for row in part]
                return [v for v in values if not math.isnan(v)]

            every = some(rows)
            means = {
                k: np.mean(some(part)) if some(part) else math.nan for k, part in spans.items()
            }
            stats = means | {
                "last": self.value(measure, *rows[-1]) if rows else math.nan,
                "std": np.std(every) if len(every) > 1 else math.nan,
                "min": min(every, default=math.nan),
                "max": max(every, default=math.nan),
                "sum": sum(every) if every else math.nan,
                "sum in 3": sum(some(late[3])) if some(late[3]) else math.nan,
                "trend": means["mean of last 3"] - means["mean of last 10"],
                "recent trend": means["mean in 3"] - means["mean in 12"],
                "second last": self.value(measure, *rows[-2]) if len(rows) > 1 else math.nan,
                "third last": self.value(measure, *rows[-3]) if len(rows) > 2 else math.nan,
                "fading mean": fading(every, 3),
                "slowly fading mean": fading(every, 12),
                "streak": streak([self.value(measure, *row) for row in rows]),
            }
            found += [float(stats[stat]) for stat in measure.stats]
        for code in stream.codes:
            x = self.db.table_dict[code.table].df["x"].iloc[rows[-1][1]] if rows else ABSENT
            found.append(math.nan if x == ABSENT else {1: 0, 2: 1}.get(x, 2))
        for key in stream.pointers:
            parents = {int(self.graph.parent(key)[row]) for _, row in rows} - {-1}
            found.append(len(parents))
        return found


def fading(values: list[float], others: int) -> float:
    """The mean in which a value loses half of its weight when so many others come."""
    weights = 0.5 ** (np.arange(len(values))[::-1] / others)
    return float(np.average(values, weights=weights)) if values else math.nan


def streak(values: list[float]) -> float:
    """How many of the latest values are all positive, or, as a negative number, all not."""
    if not values or math.isnan(values[-1]):
        return math.nan
    count = 0
    while count < len(values) and (values[-1 - count] > 0) == (values[-1] > 0):
        if math.isnan(values[-1 - count]):
            break
        count += 1
    return float(count if values[-1] > 0 else -count)


def streams_of(db: Database, graph: RelationalGraph, entity: str) -> list[Stream]:
    """Every stream that there can be at a table: children, their children, all rows."""
    encodings = {name: [encoded for encoded, _ in some] for name, some in encodings_of(db).items()}
    keys = graph.foreign_keys

    def measures(name: str, others: list[ForeignKey]) -> tuple[Measure, ...]:
        number, level = encodings[name]
        own = (Measure(number, None, -1, FULL), Measure(level, None, 1, SHARE))
        return own + tuple(Measure(encodings[k.parent][0], k, -1, LIGHT) for k in others)

    found = [Stream((), entity, (Measure(encodings[entity][0], None, -1, CROWD),))]
    for key in keys:
        if key.parent == entity:
            others = [k for k in keys if k.table == key.table and k != key]
            codes = (encodings[key.table][1],)
            found.append(
                Stream((key,), key.table, measures(key.table, others), codes, tuple(others))
            )
            found += [
                Stream((below, key), below.table, measures(below.table, []))
                for below in keys
                if below.parent == key.table
            ]
            number, level = encodings[key.table]
            tried = (
                Measure(number, None, -1, LAGS + WINDOWED + FADING),
                Measure(level, None, 1, STREAKS + FADING),
                *(
                    Measure(number, None, -1, BESIDE, k, form)
                    for k in others
                    for form in ("difference", "rank")
                ),
            )
            found.append(Stream((key,), key.table, tried, counted=False, ages=True))
            found += [
                Stream(
                    (mine,), mine.table, (Measure(encodings[mine.table][0], None, -1, PEERS),),
                    link=(other, key),
                )
                for other in others
                for mine in keys
                if mine.parent == other.parent
            ]  # fmt: skip
    return found


@examples(12, suppress_health_check=list(HealthCheck))
@given(seeded())
def test_each_feature_is_that_of_a_loop(case: Any) -> None:
    db, entity, rows, times = dated(case[0]), *case[1:]
    graph = build_graph(db)
    limits = graph.ticks(times)
    loop = Loop(db, graph)
    with Aggregator(graph, encodings_of(db), HORIZON) as aggregator:
        for stream in streams_of(db, graph, entity):
            owners = rows if stream.keys else np.zeros_like(rows)
            found, pointers = aggregator.aggregate(stream, owners, limits)
            slow = [
                loop.features(stream, int(o), int(t)) for o, t in zip(owners, limits, strict=True)
            ]
            assert found.shape == (len(rows), len(stream.features))
            np.testing.assert_allclose(found, np.array(slow), rtol=1e-4, atol=1e-4)
            for key, latest in pointers.items():
                for i, at in enumerate(latest):
                    seen = loop.rows(stream, int(owners[i]), int(limits[i]))
                    assert at == (int(graph.parent(key)[seen[-1][1]]) if seen else -1)


@pytest.mark.slow
@examples(8, suppress_health_check=list(HealthCheck))
@given(seeded(), st.integers(1, 9))
def test_later_rows_change_nothing(case: Any, other: int) -> None:
    """Bit for bit: their values and their parents may be anything."""
    db, entity, rows, times = dated(case[0]), *case[1:]
    last = times.max()
    changed = {}
    for name, part in db.table_dict.items():
        frame = part.df.copy()
        if part.time_col is not None:
            late = (frame[part.time_col] > last).to_numpy()
            frame.loc[late, "x"] = other
            for column in part.fkey_col_to_pkey_table:
                frame.loc[late, column] = 0
        changed[name] = type(part)(
            frame, part.fkey_col_to_pkey_table, part.pkey_col, part.time_col
        )  # fmt: skip
    answers = []
    for version in (db, Database(changed)):
        graph = build_graph(version)
        with Aggregator(graph, encodings_of(version), HORIZON) as aggregator:
            answers.append(
                [
                    aggregator.aggregate(stream, rows, graph.ticks(times))[0]
                    for stream in streams_of(version, graph, entity)
                    if stream.keys
                ]
            )
    for before, after in zip(*answers, strict=True):
        np.testing.assert_array_equal(before, after)


def test_nobody_and_empty_tables_have_nothing() -> None:
    db = Database({
        "a": table({"x": [1, 2]}),
        "b": table({"x": [], "k0": []}, {"k0": "a"}),
    })  # fmt: skip
    graph = build_graph(db)
    encodings = encodings_of(db)
    key = graph.foreign_keys[0]
    stream = Stream((key,), "b", (Measure(encodings["b"][0][0], None, -1, FULL),))
    with Aggregator(graph, encodings, HORIZON) as aggregator:
        found, _ = aggregator.aggregate(stream, np.array([0, -1, 1]), np.array([0, 5, MISSING]))
    assert (found[:, :4] == 0).all()
    assert np.isnan(found[:, 4:]).all()


def test_small_spreads_of_large_numbers_survive() -> None:
    """Sums are taken around the centre: a spread of 1 at a thousand million is not lost."""
    x = 1e9 + np.arange(6)
    db = Database({"a": table({"x": [0]}), "b": table({"x": x, "k0": [0] * 6}, {"k0": "a"})})
    graph = build_graph(db)
    encoded = EncodedColumn("b", "x", "number", 1e9)
    stream = Stream((graph.foreign_keys[0],), "b", (Measure(encoded, None, -1, ("std",)),))
    with Aggregator(graph, {"b": [(encoded, encoded.encode(pd.Series(x)))]}, HORIZON) as aggregator:
        found, _ = aggregator.aggregate(stream, np.array([0]), np.array([0]))
    assert found[0, -1] == pytest.approx(np.std(np.arange(6)), rel=1e-6)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([1.5, 2.5, None], ["number"]),
        ([None, None], []),
        ([3, 3, 3], []),
        ([True, False, None], ["number"]),
        ([1, 2, 3] * 20, ["number", "value"]),
        (["a", "b", "<script>"] * 3, ["category"]),
        (["a", "b", "<script>"], ["length"]),
        ([f"word {'x' * i}" for i in range(300)], ["length"]),
        (pd.to_datetime(["2020-01-01", None]), ["moment"]),
        ([[1, 2], [3], None], ["length"]),
        ([1e300, -1e300, 5.0], ["number"]),
    ],
)
def test_what_a_column_gives(values: Any, kinds: list[str]) -> None:
    column = pd.Series(values)
    encodings = fit_encoded_columns("t", "c", column)
    assert [encoded.kind for encoded in encodings] == kinds
    for encoded in encodings:
        again = EncodedColumn.from_json(encoded.to_json())
        assert again == encoded
        found = encoded.encode(column)
        assert (np.isnan(found) == column.isna().to_numpy()).all()
        assert np.isfinite(found[~np.isnan(found)] ** 2).all()


def test_the_plan_keeps_within_its_room_and_says_what_it_left_out() -> None:
    keys = [ForeignKey(f"c{i}", "k", "e") for i in range(30)]
    encodings = {
        k.table: [EncodedColumn(k.table, f"x{j}", "number") for j in range(10)] for k in keys
    }
    plan = plan_features("e", "h", keys, encodings, {k.table: i for i, k in enumerate(keys)})
    width = len(plan.own) + sum(len(anchor.features) for anchor in plan.anchors)
    assert width <= MOST_FEATURES
    assert plan.left_out
    assert any(isinstance(a, Anchor) and a.streams[0].table == "c29" for a in plan.anchors)
    assert not plan_features("e", "h", keys, encodings, {}, parts="own").anchors


def test_nobody_asks_for_the_latest_row_of_a_stream_that_found_no_room() -> None:
    tables = [f"wide{i}" for i in range(3)]
    keys = [ForeignKey(name, "k", "e") for name in tables]
    keys += [ForeignKey(name, "team", f"t{name}") for name in tables]
    keys += [ForeignKey(f"small{name}", "team", f"t{name}") for name in tables]
    encodings = {
        name: [EncodedColumn(name, f"x{i}", "number") for i in range(30)] for name in tables
    }
    plan = plan_features("e", "h", keys, encodings, {})
    assert plan.left_out[:2] == ("wide1 by k", "wide2 by k")
    assert "last wide2 by k, team smallwide2 by team" in plan.left_out
    asked = {stream for anchor in plan.anchors for stream in anchor.streams if not anchor.key}
    last = [anchor.last for anchor in plan.anchors if anchor.last is not None]
    assert last
    assert set(last) <= asked


def test_later_rows_do_not_change_the_last_digit() -> None:
    """A sum is that of rows one after the other: DuckDB's own windows add up block by block."""
    rng = np.random.default_rng(0)
    count = 100_000
    owner, x = rng.integers(50, size=count), rng.normal(size=count) * 1e3
    when = START + pd.to_timedelta(np.arange(count), unit="h")
    number = EncodedColumn("b", "x", "number")
    answers = []
    for end in (count, 70_000):
        db = Database({
            "a": table({"y": np.zeros(50)}),
            "b": table({"x": x[:end], "k0": owner[:end], "at": when[:end]}, {"k0": "a"}, "at"),
        })  # fmt: skip
        graph = build_graph(db)
        stream = Stream(graph.foreign_keys, "b", (Measure(number, None, -1, FULL),))
        with Aggregator(graph, {"b": [(number, x[:end])]}, HORIZON) as aggregator:
            made = aggregator._make(stream)
            last = graph.ticks([when[70_000 - 1]])[0]
            answers.append(
                aggregator._run(f"SELECT tick, s0, q0 FROM r{made} WHERE tick <= {last} ORDER BY g")
            )
    assert len(answers[0]) == 70_000
    assert answers[0] == answers[1]
    totals, slow = [0.0] * 50, []
    for row in range(70_000):  # and it is the plain sum
        totals[owner[row]] += x[row]
        slow.append(totals[owner[row]])
    by_tick = {int(tick): total for tick, total, _ in answers[0]}
    assert [by_tick[int(t)] for t in graph.ticks(when[:70_000])] == slow
