"""What has come together up to each row of a stream."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from relfrog.graph.relational import ForeignKey
from relfrog.models.aggregates.cumulative import KEEPS, Cumulative
from relfrog.models.aggregates.encoded_columns import EncodedColumn
from relfrog.models.aggregates.streams import FADING, FULL, STREAKS, Measure, Stream
from relfrog.support.times import MISSING

KEY = ForeignKey("b", "k", "a")
STREAM = Stream(
    (KEY,), "b",
    (
        Measure(EncodedColumn("b", "x", "number"), None, -1, FULL),
        Measure(EncodedColumn("b", "y", "number"), None, -1, STREAKS + FADING),
    ),
    codes=(EncodedColumn("b", "c", "category", levels=("p", "q")),),
    pointers=(ForeignKey("b", "l", "d"),),
)  # fmt: skip
NUMBERS = st.sampled_from([float("nan"), -1.5, 0.0, 0.1, 3.0, 1e9])
ROWS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from([MISSING, -5, 0, 1, 2]), NUMBERS, NUMBERS,
        st.sampled_from([float("nan"), 0.0, 1.0]), st.integers(-1, 2),
    ),
    max_size=20,
)  # fmt: skip


def columns(rows: list[Any], first: int) -> dict[str, np.ndarray]:
    """The rows as the query gives them."""
    parts = list(zip(*rows)) or [()] * 6
    found = {
        name: np.array(part, kind)
        for name, kind, part in zip(
            ("owner", "tick", "v0", "v1", "k0", "p0"), (int, int, float, float, float, int), parts
        )
    }
    return found | {"g": np.arange(first, first + len(rows)) + 1}


def added(rows: list[Any], cuts: list[int]) -> pa.Table:
    """Add up the rows, in parts that end at the cuts."""
    cumulative = Cumulative(STREAM, {"d": 3})
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    return pa.concat_tables(
        [cumulative.add(columns(rows[a:b], a)) for a, b in itertools.pairwise(ends)]
    )  # fmt: skip


def slow(rows: list[Any]) -> list[dict[str, Any]]:
    """The same, from all rows up to each anew."""
    found = []
    for number, (owner, tick, *_, code, parent) in enumerate(rows):
        past = [row for row in rows[: number + 1] if row[0] == owner]
        known = [row[1] for row in past if row[1] != MISSING]
        entry: dict[str, Any] = {"g": number + 1, "tick": tick, "t0": min(known, default=None)}
        for measure in (0, 1):
            values = [row[2 + measure] for row in past]
            there = [value for value in values if value == value]
            last = values[-1]
            entry |= {f"v{measure}": plain(last), f"n{measure}": len(there)}
            total = squares = 0.0
            for value in there:
                total, squares = total + value, squares + value * value
            entry[f"s{measure}"] = total
            if measure == 0:
                entry |= {"q0": squares, "min0": min(there, default=None)}
                entry["max0"] = max(there, default=None)
            else:
                entry |= {"streak1": streak(values)}
                entry |= {f"{n.split()[0]}_1": fading(there, k) for n, k in KEEPS.items()}
        entry |= {"k0": plain(code), "p0": None if parent < 0 else parent}
        found.append(entry | {"u0": len({row[5] for row in past} - {-1})})
    return found


def plain(value: float) -> float | None:
    return value if value == value else None


def fading(values: list[float], keeps: float) -> float | None:
    """The mean in which a value keeps so much of its weight when another comes."""
    weighted = weight = 0.0
    for value in values:
        weighted, weight = weighted * keeps + value, weight * keeps + 1.0
    return weighted / weight if values else None


def streak(values: list[float]) -> int | None:
    """How many values in a row are like the last one."""
    if values[-1] != values[-1]:
        return None
    alike = 0
    for value in reversed(values):
        if value != value or (value > 0) != (values[-1] > 0):
            break
        alike += 1
    return alike if values[-1] > 0 else -alike


@examples(150)
@given(ROWS, st.lists(st.integers(0, 20), max_size=3))
def test_it_is_that_of_a_loop_however_rows_come(rows: list[Any], cuts: list[int]) -> None:
    rows = sorted(rows, key=lambda row: row[:2])
    found = added(rows, cuts)
    assert found.to_pylist() == slow(rows)
    assert found.schema == added(rows, []).schema
