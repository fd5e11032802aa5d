"""Splits lie where events are: strays, crowds and gaps do not decide them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import csv_folder
from relfrog.importing.database import import_database, plan_import
from relfrog.importing.split_proposal import event_tables, main_part, place_splits

DAY = 86_400_000_000


def parts(times: np.ndarray, counts: np.ndarray) -> tuple[int, int, int]:
    """Events before validation, in it, and in test."""
    found = place_splits(times, counts)
    assert found is not None
    return (
        int(counts[times < found.val].sum()),
        int(counts[(times >= found.val) & (times < found.test)].sum()),
        int(counts[times >= found.test].sum()),
    )


@st.composite
def events(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Times in order with any distances and crowds."""
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 7, 400, 9000]), min_size=4, max_size=60))
    counts = draw(
        st.lists(
            st.sampled_from([1, 2, 5, 100, 10**6]), min_size=len(steps) + 1, max_size=len(steps) + 1
        )
    )
    return np.cumsum([0, *steps]) * DAY, np.array(counts)


@given(events())
def test_every_part_has_an_event_and_no_split_lies_in_a_gap(
    some: tuple[np.ndarray, np.ndarray],
) -> None:
    times, counts = some
    found = place_splits(times, counts)
    assert found is not None
    assert found.low <= found.val < found.test <= found.high
    for begin, end in found.gaps:
        assert not begin < found.val < end
        assert not begin < found.test < end
    if len(times[main_part(times, counts)]) > 8:
        assert min(parts(times, counts)) > 0


@given(events(), st.integers(1, 3), st.booleans())
def test_a_few_strays_are_never_part_of_the_events(
    some: tuple[np.ndarray, np.ndarray], strays: int, early: bool
) -> None:
    """However far: what lies beyond ten times the span, and is few, is left out."""
    times, counts = some
    span = times[-1] - times[0]
    odd = np.arange(strays) * DAY
    everything = (
        np.concatenate((times[0] - 10 * span - odd[::-1], times))
        if early
        else np.concatenate((times, times[-1] + 10 * span + odd))
    )
    ones = np.ones(strays, np.int64)
    several = np.concatenate((ones, counts * 1000) if early else (counts * 1000, ones))
    kept = everything[main_part(everything, several)]
    assert np.isin(kept, times).all()


def daily(days: int, per_day: int = 5) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(days) * DAY, np.full(days, per_day)


def test_half_of_the_rows_at_one_instant_move_nothing() -> None:
    times, counts = daily(1000)
    plain = place_splits(times, counts)
    assert plain is not None
    for when in (0, 10, 500):
        loaded = counts.copy()
        loaded[when] = counts.sum()
        found = place_splits(times, loaded)
        assert found is not None
        assert abs(found.val - plain.val) <= 10 * DAY
        assert abs(found.test - plain.test) <= 10 * DAY


def test_a_growing_shop_keeps_half_of_its_rows_for_training() -> None:
    times = np.arange(1500) * DAY
    counts = np.maximum(1, 1.006 ** np.arange(1500)).astype(int)
    train, val, test = parts(times, counts)
    total = counts.sum()
    assert train >= 0.48 * total
    assert min(val, test) >= 0.04 * total


def test_a_shop_that_fades_away_keeps_rows_for_test() -> None:
    times = np.arange(1500) * DAY
    counts = np.maximum(1, 1000 * 0.99 ** np.arange(1500)).astype(int)
    _, val, test = parts(times, counts)
    assert min(val, test) >= 0.03 * counts.sum()


def test_seasons_are_split_within_the_last_ones() -> None:
    """Four months of skiing each year: no split in a summer."""
    times = np.concatenate([np.arange(120) + 365 * year for year in range(5)]) * DAY
    counts = np.full(len(times), 30)
    found = place_splits(times, counts)
    assert found is not None
    assert len(found.gaps) == 4
    assert min(parts(times, counts)) >= 0.08 * counts.sum()
    for split in (found.val, found.test):
        assert split // DAY % 365 < 120


def test_events_name_rows_and_are_not_named_by_as_many() -> None:
    shop = {
        "employees": (8, True, ["employees"]),
        "customers": (500, True, ["employees"]),
        "orders": (9000, True, ["customers"]),
        "lines": (30_000, False, ["orders"]),
        "refunds": (40, True, ["orders"]),
    }
    assert event_tables(shop) == ["orders", "refunds"]
    # Keys of the largest table may be unknown: it is where things happen nevertheless.
    scans = {"scans": (90_000, True, []), "migrations": (30, True, [])}
    assert event_tables(shop | scans) == ["orders", "refunds", "scans"]
    # People are no events, however many there are.
    people = {"customers": (500_000, True, []), "orders": (9000, True, ["customers"])}
    assert event_tables(people) == ["orders"]
    assert event_tables({"log": (10, True, []), "kinds": (3, False, [])}) == ["log"]
    assert event_tables({"kinds": (3, False, [])}) == []


def shop_of(folder: Path, days: list[str], hired: list[str]) -> str:
    """A shop with a sale per day given, and some people hired long before."""
    return csv_folder(
        folder,
        staff="staff_id,boss_id,hired_at\n"
        + "".join(f"{i},{max(0, i - 1)},{day}\n" for i, day in enumerate(hired)),
        sales="sale_id,staff_id,sold_at,amount\n"
        + "".join(f"{i},{i % len(hired)},{day},{i % 7}\n" for i, day in enumerate(days)),
    )


def dates(first: str, count: int, step: int = 1) -> list[str]:
    start = dt.date.fromisoformat(first)
    return [str(start + dt.timedelta(days=step * i)) for i in range(count)]


@pytest.mark.parametrize("odd", [[], ["1900-01-01"] * 3, ["2099-12-31"], ["1970-01-01"] * 15])
def test_old_staff_and_wrong_dates_do_not_stretch_the_span(odd: list[str], tmp_path: Path) -> None:
    days = dates("2021-01-01", 1000)
    address = shop_of(tmp_path / "csv", [*days, *odd], dates("2001-05-01", 8, 90))
    mapping = plan_import(address).mapping
    assert mapping.val in dates("2023-03-05", 15)
    assert mapping.test in dates("2023-06-13", 15)
    assert "rows of sales" in mapping.split_reason


def test_wrong_dates_are_named(tmp_path: Path) -> None:
    days = [*dates("2021-01-01", 1000), "1900-01-01"]
    result = import_database(shop_of(tmp_path / "csv", days, ["2001-05-01"]), tmp_path / "out")
    assert any("1900-01-01" in n.text and "far from the rest" in n.text for n in result.notices)


def test_a_single_day_is_split_by_the_second(tmp_path: Path) -> None:
    start = dt.datetime(2024, 3, 1, 8)
    times = [str(start + dt.timedelta(seconds=9 * i)) for i in range(1000)]
    for name, odd in (("a", []), ("b", ["1900-01-01 00:00:00"])):
        mapping = plan_import(shop_of(tmp_path / name, [*times, *odd], ["2001-05-01"])).mapping
        assert mapping.val == str(start + dt.timedelta(seconds=7200))[:16] + mapping.val[16:]
        assert "2024-03-01 10:1" in mapping.test


def test_no_split_lies_in_a_gap_of_a_real_import(tmp_path: Path) -> None:
    days = [*dates("2015-01-01", 200), *dates("2020-01-01", 300)]
    mapping = plan_import(shop_of(tmp_path / "csv", days, ["2001-05-01"])).mapping
    assert "2020-06-01" < mapping.val < mapping.test < "2020-10-27"
    assert "not counting 1 long gap (2015-07-19 to 2020-01-01)" in mapping.split_reason
