"""Times in any form as ticks: none that is odd becomes one that is missing, or another one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from relfrog.support.times import MISSING, as_moments, as_ticks, odd_time

LARGE = 2**64 - 1


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1.7e15]),  # microseconds and nanoseconds since 1970, as floats
        pd.Series([1.7e18]),
        pd.Series([np.inf]),
        pd.Series([LARGE], dtype="uint64"),
        pd.Series([LARGE, None], dtype="UInt64"),
    ],
)
def test_a_number_that_is_too_large_is_late(values: pd.Series) -> None:
    """A row without a time is visible at any time; one of a far future at none."""
    ticks, unit = as_ticks(values)
    assert ticks[0] > as_ticks(pd.Series([4e9]))[0][0]
    assert odd_time(ticks, unit) is not None
    assert not np.isnat(as_moments(values)[0])


def test_what_is_missing_stays_so() -> None:
    for values in (
        pd.Series([np.nan]),
        pd.Series([None], dtype="Int64"),
        pd.Series([None], dtype="UInt64"),
        pd.Series([pd.NaT]),
    ):
        assert as_ticks(values)[0].tolist() == [MISSING]
        assert np.isnat(as_moments(values)).all()


@pytest.mark.parametrize("kind", ["M8[s]", "M8[us]", "M8[ns]", "i8", "f8"])
def test_the_order_of_bytes_does_not_matter(kind: str) -> None:
    values = np.array([1_700_000_000]).astype(kind)
    ticks, unit = as_ticks(values)
    turned, same = as_ticks(values.astype(values.dtype.newbyteorder(">")))
    assert (turned.tolist(), same) == (ticks.tolist(), unit)
