"""The time budget of training."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

__all__ = ["UNLIMITED", "Budget"]


@dataclass(frozen=True)
class Budget:
    """The deadline of training, on the clock of `time.monotonic`; none by default.

    A network stops in the middle of an epoch, early enough to be scored in time; LightGBM with the
    round in which time runs out.
    """

    until: float = math.inf

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
        return time.monotonic() + seconds > self.until

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.until - time.monotonic()

    def share(self, parts: int) -> Budget:
        """One of several equal parts of the remaining time."""
        now = time.monotonic()
        return self if math.isinf(self.until) else Budget(now + (self.until - now) / parts)


#: No deadline.
UNLIMITED = Budget()
