"""Keeping LightGBM to its time: features of as many seeds as fit, and rounds until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfrog.training.budget import Budget

__all__ = ["make_in_time", "stop_in_time"]

#: So many seeds are always used.
FEWEST = 5_000


def make_in_time(
    make: Callable[[NDArray[np.int64]], NDArray[Any]],
    count: int,
    seconds: float,
    known: tuple[int, float],
    rng: np.random.Generator,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Compute the features of all seeds, or of a random part if that would take too long.

    Reading the tables takes as long for few seeds as for many, so that one measurement says little:
    where time may be short, part of the seeds come first, and the rest by what these took.

    Args:
        make: computes the features of some seeds, given as sorted indices.
        count: number of seeds.
        seconds: the time for it.
        known: number of seeds for which features were made before, and the seconds it took.
        rng: which seeds are taken.

    Returns:
        The features, and the indices of the seeds, in order. Shapes [taken, features], [taken].
    """
    before, took = known
    everything = np.arange(count)
    if count <= FEWEST or took * count / max(1, before) <= seconds:
        return make(everything), everything
    order = rng.permutation(count)
    probe = max(FEWEST, min(count // 4, 4 * before))
    started = time.monotonic()
    first = np.sort(order[:probe])
    parts, chosen = [make(first)], [first]
    spent = time.monotonic() - started
    # What the seeds themselves take, as a straight line through both measurements.
    each = (spent - took) / (probe - before) if probe > before else spent / probe
    each = max(each, spent / probe / 10)
    fixed = max(0.0, spent - each * probe)
    more = min(count - probe, int((seconds - spent - fixed) / each))
    if more > 0:
        rest = np.sort(order[probe : probe + more])
        parts, chosen = [*parts, make(rest)], [*chosen, rest]
    taken = np.concatenate(chosen)
    place = np.argsort(taken, kind="stable")
    return np.concatenate(parts)[place], taken[place]


def stop_in_time(lightgbm: Any, budget: Budget) -> Callable[[Any], None]:
    """A callback of LightGBM's that ends training with the round in which time runs out."""
    stop = lightgbm.callback.EarlyStopException

    def callback(env: Any) -> None:
        if budget.over:
            raise stop(env.iteration, env.evaluation_result_list)

    callback.order = 40  # type: ignore[attr-defined]  # after LightGBM has noted the round's score
    return callback
