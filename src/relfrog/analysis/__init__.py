"""Analysis of a finished run: explanations, importance, confidence intervals, certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.analysis.certificate import certify
    from relfrog.analysis.explanation import explain

__all__ = ["certify", "explain"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "certify": "relfrog.analysis.certificate",
        "explain": "relfrog.analysis.explanation",
    },
)
