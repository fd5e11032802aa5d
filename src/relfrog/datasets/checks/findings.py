"""The report of a check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CheckReport", "Finding"]


@dataclass(frozen=True)
class Finding:
    """An error or a warning.

    Attributes:
        level: ``error`` or ``warning``.
        place: ``table.column``, ``task NAME`` or a file.
        text: What is wrong, how often, with an example.
        remedy: What to do.
    """

    level: Literal["error", "warning"]
    place: str
    text: str
    remedy: str


@dataclass(repr=False)
class CheckReport:
    """All findings, and the checks that passed.

    Attributes:
        findings: In the order of tables and tasks.
        passed: One sentence per check that passed.
    """

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        errors = sum(f.level == "error" for f in self.findings)
        return (
            f"CheckReport({'ok' if self.ok else 'not ok'}: {errors:,} errors, "
            f"{len(self.findings) - errors:,} warnings, {len(self.passed):,} checks passed)"
        )

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not any(f.level == "error" for f in self.findings)

    def error(self, place: str, text: str, remedy: str) -> None:
        """Add an error."""
        self.findings.append(Finding("error", place, text, remedy))

    def warning(self, place: str, text: str, remedy: str) -> None:
        """Add a warning."""
        self.findings.append(Finding("warning", place, text, remedy))
