"""The fast sampler against the slow one, and the laws that both obey."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from relbench.base import Database, Table

from helpers import examples
from oracles.reference_sampler import Reference, assert_identical, rows_of, tensors
from oracles.relational_databases import DAY, START, dataset, seeded, star, table
from relfrog.errors import TaskError, UsageError
from relfrog.graph.batch import Batch
from relfrog.graph.relational import build_graph, open_graph
from relfrog.graph.routes import find_routes
from relfrog.graph.sampler import TemporalSampler, halving

MODES = ["shared", "separate"]
STRATEGIES = ["uniform", "last", "events"]
FANOUTS = st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=3)


def check_structure(
    batch: Batch, slow: Reference, graph, fanouts, times: pd.Series, whole: int | None = None
) -> None:
    """What holds for any batch, however its children were chosen."""
    hops = len(fanouts)
    whole = hops - 1 if whole is None else whole
    cutoffs = [pd.Timestamp(t, unit=graph.unit) for t in batch.group_times.tolist()]
    members: list[dict] = [{} for _ in cutoffs]
    for name, part in batch.tables.items():
        assert len(part.rows.unique()) == len(part.rows)
        assert part.index.unique().tolist() == list(range(len(part.rows)))
        assert part.hop.tolist() == sorted(part.hop.tolist())
        assert part.hop.bincount(minlength=hops + 2).tolist() == list(part.per_hop)
        assert part.within(hops + 1) == len(part)
        for position, (group, row) in enumerate(rows_of(batch, name)):
            assert row not in members[group], "a row twice in one subgraph"
            hop = int(part.hop[position])
            members[group][row] = hop
            assert hop == 0 or slow.visible(row, cutoffs[group]), "a row of the future"
            if part.age is not None:
                age = (cutoffs[group] - slow.time(row)).total_seconds()
                assert part.age[position].item() == age or (
                    np.isnan(age) and part.age[position].isnan()
                )
    own = rows_of(batch, batch.seed_table)
    for seed, position in enumerate(batch.seeds.tolist()):
        assert cutoffs[own[position][0]] == times.iloc[seed]

    rows = {name: rows_of(batch, name) for name in batch.tables}
    for key, pointers in batch.parents.items():
        found = {
            (group, row, rows[key.parent][parent][1])
            for (group, row), parent in zip(rows[key.table], pointers.tolist(), strict=True)
            if parent >= 0 and rows[key.parent][parent][0] == group
        }
        assert len(found) == int((pointers >= 0).sum())
        assert found == {
            (group, child, parent)
            for group, inside in enumerate(members)
            for child, parent in slow.links(inside, cutoffs[group], key)
        }
    for route in batch.routes:
        u, v, w = batch.matches(route)
        tables = route.tables
        found = Counter(
            (
                rows[tables[0]][i][0],
                rows[tables[0]][i][1],
                rows[tables[1]][j][1],
                rows[tables[2]][k][1],
            )
            for i, j, k in zip(u.tolist(), v.tolist(), w.tolist(), strict=True)
        )
        assert max(found.values(), default=1) == 1, "a match twice"
        assert set(found) == {
            (group, *match)
            for group, inside in enumerate(members)
            for match in slow.matches(inside, cutoffs[group], route)
        }

    for group, inside in enumerate(members):
        at = cutoffs[group]
        # Full resolution: rows that a layer computes (within `whole` hops) have their parents and
        # grandparents, and their children have all of their parents.
        middles = {row for row, hop in inside.items() if hop <= whole}
        for key in slow.keys:
            for child, parent in slow.links(inside, at, key):
                middles |= {child} if inside[parent] <= whole else set()
                middles |= {parent} if inside[child] <= whole else set()
        for middle, key in product(middles, slow.keys):
            if key.table == middle[0] and slow.visible(middle, at):
                found = slow.parent(middle, key)
                assert found is None or not slow.visible(found, at) or found in inside
        for row, hop in inside.items():
            for key in slow.keys:
                if key.table == row[0] and hop <= hops and slow.visible(row, at):
                    parent = slow.parent(row, key)
                    assert parent is None or not slow.visible(parent, at) or parent in inside
                if key.parent == row[0] and hop < hops:
                    children = slow.children(row, key, at)
                    here = sum(child in inside for child in children)
                    wanted = len(children) if fanouts[hop] < 0 else min(fanouts[hop], len(children))
                    assert here >= wanted


@pytest.mark.parametrize("strategy", ["last", "events"])
@pytest.mark.parametrize("mode", MODES)
@examples(250)
@given(case=seeded(), fanouts=FANOUTS, more=st.integers(-1, 1))
def test_fast_and_slow_agree(
    mode: str, strategy: str, case, fanouts: list[int], more: int
) -> None:  # fmt: skip
    db, name, rows, times = case
    graph, slow = build_graph(db), Reference(db)
    whole = len(fanouts) + more
    sampler = TemporalSampler(graph, name, fanouts, mode, strategy, whole=whole)
    batch = sampler.sample(rows, times)
    check_structure(batch, slow, graph, fanouts, times, whole)
    found: dict = {}
    for table_name, part in batch.tables.items():
        hops = part.hop.tolist()
        for position, (group, row) in enumerate(rows_of(batch, table_name)):
            found.setdefault(group, {})[row] = hops[position]
    groups = {}
    for seed, (row, at) in enumerate(zip(rows.tolist(), times, strict=True)):
        groups.setdefault(at if mode == "shared" else seed, (at, []))[1].append((name, row))
    expected = [
        slow.sample(seeds, at, fanouts, whole, strategy)
        for _, (at, seeds) in sorted(groups.items())
    ]
    assert [found[group] for group in sorted(found)] == expected


@pytest.mark.parametrize("mode", MODES)
@examples(250)
@given(case=seeded(), fanouts=FANOUTS, seed=st.integers(0, 3), more=st.integers(-1, 1))
def test_uniform_samples_obey_the_same_rules(mode: str, case, fanouts, seed: int, more) -> None:
    db, name, rows, times = case
    graph, whole = build_graph(db), len(fanouts) + more
    sampler = TemporalSampler(graph, name, fanouts, mode, "uniform", seed, whole=whole)
    batch = sampler.sample(rows, times)
    check_structure(batch, Reference(db), graph, fanouts, times, whole)


@examples(150)
@given(case=seeded(), fanouts=FANOUTS, strategy=st.sampled_from(STRATEGIES))
def test_a_seed_does_not_see_the_other_seeds(case, fanouts, strategy: str) -> None:
    db, name, rows, times = case
    sampler = TemporalSampler(build_graph(db), name, fanouts, "separate", strategy)
    together = sampler.sample(rows, times)
    for seed in range(len(rows)):
        alone = sampler.sample(rows[seed : seed + 1], times[seed : seed + 1])
        for table_name, part in alone.tables.items():
            theirs = together.tables[table_name]
            mine = theirs.group == seed
            assert theirs.rows[theirs.index[mine]].equal(part.rows[part.index])
            assert theirs.hop[mine].equal(part.hop)


def another_future(draw, db: Database, at: pd.Timestamp) -> Database:
    """The same past, but rows after `at` removed, altered and added."""
    tables = {}
    for name, part in db.table_dict.items():
        frame = part.df
        if part.time_col is not None:
            past = frame[~(frame[part.time_col] > at)]
            new = draw(st.integers(0, 4))
            days = [at + (i + 1) * DAY for i in range(new)]
            numbers = st.lists(st.integers(0, 9), min_size=new, max_size=new)
            later = pd.DataFrame(
                {
                    "id": np.arange(len(past), len(past) + new),
                    "x": 77,
                    part.time_col: pd.Series(days, dtype="datetime64[us]"),
                    **{
                        column: pd.array(draw(numbers), dtype="Int64")
                        for column in part.fkey_col_to_pkey_table
                    },
                }
            )
            frame = pd.concat([past, later], ignore_index=True)[part.df.columns] if new else past
        tables[name] = Table(frame, part.fkey_col_to_pkey_table, part.pkey_col, part.time_col)
    return Database(tables)


@pytest.mark.parametrize("mode", MODES)
@examples(250)
@given(case=seeded(time_sorted=True), fanouts=FANOUTS, data=st.data())
def test_the_future_does_not_exist(mode: str, case, fanouts, data: st.DataObject) -> None:
    db, name, rows, times = case
    at = times.max()
    keep = build_graph(db).visible(name, at)[rows]
    rows, times = rows[keep], times[keep]
    other = another_future(data.draw, db, at)
    for strategy in STRATEGIES:
        one, two = (
            TemporalSampler(build_graph(part), name, fanouts, mode, strategy).sample(rows, times)
            for part in (db, other)
        )
        assert_identical(tensors(one), tensors(two))


@pytest.mark.parametrize("mode", MODES)
@examples(250)
@given(case=seeded(time_sorted=False), fanouts=FANOUTS)
def test_the_future_does_not_exist_out_of_order(mode: str, case, fanouts) -> None:
    """Where rows are not in time order, removing some renumbers the others, and only that."""
    db, name, rows, times = case
    at = times.max()
    graph = build_graph(db)
    kept = {n: np.flatnonzero(graph.visible(n, at)) for n in db.table_dict}
    past = Database(
        {
            n: Table(t.df.iloc[kept[n]], t.fkey_col_to_pkey_table, t.pkey_col, t.time_col)
            for n, t in db.table_dict.items()
        }
    )
    alive = np.isin(rows, kept[name])
    rows, times = rows[alive], times[alive]
    for strategy in STRATEGIES:
        one = TemporalSampler(graph, name, fanouts, mode, strategy).sample(rows, times)
        renumbered = np.searchsorted(kept[name], rows)
        sampler = TemporalSampler(build_graph(past), name, fanouts, mode, strategy)
        two = sampler.sample(renumbered, times)
        assert_identical(tensors(one, rows=False), tensors(two, rows=False))
        for n, part in two.tables.items():
            assert one.tables[n].rows.tolist() == kept[n][part.rows.numpy()].tolist()


def test_a_later_row_does_not_choose_for_the_others() -> None:
    # The first hub is later than the seeds, so without it all the others move up by one.
    hubs, children = 12, 30
    when = pd.Series([START + 9 * DAY] + [START] * (hubs - 1))
    ids = np.arange(hubs)
    spokes = Table(pd.DataFrame({"hub": np.tile(ids[1:], children)}), {"hub": "hub"})
    found = []
    for first in (0, 1):
        hub = pd.DataFrame({"id": ids[first:], "when": when[first:]})
        db = Database({"hub": Table(hub, {}, "id", "when"), "spoke": spokes})
        sampler = TemporalSampler(build_graph(db), "hub", [3], "separate")
        found.append(sampler.sample(ids[1:] - first, [START] * (hubs - 1)))
    assert_identical(tensors(found[0], rows=False), tensors(found[1], rows=False))
    assert found[0].tables["spoke"].rows.equal(found[1].tables["spoke"].rows)


def test_the_future_of_real_data_does_not_exist() -> None:
    data = dataset("rel-f1")
    task = data.load_task("driver-dnf")
    frame = task.get_table("train").df.tail(200)
    rows, times = frame[task.entity_col].astype(int).to_numpy(), frame[task.time_col]
    graphs = [build_graph(data.get_db(upto_test_timestamp=cut)) for cut in (True, False)]
    assert graphs[0].num_rows != graphs[1].num_rows
    for mode in MODES:
        one, two = (
            TemporalSampler(graph, task.entity_table, (16, 8, 4), mode).sample(rows, times)
            for graph in graphs
        )
        assert_identical(tensors(one), tensors(two))


@pytest.mark.slow
def test_uniform_over_the_visible_children() -> None:
    visible, count, rounds = 20, 5, 4000
    sampler = TemporalSampler(build_graph(star(visible, later=30)), "hub", [count], "separate")
    single, pairs = Counter(), Counter()
    for epoch in range(rounds):
        batch = sampler.sample([0], [START + DAY], epoch)
        rows = sorted(batch.tables["spoke"].rows.tolist())
        assert len(set(rows)) == count
        assert max(rows) < visible
        single.update(rows)
        pairs.update(combinations(rows, 2))
    # Chi-squared with 19 and 189 degrees of freedom: beyond these once in 10,000 times.
    expected = rounds * count / visible
    assert sum((single[i] - expected) ** 2 / expected for i in range(visible)) < 50
    expected = rounds * count * (count - 1) / (visible * (visible - 1))
    assert len(pairs) == visible * (visible - 1) // 2
    assert sum((n - expected) ** 2 / expected for n in pairs.values()) < 270


@pytest.mark.parametrize("count", [1, 7, 19])
def test_uniform_across_rows_and_times(count: int) -> None:
    parents, visible = 300, 20
    sampler = TemporalSampler(
        build_graph(star(visible, parents=parents)), "hub", [count], "separate"
    )
    times = [START + pd.Timedelta(hours=int(hour)) for hour in np.arange(parents) % 7]
    part = sampler.sample(np.arange(parents), times).tables["spoke"]
    rank = part.rows[part.index] // parents  # children of one parent stand `parents` rows apart
    assert len(rank) == parents * count
    expected = parents * count / visible
    chi = ((rank.bincount(minlength=visible) - expected) ** 2 / expected).sum()
    assert chi < 50


def test_last_takes_the_latest() -> None:
    sampler = TemporalSampler(build_graph(star(10, later=5)), "hub", [3], strategy="last")
    assert sorted(sampler.sample([0], [START]).tables["spoke"].rows.tolist()) == [7, 8, 9]
    assert sorted(sampler.sample([0], [START + 2 * DAY]).tables["spoke"].rows.tolist()) == [
        12,
        13,
        14,
    ]


@examples(250)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), keep=st.integers(1, 30))
def test_baskets_are_events(sizes: list[int], keep: int) -> None:
    """The limit is spread over the latest baskets; rows without a time are no basket."""
    when = [day for day, size in enumerate(sizes) for _ in range(size)]
    times = pd.Series(
        [START + day * DAY if day else pd.NaT for day in when], dtype="datetime64[us]"
    )
    spokes = pd.DataFrame({"hub": 0, "when": times})
    hub = Table(pd.DataFrame({"id": [0]}), {}, "id")
    db = Database({"hub": hub, "spoke": Table(spokes, {"hub": "hub"}, None, "when")})
    sampler = TemporalSampler(build_graph(db), "hub", [keep], strategy="events")
    found = sorted(sampler.sample([0], [START + 99 * DAY]).tables["spoke"].rows.tolist())
    slow = Reference(db)
    rows = [("spoke", row) for row in range(len(when))]
    assert [("spoke", row) for row in found] == sorted(slow.latest_events(rows, keep))
    taken = Counter(when[row] for row in found if when[row])
    assert len(found) == min(keep, len(when))
    # No basket gives two rows more than another that has rows left.
    assert all(
        taken[a] <= taken[b] + 1 or taken[b] == sizes[b] for a in taken for b in range(1, len(sizes))
        if b in taken or len(taken) < keep
    )  # fmt: skip


@pytest.mark.parametrize("days", [None, [0] * 20, list(range(20))])
def test_events_are_the_latest_rows_where_no_time_or_all_are_shared(days) -> None:
    spokes = pd.DataFrame({"hub": np.zeros(20, int)})
    if days is not None:
        spokes["when"] = START + pd.to_timedelta(days, unit="D")
    hub = Table(pd.DataFrame({"id": [0]}), {}, "id")
    when = None if days is None else "when"
    graph = build_graph(Database({"hub": hub, "spoke": Table(spokes, {"hub": "hub"}, None, when)}))
    one, two = (
        TemporalSampler(graph, "hub", [4], strategy=s).sample([0], [START + 9 * DAY])
        for s in ("last", "events")
    )
    assert_identical(tensors(one), tensors(two))


def test_ties_are_visible_and_one_tick_less_is_not() -> None:
    sampler = TemporalSampler(build_graph(star(4, later=2)), "hub", [-1])
    at = START + 2 * DAY
    for time, count in [(START, 4), (at - pd.Timedelta(1, "us"), 4), (at, 6)]:
        assert len(sampler.sample([0], [time]).tables["spoke"]) == count
    assert len(sampler.sample([0], [START - DAY]).tables["spoke"]) == 0


def test_ages_count_back_from_where_the_database_stops() -> None:
    sampler = TemporalSampler(build_graph(star(2)), "hub", [-1])
    at = START + 3 * DAY
    ages = [
        sampler.sample([0], [time], cutoffs=cutoffs).tables["spoke"].age.tolist()
        for time, cutoffs in (
            (at, None),
            (at + DAY, [at]),
            (at + 900 * DAY, [at]),
            (at, [at + DAY]),
        )
    ]
    assert all(some == ages[0] for some in ages)
    assert max(ages[0]) == 3 * 86400.0


def test_a_seed_later_than_its_time_is_kept_but_not_read() -> None:
    db = star(1, later=1)
    sampler = TemporalSampler(build_graph(db), "spoke", [2, 2])
    batch = sampler.sample([1, 0], [START + DAY, START + DAY])
    part = batch.tables["spoke"]
    assert part.rows[part.index[batch.seeds]].tolist() == [1, 0]
    assert part.age[batch.seeds].tolist() == [-86400.0, 86400.0]
    pointers = batch.parents[sampler.graph.foreign_keys[0]]
    assert (pointers[batch.seeds] >= 0).tolist() == [False, True]


def test_a_row_brought_along_brings_its_parents_when_a_computed_row_is_among_them() -> None:
    # One child per key: v1 is taken, v0 is not, but r0 brings it. It is a child of the seed all
    # the same, so the match u0 <- v0 -> w0 must be whole.
    db = Database(
        {
            "u": table({"x": [0, 1]}),
            "w": table({"x": [0]}),
            "v": table({"c": [0, 0], "d": [0, 1]}, {"c": "w", "d": "u"}),
            "r": table({"a": [0], "b": [0]}, {"a": "w", "b": "v"}),
        }
    )
    graph = build_graph(db)
    batch = TemporalSampler(graph, "w", [1], strategy="last").sample([0], [START])
    assert sorted(batch.tables["u"].rows.tolist()) == [0, 1]
    assert batch.tables["u"].hop.tolist() == [2, 2]
    assert [len(batch.matches(route).u) for route in batch.routes if "u <- v" in str(route)] == [2]
    check_structure(batch, Reference(db), graph, [1], pd.Series([START]))


def test_shared_and_separate() -> None:
    graph = build_graph(star(3, parents=2))
    times = [START, START + DAY, START]
    shared = TemporalSampler(graph, "hub", [-1], "shared").sample([0, 0, 1], times)
    assert len(shared.group_times) == 2
    assert len(shared.tables["hub"]) == 3
    assert len(shared.tables["spoke"].rows) == 6
    assert len(shared.tables["spoke"]) == 9
    separate = TemporalSampler(graph, "hub", [-1], "separate").sample([0, 0, 0], times)
    assert len(separate.group_times) == 3
    assert separate.tables["hub"].rows.tolist() == [0]
    assert separate.seeds.tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_edges_of_the_world(mode: str) -> None:
    db = Database(
        {
            "alone": table({"x": [1]}),
            "empty": table({"k": []}, {"k": "alone"}),
            "loop": table({"next": [0, 0]}, {"next": "loop"}),
        }
    )
    graph = build_graph(db)
    for fanouts in ([], [0], [-1], [-1, 0, 3]):
        batch = TemporalSampler(graph, "alone", fanouts, mode).sample([0], [START])
        assert {name: len(part) for name, part in batch.tables.items()} == {
            "alone": 1,
            "empty": 0,
            "loop": 0,
        }
        batch = TemporalSampler(graph, "loop", fanouts, mode).sample([0], [START])
        assert batch.parents[graph.foreign_keys[1]][batch.seeds].tolist() == [0]
        none = TemporalSampler(graph, "alone", fanouts, mode).sample([], pd.to_datetime([]))
        assert len(none) == len(none.tables["alone"]) == 0
        for route in find_routes(graph.foreign_keys):
            assert len(set(map(len, none.matches(route)))) == 1


def test_bad_seeds_and_settings_are_refused() -> None:
    graph = build_graph(star(2))
    sampler = TemporalSampler(graph, "hub")
    for rows, times, message in [
        ([1], [START], "1 of 1 rows are not in 'hub' \\(1 rows\\): 1, for example"),
        ([-1], [START], "rows are not in"),
        ([0], [pd.NaT], "1 have no time"),
        ([0.5], [START], "must be integers"),
        ([0, 0], [START], "but times of shape"),
    ]:
        with pytest.raises(TaskError, match=message):
            sampler.sample(rows, pd.Series(times, dtype="datetime64[us]"))
    with pytest.raises(UsageError, match="no table 'nobody'"):
        TemporalSampler(graph, "nobody")
    with pytest.raises(UsageError, match="-1 or more"):
        TemporalSampler(graph, "hub", [-2])
    with pytest.raises(ValueError, match="'middle' is not a valid Strategy"):
        TemporalSampler(graph, "hub", strategy="middle")


def test_default_fanouts() -> None:
    assert halving(128, 4) == (128, 64, 32, 16)
    assert halving(3, 4) == (3, 1, 1, 1)
    assert halving(-1, 2) == (-1, -1)
    assert halving(0, 2) == (0, 0)
    with pytest.raises(UsageError):
        halving(-3, 2)


def test_to_a_device() -> None:
    batch = TemporalSampler(build_graph(star(3)), "hub").sample([0], [START])
    moved = batch.to("meta")
    assert moved.seeds.device.type == "meta"
    assert {p.device.type for p in moved.parents.values()} == {"meta"}
    for name, part in moved.tables.items():
        assert part.index.device.type == "meta"
        assert (part.age is None) == (name == "hub")
    assert_identical(tensors(batch), tensors(batch.to("cpu")))


def test_a_graph_on_disk_gives_the_same(tmp_path) -> None:
    graph = build_graph(star(30, later=5, parents=3))
    graph.save(tmp_path)
    one, two = (
        TemporalSampler(g, "hub", [4, 2]).sample([0, 2], [START, START + 3 * DAY])
        for g in (graph, open_graph(tmp_path))
    )
    assert_identical(tensors(one), tensors(two))
