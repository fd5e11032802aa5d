"""The paper's studies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.experiments.study_run import experiment
    from relfrog.experiments.submission import submit

__all__ = ["experiment", "submit"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "experiment": "relfrog.experiments.study_run",
        "submit": "relfrog.experiments.submission",
    },
)
