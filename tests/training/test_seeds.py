"""Seeds are the same arrays, whatever form their labels and times came in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relfrog.models.aggregates.features import _calendar_parts
from relfrog.models.past_labels import label_rows
from relfrog.support.lists import Lists, as_frame
from relfrog.support.times import as_moments, as_ticks, moment_text
from relfrog.training.seeds import Seeds

TASK: Any = SimpleNamespace(entity_col="who", time_col="when", target_col="label")
TIMES = pd.Series(
    np.array(["2020-01-01T00:00", "1899-12-31T23:59:59.999999", "2261-05-06T07:08"], "M8[us]")
)

LABELS = {
    "numbers": pa.array([1.5, -2.0, 0.0]),
    "gaps": pa.array([1, None, 3]),
    "truth": pa.array([True, False, True]),
    "truth with gaps": pa.array([True, None, True]),
    "words": pa.array(["a", "", "c"]),
    "words with gaps": pa.array(["a", None, "c"]),
    "large words": pa.array(["a", "b", "c"], pa.large_string()),
    "days": pa.array([1, 2, 3], pa.date32()),
    "lists": pa.array([[1], [], [2, 3]]),
    "large lists": pa.array([[1], [], [2, 3]], pa.large_list(pa.int32())),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_labels_of_the_store_are_those_of_a_frame(name: str, unit: str) -> None:
    when = pa.array(TIMES.astype("datetime64[us]")).cast(pa.timestamp(unit), safe=False)
    columns = {"who": pa.array([3, 1, 2], pa.int32()), "when": when, "label": LABELS[name]}
    whole = pa.table(columns)
    for table in (whole, pa.concat_tables([whole[:1], whole[1:]]), whole[:0]):
        if not len(table) and name.startswith("days"):
            continue  # nothing tells what they were
        one, other = Seeds.of_arrow(TASK, table), Seeds.of_frame(TASK, as_frame(table))
        assert one.rows.dtype == np.int64
        assert one.times.dtype == other.times.dtype == f"datetime64[{unit}]"
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.times, other.times)
        assert one.labels is not None
        assert other.labels is not None
        assert type(one.labels) is type(other.labels)
        values, others = (getattr(s.labels, "values", s.labels) for s in (one, other))
        assert values.dtype == others.dtype
        np.testing.assert_equal(list(one.labels), list(other.labels))
        if not isinstance(one.labels, Lists):  # which nobody writes to
            assert values.flags.writeable


@pytest.mark.parametrize(
    "given",
    [
        TIMES, TIMES.to_numpy(), TIMES.astype("datetime64[ns]"), TIMES.dt.tz_localize("UTC"),
        TIMES.astype(object), list(TIMES), pd.DatetimeIndex(TIMES),
    ],
)  # fmt: skip
def test_times_in_any_form(given: Any) -> None:
    found = as_moments(given)
    assert found.dtype.kind == "M"
    assert list(map(pd.Timestamp, found)) == list(TIMES)
    ticks, unit = as_ticks(given)
    np.testing.assert_array_equal(ticks.view(f"datetime64[{unit}]"), found)
    np.testing.assert_array_equal(Seeds(np.arange(3), given).times, found)


def test_a_zone_is_left_behind_in_utc() -> None:
    there = pd.Series(pd.to_datetime(["2020-01-01 01:00"])).dt.tz_localize("Europe/Berlin")
    assert as_moments(there)[0] == np.datetime64("2020-01-01T00:00")


MOMENTS = st.integers(-(2**50), 2**52)


@given(st.lists(MOMENTS, min_size=1, max_size=20))
def test_the_calendar_is_that_of_pandas(ticks: list[int]) -> None:
    times = np.array(ticks).view("datetime64[us]")
    when = pd.Series(times).dt
    for found, expected in zip(
        _calendar_parts(times), (when.month, when.day_of_year, when.day_of_week), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@given(MOMENTS, st.sampled_from(["us", "ns"]))
def test_times_are_written_as_by_pandas(tick: int, unit: str) -> None:
    for moment in (np.datetime64(tick, unit), np.datetime64(tick - tick % 1000, unit)):
        assert moment_text(moment) == str(pd.Timestamp(moment))


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9), st.booleans())
def test_classes_as_rows(words: list[str], numbered: bool) -> None:
    classes: list[Any] = ["c", "a", "b"]
    labels = np.array(words, object)
    if numbered:
        classes, labels = [30, 10, 20], np.array([10 * "_abcd".index(w) for w in words], np.int64)
    found = label_rows("multiclass_classification", labels, {"classes": classes})
    assert found.shape == (len(words), 3)
    for row, label in zip(found, labels.tolist(), strict=True):
        expected = [float(label == one) if label in classes else np.nan for one in classes]
        np.testing.assert_array_equal(row, expected)
