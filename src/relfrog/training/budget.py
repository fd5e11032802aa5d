"""The time budget of training."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

__all__ = ["UNLIMITED", "Budget"]


@dataclass(frozen=True)
class Budget:
    """The deadline of training, on the clock of `time.monotonic`; none by default.

    Training of a network ends with the epoch in which it expires, a search with the trial.
    """

    until: float = math.inf

    @classmethod
    def of_minutes(cls, minutes: float) -> Budget:
        """A budget of this many minutes from now."""
        return cls(time.monotonic() + 60 * minutes)

    @property
    def over(self) -> bool:
        """Whether the budget is exhausted."""
        return time.monotonic() > self.until

    def half(self) -> Budget:
        """Half of the remaining time."""
        return Budget(min(self.until, (time.monotonic() + self.until) / 2))


#: No deadline.
UNLIMITED = Budget()
