"""The benchmark's "reads alone" are the reads of the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples
from oracles.reference_sampler import Reference, rows_of
from oracles.relational_databases import START, seeded, star
from reading import ARRAYS, Reads, read_alone, reads_of, watched
from relfrog.graph import _kernels
from relfrog.graph._kernels import SHIFT, SORTED
from relfrog.graph.relational import build_graph
from relfrog.graph.sampler import TemporalSampler


class Recorded:
    """An array that notes which of its elements are read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.reads: list[int] = []

    def __getitem__(self, element: int) -> np.generic:
        self.reads.append(int(element))
        return self.array[int(element)]


@contextmanager
def interpreted() -> Iterator[None]:
    """Let Python run the walk, one statement after the other."""
    plain = {name: f.py_func for name, f in vars(_kernels).items() if hasattr(f, "py_func")}
    with patch.multiple(_kernels, prefetch=lambda *_: None, **plain), np.errstate(over="ignore"):
        yield


def by_array(reads: Reads) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for name in ARRAYS}
    for array, begin, end in reads.runs.tolist():
        found[ARRAYS[array]] += reads.elements[begin:end].tolist()
    return found


def is_part_in_order(some: list[int], every: list[int]) -> bool:
    rest = iter(every)
    return all(element in rest for element in some)


@pytest.mark.parametrize("mode", ["separate", "shared"])
@examples(40)
@given(case=seeded(), fanouts=st.lists(st.sampled_from([-1, 0, 1, 2, 9]), max_size=3))
def test_the_reads_are_those_of_the_sampler(mode: str, case, fanouts: list[int]) -> None:
    db, name, rows, times = case
    graph = build_graph(db)
    sampler = TemporalSampler(graph, name, fanouts, mode)
    with watched() as walks:
        sampler.sample(rows, times)
    (walk,) = walks
    found = by_array(reads_of(walk))

    names = ("parents", "children", "blocks", "times")
    recorded = {part: Recorded(getattr(graph, part)) for part in names}
    arguments = [*walk.arguments[:2], *recorded.values(), *walk.arguments[6:]]
    memory = (
        np.empty((0, 4), np.int32), np.empty((0, walk.arguments[6].shape[1]), np.int32),
        np.empty(0, np.int64), np.empty((0, 4), np.int64), np.empty(0, np.int32),
        np.empty((0, walk.arguments[6].shape[1]), np.int32),
    )  # fmt: skip
    with interpreted():
        records = _kernels.walk(*arguments, *memory)[0]
    assert np.array_equal(records[: len(walk.records)], walk.records)

    for part, reads in found.items():
        assert is_part_in_order(reads, recorded[part].reads), part
    # Where nothing has to be searched for, nothing is left out.
    assert found["blocks"] == recorded["blocks"].reads
    if not graph.keys[:, SHIFT].any():
        assert found["parents"] == recorded["parents"].reads
    if graph.tables[:, SORTED].all():
        assert set(found["times"]) == set(recorded["times"].reads)


@examples(40)
@given(case=seeded(), hops=st.integers(0, 3))
def test_every_visible_child_is_read(case, hops: int) -> None:
    db, name, rows, times = case
    graph, slow = build_graph(db), Reference(db)
    with watched() as walks:
        batch = TemporalSampler(graph, name, [-1] * hops, "separate").sample(rows, times)
    cutoffs = [pd.Timestamp(t, unit=graph.unit) for t in batch.group_times.tolist()]
    expected = 0
    for table, part in batch.tables.items():
        for hop, (group, row) in zip(part.hop.tolist(), rows_of(batch, table), strict=True):
            for key in slow.keys:
                if key.parent == table and hop < hops:
                    expected += len(slow.children(row, key, cutoffs[group]))
    assert len(by_array(reads_of(walks[0]))["children"]) == expected


def test_reading_alone_reads_all() -> None:
    graph = build_graph(star(20, later=5, parents=3))
    with watched() as walks:
        TemporalSampler(graph, "hub", [4, 2]).sample([0, 2], [START, START])
    reads = reads_of(walks[0])
    arrays = [getattr(graph, name) for name in ARRAYS]
    expected = sum(
        int(array[by_array(reads)[name]].sum()) for name, array in zip(ARRAYS, arrays, strict=True)
    )
    assert read_alone(*arrays, *reads) == expected != 0
