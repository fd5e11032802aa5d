"""Audits of predictions that others made: signs of a leak, found from the predictions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relfrog.support.lazy import lazy_exports

if TYPE_CHECKING:
    from relfrog.analysis.audit.audited import LIMITS, Audit, audit

__all__ = ["LIMITS", "Audit", "audit"]

__getattr__, __dir__ = lazy_exports(
    __name__, dict.fromkeys(("LIMITS", "Audit", "audit"), "relfrog.analysis.audit.audited")
)
