"""Time budgets: what follows training has its time, on busy machines, too."""

from __future__ import annotations

import math

import pytest

from relfrog.training import budget as module
from relfrog.training.budget import UNLIMITED, Budget


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The time, and the seconds of the processor."""
    at = {"time": 1000.0, "processor": 50.0}
    monkeypatch.setattr(module.time, "monotonic", lambda: at["time"])
    monkeypatch.setattr(module.time, "process_time", lambda: at["processor"])
    return at


@pytest.mark.parametrize(
    ("elapsed", "computed", "kept"),
    [(60, 60, 12), (60, 110, 12), (60, 20, 18), (60, 2, 30), (0, 0, 12)],
)
def test_a_busy_machine_needs_more_for_what_follows(
    elapsed: float, computed: float, kept: float, clock: dict[str, float]
) -> None:
    budget = Budget(1120, 6.0, (1000, 50))
    clock["time"] += elapsed
    clock["processor"] += computed
    assert budget.left == pytest.approx(120 - elapsed - kept)
    assert not budget.over_in(120 - elapsed - kept - 1)
    assert budget.over_in(120 - elapsed - kept + 1)
    half = budget.share(2)
    assert half.left == pytest.approx(budget.left / 2)
    clock["time"] = 1120 - kept + 1
    assert half.over


def test_no_limit_is_never_over(clock: dict[str, float]) -> None:
    clock["time"] = 1e12
    assert math.isinf(UNLIMITED.left)
    assert math.isinf(UNLIMITED.share(3).left)
    assert not UNLIMITED.over
    assert Budget(0.0).over
