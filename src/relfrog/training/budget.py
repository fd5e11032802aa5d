"""How long training may take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

__all__ = ["UNLIMITED", "Budget"]


@dataclass(frozen=True)
class Budget:
    """When training has to end, on the clock of `time.monotonic`; never by default.

    A network ends with the epoch in which the time is over, a search with the trial.
    """

    until: float = math.inf

    @classmethod
    def of_minutes(cls, minutes: float) -> Budget:
        """So many minutes from now."""
        return cls(time.monotonic() + 60 * minutes)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def half(self) -> Budget:
        """Half of the time that is left."""
        return Budget(min(self.until, (time.monotonic() + self.until) / 2))


#: All the time there is.
UNLIMITED = Budget()
