"""Loaders: every seed once, the same whatever the workers, and gone when stopped."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest

from oracles.reference_sampler import assert_identical, tensors
from oracles.relational_databases import DAY, START, star
from relfrog.errors import UsageError
from relfrog.graph.loader import Loader, group_seeds
from relfrog.graph.relational import build_graph
from relfrog.graph.sampler import TemporalSampler


def loader(mode: str = "shared", **settings) -> Loader:
    graph = build_graph(star(12, later=6, parents=40))
    rows = np.arange(200) % 40
    times = pd.Series([START + int(day) * DAY for day in np.arange(200) // 40])
    return Loader(TemporalSampler(graph, "hub", [5, 3], mode), rows, times, 16, **settings)


@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_workers_change_nothing(mode: str) -> None:
    def run(workers: int) -> list:
        some = loader(mode, workers=workers, ahead=3)
        return [*map(tensors, some.epoch(1)), *map(tensors, some)]

    expected = run(0)
    for workers in (1, 3):
        found = run(workers)
        assert len(found) == len(expected) == 2 * 13
        for one, two in zip(expected, found, strict=True):
            assert_identical(one, two)


def test_every_seed_once_and_another_order_each_epoch() -> None:
    some = loader()
    orders = [[i for batch in some.epoch(n) for i in batch.seed_ids.tolist()] for n in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(200))
    assert orders[0] != orders[1]
    for batch in some.epoch(0):
        part = batch.tables["hub"]
        assert part.rows[part.index[batch.seeds]].tolist() == (batch.seed_ids % 40).tolist()


def test_evaluation_keeps_order_and_subgraphs() -> None:
    some = loader()
    first, second = list(some), list(some)
    assert [i for batch in first for i in batch.seed_ids.tolist()] == list(range(200))
    for one, two in zip(first, second, strict=True):
        assert_identical(tensors(one), tensors(two))


def test_an_epoch_can_be_resumed() -> None:
    some = loader()
    for one, two in zip(list(some.epoch(3))[9:], some.epoch(3, start=9), strict=True):
        assert_identical(tensors(one), tensors(two))


@pytest.mark.parametrize(
    ("times_per_batch", "fewest", "most"), [(1, 1, 2), (4, 3, 5), (64, 20, 64)]
)
def test_variety_is_a_setting(times_per_batch: int, fewest: int, most: int) -> None:
    ticks = np.repeat(np.arange(100), 64)
    order = group_seeds(ticks, 64, times_per_batch, np.random.default_rng(0))
    assert sorted(order) == list(range(len(ticks)))
    variety = [len(set(batch)) for batch in ticks[order].reshape(-1, 64)]
    assert fewest <= np.mean(variety) <= most


@pytest.mark.parametrize("seed", range(40))
def test_runs_of_a_time_are_shuffled_as_a_sort_shuffles_them(seed: int) -> None:
    draw = np.random.default_rng(seed)
    ticks = draw.integers(-5, 5, draw.integers(0, 60))
    size, times = (int(draw.integers(1, high)) for high in (20, 6))
    rng = np.random.default_rng(seed)
    by_time = sorted(rng.permutation(len(ticks)), key=lambda seed: ticks[seed])
    length, runs = max(1, size // times), []
    for _, some in itertools.groupby(by_time, key=lambda seed: ticks[seed]):
        same = list(some)
        runs += [same[at : at + length] for at in range(0, len(same), length)]
    expected = [seed for number in rng.permutation(len(runs)) for seed in runs[number]]
    assert group_seeds(ticks, size, times, np.random.default_rng(seed)).tolist() == expected


def samplers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("relfrog-sampler")]


def test_stopping_early_leaves_no_thread() -> None:
    batches = loader(workers=2).epoch(0)
    next(batches)
    assert samplers()
    batches.close()
    assert not samplers()


def test_an_error_reaches_the_reader_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    some = loader(workers=2)

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(TemporalSampler, "sample_checked", fail)
    with pytest.raises(RuntimeError, match="broken"):
        list(some)
    assert not samplers()


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    some = loader(workers=2, ahead=3)
    made = []
    sample = TemporalSampler.sample_checked
    monkeypatch.setattr(
        TemporalSampler, "sample_checked", lambda *args: made.append(1) or sample(*args)
    )
    batches = iter(some)
    next(batches)
    time.sleep(0.3)
    assert len(made) <= 4
    batches.close()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="ahead must be 1 or more"):
        loader(ahead=0)


CHILD = """
import signal
import numpy as np, pandas as pd
from oracles.relational_databases import START, star
# Where the tests run in the background, a shell has them ignore Ctrl-C, and so their children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from relfrog.graph.relational import build_graph
from relfrog.graph.loader import Loader
from relfrog.graph.sampler import TemporalSampler
graph = build_graph(star(2000, parents=50))
rows = np.arange(500_000) % 50
sampler = TemporalSampler(graph, "hub", [-1], "separate")
for number, batch in enumerate(Loader(sampler, rows, np.full(500_000, START), 64)):
    print(number, flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_it() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "0\n"
        child.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, errors = child.communicate(timeout=30)
        assert time.monotonic() - began < 10
        assert "KeyboardInterrupt" in errors
        assert child.returncode != 0
    finally:
        child.kill()
