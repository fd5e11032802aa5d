"""The time budget of training."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

__all__ = ["UNLIMITED", "Budget"]

#: The smallest and the largest share of a budget that is kept for what follows training.
LEAST, MOST = 0.1, 0.25


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


@dataclass(frozen=True)
class Budget:
    """The deadline of training, on the clock of `time.monotonic`; none by default.

    A network stops in the middle of an epoch, early enough to be scored in time; LightGBM with the
    round in which time runs out.

    Attributes:
        until: When everything must be done.
        reserve: What follows training (scores, the report) needs of the processor, in seconds. On
            a machine that is busy with other things this takes longer, by as much as everything
            did so far.
        begun: When the budget began: the time, and the seconds of the processor until then.
    """

    until: float = math.inf
    reserve: float = 0.0
    begun: tuple[float, float] = field(default_factory=_now, compare=False)

    @classmethod
    def of_minutes(cls, minutes: float) -> Budget:
        """A budget of this many minutes from now."""
        return cls(time.monotonic() + 60 * minutes)

    @property
    def over(self) -> bool:
        """Whether the budget is exhausted."""
        return self.over_in(0.0)

    def over_in(self, seconds: float) -> bool:
        """Whether less than so much time is left."""
        return self.left < seconds

    @property
    def left(self) -> float:
        """The seconds that are left for training."""
        return self.until - self._kept() - time.monotonic()

    def _kept(self) -> float:
        """The seconds that are kept for what follows training."""
        if not self.reserve or math.isinf(self.until):
            return 0.0
        whole = max(self.until - self.begun[0], 0.0)
        elapsed, computed = (now - then for now, then in zip(_now(), self.begun, strict=True))
        slowness = max(elapsed / max(computed, 1e-3), 1.0)
        return min(max(self.reserve * slowness, LEAST * whole), MOST * whole)

    def share(self, parts: int) -> Budget:
        """One of several equal parts of the remaining time."""
        return replace(self, until=time.monotonic() + self.left / parts, reserve=0.0)

    def at_least(self, seconds: float) -> Budget:
        """The same, or a budget of so many seconds if less is left."""
        return self if self.left >= seconds else Budget(time.monotonic() + seconds)


#: No deadline.
UNLIMITED = Budget()
