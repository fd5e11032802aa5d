"""Rows without a time are known from the latest row that they name, in any database."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from helpers import examples
from oracles.slow_times import as_lists, slow_known
from relfrog.support.inherited_times import InheritedTimes, Link, inherit_times
from relfrog.support.times import MISSING


@st.composite
def worlds(draw):
    """Own times, foreign keys and pointers: circles, self references, NULLs, empty tables."""
    names = [f"t{i}" for i in range(draw(st.integers(1, 5)))]
    sizes = {name: draw(st.sampled_from([0, 1, 3, 8])) for name in names}
    own, pointers = {}, {}
    for name in names:
        kind = draw(st.sampled_from(["all", "none", "none", "some"]))
        tick = {"all": st.integers(0, 9), "none": st.just(MISSING)}.get(
            kind, st.one_of(st.just(MISSING), st.integers(0, 9))
        )
        some = draw(st.lists(tick, min_size=sizes[name], max_size=sizes[name]))
        own[name] = np.array(some, np.int64)
    for name in names:
        for number in range(draw(st.integers(0, 3))):
            parent = draw(st.sampled_from(names))
            row = st.integers(-1, sizes[parent] - 1)
            some = draw(st.lists(row, min_size=sizes[name], max_size=sizes[name]))
            pointers[Link(name, (f"k{number}",), parent)] = np.array(some, np.int32)
    return own, pointers


def found(own, pointers, **more) -> InheritedTimes:
    return inherit_times(own, list(pointers), pointers.__getitem__, **more)


@examples(300)
@given(worlds())
def test_it_is_the_latest_row_that_is_reached(world) -> None:
    own, pointers = world
    result = found(own, pointers)
    kept = [k for k in pointers if k not in [c.link for c in result.contradictions]]
    slow = slow_known(as_lists(own), kept, as_lists(pointers))
    for name in own:
        if name in result.known:
            assert result.known[name].tolist() == slow[name]
        else:
            assert own[name].tolist() == slow[name]


@examples(100)
@given(worlds(), st.data())
def test_along_chosen_keys_alone(world, data) -> None:
    own, pointers = world
    chosen = {
        name: [k for k in pointers if k.child == name and data.draw(st.booleans())] for name in own
    }
    result = found(own, pointers, along=chosen)
    assert not result.contradictions  # who chooses is right
    links = [k for some in chosen.values() for k in some]
    slow = slow_known(as_lists(own), links, as_lists(pointers))
    for name, some in chosen.items():
        assert result.links.get(name, []) == sorted(some)
        if some:
            assert result.known[name].tolist() == slow[name]


def test_what_the_data_contradict_is_not_inherited() -> None:
    """Of each customer the last order is named, and most orders are older."""
    customer = np.repeat(np.arange(10), 4)
    times = np.arange(40) * 86_400_000_000
    own = {"orders": times, "customers": np.full(10, MISSING), "notes": np.full(10, MISSING)}
    back = Link("orders", ("customer",), "customers")
    last, first = (Link("customers", (name,), "orders") for name in ("last", "first"))
    note = Link("notes", ("customer",), "customers")
    pointers = {back: customer, note: np.arange(10), last: np.arange(3, 40, 4)}
    result = found(own, pointers)
    assert [c.link for c in result.contradictions] == [last]
    (why,) = result.contradictions
    assert (why.rows, why.older, why.table) == (30, 30, "orders")  # the last says nothing
    assert (why.time, why.inherited) == (times[0], times[3])
    assert not result.known
    # The first order is another matter; and who names customers is known with them.
    del pointers[last]
    result = found(own, {**pointers, first: np.arange(0, 40, 4)})
    assert not result.contradictions
    assert result.known["customers"].tolist() == times[::4].tolist()
    assert result.known["notes"].tolist() == times[::4].tolist()


def test_the_key_at_fault_is_refused_and_not_those_below_it() -> None:
    """Events name sessions, sessions users, and users their last event."""
    events = np.arange(60) * 86_400_000_000
    own = {"events": events, "sessions": np.full(20, MISSING), "users": np.full(5, MISSING)}
    pointers = {
        Link("events", ("session",), "sessions"): np.arange(60) // 3,
        Link("sessions", ("user",), "users"): np.arange(20) % 5,
        Link("users", ("last_event",), "events"): np.arange(55, 60),
    }
    result = found(own, pointers)
    assert [str(c.link) for c in result.contradictions] == ["users.last_event -> events"]
    assert not result.known


@pytest.mark.parametrize(("hour", "contradicted"), [(0, False), (1, True)])
def test_a_day_without_hours_is_not_before_its_hours(hour: int, contradicted: bool) -> None:
    day = 86_400_000_000
    own = {
        "orders": np.arange(20) * day + day // 2,
        "parcels": np.full(20, MISSING),
        "scans": np.arange(20) * day + hour * day // 24,
    }
    pointers = {
        Link("parcels", ("order",), "orders"): np.arange(20),
        Link("scans", ("parcel",), "parcels"): np.arange(20),
    }
    assert bool(found(own, pointers).contradictions) == contradicted


def test_a_long_chain_is_quick() -> None:
    """Each version names the one before it; only the first has a time."""
    count = 20_000
    own = {"versions": np.full(count, MISSING)}
    own["versions"][0] = 7
    link = Link("versions", ("before",), "versions")
    result = found(own, {link: np.arange(-1, count - 1)})
    assert (result.known["versions"] == 7).all()
