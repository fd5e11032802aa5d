"""What a target is, and what it refuses."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from relfrog.errors import OutputError, RelFrogError, UsageError
from relfrog.io.secrets import hide_password, scrub, secrets_in
from relfrog.io.sources.sql import plain_error

__all__ = ["Existing", "Target", "no_schema"]


@dataclass(frozen=True)
class Existing:
    """What has the table's name already: ``table``, ``view`` or whatever else there is."""

    kind: str
    name: str
    #: Views and tables that would lose what they refer to.
    needed_by: tuple[str, ...] = ()
    #: Who alone may drop it, if that is somebody else.
    owner: str = ""


class Target(ABC):
    """A table of a database, to be made or replaced.

    Attributes:
        label: How the database may be named in messages: never with a password.
        secrets: Strings that must not appear in any message.
        schema: The schema the table lies in; None for the database's default.
        name: The table's name.
    """

    schemes: ClassVar[tuple[str, ...]]
    has_schemas: ClassVar[bool] = True
    #: The longest name the database takes as it is, in bytes.
    longest_name: ClassVar[int] = 10_000
    #: Whether two columns may differ in case alone.
    heeds_case: ClassVar[bool] = False

    @classmethod
    def accepts(cls, address: str) -> bool:
        """By the scheme of the URL; a driver after ``+`` is replaced by ours."""
        scheme = address.split(":", 1)[0] if "://" in address else ""
        return scheme.split("+")[0].lower() in cls.schemes

    def __init__(self, address: str, table: str) -> None:
        self.label, self.secrets = hide_password(address), secrets_in(address)
        scheme, mark, rest = address.partition("://")
        self.address = f"{scheme.lower()}{mark}{rest}"
        schema, dot, name = table.partition(".") if self.has_schemas else ("", "", table)
        self.schema = schema if dot else None
        self.name = name if dot else table
        if not self.name or self.schema == "" or "\0" in table:
            raise UsageError(f"{table!r} cannot be a table's name. Choose another: --table NAME")
        self._refuse_long([self.name])
        #: The name under which the rows are written.
        self._partial = f"relfrog_partial_{uuid.uuid4().hex[:16]}"

    def __str__(self) -> str:
        full = self.name if self.schema is None else f"{self.schema}.{self.name}"
        return f"table {full} of {self.label}"

    def check(self, overwrite: bool) -> None:
        """Refuse now what would be refused once there are results to write.

        Raises:
            OutputError: The database cannot be reached or written, or something has that name.
        """
        self._check(overwrite)

    def write(self, data: Any, overwrite: bool) -> None:
        """Make the table and fill it with the rows of an Arrow table, in their order.

        Raises:
            OutputError: It cannot be written; nothing has changed then.
        """
        self._refuse_columns(data.column_names)
        self._write(data, overwrite)

    @abstractmethod
    def _check(self, overwrite: bool) -> None:
        """Open the database, look, and try to make a table."""

    @abstractmethod
    def _write(self, data: Any, overwrite: bool) -> None:
        """Open the database, look again, and write."""

    def _refuse_long(self, names: Sequence[str]) -> None:
        for name in names:
            size = len(name.encode(errors="replace"))
            if size > self.longest_name:
                raise OutputError(
                    f"{self.label} takes names of {self.longest_name} bytes at most, and "
                    f"{name[:40]!r}... has {size}. Choose a shorter one."
                )

    def _refuse_columns(self, names: Sequence[str]) -> None:
        self._refuse_long(names)
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(name if self.heeds_case else name.lower(), name)
            if other != name:
                raise OutputError(
                    f"{self} cannot have both columns {other!r} and {name!r}, which differ in case "
                    "alone. Write into a file: --out FILE.csv"
                )

    def _refuse(self, found: Existing | None, overwrite: bool) -> None:
        if found is None:
            return
        if found.kind != "table":
            raise OutputError(
                f"{found.name} is a {found.kind} in {self.label}; only a table can be replaced. "
                "Choose another name: --table NAME"
            )
        if not overwrite:
            raise OutputError(
                f"{self} already exists. Replace it with --overwrite, or choose another name: "
                "--table NAME"
            )
        if found.owner:
            raise OutputError(
                f"{self} belongs to {found.owner}. Write as that user, or choose another name: "
                "--table NAME"
            )
        if found.needed_by:
            first, count = found.needed_by[0], len(found.needed_by)
            who = f"{first} refers" if count == 1 else f"{count:,} others ({first}, ...) refer"
            raise OutputError(
                f"{self} cannot be replaced: {who} to it. Choose another name: --table NAME"
            )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what the database says, without secrets."""
        errors: tuple[type[Exception], ...] = (OSError, ValueError, *self._errors())
        try:
            yield
        except RelFrogError as error:
            raise type(error)(scrub(str(error), self.secrets)) from None
        except errors as error:
            raise OutputError(
                f"{self} cannot be written: {plain_error(error, self.secrets)}. Nothing has "
                "changed there; mend this, or write into a file: --out FILE.csv"
            ) from None

    @abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """What the driver and those around it raise."""

    def _unopened(self, error: BaseException, remedy: str) -> OutputError:
        text = plain_error(error, self.secrets)
        return OutputError(f"{self.label} cannot be opened: {text}. {remedy}")


def no_schema(schema: str, present: Sequence[str]) -> OutputError:
    """The error for a schema that does not exist."""
    return OutputError(f"there is no schema {schema}; schemas: {', '.join(present[:12])}")
