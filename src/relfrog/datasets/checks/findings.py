"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CheckReport", "Finding"]


@dataclass(frozen=True)
class Finding:
    """Something wrong, or worth knowing.

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


@dataclass
class CheckReport:
    """All findings, and what was looked at.

    Attributes:
        findings: In the order of the tables and tasks.
        passed: One sentence for each thing that holds.
    """

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(f.level == "error" for f in self.findings)

    def error(self, place: str, text: str, remedy: str) -> None:
        """Add an error."""
        self.findings.append(Finding("error", place, text, remedy))

    def warning(self, place: str, text: str, remedy: str) -> None:
        """Add a warning."""
        self.findings.append(Finding("warning", place, text, remedy))
