"""Differences of foreign-key pairs: true ones against mismatched ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relfrog
from relfrog.analysis.fd_space import _apart, _separation, _two_dimensions, differences
from small_store import fit


@pytest.fixture(scope="module")
def run(store: Path, tmp_path_factory: pytest.TempPathFactory) -> relfrog.Run:
    return fit(store, tmp_path_factory.mktemp("differences") / "run", epochs=1)


def test_points_of_a_run(run: relfrog.Run) -> None:
    found = differences(run, pairs=60, seed=3)
    keys = {"orders.person -> people", "orders.thing -> things", "reviews.order_id -> orders"}
    assert set(found.key) == set(found.separation) == keys  # not those of the label history
    assert found.points.shape == (len(found.key), 2)
    assert len(found.matched) == len(found.key)
    assert np.isfinite(found.points).all()
    for name in keys:
        mine = found.matched[[key == name for key in found.key]]
        assert mine.sum() == 20
        assert 0 < (~mine).sum() <= 20
        assert 0 <= found.separation[name] <= 1
        assert 0 <= found.scored[name] <= 1
    assert -1 <= found.silhouette <= 1
    assert 0 < found.explained <= 1
    again = differences(relfrog.load_run(run.folder), pairs=60, seed=3)
    assert np.array_equal(found.points, again.points)
    assert found.separation == again.separation
    assert not np.array_equal(found.points, differences(run, pairs=60, seed=4).points)


def test_a_run_without_rows(store: Path, tmp_path: Path, run: relfrog.Run) -> None:
    other = fit(store, tmp_path / "mean", model="mean")
    with pytest.raises(relfrog.errors.RunError, match="mean is no network: no embeddings"):
        differences(other)
    with pytest.raises(relfrog.errors.UsageError, match="pairs must be 1 or more"):
        differences(run, pairs=0)


def test_mismatched_pairs_have_another_parent() -> None:
    rng = np.random.default_rng(0)
    row = rng.integers(0, 3, 50)
    parent = np.eye(3)[row]
    true, wrong = _apart(np.zeros((50, 3)), parent, row, rng)
    assert np.array_equal(true, parent)
    assert 40 < len(wrong) <= 50
    _, none = _apart(np.zeros((5, 3)), np.ones((5, 3)), np.zeros(5), rng)
    assert len(none) == 0  # there is only one parent
    assert np.isnan(_separation(true, none))


def test_separation_is_an_area() -> None:
    rng = np.random.default_rng(0)
    tight, wide = rng.normal(0, 0.1, (200, 4)), rng.normal(0, 10, (200, 4))
    assert _separation(tight + 7, wide + 7) == pytest.approx(1, abs=0.01)
    assert _separation(wide, tight) == pytest.approx(0, abs=0.01)
    assert _separation(wide, rng.normal(0, 10, (200, 4))) == pytest.approx(0.5, abs=0.1)


def test_two_dimensions_keep_what_varies_most() -> None:
    rng = np.random.default_rng(0)
    rows = np.zeros((40, 5))
    rows[:, 3], rows[:, 1] = rng.normal(0, 9, 40), rng.normal(0, 1, 40)
    points, explained = _two_dimensions(rows, np.ones(40, bool))
    assert explained == pytest.approx(1)
    assert abs(np.corrcoef(points[:, 0], rows[:, 3])[0, 1]) > 0.99
    assert np.allclose(_two_dimensions(-rows, np.ones(40, bool))[0], -points)  # signs are fixed
    one, _ = _two_dimensions(rows[:1], np.ones(1, bool))
    assert one.tolist() == [[0, 0]]
    assert _two_dimensions(rows[:0], np.ones(0, bool))[0].shape == (0, 2)
